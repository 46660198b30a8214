//! A Bloom filter: keys that were added are always found, others rarely.

use crate::error::QueryError;
use firndb_base::sync::Arc;
use firndb_spill::{Memory, Reservation};

/// Bits set for a key. With ten bits of memory a key, 1.2 % of other keys are found; with six, 6 %.
const PROBES: u32 = 4;

pub(crate) struct Bloom {
    words: Vec<u64>,
    _reserved: Reservation,
}

impl Bloom {
    /// In at most this many bytes.
    pub(crate) fn new(memory: &Arc<Memory>, bytes: usize) -> Result<Bloom, QueryError> {
        let words = 1usize << (bytes / 8).max(1).ilog2();
        let reserved = Reservation::of(memory, 8 * words)?;
        Ok(Bloom { words: vec![0; words], _reserved: reserved })
    }

    pub(crate) fn add(&mut self, hash: u64) {
        for bit in bits(hash, self.words.len()) {
            self.words[bit / 64] |= 1 << (bit % 64);
        }
    }

    /// False if no key with this hash was added.
    pub(crate) fn may_have(&self, hash: u64) -> bool {
        bits(hash, self.words.len()).all(|bit| self.words[bit / 64] >> (bit % 64) & 1 == 1)
    }
}

/// Double hashing.
fn bits(hash: u64, words: usize) -> impl Iterator<Item = usize> {
    let step = (hash >> 32) | 1;
    (0..u64::from(PROBES))
        .map(move |probe| (hash.wrapping_add(step.wrapping_mul(probe)) as usize) & (64 * words - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::hash::hash_bytes;

    #[test]
    fn finds_all_that_were_added_and_few_others() {
        let memory = Memory::new("query", 1 << 20);
        let mut bloom = Bloom::new(&memory, 16 << 10).unwrap();
        let hash = |number: u64| hash_bytes(7, &number.to_le_bytes());
        // 131,072 bits: ten a key.
        (0..13_000).for_each(|number| bloom.add(hash(number)));
        assert!((0..13_000).all(|number| bloom.may_have(hash(number))));
        let wrong = (13_000..113_000).filter(|number| bloom.may_have(hash(*number))).count();
        assert!(wrong < 2_500, "{wrong} of 100,000 others are found");
        assert_eq!(memory.used(), 16 << 10);
    }
}
