//! A code: how many fragments a page becomes, and how many of them give it back.

use std::fmt;

/// Most members of an array, and so most fragments of a page.
pub const MEMBERS_MAX: usize = 16;

/// m of w: each page becomes w fragments on different members, and any m of them give it back.
///
/// m = w is striping without redundancy, m = 1 is w copies, m + 1 = w has one parity fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code {
    needed: u8,
    written: u8,
}

impl Code {
    /// A page whole on one member.
    pub const ONE_COPY: Code = Code { needed: 1, written: 1 };

    /// `None` unless 1 ≤ needed ≤ written ≤ 16.
    #[must_use]
    pub const fn new(needed: usize, written: usize) -> Option<Code> {
        if needed >= 1 && needed <= written && written <= MEMBERS_MAX {
            Some(Code { needed: needed as u8, written: written as u8 })
        } else {
            None
        }
    }

    /// Every code for this many members: n (n + 1) / 2 of them, by fragments needed, then written.
    pub fn all(members: usize) -> impl Iterator<Item = Code> {
        assert!(members <= MEMBERS_MAX, "an array has at most {MEMBERS_MAX} members");
        (1..=members).flat_map(move |needed| (needed..=members).filter_map(move |w| Code::new(needed, w)))
    }

    /// m: fragments that give a page back.
    #[must_use]
    pub const fn needed(self) -> usize {
        self.needed as usize
    }

    /// w: fragments that a page becomes.
    #[must_use]
    pub const fn written(self) -> usize {
        self.written as usize
    }

    /// Fragments of a page that may be lost.
    #[must_use]
    pub const fn spare(self) -> usize {
        self.written() - self.needed()
    }

    /// Bytes of a fragment: the page over m, rounded up to whole blocks.
    #[must_use]
    pub const fn fragment_bytes(self, page_bytes: usize, block_bytes: usize) -> usize {
        page_bytes.div_ceil(self.needed()).next_multiple_of(block_bytes)
    }

    /// Bytes on members for each byte of a page.
    #[must_use]
    pub fn space(self, page_bytes: usize, block_bytes: usize) -> f64 {
        (self.written() * self.fragment_bytes(page_bytes, block_bytes)) as f64 / page_bytes as f64
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.needed, self.written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_that_can_be_decoded() {
        let four: Vec<String> = Code::all(4).map(|code| code.to_string()).collect();
        let expected = ["1 of 1", "1 of 2", "1 of 3", "1 of 4", "2 of 2", "2 of 3", "2 of 4", "3 of 3"];
        assert_eq!(four[..8], expected);
        assert_eq!(four[8..], ["3 of 4", "4 of 4"]);
        assert_eq!(Code::all(16).count(), 136);
        for (needed, written) in [(0, 1), (2, 1), (1, 17), (17, 17)] {
            assert_eq!(Code::new(needed, written), None);
        }
    }

    #[test]
    fn fragments_are_whole_blocks() {
        let bytes = |needed, page, block| Code::new(needed, needed).unwrap().fragment_bytes(page, block);
        assert_eq!(bytes(1, 4096, 512), 4096);
        assert_eq!(bytes(3, 4096, 512), 1536);
        assert_eq!(bytes(4, 4096, 512), 1024);
        assert_eq!(bytes(16, 4096, 512), 512, "half of the data fragments are empty");
        assert_eq!(bytes(4, 4096, 4096), 4096, "blocks as large as pages leave nothing to fragment");
        assert_eq!(Code::new(3, 4).unwrap().space(4096, 512), 1.5);
        assert_eq!(Code::new(3, 4).unwrap().space(3 * 4096, 4096), 4.0 / 3.0);
    }
}
