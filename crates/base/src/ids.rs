//! Newtypes for the numbers that name something.

use std::fmt;

/// Log sequence number: a byte offset in the database's endless log stream.
///
/// A record's LSN is the offset of its first byte. [`Lsn::ZERO`] is before every record (the
/// stream's first record lies at [`Lsn::FIRST`]); a page whose version LSN is zero has never been
/// changed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

impl Lsn {
    /// Before every log record.
    pub const ZERO: Lsn = Lsn(0);
    /// Where the stream of a fresh database starts.
    pub const FIRST: Lsn = Lsn(4096);
    /// After every log record: for minima over "nothing pinned".
    pub const MAX: Lsn = Lsn(u64::MAX);

    /// The LSN `bytes` further on.
    #[must_use]
    pub fn advance(self, bytes: u64) -> Lsn {
        Lsn(self.0.checked_add(bytes).expect("an LSN never passes 2^64"))
    }

    /// Bytes of log between `earlier` and this LSN (zero if `earlier` is later).
    #[must_use]
    pub fn since(self, earlier: Lsn) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Debug for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lsn {}", self.0)
    }
}
impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $word:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { write!(f, concat!($word, " {}"), self.0) }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { write!(f, "{}", self.0) }
        }
    };
}

id!(
    /// A logical page: what trees and records point to. Where it lies is the page map's business.
    PageId(u64), "page");
id!(
    /// A B+tree: one for each table and each secondary index, and the system's own.
    TreeId(u32), "tree");
id!(
    /// A transaction that writes. Ids are never used twice in one database and grow with time.
    TxnId(u64), "transaction");
id!(
    /// One run of the database between two recoveries: every recovery begins a higher epoch before
    /// it appends to the log.
    Epoch(u32), "epoch");

/// Names one database for ever: drawn at random when it is created, and written into every block of
/// its log and every page of its metadata, so that files of another database are refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DatabaseId(pub [u8; 16]);

impl fmt::Debug for DatabaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "database {self}")
    }
}
impl fmt::Display for DatabaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}
