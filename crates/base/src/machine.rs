//! What the machine has.

/// Bytes of memory of this machine, used or not; in a simulation, what its options say.
#[must_use]
pub fn memory_bytes() -> u64 {
    if let Some(bytes) = crate::sim::memory_bytes() {
        return bytes;
    }
    // Miri has no such call.
    if cfg!(miri) {
        return 1 << 30;
    }
    let info = rustix::system::sysinfo();
    // The field's type differs between architectures.
    #[allow(clippy::unnecessary_cast)]
    let total = info.totalram as u64;
    total.saturating_mul(u64::from(info.mem_unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_some_memory() {
        assert!(memory_bytes() > 16 << 20);
    }
}
