//! A chat on its way into a template and out of it. Only the step between, `Template::render`, runs
//! what came with a model.

use serde_json::{Map, Value};

use crate::abi::{invalid, parse, Failure, Fault, Outcome};
use crate::functions::environment;
use crate::marks::{marks_in, marks_in_json, Marks};
use crate::tokenizer::Tokenizer;

const RESERVED: [&str; 5] =
    ["messages", "tools", "add_generation_prompt", "bos_token", "eos_token"];

/// The caller's data as JSON, and what the template brings.
pub struct Inputs<'a> {
    pub source: &'a str,
    pub bos_token: &'a str,
    pub eos_token: &'a str,
    pub messages: &'a [u8],
    pub tools: &'a [u8],
    pub kwargs: &'a [u8],
    pub add_generation_prompt: bool,
}

/// What the template sees, as one JSON object, and the marks in it if there are any.
pub struct Prepared {
    pub variables: Vec<u8>,
    pub marks: Option<Marks>,
}

pub struct Rendered {
    pub text: String,
    pub ids: Vec<i32>,
}

pub fn prepare(inputs: &Inputs, tokenizer: &Tokenizer) -> Outcome<Prepared> {
    let mut data = read(inputs)?;
    let texts = [inputs.source, inputs.bos_token, inputs.eos_token];
    let used = texts.iter().fold(0, |bits, text| bits | marks_in(text));
    let used = data.values().fold(used, |bits, value| bits | marks_in_json(value));
    let marks = Marks::choose(used)?;
    let mut marked = false;
    for value in data.values_mut() {
        marked |= marks.protect(value, tokenizer);
    }
    if marked {
        data.extend([marks.to_variable()]);
    }
    data.insert("add_generation_prompt".into(), inputs.add_generation_prompt.into());
    data.insert("bos_token".into(), inputs.bos_token.into());
    data.insert("eos_token".into(), inputs.eos_token.into());
    let variables = serde_json::to_vec(&data)
        .map_err(|error| Failure { fault: Fault::Internal, message: error.to_string() })?;
    Ok(Prepared { variables, marks: marked.then_some(marks) })
}

/// Makes ids of what the template wrote, and takes the marks out.
pub fn finish(text: &str, marks: Option<Marks>, tokenizer: &Tokenizer) -> Outcome<Rendered> {
    let Some(marks) = marks else {
        return Ok(Rendered { text: text.into(), ids: tokenizer.encode(text, true)? });
    };
    let ids = marks.encode(text, tokenizer)?;
    Ok(Rendered { text: marks.remove(text), ids })
}

/// The caller's variables. `tools` and `documents` are always defined, as in transformers.
fn read(inputs: &Inputs) -> Outcome<Map<String, Value>> {
    let mut data = Map::new();
    data.insert("tools".into(), Value::Null);
    data.insert("documents".into(), Value::Null);
    if !inputs.kwargs.is_empty() {
        match parse(inputs.kwargs, "chat_template_kwargs")
            .map_err(|failure| Failure { fault: Fault::Kwargs, ..failure })?
        {
            Value::Object(kwargs) => {
                check_names(&kwargs)?;
                data.extend(kwargs);
            }
            _ => return Err(kwargs_failure("chat_template_kwargs must be a JSON object".into())),
        }
    }
    for (name, json) in [("messages", inputs.messages), ("tools", inputs.tools)] {
        if name == "tools" && json.is_empty() {
            continue;
        }
        match parse(json, name)? {
            list @ Value::Array(_) => data.insert(name.into(), list),
            Value::Null if name == "tools" => None,
            _ => return Err(invalid(format!("{name} must be a JSON array"))),
        };
    }
    Ok(data)
}

fn check_names(kwargs: &Map<String, Value>) -> Outcome<()> {
    let env = environment();
    for name in kwargs.keys() {
        let builtin = env.globals().any(|(global, _)| global == name);
        if builtin || RESERVED.contains(&name.as_str()) {
            return Err(kwargs_failure(format!(
                "chat_template_kwargs may not set '{name}': the name is reserved"
            )));
        }
    }
    Ok(())
}

fn kwargs_failure(message: String) -> Failure {
    Failure { fault: Fault::Kwargs, message }
}
