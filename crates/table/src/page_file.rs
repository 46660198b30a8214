//! Page files: whole pages of bytes by number, under transactions.
//!
//! A page file is a tree of rows, each of which names the page that holds the content:
//!
//! ```text
//! number: u64 BE  →  page: u64      a page with content
//!                 →  nothing        a page of zeros
//! ```
//!
//! A file is as long as its last row says; a number without a row, before or past the end, is a
//! page of zeros. Invariants:
//! * content never changes in place: a write puts another page into the row, in the atomic group
//!   that takes it into use, or writes rows beside it ([`crate::page_parts`]). So snapshots, row
//!   locks, savepoints, prepared transactions, rollback and recovery of page files are those of
//!   rows;
//! * every page is named by one row or one mark of [`crate::superseded`]: by the row while it is
//!   the newest version, then by the mark, which the same transaction writes. A rollback takes both
//!   back and frees the new page with the row's change (`Transaction::put_page`);
//! * so a page is read without a visibility check: a visible row is enough, as long as the
//!   transaction has what it read the row by, its snapshot or its lock.

use crate::error::{TableError, TableErrorKind};
use crate::naming::{is_zeros, named_page};
use crate::page_parts::{Part, RowKey};
use crate::ranks;
use crate::show;
use crate::statement::whole_or_nothing;
use crate::superseded::Superseded;
use firndb_base::sync::{Arc, RwLock};
use firndb_base::{PageId, TreeId};
use firndb_btree::{Direction, Position, Tree, TreeError, is_given_up};
use firndb_buffer::PageUse;
use firndb_txn::{Course, RowBatch, RowValue, Transaction, TxnError, TxnErrorKind, TxnManager};

/// Page numbers of a file lie below this.
pub const FILE_PAGES_MAX: u64 = 1 << 40;
/// Rows removed between two checks of the space in the log.
const ROWS_BETWEEN_PACES: usize = 32;

/// What the catalog holds of a page file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageFileDefinition {
    pub(crate) tree: TreeId,
    pub(crate) root: PageId,
    pub(crate) name: String,
}

/// A page file, shared by all its handles.
pub(crate) struct SharedFile {
    pub(crate) id: TreeId,
    pub(crate) name: String,
    pub(crate) manager: Arc<TxnManager>,
    superseded: Arc<Superseded>,
    /// `None` once the file is dropped. A statement keeps the `Arc` to its end, so that the tree is
    /// not cleared under it (see [`crate::drops`]). Held only to copy or take it.
    tree: RwLock<Option<Arc<Tree>>>,
}

/// Pages by number. Cheap to clone; usable from any thread. Once the file is dropped every use of
/// it fails with kind `Dropped`.
#[derive(Clone)]
pub struct PageFile {
    pub(crate) shared: Arc<SharedFile>,
}

pub(crate) fn key(page: u64) -> [u8; 8] {
    page.to_be_bytes()
}

impl PageFile {
    pub(crate) fn open(
        definition: &PageFileDefinition,
        manager: &Arc<TxnManager>,
        superseded: &Arc<Superseded>,
    ) -> PageFile {
        let tree = Arc::new(Tree::open(manager.pool().clone(), definition.tree, definition.root));
        let shared = SharedFile {
            id: definition.tree,
            name: definition.name.clone(),
            manager: manager.clone(),
            superseded: superseded.clone(),
            tree: ranks::STATE.rwlock(Some(tree)),
        };
        PageFile { shared: Arc::new(shared) }
    }

    /// The tree of its rows.
    pub(crate) fn tree(&self) -> Result<Arc<Tree>, TableError> {
        self.shared.tree.read().clone().ok_or_else(|| {
            let message = format!("page file {:?} was dropped; look it up again by name", self.shared.name);
            TableError::new(TableErrorKind::Dropped, message)
        })
    }

    /// Lets no statement begin any more.
    pub(crate) fn close(&self) {
        *self.shared.tree.write() = None;
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Bytes of a page.
    #[must_use]
    pub fn page_size(&self) -> usize {
        self.shared.manager.pool().page_size()
    }

    /// How many pages it has, as `txn` sees it: one more than the number of its last.
    pub fn pages(&self, txn: &mut Transaction) -> Result<u64, TableError> {
        let tree = self.tree_for(txn)?;
        let course = Course { direction: Direction::Backward, to: None, most: 1, page_use: PageUse::Working };
        txn.in_one_statement(|txn| {
            let mut batch = RowBatch::new();
            let mut position = Some(Position::Start);
            while let Some(from) = position {
                position = txn.scan(&tree, &from, course, &mut batch)?;
                if let Some((last, _)) = batch.iter().next() {
                    return Ok(RowKey::decode(last)?.page() + 1);
                }
            }
            Ok(0)
        })
    }

    /// Reads a page into `out`, which has a page's length afterwards.
    pub fn read(&self, txn: &mut Transaction, page: u64, out: &mut Vec<u8>) -> Result<(), TableError> {
        let tree = self.tree_for(txn)?;
        check_number(page)?;
        let mut row = txn.take_buffer();
        // The snapshot is kept until the page is read: so it is not freed meanwhile.
        let outcome = txn.in_one_statement(|txn| {
            let flag = txn.get_flagged(&tree, &key(page), &mut row)?;
            if flag.is_none() {
                row.clear();
            }
            self.read_named(txn, page, &row, out)?;
            if flag == Some(true) { self.overlay(txn, &tree, page, out) } else { Ok(()) }
        });
        txn.keep_buffer(row);
        outcome
    }

    /// The content of the page that a row names.
    pub(crate) fn read_named(
        &self,
        txn: &Transaction,
        number: u64,
        row: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), TableError> {
        out.clear();
        let Some(page) = named_page(row)? else {
            out.resize(self.page_size(), 0);
            return Ok(());
        };
        if let Some(image) = txn.private_image(page) {
            out.extend_from_slice(image);
            return Ok(());
        }
        let guard = self.shared.manager.pool().shared(page).map_err(TreeError::from).map_err(|error| {
            let error = TableError::from(error);
            let message = format!("page {number} of page file {:?}: {}", self.shared.name, error.message);
            TableError::new(error.kind, message)
        })?;
        if is_given_up(&guard) {
            return Err(TableError::damaged(format!(
                "page {number} of page file {:?} (page {page}) lost changes that could not be redone after damage: write \
                 it anew, or restore a backup",
                self.shared.name
            )));
        }
        if is_zeros(&guard) {
            return Err(TableError::damaged(format!(
                "page {number} of page file {:?} (page {page}) has lost its content: write it anew, or restore a backup",
                self.shared.name
            )));
        }
        out.extend_from_slice(&guard);
        Ok(())
    }

    /// Replaces a page. The file grows to it if it lies past the end.
    ///
    /// Errors: `BadArgument`, also if the content is that of a page which was given up after damage
    /// (`docs/format/tree.md`), which could not be read; the transaction's.
    pub fn put(&self, txn: &mut Transaction, page: u64, image: &[u8]) -> Result<(), TableError> {
        check_number(page)?;
        if image.len() != self.page_size() {
            return Err(TableError::bad_argument(format!(
                "a page of page file {:?} has {} bytes, not {}: write a part of it with write_page",
                self.shared.name,
                self.page_size(),
                image.len()
            )));
        }
        self.statement(txn, |txn, tree| self.put_image(txn, tree, page, image))
    }

    /// Makes a page whole, in place of what its row names and of its granules.
    pub(crate) fn put_image(
        &self,
        txn: &mut Transaction,
        tree: &Tree,
        page: u64,
        image: &[u8],
    ) -> Result<(), TableError> {
        if is_given_up(image) {
            return Err(TableError::bad_argument(format!(
                "page {page} would hold what marks pages as given up after damage, and nothing else: such a page is lost \
                 where it was copied from, so restore it there, or leave it out"
            )));
        }
        let zeros = is_zeros(image);
        if !zeros && txn.replace_image(tree, &key(page), image)? {
            return Ok(());
        }
        let mut old = txn.take_buffer();
        let flag = match zeros {
            true => txn.replace_flagged(tree, &key(page), (&[][..]).into(), &mut old)?,
            false => txn.put_page(tree, &key(page), image, &mut old)?,
        };
        let outcome = self.replaced(txn, tree, page, (flag, &old));
        txn.keep_buffer(old);
        outcome
    }

    /// After `txn` has replaced or removed the row of a page: what it was goes, with its granules.
    fn replaced(
        &self,
        txn: &mut Transaction,
        tree: &Tree,
        page: u64,
        (flag, old): (Option<bool>, &[u8]),
    ) -> Result<(), TableError> {
        if flag.is_none() {
            return Ok(());
        }
        self.supersede(txn, &key(page), old)?;
        if flag == Some(true) { self.remove_granules(txn, tree, page) } else { Ok(()) }
    }

    /// Marks the page that a row named before `txn` changed it. Where damage prevents that, the
    /// page stays allocated: the row is worth more.
    fn supersede(&self, txn: &mut Transaction, row: &[u8], old: &[u8]) -> Result<(), TableError> {
        let marked = match named_page(old) {
            Ok(Some(page)) => {
                txn.supersede_image(page);
                self.shared.superseded.mark(txn, page)
            }
            Ok(None) => Ok(()),
            Err(error) => Err(TableError::damaged(format!("row {}: {error}", show::Bytes(row)))),
        };
        match marked {
            Err(error) if error.is_damage() => {
                let lost = "; what was replaced stays allocated, and a check counts it as leaked";
                txn.manager().set_aside(
                    format!("noting pages of page file {:?} that were replaced", self.shared.name),
                    &TxnError::new(TxnErrorKind::Damaged, error.message + lost),
                );
                Ok(())
            }
            marked => marked,
        }
    }

    /// Replaces a part of a page, and locks the granules of 128 bytes that it touches, or all of
    /// the page.
    pub fn write(
        &self,
        txn: &mut Transaction,
        page: u64,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), TableError> {
        check_number(page)?;
        let size = self.page_size();
        if offset > size || bytes.len() > size - offset {
            return Err(TableError::bad_argument(format!(
                "{} bytes at offset {offset} go beyond a page, which has {size} bytes: write each page apart",
                bytes.len()
            )));
        }
        if bytes.is_empty() {
            return Ok(());
        }
        self.statement(txn, |txn, tree| self.write_part(txn, tree, page, Part { offset, bytes }))
    }

    /// Makes a page one of zeros that takes no space. The file's length stays.
    pub fn free(&self, txn: &mut Transaction, page: u64) -> Result<(), TableError> {
        check_number(page)?;
        self.statement(txn, |txn, tree| {
            let mut old = Vec::new();
            let flag = txn.update_flagged(tree, &key(page), (&[][..]).into(), &mut old)?;
            self.replaced(txn, tree, page, (flag, &old))
        })
    }

    /// Cuts the file off, or lets it grow by pages of zeros.
    pub fn set_pages(&self, txn: &mut Transaction, pages: u64) -> Result<(), TableError> {
        if pages > FILE_PAGES_MAX {
            return Err(beyond_limit(pages));
        }
        self.statement(txn, |txn, tree| {
            let mut batch = RowBatch::new();
            let (mut old, mut removed) = (Vec::new(), 0usize);
            let mut position = Some(Position::At(key(pages).to_vec()));
            while let Some(from) = position {
                position = txn.scan(tree, &from, Course::forward(None), &mut batch)?;
                for (key, _) in batch.iter() {
                    let page = match RowKey::decode(key) {
                        Ok(RowKey::Page(page)) => Some(page),
                        // Granules go with their pages.
                        Ok(RowKey::Granule(..)) => continue,
                        Err(_) => None,
                    };
                    if removed.is_multiple_of(ROWS_BETWEEN_PACES) {
                        txn.manager().pace()?;
                    }
                    removed += 1;
                    let flag = txn.remove_flagged(tree, key, &mut old)?;
                    if let Some(page) = page {
                        self.replaced(txn, tree, page, (flag, &old))?;
                    }
                }
            }
            if let Some(last) = pages.checked_sub(1) {
                txn.insert(tree, &key(last), &[])?;
            }
            Ok(())
        })
    }

    /// Writes a row of the file as it is given: for tests of what damaged rows do.
    #[doc(hidden)]
    pub fn put_row(&self, txn: &mut Transaction, key: &[u8], row: RowValue<'_>) -> Result<(), TableError> {
        let tree = self.tree_for(txn)?;
        txn.replace_flagged(&tree, key, row, &mut Vec::new())?;
        Ok(())
    }

    /// The tree, for a statement of `txn`.
    fn tree_for(&self, txn: &Transaction) -> Result<Arc<Tree>, TableError> {
        match Arc::ptr_eq(txn.manager(), &self.shared.manager) {
            true => self.tree(),
            false => Err(TableError::bad_argument(
                "the transaction belongs to another database than the page file",
            )),
        }
    }

    /// Runs a statement that writes; if it fails, nothing of it stays. It is run again if it is the
    /// transaction's first, and has read one row before another transaction changed the next.
    fn statement<R>(
        &self,
        txn: &mut Transaction,
        mut run: impl FnMut(&mut Transaction, &Tree) -> Result<R, TableError>,
    ) -> Result<R, TableError> {
        let tree = self.tree_for(txn)?;
        let is_first = !txn.has_seen();
        loop {
            let outcome = whole_or_nothing(txn, |txn| run(txn, &tree));
            match outcome {
                Err(TableError { kind: TableErrorKind::Transaction(TxnErrorKind::Conflict), .. })
                    if is_first =>
                {
                    txn.see_anew();
                }
                outcome => return outcome,
            }
        }
    }
}

impl std::fmt::Debug for PageFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PageFile({:?}, {})", self.shared.name, self.shared.id)
    }
}

fn check_number(page: u64) -> Result<(), TableError> {
    if page < FILE_PAGES_MAX { Ok(()) } else { Err(beyond_limit(page)) }
}

fn beyond_limit(page: u64) -> TableError {
    let message = format!("page {page} is beyond the limit of {FILE_PAGES_MAX} pages a file");
    TableError::bad_argument(message)
}
