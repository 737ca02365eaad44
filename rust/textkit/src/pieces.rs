//! What each token id stands for, as bytes. Decoding is then concatenation, which is the same for
//! one token at a time as for a whole answer, whatever the tokenizer's decoder looks like.

use serde_json::Value;

use crate::abi::{invalid, unsupported, Outcome};

/// No published vocabulary comes near; a hostile file must not make the tables huge.
const MAX_IDS: usize = 1 << 22;
const MAX_BYTES: usize = 1 << 30;

#[derive(Default)]
pub struct Pieces {
    pub bytes: Vec<u8>,
    pub offsets: Vec<u32>,
    pub special: Vec<u8>,
    pub leading_spaces: u32,
}

/// One token as the vocabulary has it.
pub struct Entry<'a> {
    pub id: usize,
    pub text: &'a str,
    pub kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Learned, // written in the model's alphabet
    Added,   // written as plain text
    Special, // the same, and a control token
}

impl Pieces {
    /// Entries may come in any order; of two with the same id the later one counts.
    pub fn build(entries: &[Entry], decoding: &Decoding) -> Outcome<Pieces> {
        let num_ids = entries.iter().map(|entry| entry.id + 1).max().unwrap_or(0);
        if num_ids > MAX_IDS {
            return Err(invalid(format!(
                "token id {} is too large: at most {MAX_IDS} ids are supported",
                num_ids - 1
            )));
        }
        let mut by_id: Vec<Option<&Entry>> = Vec::new();
        by_id.resize_with(num_ids, || None);
        for entry in entries {
            by_id[entry.id] = Some(entry);
        }
        let mut pieces = Pieces { leading_spaces: decoding.leading_spaces, ..Pieces::default() };
        pieces.offsets.push(0);
        for entry in by_id {
            if let Some(entry) = entry {
                decoding.append(entry, &mut pieces.bytes);
            }
            if pieces.bytes.len() > MAX_BYTES {
                return Err(invalid("the vocabulary is too large"));
            }
            pieces.offsets.push(pieces.bytes.len() as u32);
            pieces.special.push(entry.is_some_and(|entry| entry.kind == Kind::Special) as u8);
        }
        Ok(pieces)
    }

    pub fn num_ids(&self) -> usize {
        self.special.len()
    }
}

/// How token texts become bytes: what the `decoder` of a tokenizer.json says, token by token.
#[derive(Default)]
pub struct Decoding {
    pub byte_level: bool,
    pub byte_fallback: bool,
    pub replacements: Vec<(String, String)>,
    pub leading_spaces: u32,
    fused: bool,
}

impl Decoding {
    pub fn sentence_piece(strip_leading_space: bool) -> Decoding {
        Decoding {
            byte_fallback: true,
            replacements: vec![("\u{2581}".into(), " ".into())],
            leading_spaces: strip_leading_space as u32,
            ..Decoding::default()
        }
    }

    pub fn byte_level() -> Decoding {
        Decoding { byte_level: true, ..Decoding::default() }
    }

    /// Reads the `decoder` of a tokenizer.json.
    pub fn from_json(decoder: &Value) -> Outcome<Decoding> {
        let mut decoding = Decoding::default();
        decoding.add(decoder)?;
        Ok(decoding)
    }

    fn add(&mut self, decoder: &Value) -> Outcome<()> {
        let text = |key: &str| decoder[key].as_str().unwrap_or_default();
        match text("type") {
            "Sequence" => {
                for part in decoder["decoders"].as_array().into_iter().flatten() {
                    self.add(part)?;
                }
            }
            "ByteLevel" => self.byte_level = true,
            "ByteFallback" => self.byte_fallback = true,
            "Fuse" => self.fused = true,
            "Metaspace" => {
                self.replacements.push((text("replacement").into(), " ".into()));
                self.leading_spaces = (text("prepend_scheme") != "never") as u32;
            }
            "Replace" => match decoder["pattern"]["String"].as_str() {
                Some(from) if !from.is_empty() => {
                    self.replacements.push((from.into(), text("content").into()))
                }
                _ => return Err(refused("Replace without a literal pattern")),
            },
            "Strip" => self.add_strip(decoder)?,
            other => return Err(refused(if other.is_empty() { "none" } else { other })),
        }
        Ok(())
    }

    fn add_strip(&mut self, decoder: &Value) -> Outcome<()> {
        let starts = decoder["start"].as_u64().unwrap_or(0);
        if !self.fused || decoder["content"] != " " || decoder["stop"] != 0 || starts > 16 {
            return Err(refused("Strip other than of leading spaces after Fuse"));
        }
        self.leading_spaces = starts as u32;
        Ok(())
    }

    fn append(&self, entry: &Entry, out: &mut Vec<u8>) {
        let text = entry.text;
        if entry.kind == Kind::Special {
            return out.extend_from_slice(text.as_bytes());
        }
        if self.byte_fallback {
            if let Some(byte) = fallback_byte(text) {
                return out.push(byte);
            }
        }
        if self.byte_level && entry.kind == Kind::Learned {
            let start = out.len();
            for c in text.chars() {
                match byte_of(c) {
                    Some(byte) => out.push(byte),
                    None => {
                        // Not written in the alphabet after all: then it is plain text.
                        out.truncate(start);
                        return out.extend_from_slice(text.as_bytes());
                    }
                }
            }
            return;
        }
        let mut text = std::borrow::Cow::Borrowed(text);
        for (from, to) in &self.replacements {
            if text.contains(from.as_str()) {
                text = text.replace(from.as_str(), to).into();
            }
        }
        out.extend_from_slice(text.as_bytes());
    }
}

fn refused(what: &str) -> crate::abi::Failure {
    unsupported(format!(
        "tokenizer decoder '{what}' is not supported; supported are ByteLevel, Metaspace, and \
         sequences of Replace, ByteFallback, Fuse and Strip"
    ))
}

/// `<0x0A>` is the byte 10.
fn fallback_byte(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

/// The inverse of GPT-2's byte alphabet: printable Latin-1 stands for itself, the other 68 bytes
/// for U+0100 and on, in order.
fn byte_of(c: char) -> Option<u8> {
    let code = c as u32;
    match code {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => Some(code as u8),
        0x100..=0x120 => Some((code - 0x100) as u8), // 0x00..=0x20
        0x121..=0x142 => Some((code - 0x121 + 0x7F) as u8), // 0x7F..=0xA0
        0x143 => Some(0xAD),
        _ => None,
    }
}
