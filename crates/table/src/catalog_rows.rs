//! Rows of the system tree.
//!
//! ```text
//! "object/"           tree: u32 BE, chunk: u16 BE → definition of a table or page file, by chunks
//! "dropped/"          tree: u32 BE                → root: u64, names pages: u8, CRC32C: u32
//! "superseded/"       tree: u32 BE                → likewise: the tree that marks superseded pages
//! "table-statistics/" tree: u32 BE, chunk: u16 BE → statistics of a table, by chunks
//! ```
//!
//! The checksum is that of the key and all before it.
//!
//! Statistics lie behind all else, and are not read with the definitions: they are far larger, and
//! wanted one table at a time. Where they are damaged, tables are not.

use crate::definition::{Definition, Object};
use crate::error::{TableError, TableErrorKind};
use crate::naming::Naming;
use crate::page_file::PageFileDefinition;
use crate::range::KeyRange;
use crate::show;
use crate::statistics;
use crate::walk::Walk;
use firndb_base::codec::{Malformed, Reader, Writer};
use firndb_base::{Crc32c, PageId, TreeId};
use firndb_btree::{Direction, Position, Tree};
use firndb_txn::{Course, RowBatch, Transaction, TxnError, TxnErrorKind, TxnManager};
use std::ops::Bound;

const OBJECT: &[u8] = b"object/";
const DROPPED: &[u8] = b"dropped/";
const SUPERSEDED: &[u8] = b"superseded/";
const STATISTICS: &[u8] = b"table-statistics/";

/// Where `read_all` stops. It is the shortest separator there can be before the first leaf of
/// statistics, so that not even that leaf is visited.
const READ_END: &[u8] = b"t";

/// Every kind of row, and whether it is read at opening: all of these lie before [`READ_END`].
const KINDS: [(&[u8], bool); 4] = [(OBJECT, true), (DROPPED, true), (SUPERSEDED, true), (STATISTICS, false)];

const _: () = {
    let mut kind = 0;
    while kind < KINDS.len() {
        let (prefix, is_read_at_opening) = KINDS[kind];
        assert!((prefix[0] < READ_END[0]) == is_read_at_opening);
        kind += 1;
    }
};

/// What the system tree holds.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    pub(crate) definitions: Vec<Definition>,
    pub(crate) page_files: Vec<PageFileDefinition>,
    pub(crate) dropped: Vec<TreeRow>,
    /// The tree that marks superseded pages.
    pub(crate) superseded: Option<TreeRow>,
    /// Why not everything could be read: the first damage met.
    pub(crate) damage: Option<TxnError>,
}

/// A tree, as a row of its own tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreeRow {
    pub(crate) tree: TreeId,
    pub(crate) root: PageId,
    /// Pages that its rows name are freed before it.
    pub(crate) naming: Naming,
}

impl TreeRow {
    pub(crate) fn open(&self, manager: &TxnManager) -> Tree {
        Tree::open(manager.pool().clone(), self.tree, self.root)
    }
}

fn chunk_key(what: &[u8], tree: TreeId, chunk: u16) -> Vec<u8> {
    [what, &tree.0.to_be_bytes(), &chunk.to_be_bytes()].concat()
}

fn dropped_key(tree: TreeId) -> Vec<u8> {
    [DROPPED, &tree.0.to_be_bytes()].concat()
}

/// Bytes in one row, at most: as many as fit beside its key, and a quarter of the page at most, so
/// that a chunk may be taken as small wherever it goes.
fn chunk_len(system: &Tree) -> usize {
    let page_size = system.pool().page_size();
    firndb_txn::max_row_len(page_size).saturating_sub(STATISTICS.len() + 6).clamp(1, page_size / 4)
}

/// Writes the definition of a table or page file, encoded, in place of the one there was.
pub(crate) fn write(
    txn: &mut Transaction,
    system: &Tree,
    (tree, name): (TreeId, &str),
    bytes: &[u8],
) -> Result<(), TableError> {
    write_chunks(txn, system, (OBJECT, tree), bytes).map_err(|error| {
        error.unwrap_or_else(|| {
            TableError::bad_argument(format!("the definition of {name:?} is too large for the catalog"))
        })
    })
}

/// Erases a table's definition and statistics. Statistics that damage hides stay: no other table
/// ever has the id.
pub(crate) fn erase(txn: &mut Transaction, system: &Tree, tree: TreeId) -> Result<(), TableError> {
    match erase_from(txn, system, (STATISTICS, tree), 0) {
        Err(error) if is_damage(error.kind) => {}
        erased => erased?,
    }
    erase_from(txn, system, (OBJECT, tree), 0)
}

fn is_damage(kind: TableErrorKind) -> bool {
    use TxnErrorKind::{Damaged, Unreadable};
    matches!(kind, TableErrorKind::Damaged | TableErrorKind::Transaction(Damaged | Unreadable))
}

/// Writes a table's statistics, in place of those there were.
pub(crate) fn write_statistics(
    txn: &mut Transaction,
    system: &Tree,
    tree: TreeId,
    bytes: &[u8],
) -> Result<(), TableError> {
    let written = write_chunks(txn, system, (STATISTICS, tree), bytes);
    written.map_err(|error| error.expect("statistics are limited to far fewer chunks than can be counted"))
}

/// Reads the bytes of a table's statistics; `None` if it has none.
///
/// Errors: the transaction's; `Damaged` if the chunks do not follow each other.
pub(crate) fn read_statistics(
    txn: &mut Transaction,
    system: &Tree,
    tree: TreeId,
) -> Result<Option<Vec<u8>>, TableError> {
    let prefix = [STATISTICS, &tree.0.to_be_bytes()].concat();
    let mut walk = Walk::new(KeyRange::prefix(&prefix), Direction::Forward);
    let (mut bytes, mut chunks) = (Vec::new(), 0u16);
    while walk.advance(txn, system)? {
        let (key, chunk) = walk.current();
        let is_next = key == chunk_key(STATISTICS, tree, chunks) && !chunk.is_empty();
        if !is_next || bytes.len() + chunk.len() > statistics::MAX_BYTES {
            return Err(TableError::damaged(format!(
                "a chunk of the statistics of {tree} is missing or is none; analyze the table again"
            )));
        }
        bytes.extend_from_slice(chunk);
        chunks += 1;
    }
    Ok((chunks > 0).then_some(bytes))
}

/// Writes the bytes of something of a tree in chunks, in place of those there were. `None`: they
/// are too many.
fn write_chunks(
    txn: &mut Transaction,
    system: &Tree,
    (what, tree): (&[u8], TreeId),
    bytes: &[u8],
) -> Result<(), Option<TableError>> {
    let chunks = bytes.chunks(chunk_len(system));
    let count = u16::try_from(chunks.len()).map_err(|_| None)?;
    for (number, chunk) in (0..count).zip(chunks) {
        txn.put(system, &chunk_key(what, tree, number), chunk).map_err(|error| Some(error.into()))?;
    }
    erase_from(txn, system, (what, tree), count).map_err(Some)
}

/// Erases all chunks from the `first` on, also where one between them is missing.
fn erase_from(
    txn: &mut Transaction,
    system: &Tree,
    (what, tree): (&[u8], TreeId),
    first: u16,
) -> Result<(), TableError> {
    let prefix = [what, &tree.0.to_be_bytes()].concat();
    let (low, high) = (chunk_key(what, tree, first), KeyRange::prefix(&prefix));
    let high = high.high().map_or(Bound::Unbounded, Bound::Excluded);
    let mut walk = Walk::new(KeyRange::new(Bound::Included(&low), high), Direction::Forward);
    let mut keys = Vec::new();
    while walk.advance(txn, system)? {
        keys.push(walk.current().0.to_vec());
    }
    let mut old = Vec::new();
    for key in keys {
        txn.remove(system, &key, &mut old)?;
    }
    Ok(())
}

/// Records that a tree is to be cleared and freed.
pub(crate) fn write_dropped(txn: &mut Transaction, system: &Tree, row: TreeRow) -> Result<(), TableError> {
    write_tree_row(txn, system, &dropped_key(row.tree), row)
}

/// Records the tree that marks superseded pages.
pub(crate) fn write_superseded(txn: &mut Transaction, system: &Tree, row: TreeRow) -> Result<(), TableError> {
    write_tree_row(txn, system, &[SUPERSEDED, &row.tree.0.to_be_bytes()].concat(), row)
}

fn write_tree_row(txn: &mut Transaction, system: &Tree, key: &[u8], row: TreeRow) -> Result<(), TableError> {
    let mut value = Vec::new();
    value.put_u64(row.root.0);
    value.put_u8(row.naming.code());
    let checksum = Crc32c::new().with(key).with(&value).value();
    value.put_u32(checksum);
    Ok(txn.put(system, key, &value)?)
}

/// Forgets a dropped tree.
pub(crate) fn erase_dropped(txn: &mut Transaction, system: &Tree, tree: TreeId) -> Result<(), TableError> {
    let mut old = Vec::new();
    if txn.remove(system, &dropped_key(tree), &mut old)? {
        return Ok(());
    }
    Err(TableError::damaged(format!("the catalog lacks the row that says that {tree} was dropped")))
}

/// Reads everything but statistics. Leaves that are damaged, or cannot be read, are skipped: what
/// they hold is missing, and the damage is returned beside the rest.
///
/// Errors: those of the tree's root, and of rows that are not what they should be.
pub(crate) fn read_all(txn: &mut Transaction, system: &Tree) -> Result<Stored, TableError> {
    let mut stored = Stored::default();
    let mut pieces = Pieces::default();
    let mut batch = RowBatch::new();
    let mut from = Some(Position::Start);
    while let Some(position) = from {
        from = match txn.scan(system, &position, Course::forward(Some(READ_END)), &mut batch) {
            Ok(next) => next,
            Err(error) if error.concerns_a_page() => {
                let next = system.past_leaf(&position)?;
                if next.is_none() && position == Position::Start {
                    // Not even the root.
                    return Err(error.into());
                }
                stored.damage.get_or_insert(error);
                batch.clear();
                pieces.gap(&mut stored);
                next
            }
            Err(error) => return Err(error.into()),
        };
        for (key, value) in batch.iter() {
            let unknown =
                || TableError::damaged(format!("the catalog has an unknown row {}", show::Bytes(key)));
            if let Some(rest) = key.strip_prefix(OBJECT) {
                pieces.add(rest, value, &mut stored).map_err(|_| unknown())??;
            } else if let Some(rest) = key.strip_prefix(DROPPED) {
                stored.dropped.push(read_tree_row(key, rest, value).map_err(|_| unknown())?);
            } else if let Some(rest) = key.strip_prefix(SUPERSEDED) {
                let row = read_tree_row(key, rest, value).map_err(|_| unknown())?;
                if stored.superseded.replace(row).is_some() {
                    return Err(unknown());
                }
            } else {
                return Err(unknown());
            }
        }
    }
    pieces.finish(&mut stored)?;
    Ok(stored)
}

fn read_tree_row(key: &[u8], rest: &[u8], value: &[u8]) -> Result<TreeRow, Malformed> {
    let tree = <[u8; 4]>::try_from(rest).map_err(|_| Malformed { what: "a tree id is not of four bytes" })?;
    let mut reader = Reader::new(value);
    let (root, kind, checksum) = (reader.u64()?, reader.u8()?, reader.u32()?);
    if !reader.is_empty() || checksum != Crc32c::new().with(key).with(&value[..9]).value() {
        return Err(Malformed { what: "the checksum of a tree's row does not match" });
    }
    let naming = Naming::of_code(kind)?;
    Ok(TreeRow { tree: TreeId(u32::from_be_bytes(tree)), root: PageId(root), naming })
}

/// Puts definitions together from their chunks, which come in order.
#[derive(Default)]
struct Pieces {
    tree: Option<TreeId>,
    chunks: u16,
    bytes: Vec<u8>,
    /// Whether what comes next may be the rest of a definition whose beginning could not be read.
    after_gap: bool,
}

impl Pieces {
    /// Rows that may be there could not be read.
    fn gap(&mut self, stored: &mut Stored) {
        // Whole, if it ended right there: a definition bears a checksum.
        if self.finish(stored).is_err() {
            self.chunks = 0;
            self.bytes.clear();
        }
        self.after_gap = true;
    }

    fn add(
        &mut self,
        rest: &[u8],
        value: &[u8],
        stored: &mut Stored,
    ) -> Result<Result<(), TableError>, Malformed> {
        let rest =
            <[u8; 6]>::try_from(rest).map_err(|_| Malformed { what: "a key is not of tree and chunk" })?;
        let tree = TreeId(u32::from_be_bytes([rest[0], rest[1], rest[2], rest[3]]));
        let chunk = u16::from_be_bytes([rest[4], rest[5]]);
        if self.after_gap && chunk > 0 && self.tree != Some(tree) {
            return Ok(Ok(()));
        }
        self.after_gap = false;
        if self.tree != Some(tree) {
            if let Err(error) = self.finish(stored) {
                return Ok(Err(error));
            }
            self.tree = Some(tree);
        }
        if chunk != self.chunks {
            return Err(Malformed { what: "a chunk of a definition is missing" });
        }
        self.chunks += 1;
        self.bytes.extend_from_slice(value);
        Ok(Ok(()))
    }

    fn finish(&mut self, stored: &mut Stored) -> Result<(), TableError> {
        let Some(tree) = self.tree.take() else { return Ok(()) };
        let object = Object::decode(&self.bytes).map_err(|error| {
            TableError::new(error.kind, format!("the table of {tree}: {}", error.message))
        })?;
        if object.tree() != tree {
            return Err(TableError::damaged(format!(
                "the definition kept for {tree} is that of {}",
                object.tree()
            )));
        }
        match object {
            Object::Table(definition) => stored.definitions.push(*definition),
            Object::PageFile(definition) => stored.page_files.push(definition),
        }
        self.chunks = 0;
        self.bytes.clear();
        Ok(())
    }
}
