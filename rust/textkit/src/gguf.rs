//! Tokenizers from the vocabulary arrays of a GGUF file: byte-level BPE ("gpt2"), SentencePiece
//! scores ("llama"), and SentencePiece spelling with merges ("gemma4").

use tokenizers::models::wordlevel::WordLevel;
use tokenizers::normalizers::{
    utils::Sequence as Normalizers, NormalizerWrapper, Prepend, Replace,
};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence as Splitters;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::{AddedToken, SplitDelimiterBehavior};

use crate::abi::{invalid, unsupported, Outcome};
use crate::bpe::{Bpe, Pair, Texts};
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
    let (bpe, cutting, decoding) = match vocabulary.model {
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
    let added = || entries.iter().filter(|entry| entry.kind != Kind::Learned);
    // This model knows the ids of the added tokens only; `bpe` does the rest.
    let ids = added().filter_map(|entry| Some((entry.text.to_string(), bpe.id(entry.text)?)));
    let model = WordLevel::builder().vocab(ids.collect()).build().map_err(wrong)?;
    let mut inner = tokenizers::Tokenizer::new(model);
    inner.with_normalizer(cutting.normalizer).map_err(wrong)?;
    inner.with_pre_tokenizer(cutting.splitter);
    inner
        .add_tokens(added().map(|entry| {
            AddedToken::from(entry.text, entry.kind == Kind::Special).normalized(false)
        }))
        .map_err(|error| invalid(format!("cannot add the special tokens: {error}")))?;
    Tokenizer::new(inner, Some(bpe), pieces)
}

/// What is done to a text before its words are encoded.
#[derive(Default)]
struct Cutting {
    normalizer: Option<Normalizers>,
    splitter: Option<PreTokenizerWrapper>,
}

type Parts = (Bpe, Cutting, Decoding);

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

    fn unknown(&self) -> Option<&str> {
        let by_type = || (0..self.tokens.len()).find(|id| self.token_type(*id) == UNKNOWN);
        let id = usize::try_from(self.unknown_id).ok().or_else(by_type)?;
        self.tokens.get(id).copied()
    }

    /// The listed merges; both halves and their sum must be tokens.
    fn listed_merges(&self, texts: &Texts) -> Outcome<Vec<Pair>> {
        if self.merges.is_empty() {
            return Err(invalid("tokenizer.ggml.merges is missing or empty"));
        }
        let mut sum = String::new();
        let mut pair = |merge: &str| {
            // The left half may itself start with a space, so the first character never separates.
            let first = merge.chars().next().map_or(0, char::len_utf8);
            let (left, right) = merge.split_at(first + merge[first..].find(' ')?);
            let right = &right[1..];
            sum.clear();
            sum.extend([left, right]);
            Some(Pair { left: texts.id(left)?, right: texts.id(right)?, sum: texts.id(&sum)? })
        };
        let pairs = self.merges.iter().map(|merge| {
            pair(merge).ok_or_else(|| {
                invalid(format!("'{merge}' in tokenizer.ggml.merges is no pair of tokens"))
            })
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

fn byte_level(vocabulary: &Vocabulary) -> Outcome<Parts> {
    let Some(pre) = pre::find(vocabulary.pre) else {
        return Err(unsupported(format!(
            "tokenizer.ggml.pre '{}' is not known; known are {}",
            vocabulary.pre,
            pre::known_names()
        )));
    };
    let texts = Texts::new(&vocabulary.tokens)?;
    let merges = vocabulary.listed_merges(&texts)?;
    let mut splitters = pre.expressions.iter().map(|e| split(e)).collect::<Outcome<Vec<_>>>()?;
    splitters.push(PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, false, false)));
    let splitter = Some(Splitters::new(splitters).into());
    Ok((
        Bpe::new(texts, merges).with_whole_words(pre.ignore_merges),
        Cutting { splitter, ..Cutting::default() },
        Decoding::byte_level(),
    ))
}

fn sentence_piece(vocabulary: &Vocabulary) -> Outcome<Parts> {
    if vocabulary.scores.is_empty() {
        return Err(invalid("tokenizer.ggml.scores is missing"));
    }
    let texts = Texts::new(&vocabulary.tokens)?;
    let merges = merges_from_scores(vocabulary, &texts);
    let prefix = vocabulary.add_space_prefix;
    Ok((
        spelled_with_spaces(vocabulary, texts, merges),
        Cutting { normalizer: Some(spaces_written(prefix)?), ..Cutting::default() },
        Decoding::sentence_piece(prefix),
    ))
}

fn sentence_piece_merges(vocabulary: &Vocabulary) -> Outcome<Parts> {
    let texts = Texts::new(&vocabulary.tokens)?;
    let merges = vocabulary.listed_merges(&texts)?;
    Ok((
        spelled_with_spaces(vocabulary, texts, merges),
        Cutting {
            normalizer: Some(spaces_written(false)?),
            // No token spans a line end, so cutting there changes no id and keeps the words short.
            splitter: Some(split(r"[^\n]+|\n+")?),
        },
        Decoding::sentence_piece(false),
    ))
}

fn spelled_with_spaces(vocabulary: &Vocabulary, texts: Texts, merges: Vec<Pair>) -> Bpe {
    let unknown = vocabulary.unknown().and_then(|text| texts.id(text));
    Bpe::new(texts, merges).with_fallback(unknown)
}

fn spaces_written(prefix: bool) -> Outcome<Normalizers> {
    let mut normalizers = Vec::new();
    if prefix {
        normalizers.push(NormalizerWrapper::Prepend(Prepend::new(SPACE.into())));
    }
    normalizers.push(NormalizerWrapper::Replace(Replace::new(" ", SPACE).map_err(wrong)?));
    Ok(Normalizers::new(normalizers))
}

/// SentencePiece joins the neighbours whose sum has the best score; BPE wants a ranked list of
/// pairs. Each way to cut a piece into two pieces is one pair, ranked by the score of the sum; of
/// pairs with one score the longer left half goes first, as SentencePiece works from the left.
fn merges_from_scores(vocabulary: &Vocabulary, texts: &Texts) -> Vec<Pair> {
    let mergeable = |id: usize| !matches!(vocabulary.token_type(id), UNKNOWN | CONTROL | BYTE);
    let mut pairs = Vec::new();
    for (id, text) in vocabulary.tokens.iter().enumerate().filter(|(id, _)| mergeable(*id)) {
        let Some(sum) = texts.id(text) else { continue };
        for (at, _) in text.char_indices().skip(1) {
            if let (Some(left), Some(right)) = (texts.id(&text[..at]), texts.id(&text[at..])) {
                let rank = (vocabulary.scores[id], at, text.len());
                pairs.push((rank, Pair { left, right, sum }));
            }
        }
    }
    // Stable, so equal ranks keep the order of the vocabulary.
    pairs.sort_by(|(a, _), (b, _)| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)).then(b.2.cmp(&a.2)));
    pairs.into_iter().map(|(_, pair)| pair).collect()
}
