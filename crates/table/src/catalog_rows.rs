//! Rows of the system tree.
//!
//! ```text
//! "object/"     tree: u32 BE  chunk: u16 BE  →  definition of a table or page file, by chunks
//! "dropped/"    tree: u32 BE                 →  root: u64, names pages: u8, CRC32C: u32
//! "superseded/" tree: u32 BE                 →  likewise: the tree that marks superseded pages
//! ```
//!
//! The checksum is that of the key and all before it.

use crate::definition::{Definition, Object};
use crate::error::TableError;
use crate::page_file::PageFileDefinition;
use crate::show;
use firndb_base::codec::{Malformed, Reader, Writer};
use firndb_base::{Crc32c, PageId, TreeId};
use firndb_btree::{Position, Tree};
use firndb_txn::{Course, RowBatch, Transaction, TxnError};

const OBJECT: &[u8] = b"object/";
const DROPPED: &[u8] = b"dropped/";
const SUPERSEDED: &[u8] = b"superseded/";

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
    /// Its rows name pages that are freed before it.
    pub(crate) names_pages: bool,
}

fn object_key(tree: TreeId, chunk: u16) -> Vec<u8> {
    [OBJECT, &tree.0.to_be_bytes(), &chunk.to_be_bytes()].concat()
}

fn dropped_key(tree: TreeId) -> Vec<u8> {
    [DROPPED, &tree.0.to_be_bytes()].concat()
}

/// Bytes of a definition in one row, at most: as many as fit beside its key, and a quarter of the
/// page at most, so that a chunk may be taken as small wherever it goes.
fn chunk_len(system: &Tree) -> usize {
    let page_size = system.pool().page_size();
    firndb_txn::max_row_len(page_size).saturating_sub(OBJECT.len() + 6).clamp(1, page_size / 4)
}

/// Writes the definition of a table or page file, encoded, in place of the one there was.
pub(crate) fn write(
    txn: &mut Transaction,
    system: &Tree,
    (tree, name): (TreeId, &str),
    bytes: &[u8],
) -> Result<(), TableError> {
    let chunks = bytes.chunks(chunk_len(system));
    let count = u16::try_from(chunks.len()).map_err(|_| {
        TableError::bad_argument(format!("the definition of {name:?} is too large for the catalog"))
    })?;
    for (number, chunk) in (0..count).zip(chunks) {
        txn.put(system, &object_key(tree, number), chunk)?;
    }
    erase_from(txn, system, tree, count)
}

/// Erases a table's definition.
pub(crate) fn erase(txn: &mut Transaction, system: &Tree, tree: TreeId) -> Result<(), TableError> {
    erase_from(txn, system, tree, 0)
}

fn erase_from(txn: &mut Transaction, system: &Tree, tree: TreeId, first: u16) -> Result<(), TableError> {
    let mut old = Vec::new();
    for number in first..=u16::MAX {
        if !txn.remove(system, &object_key(tree, number), &mut old)? {
            break;
        }
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
    value.put_u8(u8::from(row.names_pages));
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

/// Reads everything. Leaves that are damaged, or cannot be read, are skipped: what they hold is
/// missing, and the damage is returned beside the rest.
///
/// Errors: those of the tree's root, and of rows that are not what they should be.
pub(crate) fn read_all(txn: &mut Transaction, system: &Tree) -> Result<Stored, TableError> {
    let mut stored = Stored::default();
    let mut pieces = Pieces::default();
    let mut batch = RowBatch::new();
    let mut from = Some(Position::Start);
    while let Some(position) = from {
        from = match txn.scan(system, &position, Course::forward(None), &mut batch) {
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
    if kind > 1 {
        return Err(Malformed { what: "an unknown kind of tree" });
    }
    Ok(TreeRow { tree: TreeId(u32::from_be_bytes(tree)), root: PageId(root), names_pages: kind == 1 })
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
