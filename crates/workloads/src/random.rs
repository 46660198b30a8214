//! Seeded randomness for workloads: equal seeds draw equal inputs on every machine.

/// A small seeded generator (xoshiro256**). Not for secrets.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

/// The finalizer of SplitMix64: spreads every bit of `value` over all bits.
#[must_use]
pub fn mix(value: u64) -> u64 {
    let z = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Random {
    /// The generator of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        let mut counter = seed;
        let state = [(); 4].map(|()| {
            counter = counter.wrapping_add(0x9E37_79B9_7F4A_7C15);
            mix(counter)
        });
        Random { state }
    }

    /// The generator of `seed` for one of many independent streams (a client, a part of a load).
    #[must_use]
    pub fn stream(seed: u64, stream: u64) -> Random {
        Random::new(mix(seed.wrapping_add(mix(stream ^ 0xD1B5_4A32_D192_ED03))))
    }

    /// 64 uniform bits.
    pub fn next_u64(&mut self) -> u64 {
        let [s0, s1, s2, s3] = self.state;
        let result = s1.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let (s2, s3) = (s2 ^ s0, s3 ^ s1);
        self.state = [s0 ^ s3, s1 ^ s2, s2 ^ (s1 << 17), s3.rotate_left(45)];
        result
    }

    /// Uniform in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high && high - low < u64::MAX);
        let bound = high - low + 1;
        // Lemire's multiplication; the bias is under bound / 2^64.
        low + ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Uniform in `low..=high`, for the 32-bit numbers that rows are made of.
    pub fn number(&mut self, low: u32, high: u32) -> u32 {
        self.between(u64::from(low), u64::from(high)) as u32
    }

    /// True in `percent` of 100 draws.
    pub fn percent(&mut self, percent: u32) -> bool {
        self.number(1, 100) <= percent
    }

    /// Fills `bytes` with uniform bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }

    /// Puts `items` into a uniformly drawn order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.between(0, last as u64) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_agree_and_streams_differ() {
        let (mut a, mut b) = (Random::new(7), Random::new(7));
        for high in 0..2000 {
            let drawn = a.number(0, high);
            assert!(drawn <= high);
            assert_eq!(drawn, b.number(0, high));
        }
        assert_ne!(Random::stream(1, 0).next_u64(), Random::stream(1, 1).next_u64());
        assert_ne!(Random::stream(1, 0).next_u64(), Random::stream(2, 0).next_u64());
    }

    #[test]
    fn a_shuffle_keeps_every_item_once() {
        let mut items: Vec<u32> = (0..500).collect();
        Random::new(1).shuffle(&mut items);
        assert_ne!(items, (0..500).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..500).collect::<Vec<_>>());
    }
}
