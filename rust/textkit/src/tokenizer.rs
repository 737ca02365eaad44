//! Text to ids. The crate `tokenizers` does the work; here is what it leaves open: special-token
//! strings as plain text without changing shared state, checks of hostile files, and the tables
//! that decoding and chat templates need.

use aho_corasick::{AhoCorasick, MatchKind};
use tokenizers::tokenizer::{AddedVocabulary, OffsetType, PostProcessor, PreTokenizer};
use tokenizers::{Encoding, Model, ModelWrapper, OffsetReferential, Token};

use crate::abi::{catch, invalid, unsupported, Fault, Outcome};
use crate::bpe::Bpe;
use crate::pieces::{Decoding, Entry, Kind, Pieces};

/// No published post-processor comes near; a hostile file must not make a list of terabytes.
const MAX_ADDED: usize = 64;

pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// Encodes words and knows the vocabulary instead of `inner`, for a GGUF file.
    bpe: Option<Bpe>,
    /// The added tokens again, with the special ones switched off.
    as_text: AddedVocabulary,
    /// Every special token's text, for marking them in messages; None when there is none.
    pub specials: Option<AhoCorasick>,
    pub special_texts: Vec<String>, // in byte order
    pub longest_special: usize,     // bytes
    pub leading_ids: Vec<i32>,      // what the post-processor puts before a text
    pub pieces: Pieces,
}

/// A stretch of text as the added tokens cut it.
pub struct Segment {
    pub text: String,
    pub special_id: Option<i32>,
}

impl Tokenizer {
    pub fn from_json(json: &[u8]) -> Outcome<Tokenizer> {
        // The crate panics on some damaged files: that is the file's fault, not ours.
        catch(|| {
            let inner = tokenizers::Tokenizer::from_bytes(json)
                .map_err(|error| invalid(format!("cannot read tokenizer.json: {error}")))?;
            check_model(inner.get_model())?;
            let decoder = serde_json::to_value(inner.get_decoder())
                .map_err(|error| invalid(format!("cannot read the decoder: {error}")))?;
            let decoding = Decoding::from_json(&decoder)?;
            let vocab = inner.get_model().get_vocab();
            let mut entries: Vec<Entry> = vocab
                .iter()
                .map(|(text, id)| Entry { id: *id as usize, text, kind: Kind::Learned })
                .collect();
            let added = inner.get_added_tokens_decoder();
            entries.extend(added.iter().map(|(id, token)| Entry {
                id: *id as usize,
                text: &token.content,
                kind: if token.special { Kind::Special } else { Kind::Added },
            }));
            let pieces = Pieces::build(&entries, &decoding)?;
            Tokenizer::new(inner, None, pieces)
        })
        .map_err(|mut failure| {
            if failure.fault == Fault::Internal {
                failure.fault = Fault::Input;
                failure.message = format!("cannot read tokenizer.json: {}", failure.message);
            }
            failure
        })
    }

    pub fn new(
        inner: tokenizers::Tokenizer,
        bpe: Option<Bpe>,
        pieces: Pieces,
    ) -> Outcome<Tokenizer> {
        let mut as_text = inner.get_added_vocabulary().clone();
        as_text.set_encode_special_tokens(true);
        let mut special_texts: Vec<String> = as_text
            .get_added_tokens_decoder()
            .values()
            .filter(|token| token.special && !token.content.is_empty())
            .map(|token| token.content.clone())
            .collect();
        special_texts.sort();
        let specials = if special_texts.is_empty() {
            None
        } else {
            let built = AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .build(&special_texts)
                .map_err(|error| invalid(format!("cannot index the special tokens: {error}")))?;
            Some(built)
        };
        let longest_special = special_texts.iter().map(String::len).max().unwrap_or(0);
        let leading_ids = leading_ids(&inner)?;
        Ok(Tokenizer {
            inner,
            bpe,
            as_text,
            specials,
            special_texts,
            longest_special,
            leading_ids,
            pieces,
        })
    }

    /// Never adds BOS or EOS, never truncates or pads, whatever the file asks for.
    pub fn encode(&self, text: &str, parse_special: bool) -> Outcome<Vec<i32>> {
        let added = if parse_special { self.inner.get_added_vocabulary() } else { &self.as_text };
        let failed = |error| invalid(format!("cannot tokenize: {error}"));
        let mut parts = added.extract_and_normalize(self.inner.get_normalizer(), text);
        if let Some(splitter) = self.inner.get_pre_tokenizer() {
            splitter.pre_tokenize(&mut parts).map_err(failed)?;
        }
        let mut ids = Vec::new();
        for (word, _, added) in parts.get_splits(OffsetReferential::Original, OffsetType::None) {
            match (added, &self.bpe) {
                (Some(tokens), _) => append(tokens, &mut ids),
                (None, Some(bpe)) => bpe.encode(word, &mut ids),
                (None, None) => {
                    append(&self.inner.get_model().tokenize(word).map_err(failed)?, &mut ids)
                }
            }
        }
        Ok(ids)
    }

    pub fn token_to_id(&self, token: &str) -> i32 {
        let id = match &self.bpe {
            Some(bpe) => bpe.id(token),
            None => self.inner.token_to_id(token),
        };
        id.map_or(-1, |id| id as i32)
    }

    /// Cuts text at its added tokens as encoding would, without normalizing anything.
    pub fn segments(&self, text: &str) -> Vec<Segment> {
        let none: Option<&tokenizers::NormalizerWrapper> = None;
        let parts = self.inner.get_added_vocabulary().extract_and_normalize(none, text);
        parts
            .get_splits(OffsetReferential::Original, OffsetType::None)
            .into_iter()
            .map(|(text, _, tokens)| {
                let id = tokens.as_ref().and_then(|tokens| tokens.first()).map(|token| token.id);
                let special = id.filter(|id| self.pieces.special[*id as usize] != 0);
                Segment { text: text.to_owned(), special_id: special.map(|id| id as i32) }
            })
            .collect()
    }
}

fn append(tokens: &[Token], ids: &mut Vec<i32>) {
    ids.extend(tokens.iter().map(|token| token.id as i32));
}

/// Runs the post-processor over a text of one token and keeps what comes before it.
fn leading_ids(inner: &tokenizers::Tokenizer) -> Outcome<Vec<i32>> {
    const TEXT: u32 = u32::MAX; // no vocabulary has it: pieces.rs
    let Some(processor) = inner.get_post_processor() else { return Ok(Vec::new()) };
    let wrong = |what: String| invalid(format!("the post-processor of tokenizer.json {what}"));
    // The steps of a sequence may take what the ones before them made for a pair.
    let added = processor.added_tokens(false).max(processor.added_tokens(true));
    if added > MAX_ADDED {
        return Err(wrong(format!("adds {added} tokens: at most {MAX_ADDED} are supported")));
    }
    let text = Encoding::from_tokens(vec![Token::new(TEXT, String::new(), (0, 0))], 0);
    let run = || processor.process(text, None, true).map_err(|error| invalid(error.to_string()));
    let processed = catch(run).map_err(|error| wrong(format!("fails: {}", error.message)))?;
    let parts: Vec<&[u32]> = processed.get_ids().split(|id| *id == TEXT).collect();
    let &[before, after] = parts.as_slice() else {
        return Err(wrong(format!("repeats a text {} times, not once", parts.len() - 1)));
    };
    if let Some(id) = before.iter().chain(after).find(|id| inner.id_to_token(**id).is_none()) {
        return Err(wrong(format!("adds token {id}, which is not in the vocabulary")));
    }
    Ok(before.iter().map(|id| *id as i32).collect())
}

/// Refuses what would make encoding random or decoding wrong.
fn check_model(model: &ModelWrapper) -> Outcome<()> {
    if let ModelWrapper::BPE(bpe) = model {
        if bpe.dropout.is_some_and(|dropout| dropout > 0.0) {
            return Err(unsupported("a tokenizer with BPE dropout gives random ids: remove it"));
        }
        let affixes = [&bpe.continuing_subword_prefix, &bpe.end_of_word_suffix];
        if affixes.iter().any(|affix| affix.as_ref().is_some_and(|affix| !affix.is_empty())) {
            return Err(unsupported("BPE with subword prefixes or suffixes is not supported"));
        }
    }
    Ok(())
}
