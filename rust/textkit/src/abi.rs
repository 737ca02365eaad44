//! What crosses the C ABI, and the guard that keeps panics on this side of it. The layouts here
//! and in include/textkit.h must agree.

use std::any::Any;
use std::panic::{catch_unwind, AssertUnwindSafe};

use serde_json::Value;

/// Whose fault a failure is; the numbers are those of textkit.h.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    Input = 1,
    Kwargs = 2,
    Unsupported = 3,
    Internal = 4,
}

#[derive(Debug)]
pub struct Failure {
    pub fault: Fault,
    pub message: String,
}

pub type Outcome<T> = Result<T, Failure>;

pub fn invalid(message: impl Into<String>) -> Failure {
    Failure { fault: Fault::Input, message: message.into() }
}

pub fn unsupported(message: impl Into<String>) -> Failure {
    Failure { fault: Fault::Unsupported, message: message.into() }
}

pub fn parse(json: &[u8], what: &str) -> Outcome<Value> {
    serde_json::from_slice(json).map_err(|error| invalid(format!("{what}: {error}")))
}

/// Bytes that the caller owns and keeps alive for the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Str {
    data: *const u8,
    size: usize,
}

impl Str {
    /// # Safety
    /// `data` must point to `size` readable bytes that outlive the result, or `size` must be 0.
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.size == 0 {
            &[]
        } else {
            std::slice::from_raw_parts(self.data, self.size)
        }
    }

    /// # Safety
    /// As for `bytes`.
    pub unsafe fn text<'a>(self, what: &str) -> Outcome<&'a str> {
        std::str::from_utf8(self.bytes())
            .map_err(|error| invalid(format!("{what} is not valid UTF-8: {error}")))
    }
}

/// A vector handed to the caller, who gives it back to the matching `tk_*_free`.
#[repr(C)]
pub struct Owned<T> {
    data: *mut T,
    size: usize,
    capacity: usize,
}

impl<T> Owned<T> {
    pub fn new(mut values: Vec<T>) -> Self {
        let owned =
            Owned { data: values.as_mut_ptr(), size: values.len(), capacity: values.capacity() };
        std::mem::forget(values);
        owned
    }

    /// # Safety
    /// Must be a value made by `new`, not yet freed; or all zero.
    pub unsafe fn free(self) {
        if self.capacity != 0 {
            drop(Vec::from_raw_parts(self.data, self.size, self.capacity));
        }
    }
}

/// # Safety
/// `data` must point to `size` readable values that outlive the result, or `size` must be 0.
pub unsafe fn slice<'a, T>(data: *const T, size: usize) -> &'a [T] {
    if size == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, size)
    }
}

/// Runs one entry point: writes the error text and returns the status (0 = done).
///
/// # Safety
/// `error` must be writable.
pub unsafe fn guard(error: *mut Owned<u8>, run: impl FnOnce() -> Outcome<()>) -> i32 {
    let failure = match catch(run) {
        Ok(()) => return 0,
        Err(failure) => failure,
    };
    error.write(Owned::new(failure.message.into_bytes()));
    failure.fault as i32
}

/// Turns a panic of a library into an ordinary failure.
pub fn catch<T>(run: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        Err(Failure { fault: Fault::Internal, message: panic_text(panic.as_ref()) })
    })
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("unknown cause");
    format!("textkit panicked: {text}")
}
