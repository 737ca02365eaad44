//! Tokenizers from the vocabulary arrays of a GGUF file: byte-level BPE ("gpt2"), SentencePiece
//! scores ("llama"), and SentencePiece spelling with merges ("gemma4").

use ahash::{AHashMap, AHashSet};

use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::{
    utils::Sequence as Normalizers, NormalizerWrapper, Prepend, Replace,
};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence as Splitters;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::{AddedToken, SplitDelimiterBehavior};

use crate::abi::{invalid, unsupported, Outcome};
use crate::pieces::{Decoding, Entry, Kind, Pieces};
use crate::pre;
use crate::tokenizer::Tokenizer;

const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const BYTE: i32 = 6;

/// SentencePiece writes a space as this character.
const SPACE: &str = "\u{2581}";

pub struct Vocabulary<'a> {
    pub model: &'a str,
    pub pre: &'a str,
    pub tokens: Vec<&'a str>,
    pub scores: &'a [f32],
    pub token_types: &'a [i32],
    pub merges: Vec<&'a str>,
    pub unknown_id: i32,
    pub add_space_prefix: bool,
}

pub fn load(vocabulary: &Vocabulary) -> Outcome<Tokenizer> {
    let count = vocabulary.tokens.len();
    if count == 0 {
        return Err(invalid("tokenizer.ggml.tokens is missing or empty"));
    }
    for (name, size) in
        [("scores", vocabulary.scores.len()), ("token_type", vocabulary.token_types.len())]
    {
        if size != 0 && size != count {
            return Err(invalid(format!("tokenizer.ggml.{name} has {size} entries, not {count}")));
        }
    }
    let (mut tokenizer, decoding) = match vocabulary.model {
        "gpt2" => byte_level(vocabulary)?,
        "llama" => sentence_piece(vocabulary)?,
        "gemma4" => sentence_piece_merges(vocabulary)?,
        other => {
            return Err(unsupported(format!(
                "tokenizer.ggml.model '{other}' is not supported; supported are gpt2, llama, gemma4"
            )))
        }
    };
    let entries: Vec<Entry> = (0..count)
        .map(|id| Entry { id, text: vocabulary.tokens[id], kind: vocabulary.kind(id) })
        .collect();
    let pieces = Pieces::build(&entries, &decoding)?;
    let added = entries
        .iter()
        .filter(|entry| entry.kind != Kind::Learned)
        .map(|entry| AddedToken::from(entry.text, entry.kind == Kind::Special).normalized(false));
    tokenizer
        .add_tokens(added)
        .map_err(|error| invalid(format!("cannot add the special tokens: {error}")))?;
    Tokenizer::new(tokenizer, pieces)
}

impl Vocabulary<'_> {
    fn token_type(&self, id: usize) -> i32 {
        self.token_types.get(id).copied().unwrap_or(1)
    }

    fn kind(&self, id: usize) -> Kind {
        match self.token_type(id) {
            // The unknown token, too, is not for answers.
            CONTROL | UNKNOWN => Kind::Special,
            USER_DEFINED => Kind::Added,
            _ => Kind::Learned,
        }
    }

    fn ids(&self) -> AHashMap<String, u32> {
        self.tokens.iter().enumerate().map(|(id, text)| (text.to_string(), id as u32)).collect()
    }

    fn unknown(&self) -> Option<String> {
        let by_type = || (0..self.tokens.len()).find(|id| self.token_type(*id) == UNKNOWN);
        let id = usize::try_from(self.unknown_id).ok().or_else(by_type)?;
        self.tokens.get(id).map(|text| text.to_string())
    }

    /// The merges that are usable: both halves and their sum must be tokens.
    fn merge_pairs(&self) -> Outcome<Vec<(String, String)>> {
        if self.merges.is_empty() {
            return Err(invalid("tokenizer.ggml.merges is missing or empty"));
        }
        // The left half may itself start with a space, so the first character never separates.
        let pairs = self.merges.iter().map(|merge| {
            let first = merge.chars().next().map_or(0, char::len_utf8);
            let at = merge[first..].find(' ').map(|at| at + first);
            at.map(|at| (merge[..at].to_string(), merge[at + 1..].to_string()))
                .ok_or_else(|| invalid(format!("'{merge}' in tokenizer.ggml.merges is no pair")))
        });
        pairs.collect()
    }
}

fn wrong(error: impl std::fmt::Display) -> crate::abi::Failure {
    invalid(format!("cannot build the tokenizer: {error}"))
}

fn split(expression: &str) -> Outcome<PreTokenizerWrapper> {
    let pattern = SplitPattern::Regex(expression.into());
    let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false).map_err(wrong)?;
    Ok(PreTokenizerWrapper::Split(split))
}

fn byte_level(vocabulary: &Vocabulary) -> Outcome<(tokenizers::Tokenizer, Decoding)> {
    let Some(pre) = pre::find(vocabulary.pre) else {
        return Err(unsupported(format!(
            "tokenizer.ggml.pre '{}' is not known; known are {}",
            vocabulary.pre,
            pre::known_names()
        )));
    };
    let bpe = BPE::builder()
        .vocab_and_merges(vocabulary.ids(), vocabulary.merge_pairs()?)
        .ignore_merges(pre.ignore_merges)
        .build()
        .map_err(wrong)?;
    let mut splitters = pre.expressions.iter().map(|e| split(e)).collect::<Outcome<Vec<_>>>()?;
    splitters.push(PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, false, false)));
    let mut tokenizer = tokenizers::Tokenizer::new(bpe);
    tokenizer.with_pre_tokenizer(Some(Splitters::new(splitters)));
    Ok((tokenizer, Decoding::byte_level()))
}

fn sentence_piece(vocabulary: &Vocabulary) -> Outcome<(tokenizers::Tokenizer, Decoding)> {
    if vocabulary.scores.is_empty() {
        return Err(invalid("tokenizer.ggml.scores is missing"));
    }
    let prefix = vocabulary.add_space_prefix;
    let tokenizer = spelled_with_spaces(vocabulary, merges_from_scores(vocabulary), prefix)?;
    Ok((tokenizer, Decoding::sentence_piece(prefix)))
}

fn sentence_piece_merges(vocabulary: &Vocabulary) -> Outcome<(tokenizers::Tokenizer, Decoding)> {
    let mut tokenizer = spelled_with_spaces(vocabulary, vocabulary.merge_pairs()?, false)?;
    // No token spans a line end, so cutting there changes no id and keeps the words short.
    tokenizer.with_pre_tokenizer(Some(split(r"[^\n]+|\n+")?));
    Ok((tokenizer, Decoding::sentence_piece(false)))
}

fn spelled_with_spaces(
    vocabulary: &Vocabulary,
    merges: Vec<(String, String)>,
    space_prefix: bool,
) -> Outcome<tokenizers::Tokenizer> {
    let mut builder = BPE::builder()
        .vocab_and_merges(vocabulary.ids(), merges)
        .byte_fallback(true)
        .fuse_unk(true);
    if let Some(unknown) = vocabulary.unknown() {
        builder = builder.unk_token(unknown);
    }
    let mut tokenizer = tokenizers::Tokenizer::new(builder.build().map_err(wrong)?);
    let mut normalizers = Vec::new();
    if space_prefix {
        normalizers.push(NormalizerWrapper::Prepend(Prepend::new(SPACE.into())));
    }
    normalizers.push(NormalizerWrapper::Replace(Replace::new(" ", SPACE).map_err(wrong)?));
    tokenizer.with_normalizer(Some(Normalizers::new(normalizers))).map_err(wrong)?;
    Ok(tokenizer)
}

/// SentencePiece joins the neighbours whose sum has the best score; BPE wants a ranked list of
/// pairs. Each way to cut a piece into two pieces is one pair, ranked by the score of the sum; of
/// pairs with one score the longer left half goes first, as SentencePiece works from the left.
fn merges_from_scores(vocabulary: &Vocabulary) -> Vec<(String, String)> {
    let mergeable = |id: usize| !matches!(vocabulary.token_type(id), UNKNOWN | CONTROL | BYTE);
    let known: AHashSet<&str> = vocabulary.tokens.iter().copied().collect();
    let mut pairs: Vec<(f32, &str, &str)> = Vec::new();
    for (id, text) in vocabulary.tokens.iter().enumerate().filter(|(id, _)| mergeable(*id)) {
        for (at, _) in text.char_indices().skip(1) {
            let (left, right) = text.split_at(at);
            if known.contains(left) && known.contains(right) {
                pairs.push((vocabulary.scores[id], left, right));
            }
        }
    }
    // Stable, so equal ranks keep the order of the vocabulary.
    pairs.sort_by(|a, b| {
        b.0.total_cmp(&a.0).then(b.1.len().cmp(&a.1.len())).then(b.2.len().cmp(&a.2.len()))
    });
    pairs.into_iter().map(|(_, left, right)| (left.to_string(), right.to_string())).collect()
}
