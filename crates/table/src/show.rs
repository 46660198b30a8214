//! Bytes as people read them in messages.

use std::fmt;

/// Longest run of bytes shown whole.
const SHOWN: usize = 64;

/// Shows bytes as text where they are printable ASCII, escaped where not, cut after 64 bytes.
#[derive(Clone, Copy)]
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Bytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(SHOWN)];
        write!(f, "\"{}\"", shown.escape_ascii())?;
        if shown.len() < self.0.len() { write!(f, "… ({} bytes)", self.0.len()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_and_cuts() {
        assert_eq!(Bytes(b"a\x00\xff\"").to_string(), "\"a\\x00\\xff\\\"\"");
        assert!(Bytes(&[b'x'; 100]).to_string().ends_with("… (100 bytes)"));
    }
}
