//! What transformers gives a chat template beyond Jinja itself, and where minijinja differs from
//! Python in ways that templates rely on.

use std::ffi::CString;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State};
use minijinja_contrib::pycompat;

use crate::marks::{is_mark, Marks};
use crate::tojson::tojson;

/// Deep enough for any published template.
const MAX_RECURSION: usize = 150;

/// The text given to `raise_exception`, found again in the error chain.
#[derive(Debug)]
pub struct Raised(pub String);

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

pub fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true);
    if let Ok(syntax) = syntax.build() {
        env.set_syntax(syntax);
    }
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_recursion_limit(MAX_RECURSION);
    env.set_unknown_method_callback(method);
    env.add_filter("tojson", tojson);
    env.add_filter("e", escape);
    env.add_filter("escape", escape);
    env.add_filter("replace", replace);
    env.add_test("iterable", |value: Value| match value.kind() {
        ValueKind::None | ValueKind::Undefined => value.is_undefined(),
        _ => value.try_iter().is_ok(),
    });
    env.add_function("raise_exception", raise_exception);
    env.add_function("strftime_now", strftime_now);
    env.add_function("cycler", minijinja_contrib::globals::cycler);
    env.add_function("joiner", minijinja_contrib::globals::joiner);
    env
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

fn strftime_now(format: String) -> Result<String, Error> {
    let refuse = |why| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {why}"));
    let format = CString::new(format).map_err(|_| refuse("the format contains a zero byte"))?;
    let mut text = [0u8; 256];
    // SAFETY: all pointers are to live locals of the right types; strftime writes at most `size`.
    let size = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut local: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&now, &mut local).is_null() {
            return Err(refuse("the time of day is not known"));
        }
        libc::strftime(text.as_mut_ptr().cast(), text.len(), format.as_ptr(), &local)
    };
    if size == 0 && !format.is_empty() {
        return Err(refuse("the result is longer than 255 bytes"));
    }
    Ok(String::from_utf8_lossy(&text[..size]).into_owned())
}

/// HTML escaping with Python's choice of entities.
fn escape(value: Value) -> Value {
    if value.is_safe() {
        return value;
    }
    let mut escaped = String::new();
    for c in value.to_string().chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\'' => escaped.push_str("&#39;"),
            '"' => escaped.push_str("&#34;"),
            c => escaped.push(c),
        }
    }
    Value::from_safe_string(escaped)
}

/// replace(old, new, count=None), by way of the method, which repairs marks.
fn replace(
    state: &mut State,
    value: Value,
    args: Rest<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let text = |value: &Value| match value.as_str() {
        Some(_) => value.clone(),
        None => Value::from(value.to_string()),
    };
    let mut all: Vec<Value> = args.iter().take(2).map(text).collect();
    all.extend(args.iter().skip(2).cloned());
    all.extend(kwargs.get::<Option<Value>>("count")?);
    kwargs.assert_all_used()?;
    method(state, &text(&value), "replace", &all)
}

/// Python's methods on strings, lists and dicts. On marked strings (see marks.rs) tests of the
/// ends ignore the marks, and results carry none that lost their token.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let marks = match value.as_str() {
        Some(_) => Marks::of_render(state),
        None => None,
    };
    let (Some(marks), Some(text)) = (marks, value.as_str()) else {
        return pycompat::unknown_method_callback(state, value, name, args);
    };
    if matches!(name, "startswith" | "endswith") && text.contains(is_mark) {
        let plain = Value::from(marks.remove(text));
        return pycompat::unknown_method_callback(state, &plain, name, args);
    }
    let result = pycompat::unknown_method_callback(state, value, name, args)?;
    Ok(without_residue(result, marks))
}

fn without_residue(value: Value, marks: Marks) -> Value {
    if let Some(text) = value.as_str() {
        return marks.without_residue(text).map_or(value, Value::from);
    }
    match (value.kind(), value.try_iter()) {
        (ValueKind::Seq, Ok(items)) => {
            items.map(|item| without_residue(item, marks)).collect::<Value>()
        }
        _ => value,
    }
}
