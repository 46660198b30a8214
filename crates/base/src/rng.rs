//! The engine's only source of randomness.

pub(crate) mod generator;

pub use generator::Rng;

/// Bytes from the system's generator, for database ids. Falls back to clock and process id where
/// the system has none, which is enough to distinguish databases. In a simulation they follow from
/// its seed.
#[must_use]
pub fn entropy() -> [u8; 16] {
    if let Some(bytes) = crate::sim::entropy() {
        return bytes;
    }
    let mut bytes = [0u8; 16];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    if filled != Ok(bytes.len()) {
        let mut rng = Rng::new(crate::clock::unix_time_us() ^ (u64::from(std::process::id()) << 40));
        bytes[..8].copy_from_slice(&rng.next_u64().to_le_bytes());
        bytes[8..].copy_from_slice(&rng.next_u64().to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_agree_and_bounds_hold() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        for bound in 1..2000 {
            let drawn = a.below(bound);
            assert!(drawn < bound);
            assert_eq!(drawn, b.below(bound));
        }
        assert_ne!(Rng::new(1).next_u64(), Rng::new(2).next_u64());
    }
}
