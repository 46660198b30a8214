//! Rows that a call has read, one after the other in one buffer.
//!
//! Short scans are frequent, and allocating and growing their buffers would be a third of what ten
//! rows cost: a thread keeps the memory of the batch that it dropped last for its next one.

use firndb_btree::Entry;
use std::cell::Cell;

/// A batch of more memory is not kept for the next scan.
const SPARE_BYTES_MAX: usize = 16 << 10;

/// Chooses rows by key, payload and flag.
pub type Keep<'k> = &'k dyn Fn(&[u8], &[u8], bool) -> bool;

/// Where a row lies in a batch's bytes. Between its key and its value may be what the page has
/// there, the row's header.
#[derive(Clone, Copy, Debug)]
struct Row {
    start: u32,
    key_end: u32,
    value: u32,
    end: u32,
    flag: bool,
}

thread_local! {
    /// The memory of the batch that this thread dropped last, without rows.
    static SPARE: Cell<(Vec<u8>, Vec<Row>)> = const { Cell::new((Vec::new(), Vec::new())) };
}

/// Rows of one batch of a scan. Keeps its memory between batches.
#[derive(Clone, Debug, Default)]
pub struct RowBatch {
    /// Grows for several rows at a time; behind the last row it is space, of any contents.
    bytes: Vec<u8>,
    rows: Vec<Row>,
}

impl RowBatch {
    #[must_use]
    pub fn new() -> RowBatch {
        let (bytes, rows) = SPARE.with(Cell::take);
        RowBatch { bytes, rows }
    }
    pub fn clear(&mut self) {
        self.rows.clear();
    }
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }
    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
    /// Key and value of the i-th row.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let row = self.rows.get(index)?;
        let slice = |from: u32, to: u32| &self.bytes[from as usize..to as usize];
        Some((slice(row.start, row.key_end), slice(row.value, row.end)))
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
        self.rows.get(index).is_some_and(|row| row.flag)
    }
    /// Adds a row whose payload is at the end of its entry to a batch of at most `most`, if `keep`
    /// accepts it.
    // Inlined wherever it is called: every row of a scan comes through here, and a call with as
    // many arguments takes as long as the rest.
    #[inline(always)]
    pub(crate) fn push_entry(
        &mut self,
        entry: Entry<'_>,
        (payload, flag): (&[u8], bool),
        most: usize,
        keep: Option<Keep<'_>>,
    ) {
        if keep.is_some() {
            return self.push((entry.prefix, entry.suffix()), (payload, flag), most, keep);
        }
        // The header is copied as well: a third copy would cost more.
        let (start, key_end, end) = self.space(entry.prefix.len(), entry.stored.len(), most);
        self.bytes[start..key_end].copy_from_slice(entry.prefix);
        self.bytes[key_end..end].copy_from_slice(entry.stored);
        let (key_end, value) = (key_end + entry.suffix_len, end - payload.len());
        self.add(start, key_end, value, end, flag);
    }

    /// As [`RowBatch::push_entry`], of any row; its key has two parts.
    pub(crate) fn push(
        &mut self,
        (prefix, suffix): (&[u8], &[u8]),
        (value, flag): (&[u8], bool),
        most: usize,
        keep: Option<Keep<'_>>,
    ) {
        let key_len = prefix.len() + suffix.len();
        let (start, key_end, end) = self.space(key_len, value.len(), most);
        let (key, space) = self.bytes[start..end].split_at_mut(key_len);
        let (first, second) = key.split_at_mut(prefix.len());
        first.copy_from_slice(prefix);
        second.copy_from_slice(suffix);
        if keep.is_none_or(|keep| keep(key, value, flag)) {
            space.copy_from_slice(value);
            self.add(start, key_end, key_end, end, flag);
        }
    }

    /// Where the next row goes, in two parts of these lengths: its start, the second part's start,
    /// and its end.
    #[inline]
    fn space(&mut self, first: usize, second: usize, most: usize) -> (usize, usize, usize) {
        let start = self.rows.last().map_or(0, |row| row.end as usize);
        let end = start + first + second;
        if end > self.bytes.len() {
            self.grow(start, end, most);
        }
        (start, start + first, end)
    }

    #[inline]
    fn add(&mut self, start: usize, key_end: usize, value: usize, end: usize, flag: bool) {
        let [start, key_end, value, end] = [start, key_end, value, end].map(|at| at as u32);
        self.rows.push(Row { start, key_end, value, end, flag });
    }

    /// Makes space for a row from `start` to `end`. For a first one, for as many like it as the
    /// batch takes, or for a leaf's as a rule: growing step by step would copy them repeatedly.
    /// Rows differ in length, so there is some to spare.
    #[cold]
    fn grow(&mut self, start: usize, end: usize, most: usize) {
        let len = end - start;
        let spare = if start == 0 { len.saturating_mul(most.saturating_mul(2)).min(4096) } else { end };
        self.rows.reserve(most.min(32));
        self.bytes.resize(start + len.max(spare), 0);
    }
}

impl Drop for RowBatch {
    fn drop(&mut self) {
        if (1..=SPARE_BYTES_MAX).contains(&self.bytes.capacity()) {
            self.clear();
            let memory = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.rows));
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
        assert!(next.is_empty() && next.bytes.as_ptr() == memory);
        assert_eq!(RowBatch::new().bytes.capacity(), 0, "the memory has one owner");
        next.push((b"k", b"ey"), (&[7; SPARE_BYTES_MAX], false), 1, None);
        assert_eq!(next.get(0), Some((&b"key"[..], &[7; SPARE_BYTES_MAX][..])));
        drop(next);
        assert_eq!(RowBatch::new().bytes.capacity(), 0, "too large to keep");
    }
}
