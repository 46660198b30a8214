//! What a caller wants done to an entry.

use crate::scratch;
use firndb_base::codec::Writer;

/// What to do with an entry, decided under the leaf's exclusive latch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Change {
    #[default]
    Keep,
    /// Insert the entry, or replace its value.
    Put(Vec<u8>),
    /// Overwrite bytes of the value in place, within its length. Only for an entry that is there.
    Patch(Patches),
    /// Remove the entry. Only for an entry that is there.
    Remove,
}

impl Change {
    /// A `Put` of a value made of parts. Uses the memory of an earlier change of this thread.
    #[must_use]
    pub fn put_parts(parts: &[&[u8]]) -> Change {
        let mut value = scratch::spare_bytes();
        value.reserve(parts.iter().map(|part| part.len()).sum());
        parts.iter().for_each(|part| value.extend_from_slice(part));
        Change::Put(value)
    }

    /// Gives its memory to changes to come.
    pub(crate) fn recycle(self) {
        match self {
            Change::Put(bytes) | Change::Patch(Patches { encoded: bytes, .. }) => scratch::keep_bytes(bytes),
            Change::Keep | Change::Remove => {}
        }
    }
}

/// Bytes to write into a value: ascending, disjoint ranges. Kept as the record will carry them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patches {
    encoded: Vec<u8>,
    end: usize,
}

impl Patches {
    /// None yet. Uses the memory of an earlier change of this thread.
    #[must_use]
    pub fn new() -> Patches {
        Patches { encoded: scratch::spare_bytes(), end: 0 }
    }
    /// Adds bytes to be written at `offset`, which must not lie before the end of those added last.
    pub fn push(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset >= self.end, "patches ascend and are disjoint");
        self.encoded.put_varint((offset - self.end) as u64);
        self.encoded.put_blob(bytes);
        self.end = offset + bytes.len();
    }
    /// Where the last of them ends.
    #[must_use]
    pub fn end(&self) -> usize {
        self.end
    }
    pub(crate) fn encoded(&self) -> &[u8] {
        &self.encoded
    }
}

impl<B: AsRef<[u8]>> FromIterator<(usize, B)> for Patches {
    fn from_iter<I: IntoIterator<Item = (usize, B)>>(patches: I) -> Patches {
        let mut all = Patches::new();
        patches.into_iter().for_each(|(offset, bytes)| all.push(offset, bytes.as_ref()));
        all
    }
}
