//! A compiled chat template: renders as transformers' `apply_chat_template` would, within bounds.
//! The bounds say in good words what went too far, but some templates get around them: sources and
//! values nested very deep overflow the stack, and `+` on lists costs no fuel. So compiling and
//! rendering belong in a process that may crash or be killed.

use std::io;

use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind, Value as Jinja};

use crate::abi::{catch, invalid, parse, Failure, Outcome};
use crate::functions::{environment, Raised};

const NAME: &str = "chat_template";
const MAX_SOURCE_BYTES: usize = 64 << 10; // the largest published ones have 17 kB
const MAX_OUTPUT_BYTES: usize = 8 << 20;
const MAX_MESSAGE_BYTES: usize = 4 << 10; // of what raise_exception says
/// One unit is one instruction or 64 bytes that the template makes, so this bounds a template at
/// about 128 MiB and a fraction of a second. Each byte of input adds one: 64 copies of everything.
const BASE_FUEL: u64 = 2_000_000;

pub struct Template {
    env: Environment<'static>,
}

impl Template {
    pub fn new(source: &str) -> Outcome<Template> {
        if source.len() > MAX_SOURCE_BYTES {
            let limit = MAX_SOURCE_BYTES >> 10;
            return Err(invalid(format!("the chat template is larger than {limit} KiB")));
        }
        Ok(Template { env: compile(without_generation_tags(source))? })
    }

    /// `variables` is a JSON object.
    pub fn render(&self, variables: &[u8]) -> Outcome<String> {
        self.render_in_full(variables).map_err(|mut failure| {
            let message = &mut failure.message;
            message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
            failure
        })
    }

    fn render_in_full(&self, variables: &[u8]) -> Outcome<String> {
        let data = parse(variables, "the variables of the chat template")?;
        let mut env = self.env.clone(); // shares the compiled template
        env.set_fuel(Some(BASE_FUEL + variables.len() as u64));
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
    let mut env = environment();
    match env.add_template_owned(NAME, source) {
        Ok(()) => Ok(env),
        Err(error) => {
            Err(invalid(format!("the chat template does not compile: {}", place(&error))))
        }
    }
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
