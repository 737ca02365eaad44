//! Byte-pair encoding over the vocabulary of a GGUF file. It gives the ids that the model BPE of the
//! crate `tokenizers` gives, in a third of the memory: the crate keeps every token twice, each time
//! as a string of its own.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ahash::RandomState;
use hashbrown::HashTable;

use crate::abi::{invalid, Outcome};

/// The texts of all tokens.
pub struct Texts {
    joined: String,
    ends: Vec<u32>, // in `joined`, by id
    ids: HashTable<u32>,
    hasher: RandomState,
}

impl Texts {
    /// Of two tokens with one text the later one is found.
    pub fn new(tokens: &[&str]) -> Outcome<Texts> {
        let joined = tokens.concat();
        if u32::try_from(joined.len()).is_err() {
            return Err(invalid("the vocabulary is too large"));
        }
        let ends = tokens.iter().scan(0, |end, text| {
            *end += text.len() as u32;
            Some(*end)
        });
        let ends = ends.collect();
        let hasher = RandomState::new();
        let mut ids = HashTable::with_capacity(tokens.len());
        let hash_of = |id: &u32| hasher.hash_one(tokens[*id as usize]);
        for id in 0..tokens.len() as u32 {
            let same = |other: &u32| tokens[*other as usize] == tokens[id as usize];
            ids.entry(hash_of(&id), same, hash_of).insert(id);
        }
        Ok(Texts { joined, ends, ids, hasher })
    }

    pub fn id(&self, text: &str) -> Option<u32> {
        self.ids.find(self.hasher.hash_one(text), |id| self.text(*id) == text).copied()
    }

    fn text(&self, id: u32) -> &str {
        let id = id as usize;
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        &self.joined[start as usize..self.ends[id] as usize]
    }
}

/// Two neighbours and the token that they become.
pub struct Pair {
    pub left: u32,
    pub right: u32,
    pub sum: u32,
}

struct Merges {
    ranked: Vec<Pair>,
    ranks: HashTable<u32>, // by left and right half
    hasher: RandomState,
}

impl Merges {
    /// Of two equal pairs the later one counts.
    fn new(ranked: Vec<Pair>) -> Merges {
        let hasher = RandomState::new();
        let mut ranks = HashTable::with_capacity(ranked.len());
        let halves = |rank: u32| (ranked[rank as usize].left, ranked[rank as usize].right);
        let hash_of = |rank: &u32| hasher.hash_one(halves(*rank));
        for rank in 0..ranked.len() as u32 {
            let same = |other: &u32| halves(*other) == halves(rank);
            ranks.entry(hash_of(&rank), same, hash_of).insert(rank);
        }
        Merges { ranked, ranks, hasher }
    }

    /// The rank and the sum of two neighbours.
    fn find(&self, left: u32, right: u32) -> Option<(u32, u32)> {
        let found = |rank: &u32| {
            let pair = &self.ranked[*rank as usize];
            pair.left == left && pair.right == right
        };
        let rank = *self.ranks.find(self.hasher.hash_one((left, right)), found)?;
        Some((rank, self.ranked[rank as usize].sum))
    }
}

pub struct Bpe {
    texts: Texts,
    merges: Merges,
    /// A word that is a token is that token, whatever the merges say.
    whole_words: bool,
    bytes: [Option<u32>; 256], // the tokens that spell a character without one
    unknown: Option<u32>,      // stands for all neighbours that cannot be spelled either
}

/// A part of a word, linked to the parts beside it.
struct Part {
    id: u32,
    before: usize,
    after: usize,
}

/// As a neighbour: there is none. As an id: the part became one with the part before it.
const NO_PART: usize = usize::MAX;
const GONE: u32 = u32::MAX;

impl Bpe {
    /// Pairs stand in the order of their ranks; their ids are those that `texts` finds.
    pub fn new(texts: Texts, ranked: Vec<Pair>) -> Bpe {
        let merges = Merges::new(ranked);
        Bpe { texts, merges, whole_words: false, bytes: [None; 256], unknown: None }
    }

    pub fn with_whole_words(self, whole_words: bool) -> Bpe {
        Bpe { whole_words, ..self }
    }

    /// Spells characters that are no token with `<0x00>` to `<0xFF>`, or else with `unknown`.
    pub fn with_fallback(self, unknown: Option<u32>) -> Bpe {
        let bytes = std::array::from_fn(|byte| self.id(&format!("<0x{byte:02X}>")));
        Bpe { bytes, unknown, ..self }
    }

    pub fn id(&self, text: &str) -> Option<u32> {
        self.texts.id(text)
    }

    /// Appends the ids of a word.
    pub fn encode(&self, word: &str, ids: &mut Vec<i32>) {
        if self.whole_words {
            if let Some(id) = self.id(word) {
                return ids.push(id as i32);
            }
        }
        let mut parts = self.spell(word);
        self.join(&mut parts);
        ids.extend(parts.iter().filter(|part| part.id != GONE).map(|part| part.id as i32));
    }

    /// The characters of a word. Without tokens for one it is left out.
    fn spell(&self, word: &str) -> Vec<Part> {
        let mut parts = Vec::with_capacity(word.len());
        let mut add = |id| parts.push(Part { id, before: NO_PART, after: NO_PART });
        let mut after_unknown = false;
        for (at, c) in word.char_indices() {
            let text = &word[at..at + c.len_utf8()];
            let bytes = || text.bytes().map(|byte| self.bytes[byte as usize]);
            let mut unknown = false;
            if let Some(id) = self.id(text) {
                add(id);
            } else if bytes().all(|id| id.is_some()) {
                bytes().flatten().for_each(&mut add);
            } else {
                unknown = true;
                self.unknown.filter(|_| !after_unknown).into_iter().for_each(&mut add);
            }
            after_unknown = unknown;
        }
        for at in 1..parts.len() {
            parts[at - 1].after = at;
            parts[at].before = at - 1;
        }
        parts
    }

    /// Makes one part of two neighbours, those of the lowest rank and of these the first ones, until
    /// no pair is left.
    fn join(&self, parts: &mut [Part]) {
        let mut waiting = BinaryHeap::with_capacity(parts.len());
        let offer = |parts: &[Part], at: usize| {
            let right = parts.get(parts[at].after)?;
            let (rank, sum) = self.merges.find(parts[at].id, right.id)?;
            Some(Reverse((rank, at, sum)))
        };
        waiting.extend((0..parts.len()).filter_map(|at| offer(parts, at)));
        while let Some(Reverse((_, at, sum))) = waiting.pop() {
            // Other merges may have changed the pair since.
            let is_pair = parts[at].id != GONE
                && offer(parts, at).is_some_and(|Reverse((_, _, now))| now == sum);
            if !is_pair {
                continue;
            }
            let right = parts[at].after;
            let after = std::mem::replace(&mut parts[right].after, NO_PART);
            parts[right].id = GONE;
            parts[at].id = sum;
            parts[at].after = after;
            if let Some(next) = parts.get_mut(after) {
                next.before = at;
            }
            let changed = [parts[at].before, at].into_iter().filter(|at| *at != NO_PART);
            waiting.extend(changed.filter_map(|at| offer(parts, at)));
        }
    }
}
