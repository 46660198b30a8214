//! Hash maps with a fixed, cheap hash: replay from a seed must not depend on random hash seeds.
//!
//! Not for keys that an adversary chooses in bulk: fixed hashes can be made to collide.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map with a fixed hash.
pub type FixedMap<K, V> = HashMap<K, V, BuildHasherDefault<FixedHasher>>;

const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// Multiply-and-fold; good for ids and short byte strings.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixedHasher(u64);

impl FixedHasher {
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word).wrapping_mul(u128::from(MULTIPLIER));
        self.0 = (product as u64) ^ ((product >> 64) as u64) ^ word.rotate_left(29);
    }
}

impl Hasher for FixedHasher {
    fn finish(&self) -> u64 {
        let product = u128::from(self.0).wrapping_mul(u128::from(MULTIPLIER));
        (product as u64) ^ ((product >> 64) as u64)
    }
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        // Keys are often whole words, or nearly: a copy into one would be a call.
        let tail = rest.iter().rev().fold(0, |tail, byte| tail << 8 | u64::from(*byte));
        self.mix(tail ^ ((bytes.len() as u64) << 56));
    }
    fn write_u32(&mut self, value: u32) {
        self.mix(u64::from(value));
    }
    fn write_u64(&mut self, value: u64) {
        self.mix(value);
    }
    fn write_usize(&mut self, value: usize) {
        self.mix(value as u64);
    }
}

/// Hash of bytes, the same on every machine and in every run.
#[must_use]
pub fn hash_bytes(seed: u64, bytes: &[u8]) -> u64 {
    let mut hasher = FixedHasher(seed);
    hasher.write(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_fixed_and_spread() {
        assert_eq!(hash_bytes(1, b"abc"), hash_bytes(1, b"abc"));
        assert_ne!(hash_bytes(1, b"abc"), hash_bytes(2, b"abc"));
        assert_ne!(hash_bytes(0, b""), hash_bytes(0, b"\0"));
        assert_eq!(hash_bytes(0, b"nine byte"), 0xf025_f037_aeae_721a);
        let buckets: std::collections::BTreeSet<u64> =
            (0..4096u64).map(|i| hash_bytes(0, &i.to_be_bytes()) >> 52).collect();
        assert!(
            buckets.len() > 2300,
            "4096 balls in 4096 bins leave about 63 % of them used: {}",
            buckets.len()
        );
    }
}
