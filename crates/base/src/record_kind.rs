//! Every kind of log record: its number, its owner, and what reads it after a crash.
//!
//! A record names its kind by one byte, which is part of the log's format: a number is never given
//! to another kind. Each owner has a range of numbers ([`Kind::owner`]), also of those that no kind
//! has yet, so that a reader passes a record on without knowing its kind; the owner refuses a kind
//! that it does not know. The bodies' formats are the owners'.

/// The type of a log record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind(pub u8);

/// The crate that writes records of a kind and decodes their bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KindOwner {
    /// `log`: 0x01–0x0f. Recovery does not deliver these records; the log reads them itself.
    Log,
    /// `tier`, the page map: 0x10–0x1f. Redo: `firndb_tier::store::Store::redo`.
    PageMap,
    /// `btree`, page changes: 0x20–0x3f. Redo: `firndb_btree::redo`; undo: the attachment, which
    /// `txn` decodes.
    Tree,
    /// `txn`, ends and decisions of transactions: 0x40–0x4f. Read by
    /// `firndb_txn::Analysis::record`.
    Transactions,
    /// `firn`, checkpoints: 0x50–0x5f. Read when the superblock or an archive names them.
    Checkpoints,
}

/// A kind of the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownKind {
    /// Its number.
    pub kind: Kind,
    /// Its name: that of the constant.
    pub name: &'static str,
    /// Its owner.
    pub owner: KindOwner,
}

macro_rules! registry {
    ($($owner:ident { $($(#[$doc:meta])* $name:ident = $number:literal,)* })*) => {
        impl Kind {
            $($($(#[$doc])* pub const $name: Kind = Kind($number);)*)*

            /// Every kind, in the order of the numbers.
            pub const ALL: &[KnownKind] = &[$($(
                KnownKind { kind: Kind::$name, name: stringify!($name), owner: KindOwner::$owner },
            )*)*];
        }
    };
}

registry! {
    Log {
        /// First record of an epoch other than the first: u32 epoch, u64 LSN at which the log
        /// before it ended; if `COPIED` records follow, u64 LSN at which these end.
        EPOCH_START = 0x01,
        /// A block of log before the epoch that too few devices had: u32 epoch, u64 LSN, bytes.
        COPIED = 0x02,
    }
    PageMap {
        /// Pages allocated and freed.
        PAGES_PUBLISHED = 0x10,
        /// Pages written to new places.
        PAGES_MOVED = 0x11,
        /// A group returned the space of its places to the file system, or got it again.
        GROUP_BACKING = 0x12,
        /// Pages that become allocated in versions of another database's log, while a database is
        /// restored.
        PAGES_ADOPTED = 0x13,
        /// Pages written as deltas: places that become delta pages, the pages in their slots, and
        /// delta pages that become free.
        PAGES_DELTA = 0x14,
        /// Pages whose first content was written to places, and is in no log.
        PAGES_SHADOWED = 0x15,
    }
    Tree {
        /// A leaf gets an entry.
        TREE_INSERT = 0x20,
        /// An entry of a leaf gets another value.
        TREE_REPLACE = 0x21,
        /// Parts of a value are overwritten.
        TREE_PATCH = 0x22,
        /// An entry of a leaf is removed.
        TREE_REMOVE = 0x23,
        /// Several entries of a leaf are removed.
        TREE_SWEEP = 0x24,
        /// The page becomes this node, whatever it was.
        TREE_FORMAT = 0x25,
        /// The node keeps its first entries and gets another high fence.
        TREE_TRIM = 0x26,
        /// The node takes over the entries and the high fence of its right neighbour.
        TREE_ABSORB = 0x27,
        /// An inner node gets a separator with the child to its right.
        TREE_INSERT_CHILD = 0x28,
        /// An inner node loses a separator and the child to its right.
        TREE_REMOVE_CHILD = 0x29,
        /// The root's tree is being cleared.
        TREE_CONDEMN = 0x2a,
        /// The page is freed in the same group. Nothing of it is kept.
        TREE_DROP_PAGE = 0x2b,
        /// The page is no node: it becomes these bytes, whatever it was.
        TREE_IMAGE = 0x2c,
        /// A child of an inner node has another page.
        TREE_SET_CHILD = 0x2d,
    }
    Transactions {
        /// A transaction committed.
        COMMIT = 0x40,
        /// A transaction was rolled back: all of it is undone.
        ABORT = 0x41,
        /// A transaction is prepared.
        PREPARE = 0x42,
        /// A prepared transaction is to be rolled back.
        ROLLBACK = 0x43,
    }
    Checkpoints {
        /// A checkpoint, to which the superblock points. Body: redo start u64; how many list
        /// records belong to it varint, and if any, the LSN of the first u64; the state of the
        /// transactions; the last part of its list of open transactions, which is the whole as a
        /// rule.
        CHECKPOINT = 0x50,
        /// A part of the list of the next checkpoint record, if that is long. Other records may lie
        /// between them.
        CHECKPOINT_LIST = 0x51,
    }
}

impl Kind {
    /// The owner of the number's range; `None` if no owner has it.
    #[must_use]
    pub const fn owner(self) -> Option<KindOwner> {
        match self.0 {
            0x01..=0x0f => Some(KindOwner::Log),
            0x10..=0x1f => Some(KindOwner::PageMap),
            0x20..=0x3f => Some(KindOwner::Tree),
            0x40..=0x4f => Some(KindOwner::Transactions),
            0x50..=0x5f => Some(KindOwner::Checkpoints),
            _ => None,
        }
    }

    /// Its name, if it is a kind of the registry.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        Kind::ALL.iter().find(|known| known.kind == self).map(|known| known.name)
    }

    /// Whether the record is the log's own, which recovery does not deliver.
    #[must_use]
    pub const fn is_own(self) -> bool {
        matches!(self.owner(), Some(KindOwner::Log))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_unique_and_lie_in_their_owners_range() {
        for pair in Kind::ALL.windows(2) {
            assert!(pair[0].kind < pair[1].kind, "{} before {}", pair[0].name, pair[1].name);
        }
        for known in Kind::ALL {
            assert_eq!(known.kind.owner(), Some(known.owner), "{}", known.name);
            assert_eq!(known.kind.name(), Some(known.name), "{}", known.name);
            assert_eq!(Kind::ALL.iter().filter(|other| other.name == known.name).count(), 1);
        }
        assert_eq!((Kind(0).owner(), Kind(0x60).owner(), Kind(0x7f).name()), (None, None, None));
    }

    /// The numbers are in every log that was ever written.
    #[test]
    fn numbers_are_pinned() {
        let numbers: Vec<u8> = Kind::ALL.iter().map(|known| known.kind.0).collect();
        let expected: Vec<u8> = (0x01..=0x02)
            .chain(0x10..=0x15)
            .chain(0x20..=0x2d)
            .chain(0x40..=0x43)
            .chain(0x50..=0x51)
            .collect();
        assert_eq!(numbers, expected);
        assert_eq!((Kind::TREE_FORMAT.0, Kind::COMMIT.0, Kind::CHECKPOINT.0), (0x25, 0x40, 0x50));
    }
}
