//! Rows that a call has read, one after the other in one buffer.

/// Rows of one batch of a scan. Keeps its memory between batches.
#[derive(Clone, Debug, Default)]
pub struct RowBatch {
    bytes: Vec<u8>,
    /// For each row: end of key and end of value in `bytes`, and the flag.
    ends: Vec<(u32, u32, bool)>,
}

impl RowBatch {
    #[must_use]
    pub fn new() -> RowBatch {
        RowBatch::default()
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
    /// Adds a row to a batch of at most `most`.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8], flag: bool, most: usize) {
        if self.ends.is_empty() {
            // Capacity for the batch, or a leaf's rows as a rule: growing step by step would copy
            // them repeatedly.
            self.ends.reserve(most.min(32));
            self.bytes.reserve((key.len() + value.len()).saturating_mul(most).min(4096));
        }
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len() as u32;
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len() as u32, flag));
    }
}
