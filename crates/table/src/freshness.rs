//! How a table's statistics stand to the table: see `rows_changed.rs`.

/// How a table's statistics stand to the table.
#[derive(Default)]
pub(crate) struct Freshness {
    /// Rows that it had when it was analyzed; 0: it never was; `None`: not looked up yet.
    pub(crate) analyzed: Option<u64>,
    /// What had been counted when the newest survey began.
    pub(crate) counted_before: u64,
    /// It is not analyzed in the background before the next opening.
    pub(crate) set_aside: bool,
}
