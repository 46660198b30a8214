//! Rows that a call has read, one after the other in one buffer.
//!
//! Short scans are frequent, and allocating and growing their buffers would be a third of what ten
//! rows cost: a thread keeps the memory of the batch that it dropped last for its next one.

use std::cell::Cell;

/// A batch of more memory is not kept for the next scan.
const SPARE_BYTES_MAX: usize = 16 << 10;

/// Chooses rows by key, payload and flag.
pub type Keep<'k> = &'k dyn Fn(&[u8], &[u8], bool) -> bool;

/// For each row: end of key and end of value in a batch's bytes, and the flag.
type Ends = Vec<(u32, u32, bool)>;

thread_local! {
    /// The memory of the batch that this thread dropped last, cleared.
    static SPARE: Cell<(Vec<u8>, Ends)> = const { Cell::new((Vec::new(), Vec::new())) };
}

/// Rows of one batch of a scan. Keeps its memory between batches.
#[derive(Clone, Debug, Default)]
pub struct RowBatch {
    bytes: Vec<u8>,
    ends: Ends,
}

impl RowBatch {
    #[must_use]
    pub fn new() -> RowBatch {
        let (bytes, ends) = SPARE.with(Cell::take);
        RowBatch { bytes, ends }
    }
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }
    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
    /// Key and value of the i-th row.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let (key_end, value_end, _) = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before].1);
        Some((
            &self.bytes[start as usize..key_end as usize],
            &self.bytes[key_end as usize..value_end as usize],
        ))
    }
    /// Keys and values, in the scan's order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        (0..self.len()).filter_map(|index| self.get(index))
    }
    /// The flag of the i-th row (see [`Transaction::get_flagged`]); false past the last.
    ///
    /// [`Transaction::get_flagged`]: crate::Transaction::get_flagged
    #[must_use]
    pub fn flag(&self, index: usize) -> bool {
        self.ends.get(index).is_some_and(|ends| ends.2)
    }
    /// Adds a row to a batch of at most `most`, if `keep` accepts it; its key has two parts.
    #[inline]
    pub(crate) fn push(
        &mut self,
        key: (&[u8], &[u8]),
        (value, flag): (&[u8], bool),
        most: usize,
        keep: Option<Keep<'_>>,
    ) {
        if self.ends.is_empty() {
            self.reserve(key.0.len() + key.1.len() + value.len(), most);
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key.0);
        self.bytes.extend_from_slice(key.1);
        if keep.is_some_and(|keep| !keep(&self.bytes[start..], value, flag)) {
            return self.bytes.truncate(start);
        }
        let key_end = self.bytes.len() as u32;
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len() as u32, flag));
    }

    /// Makes space for `most` rows like a first one of `len` bytes, or for a leaf's as a rule:
    /// growing step by step would copy them repeatedly. Rows differ in length, so there is some to
    /// spare.
    fn reserve(&mut self, len: usize, most: usize) {
        self.ends.reserve(most.min(32));
        self.bytes.reserve(len.saturating_mul(most.saturating_mul(2)).min(4096));
    }
}

impl Drop for RowBatch {
    fn drop(&mut self) {
        if (1..=SPARE_BYTES_MAX).contains(&self.bytes.capacity()) {
            self.clear();
            let memory = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.ends));
            // A thread that is ending keeps nothing.
            let _ = SPARE.try_with(|spare| spare.set(memory));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_begins_empty_in_the_memory_of_the_last_one_unless_that_was_large() {
        let mut first = RowBatch::new();
        first.push((b"k", b"ey"), (b"value", true), 16, None);
        let memory = first.bytes.as_ptr();
        drop(first);
        let mut next = RowBatch::new();
        assert!(next.is_empty() && next.bytes.is_empty() && next.bytes.as_ptr() == memory);
        assert_eq!(RowBatch::new().bytes.capacity(), 0, "the memory has one owner");
        next.push((b"k", b"ey"), (&[7; SPARE_BYTES_MAX], false), 1, None);
        drop(next);
        assert_eq!(RowBatch::new().bytes.capacity(), 0, "too large to keep");
    }
}
