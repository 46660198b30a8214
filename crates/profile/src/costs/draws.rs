//! A fixed sequence of numbers that look drawn, so that costs are pure.

/// splitmix64 over a counter.
#[derive(Clone, Debug, Default)]
pub(super) struct Draws {
    counter: u64,
}

impl Draws {
    /// The next one; uniform in 0..1.
    pub fn unit(&mut self) -> f64 {
        self.counter = self.counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.counter;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}
