//! Keeps special-token strings that a caller typed from becoming special tokens.
//!
//! Before rendering, each such string inside the caller's data is put between two noncharacters
//! (code points that Unicode reserves for use inside a program, chosen not to occur in the input).
//! After rendering, a special token between its marks is the caller's text; any other is the
//! template's own. The marks are then removed. Data without such strings, which is nearly all,
//! carries no mark, so the template sees it as it is.
//!
//! A string that ends in the beginning of a special token gets a mark at its end, so that a
//! template which joins two strings cannot complete the token.
//!
//! Limits, for strings that carry marks only: a template that takes their length, slices them by
//! position or compares them for equality sees the marks; one that changes case or deletes from
//! the middle can make a special token out of text that was none.

use minijinja::State;
use serde_json::{Map, Value};

use crate::abi::{invalid, Outcome};
use crate::tokenizer::Tokenizer;

const VARIABLE: &str = "\u{FDD0}";

/// U+FDD0..U+FDEF are noncharacters.
pub fn is_mark(c: char) -> bool {
    ('\u{FDD0}'..='\u{FDEF}').contains(&c)
}

/// A bit for each noncharacter that occurs in `text`.
pub fn marks_in(text: &str) -> u32 {
    let in_text = text.chars().filter(|c| is_mark(*c));
    in_text.fold(0, |bits, c| bits | 1 << (c as u32 - 0xFDD0))
}

pub fn marks_in_json(value: &Value) -> u32 {
    match value {
        Value::String(text) => marks_in(text),
        Value::Array(items) => items.iter().fold(0, |bits, item| bits | marks_in_json(item)),
        Value::Object(members) => {
            members.iter().fold(0, |bits, (key, item)| bits | marks_in(key) | marks_in_json(item))
        }
        _ => 0,
    }
}

#[derive(Clone, Copy)]
pub struct Marks {
    open: char,
    close: char,
}

impl Marks {
    /// Two noncharacters outside `used`.
    pub fn choose(used: u32) -> Outcome<Marks> {
        let mut free = (0..32).filter(|bit| used & (1 << bit) == 0);
        let mut next = || free.next().and_then(|bit| char::from_u32(0xFDD0 + bit));
        match (next(), next()) {
            (Some(open), Some(close)) => Ok(Marks { open, close }),
            _ => Err(invalid("the messages contain too many different Unicode noncharacters")),
        }
    }

    /// The two code points across the C ABI; 0 and 0 are none.
    pub fn codes(marks: Option<Marks>) -> [u32; 2] {
        marks.map_or([0, 0], |marks| [marks.open as u32, marks.close as u32])
    }

    pub fn from_codes(codes: [u32; 2]) -> Option<Marks> {
        match codes.map(char::from_u32) {
            [Some(open), Some(close)] if is_mark(open) && is_mark(close) => {
                Some(Marks { open, close })
            }
            _ => None,
        }
    }

    /// Repairs what a string method left when it cut or replaced at a marked token: marks without
    /// their token, which would keep white space beside them from being stripped.
    pub fn without_residue(&self, text: &str) -> Option<String> {
        let pair = String::from_iter([self.open, self.close]);
        let kept = text.strip_prefix(self.close).unwrap_or(text);
        let kept = kept.strip_suffix(self.open).unwrap_or(kept);
        if kept.contains(&pair) {
            return Some(kept.replace(&pair, ""));
        }
        (kept.len() != text.len()).then(|| kept.to_owned())
    }

    /// As the value of a template variable that no template can name, so that filters see them.
    pub fn to_variable(self) -> (String, Value) {
        (VARIABLE.into(), Value::String(String::from_iter([self.open, self.close])))
    }

    pub fn of_render(state: &State) -> Option<Marks> {
        let value = state.lookup(VARIABLE)?;
        let mut chars = value.as_str()?.chars();
        Some(Marks { open: chars.next()?, close: chars.next()? })
    }

    fn is_either(&self, c: char) -> bool {
        c == self.open || c == self.close
    }

    pub fn remove(&self, text: &str) -> String {
        text.replace(|c| self.is_either(c), "")
    }

    /// Marks every string and key of the caller's data.
    ///   returns  whether any needed it
    pub fn protect(&self, value: &mut Value, tokenizer: &Tokenizer) -> bool {
        match value {
            Value::String(text) => match self.marked(text, tokenizer) {
                Some(marked) => {
                    *text = marked;
                    true
                }
                None => false,
            },
            Value::Array(items) => {
                items.iter_mut().fold(false, |any, item| self.protect(item, tokenizer) | any)
            }
            Value::Object(members) => self.protect_object(members, tokenizer),
            _ => false,
        }
    }

    fn protect_object(&self, members: &mut Map<String, Value>, tokenizer: &Tokenizer) -> bool {
        let mut any = false;
        for (key, item) in members.iter_mut() {
            // Templates compare these two; a model may well have a token named `user`.
            let keyword = (key == "role" || key == "type") && item.as_str().is_some_and(is_word);
            if !keyword {
                any |= self.protect(item, tokenizer);
            }
        }
        if members.keys().any(|key| self.marked(key, tokenizer).is_some()) {
            let old = std::mem::take(members).into_iter();
            members
                .extend(old.map(|(key, item)| (self.marked(&key, tokenizer).unwrap_or(key), item)));
            any = true;
        }
        any
    }

    /// The text with its marks; None if it needs none.
    fn marked(&self, text: &str, tokenizer: &Tokenizer) -> Option<String> {
        let specials = tokenizer.specials.as_ref()?;
        let mut marked = String::new();
        let mut done = 0;
        for found in specials.find_iter(text) {
            marked.push_str(&text[done..found.start()]);
            marked.push(self.open);
            marked.push_str(&text[found.range()]);
            marked.push(self.close);
            done = found.end();
        }
        let partial = ends_in_beginning(&text[done..], tokenizer);
        if done == 0 && !partial {
            return None;
        }
        marked.push_str(&text[done..]);
        if partial {
            marked.push(self.close);
        }
        Some(marked)
    }

    /// Tokenizes what a template made of marked data.
    pub fn encode(&self, text: &str, tokenizer: &Tokenizer) -> Outcome<Vec<i32>> {
        if !text.contains(|c| self.is_either(c)) {
            return tokenizer.encode(text, true);
        }
        let segments = tokenizer.segments(text);
        let mut ids = Vec::new();
        let mut plain = String::new();
        for (at, segment) in segments.iter().enumerate() {
            let before = at.checked_sub(1).map(|at| segments[at].text.as_str());
            let after = segments.get(at + 1).map(|segment| segment.text.as_str());
            let typed = before.is_some_and(|text| text.ends_with(self.open))
                && after.is_some_and(|text| text.starts_with(self.close));
            match segment.special_id {
                Some(id) if !typed => {
                    ids.extend(tokenizer.encode(&self.remove(&plain), false)?);
                    plain.clear();
                    ids.push(id);
                }
                _ => plain.push_str(&segment.text),
            }
        }
        ids.extend(tokenizer.encode(&self.remove(&plain), false)?);
        Ok(ids)
    }
}

fn is_word(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Whether the text ends in a proper prefix of a special token. Prefixes of letters, digits and
/// space alone do not count: they end ordinary words, which templates compare and trim.
fn ends_in_beginning(text: &str, tokenizer: &Tokenizer) -> bool {
    let sorted = &tokenizer.special_texts;
    let starts = text.char_indices().rev().map(|(at, _)| at);
    starts.take_while(|at| text.len() - at < tokenizer.longest_special).any(|at| {
        let end = &text[at..];
        let first = sorted.partition_point(|special| special.as_str() <= end);
        let begins = sorted.get(first).is_some_and(|special| special.starts_with(end));
        begins && end.chars().any(|c| !c.is_alphanumeric() && !c.is_whitespace())
    })
}
