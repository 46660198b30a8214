//! CRC32C (Castagnoli), the checksum of every block, page and header.

/// CRC32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    ::crc32c::crc32c(bytes)
}

/// CRC32C over several pieces, for headers whose checksum field lies in their middle.
#[derive(Clone, Copy, Debug, Default)]
pub struct Crc32c(u32);

impl Crc32c {
    /// Of no bytes.
    #[must_use]
    pub fn new() -> Crc32c {
        Crc32c(0)
    }
    /// With `bytes` added.
    #[must_use]
    pub fn with(self, bytes: &[u8]) -> Crc32c {
        Crc32c(::crc32c::crc32c_append(self.0, bytes))
    }
    /// The checksum of all bytes added.
    #[must_use]
    pub fn value(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_castagnoli_and_composes() {
        // The check value of CRC-32C in every catalogue of CRCs.
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(Crc32c::new().with(b"1234").with(b"56789").value(), 0xE306_9283);
    }
}
