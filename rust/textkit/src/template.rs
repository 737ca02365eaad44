//! A compiled chat template: renders as transformers' `apply_chat_template` would, within bounds.

use std::io;

use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind, Value as Jinja};
use serde_json::{Map, Value};

use crate::abi::{catch, invalid, Failure, Fault, Outcome};
use crate::functions::{environment, Raised};
use crate::marks::{marks_in, marks_in_json, Marks};
use crate::tokenizer::Tokenizer;

const NAME: &str = "chat_template";
/// The largest published ones have 17 kB. The compiler recurses once for each operator of a chain
/// such as `1+1+1`, about 1 kB of stack each, so it runs on a thread of its own, whose stack (only
/// address space until used) is enough for any source this long.
const MAX_SOURCE_BYTES: usize = 64 << 10;
const COMPILER_STACK_BYTES: usize = 192 << 20;
const MAX_OUTPUT_BYTES: usize = 8 << 20;
/// One unit is one instruction or 64 bytes that the template makes, so this bounds a template at
/// about 128 MiB and a fraction of a second. Each byte of input adds one: 64 copies of everything.
/// One gap is known: minijinja 3.1 does not charge for `+` on lists, so a template that doubles a
/// list with itself more than 32 times can exhaust memory.
const BASE_FUEL: u64 = 2_000_000;

const RESERVED: [&str; 5] =
    ["messages", "tools", "add_generation_prompt", "bos_token", "eos_token"];

pub struct Template {
    env: Environment<'static>,
    bos_token: String,
    eos_token: String,
    /// Noncharacters in the template itself; see marks.rs.
    used_marks: u32,
}

/// The caller's data, as JSON.
pub struct Inputs<'a> {
    pub messages: &'a [u8],
    pub tools: &'a [u8],
    pub kwargs: &'a [u8],
    pub add_generation_prompt: bool,
}

pub struct Rendered {
    pub text: String,
    pub ids: Vec<i32>,
}

impl Template {
    pub fn new(source: &str, bos_token: &str, eos_token: &str) -> Outcome<Template> {
        if source.len() > MAX_SOURCE_BYTES {
            let limit = MAX_SOURCE_BYTES >> 10;
            return Err(invalid(format!("the chat template is larger than {limit} KiB")));
        }
        Ok(Template {
            env: compile(without_generation_tags(source))?,
            bos_token: bos_token.into(),
            eos_token: eos_token.into(),
            used_marks: marks_in(source) | marks_in(bos_token) | marks_in(eos_token),
        })
    }

    pub fn render(&self, tokenizer: &Tokenizer, inputs: &Inputs) -> Outcome<Rendered> {
        let mut data = self.read(inputs)?;
        let used = data.values().fold(self.used_marks, |bits, value| bits | marks_in_json(value));
        let marks = Marks::choose(used)?;
        let mut marked = false;
        for value in data.values_mut() {
            marked |= marks.protect(value, tokenizer);
        }
        if marked {
            data.extend([marks.to_variable()]);
        }
        data.insert("add_generation_prompt".into(), inputs.add_generation_prompt.into());
        data.insert("bos_token".into(), self.bos_token.as_str().into());
        data.insert("eos_token".into(), self.eos_token.as_str().into());
        let sizes = [inputs.messages.len(), inputs.tools.len(), inputs.kwargs.len()];
        let text = self.render_text(data, BASE_FUEL + sizes.iter().sum::<usize>() as u64)?;
        if !marked {
            let ids = tokenizer.encode(&text, true)?;
            return Ok(Rendered { text, ids });
        }
        let ids = marks.encode(&text, tokenizer)?;
        Ok(Rendered { text: marks.remove(&text), ids })
    }

    /// The caller's variables. `tools` and `documents` are always defined, as in transformers.
    fn read(&self, inputs: &Inputs) -> Outcome<Map<String, Value>> {
        let mut data = Map::new();
        data.insert("tools".into(), Value::Null);
        data.insert("documents".into(), Value::Null);
        if !inputs.kwargs.is_empty() {
            match parse(inputs.kwargs, "chat_template_kwargs")
                .map_err(|failure| Failure { fault: Fault::Kwargs, ..failure })?
            {
                Value::Object(kwargs) => {
                    self.check_names(&kwargs)?;
                    data.extend(kwargs);
                }
                _ => {
                    return Err(kwargs_failure("chat_template_kwargs must be a JSON object".into()))
                }
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

    fn check_names(&self, kwargs: &Map<String, Value>) -> Outcome<()> {
        for name in kwargs.keys() {
            let builtin = self.env.globals().any(|(global, _)| global == name);
            if builtin || RESERVED.contains(&name.as_str()) {
                return Err(kwargs_failure(format!(
                    "chat_template_kwargs may not set '{name}': the name is reserved"
                )));
            }
        }
        Ok(())
    }

    fn render_text(&self, data: Map<String, Value>, fuel: u64) -> Outcome<String> {
        let mut env = self.env.clone(); // shares the compiled template
        env.set_fuel(Some(fuel));
        let mut output = Output { bytes: Vec::new(), full: false };
        let outcome = catch(|| {
            let context = Jinja::from(Serde(data));
            let template = env.get_template(NAME).map_err(refusal)?;
            template.render_captured_to(context, &mut output).map(drop).map_err(refusal)
        });
        if output.full {
            let limit = MAX_OUTPUT_BYTES >> 20;
            return Err(invalid(format!("the chat template wrote more than {limit} MiB")));
        }
        outcome?;
        String::from_utf8(output.bytes).map_err(|_| invalid("the chat template wrote no UTF-8"))
    }
}

fn compile(source: String) -> Outcome<Environment<'static>> {
    let run = || {
        let mut env = environment();
        match env.add_template_owned(NAME, source) {
            Ok(()) => Ok(env),
            Err(error) => {
                Err(invalid(format!("the chat template does not compile: {}", place(&error))))
            }
        }
    };
    let no_thread = |error| Failure {
        fault: Fault::Internal,
        message: format!("cannot start a thread to compile the chat template: {error}"),
    };
    let thread = std::thread::Builder::new().stack_size(COMPILER_STACK_BYTES);
    let thread = thread.spawn(move || catch(run)).map_err(no_thread)?;
    thread.join().unwrap_or_else(|_| Err(invalid("the chat template does not compile")))
}

struct Output {
    bytes: Vec<u8>,
    full: bool,
}

impl io::Write for &mut Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > MAX_OUTPUT_BYTES {
            self.full = true;
            return Err(io::Error::other("full"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn parse(json: &[u8], what: &str) -> Outcome<Value> {
    serde_json::from_slice(json).map_err(|error| invalid(format!("{what}: {error}")))
}

fn kwargs_failure(message: String) -> Failure {
    Failure { fault: Fault::Kwargs, message }
}

fn refusal(error: Error) -> Failure {
    let mut cause: Option<&dyn std::error::Error> = Some(&error);
    while let Some(current) = cause {
        if let Some(Raised(message)) = current.downcast_ref::<Raised>() {
            return invalid(format!("the chat template refused the messages: {message}"));
        }
        let fuel = current.downcast_ref::<Error>().map(Error::kind);
        if fuel == Some(ErrorKind::OutOfFuel) {
            return invalid(
                "the chat template did more work than is allowed for messages this long",
            );
        }
        cause = current.source();
    }
    invalid(format!("the chat template failed: {}", place(&error)))
}

fn place(error: &Error) -> String {
    let detail = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    match error.line() {
        Some(line) => format!("line {line}: {detail}"),
        None => detail,
    }
}

/// `{% generation %}` and its end tag mark what to train on and print nothing: to render, they are
/// a block that always runs.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start);
        out.push_str(before);
        let end = tag.find("%}").unwrap_or(tag.len());
        let word =
            tag[2..end.max(2)].trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        match word {
            "generation" => out.push_str(&tag[..end].replace("generation", "if true")),
            "endgeneration" => out.push_str(&tag[..end].replace("endgeneration", "endif")),
            _ => {
                out.push_str("{%");
                rest = &tag[2..];
                continue;
            }
        }
        rest = &tag[end..];
    }
    out.push_str(rest);
    out
}
