//! The `tojson` filter as transformers defines it: Python's `json.dumps` with ensure_ascii off and
//! no HTML escaping, so that a prompt reads as the model saw it in training.

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

use crate::marks;

const MAX_DEPTH: usize = 100;

struct Style {
    ensure_ascii: bool,
    indent: Option<usize>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)
pub fn tojson(
    state: &State,
    value: Value,
    args: Rest<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let argument = |at: usize, name| match args.get(at) {
        Some(value) => Some(value.clone()),
        None => kwargs.get::<Option<Value>>(name).ok().flatten(),
    };
    let indent = match argument(1, "indent").filter(|value| !value.is_none()) {
        Some(value) => Some(usize::try_from(value)?.min(64)),
        None => None,
    };
    let mut style = Style {
        ensure_ascii: argument(0, "ensure_ascii").is_some_and(|value| value.is_true()),
        indent,
        item_separator: if indent.is_some() { "," } else { ", " }.into(),
        key_separator: ": ".into(),
        sort_keys: argument(3, "sort_keys").is_some_and(|value| value.is_true()),
    };
    if let Some(pair) = argument(2, "separators").filter(|value| !value.is_none()) {
        style.item_separator = pair.get_item(&Value::from(0))?.to_string();
        style.key_separator = pair.get_item(&Value::from(1))?.to_string();
    }
    kwargs.assert_all_used()?;
    let mut writer = Writer { state, style, out: String::new(), charged: 0 };
    writer.value(&value, 0)?;
    Ok(Value::from(writer.out))
}

struct Writer<'a, 'b> {
    state: &'a State<'b, 'b>,
    style: Style,
    out: String,
    charged: usize,
}

impl Writer<'_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(refuse(format!("tojson: nested deeper than {MAX_DEPTH} levels")));
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&number(value)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => self.list(value, depth)?,
            ValueKind::Map => self.object(value, depth)?,
            kind => return Err(refuse(format!("tojson: a value of type {kind} has no JSON form"))),
        }
        self.charge()
    }

    /// Pays for what was written since the last time, as the engine does for its own strings.
    fn charge(&mut self) -> Result<(), Error> {
        let fuel = (self.out.len() - self.charged) / 16;
        self.charged += fuel * 16;
        self.state.consume_fuel(fuel as u64 + 1)
    }

    fn list(&mut self, list: &Value, depth: usize) -> Result<(), Error> {
        self.out.push('[');
        let mut empty = true;
        for item in list.try_iter()? {
            self.next_item(&mut empty, depth);
            self.value(&item, depth + 1)?;
        }
        self.close(']', empty, depth);
        Ok(())
    }

    fn object(&mut self, object: &Value, depth: usize) -> Result<(), Error> {
        let mut keys = Vec::new();
        for key in object.try_iter()? {
            let text = match key.kind() {
                ValueKind::None => "null".to_string(),
                ValueKind::Bool => if key.is_true() { "true" } else { "false" }.to_string(),
                ValueKind::Number => number(&key),
                ValueKind::String => key.as_str().unwrap_or_default().to_string(),
                kind => return Err(refuse(format!("tojson: a key of type {kind}"))),
            };
            keys.push((text, key));
        }
        if self.style.sort_keys {
            keys.sort_by(|a, b| a.0.cmp(&b.0));
        }
        self.out.push('{');
        let mut empty = true;
        for (text, key) in keys {
            self.next_item(&mut empty, depth);
            self.string(&text);
            self.out.push_str(&self.style.key_separator);
            self.value(&object.get_item(&key)?, depth + 1)?;
        }
        self.close('}', empty, depth);
        Ok(())
    }

    fn next_item(&mut self, empty: &mut bool, depth: usize) {
        if !*empty {
            self.out.push_str(&self.style.item_separator);
        }
        *empty = false;
        self.line(depth + 1);
    }

    fn close(&mut self, bracket: char, empty: bool, depth: usize) {
        if !empty {
            self.line(depth);
        }
        self.out.push(bracket);
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = self.style.indent {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', indent * depth));
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' '
                    || (self.style.ensure_ascii && !c.is_ascii() && !marks::is_mark(c)) =>
                {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        self.out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

fn refuse(message: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float)
}

/// Python's repr: the shortest digits that read back the same, in scientific form when the
/// exponent is below -4 or at least 16.
fn float(x: f64) -> String {
    if x.is_nan() {
        return "NaN".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { "Infinity" } else { "-Infinity" }.into();
    }
    let scientific = format!("{x:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) || x == 0.0 {
        let plain = format!("{x}");
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}
