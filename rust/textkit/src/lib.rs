//! Tokenizer and chat template of Cohort behind a C ABI. The contract is include/textkit.h.
//!
//! Every entry point runs under `abi::guard`: no panic leaves this library. Handles are immutable
//! after construction, so any thread may use them.

mod abi;
mod bpe;
mod chat;
mod functions;
mod gguf;
mod marks;
mod pieces;
mod pre;
mod template;
mod tojson;
mod tokenizer;

use abi::{guard, slice, Owned, Str};
use gguf::Vocabulary;
use marks::Marks;
use template::Template;
use tokenizer::Tokenizer;

/// Keeps the default hook from writing caught panics to stderr; what they said is in the error.
fn quiet_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| std::panic::set_hook(Box::new(|_| {})));
}

/// # Safety
/// As textkit.h says; so for every function below.
#[no_mangle]
pub unsafe extern "C" fn tk_tokenizer_from_json(
    json: Str,
    out: *mut *mut Tokenizer,
    error: *mut Owned<u8>,
) -> i32 {
    quiet_panics();
    guard(error, || {
        let tokenizer = Tokenizer::from_json(json.bytes())?;
        out.write(Box::into_raw(Box::new(tokenizer)));
        Ok(())
    })
}

#[repr(C)]
pub struct GgufArrays {
    model: Str,
    pre: Str,
    tokens: *const Str,
    scores: *const f32,
    token_types: *const i32,
    merges: *const Str,
    num_tokens: usize,
    num_scores: usize,
    num_token_types: usize,
    num_merges: usize,
    unknown_id: i32,
    add_space_prefix: bool,
}

/// # Safety
/// See above.
#[no_mangle]
pub unsafe extern "C" fn tk_tokenizer_from_gguf(
    arrays: *const GgufArrays,
    out: *mut *mut Tokenizer,
    error: *mut Owned<u8>,
) -> i32 {
    quiet_panics();
    guard(error, || {
        let arrays = &*arrays;
        let strings = |data, size, what: &str| {
            slice(data, size)
                .iter()
                .map(|text: &Str| text.text(what))
                .collect::<Result<Vec<_>, _>>()
        };
        let tokenizer = gguf::load(&Vocabulary {
            model: arrays.model.text("tokenizer.ggml.model")?,
            pre: arrays.pre.text("tokenizer.ggml.pre")?,
            tokens: strings(arrays.tokens, arrays.num_tokens, "a token")?,
            scores: slice(arrays.scores, arrays.num_scores),
            token_types: slice(arrays.token_types, arrays.num_token_types),
            merges: strings(arrays.merges, arrays.num_merges, "a merge")?,
            unknown_id: arrays.unknown_id,
            add_space_prefix: arrays.add_space_prefix,
        })?;
        out.write(Box::into_raw(Box::new(tokenizer)));
        Ok(())
    })
}

/// # Safety
/// See above.
#[no_mangle]
pub unsafe extern "C" fn tk_tokenizer_free(tokenizer: *mut Tokenizer) {
    if !tokenizer.is_null() {
        drop(Box::from_raw(tokenizer));
    }
}

/// # Safety
/// See above.
#[no_mangle]
pub unsafe extern "C" fn tk_tokenizer_encode(
    tokenizer: *const Tokenizer,
    text: Str,
    parse_special: bool,
    out: *mut Owned<i32>,
    error: *mut Owned<u8>,
) -> i32 {
    guard(error, || {
        let ids = (*tokenizer).encode(text.text("the text")?, parse_special)?;
        out.write(Owned::new(ids));
        Ok(())
    })
}

/// # Safety
/// See above.
#[no_mangle]
pub unsafe extern "C" fn tk_tokenizer_token_to_id(tokenizer: *const Tokenizer, token: Str) -> i32 {
    let find = || Ok((*tokenizer).token_to_id(token.text("the token")?));
    abi::catch(find).unwrap_or(-1)
}

/// # Safety
/// See above.
#[no_mangle]
pub unsafe extern "C" fn tk_tokenizer_leading_ids(tokenizer: *const Tokenizer) -> Owned<i32> {
    Owned::new((*tokenizer).leading_ids.clone())
}

#[repr(C)]
pub struct PieceTable {
    bytes: *const u8,
    offsets: *const u32,
    special: *const u8,
    num_ids: u32,
    leading_spaces: u32,
}

/// # Safety
/// See above.
#[no_mangle]
pub unsafe extern "C" fn tk_tokenizer_pieces(tokenizer: *const Tokenizer) -> PieceTable {
    let pieces = &(*tokenizer).pieces;
    PieceTable {
        bytes: pieces.bytes.as_ptr(),
        offsets: pieces.offsets.as_ptr(),
        special: pieces.special.as_ptr(),
        num_ids: pieces.num_ids() as u32,
        leading_spaces: pieces.leading_spaces,
    }
}

#[repr(C)]
pub struct ChatInputs {
    source: Str,
    bos_token: Str,
    eos_token: Str,
    messages: Str,
    tools: Str,
    kwargs: Str,
    add_generation_prompt: bool,
}

/// # Safety
/// See above.
#[no_mangle]
pub unsafe extern "C" fn tk_chat_prepare(
    tokenizer: *const Tokenizer,
    inputs: *const ChatInputs,
    variables: *mut Owned<u8>,
    marks: *mut [u32; 2],
    error: *mut Owned<u8>,
) -> i32 {
    guard(error, || {
        let inputs = &*inputs;
        let chat = chat::Inputs {
            source: inputs.source.text("the chat template")?,
            bos_token: inputs.bos_token.text("bos_token")?,
            eos_token: inputs.eos_token.text("eos_token")?,
            messages: inputs.messages.bytes(),
            tools: inputs.tools.bytes(),
            kwargs: inputs.kwargs.bytes(),
            add_generation_prompt: inputs.add_generation_prompt,
        };
        let prepared = chat::prepare(&chat, &*tokenizer)?;
        variables.write(Owned::new(prepared.variables));
        marks.write(Marks::codes(prepared.marks));
        Ok(())
    })
}

/// # Safety
/// See above.
#[no_mangle]
pub unsafe extern "C" fn tk_chat_finish(
    tokenizer: *const Tokenizer,
    written: Str,
    marks: *const [u32; 2],
    text: *mut Owned<u8>,
    ids: *mut Owned<i32>,
    error: *mut Owned<u8>,
) -> i32 {
    guard(error, || {
        let written = written.text("what the chat template wrote")?;
        let rendered = chat::finish(written, Marks::from_codes(*marks), &*tokenizer)?;
        text.write(Owned::new(rendered.text.into_bytes()));
        ids.write(Owned::new(rendered.ids));
        Ok(())
    })
}

/// # Safety
/// See above.
#[no_mangle]
pub unsafe extern "C" fn tk_template_new(
    source: Str,
    out: *mut *mut Template,
    error: *mut Owned<u8>,
) -> i32 {
    quiet_panics();
    guard(error, || {
        let template = Template::new(source.text("the chat template")?)?;
        out.write(Box::into_raw(Box::new(template)));
        Ok(())
    })
}

/// # Safety
/// See above.
#[no_mangle]
pub unsafe extern "C" fn tk_template_render(
    template: *const Template,
    variables: Str,
    text: *mut Owned<u8>,
    error: *mut Owned<u8>,
) -> i32 {
    guard(error, || {
        text.write(Owned::new((*template).render(variables.bytes())?.into_bytes()));
        Ok(())
    })
}

/// # Safety
/// See above.
#[no_mangle]
pub unsafe extern "C" fn tk_text_free(text: Owned<u8>) {
    text.free();
}

/// # Safety
/// See above.
#[no_mangle]
pub unsafe extern "C" fn tk_ids_free(ids: Owned<i32>) {
    ids.free();
}
