//! Rows that were read by their keys with one call.

/// Rows by the numbers of the keys that they were asked for with. Keeps its memory between calls.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    bytes: Vec<u8>,
    found: Vec<Option<Found>>,
}

/// Where a row lies in the bytes.
#[derive(Clone, Copy, Debug)]
struct Found {
    start: usize,
    end: usize,
    /// The bytes are a reference to a large value.
    is_large: bool,
}

/// Memory reserved at the first row, at most.
const RESERVED_MAX: usize = 64 << 10;

impl Rows {
    #[must_use]
    pub fn new() -> Rows {
        Rows::default()
    }
    /// How many keys were asked for.
    #[must_use]
    pub fn len(&self) -> usize {
        self.found.len()
    }
    /// Whether no key was asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }
    /// The row of the key with this number; `None` if there is none.
    #[must_use]
    pub fn get(&self, number: usize) -> Option<&[u8]> {
        self.found.get(number).copied().flatten().map(|found| &self.bytes[found.start..found.end])
    }
    /// The rows, in the order of the keys that were given.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Option<&[u8]>> {
        (0..self.len()).map(|number| self.get(number))
    }

    /// Replaces the rows by those that `read` sets, of `count` keys; there are none after an error.
    pub(crate) fn fill<E>(
        &mut self,
        count: usize,
        read: impl FnOnce(&mut Rows) -> Result<(), E>,
    ) -> Result<(), E> {
        self.begin(count);
        read(self).inspect_err(|_| self.begin(0))
    }

    /// Forgets all rows, for `count` keys.
    fn begin(&mut self, count: usize) {
        self.bytes.clear();
        self.found.clear();
        self.found.resize(count, None);
    }

    /// Bytes of memory that it keeps.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.bytes.capacity() + self.found.capacity() * size_of::<Option<Found>>()
    }

    /// Bytes of memory that rows of `keys` keys need at most, large values apart.
    #[must_use]
    pub fn memory_of(keys: usize, page_size: usize) -> usize {
        keys * (firndb_txn::max_row_len(page_size) + size_of::<Option<Found>>())
    }

    /// Makes space for `more` bytes of rows beside those that are there.
    pub(crate) fn reserve(&mut self, more: usize) {
        self.bytes.reserve_exact(more);
    }

    /// Bytes of memory that [`Rows::reserve`] takes: where it must grow, old and new are there.
    pub(crate) fn memory_with(&self, more: usize) -> usize {
        let needed = self.bytes.len() + more;
        self.memory() + if needed > self.bytes.capacity() { needed } else { 0 }
    }

    /// Forgets the rows of all keys but the first ones.
    pub(crate) fn truncate(&mut self, keys: usize) {
        self.found.truncate(keys);
    }

    /// Sets the row of a key: its bytes, and whether they are a reference to a large value.
    pub(crate) fn set(&mut self, number: usize, row: Option<(&[u8], bool)>) {
        self.found[number] = row.map(|(row, is_large)| {
            if self.bytes.is_empty() {
                // The others are as long, as a rule: growing step by step would copy them
                // repeatedly.
                self.bytes.reserve((row.len() * self.found.len()).min(RESERVED_MAX));
            }
            let start = self.bytes.len();
            self.bytes.extend_from_slice(row);
            Found { start, end: self.bytes.len(), is_large }
        });
    }

    /// Whether the bytes of the row are a reference to a large value.
    pub(crate) fn is_large(&self, number: usize) -> bool {
        self.found[number].is_some_and(|found| found.is_large)
    }
}
