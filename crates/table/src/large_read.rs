//! Reading large values: their parts, then the pages that these name.
//!
//! Values written one after the other have their parts one after the other. While they are read in
//! this order, leaves and pages of those to come are read ahead: else each value would wait for
//! leaf and first page. What is read ahead is a hint: what the reader's snapshot sees, so that no
//! page is met that has no content yet.
//!
//! From a device that reads in one stream the client itself reads, in the order of places: windows
//! of reader threads would come between. There only leaves are read ahead.

use crate::error::TableError;
use crate::large::{Part, Reference, ValueId};
use crate::naming::named_page;
use crate::state::State;
use firndb_base::sync::Mutex;
use firndb_base::{PageId, crc32c};
use firndb_btree::{Direction, Position, Tree, TreeError, Visit};
use firndb_buffer::{BufferPool, PageUse};
use firndb_txn::{RowHeader, Transaction};

/// Parts that name pages, and are mostly in one leaf or two.
const PAGES_IN_A_LEAF: usize = 64;
/// Least pages of a value of which it is known whether it is read after the one before.
const PAGES_IN_ORDER: usize = 16;
/// Leaves beyond a value's that are read ahead.
const LEAVES_AHEAD: usize = 16;

/// What the last reader of a large value has seen behind it. A hint.
#[derive(Default)]
pub(crate) struct Behind {
    /// Locked alone. The value there, and how many of its first pages are queued.
    next: Mutex<Option<(ValueId, usize)>>,
}

impl Behind {
    /// How many pages of this value are queued, if it is the one behind the last.
    fn queued(&self, id: ValueId) -> Option<usize> {
        self.next.lock().filter(|next| next.0 == id).map(|next| next.1)
    }
}

/// What comes behind a value.
#[derive(Default)]
struct Coming {
    next: Option<ValueId>,
    pages: Vec<PageId>,
}

impl Coming {
    /// What is in memory of it, from `position` on: the next value, and a bounded number of pages.
    fn look(txn: &Transaction, tree: &Tree, position: Position, most: usize) -> Result<Coming, TableError> {
        let (mut coming, mut position, mut ended) = (Coming::default(), Some(position), false);
        for _ in 0..LEAVES_AHEAD {
            let Some(from) = position.take().filter(|_| !ended) else { break };
            position = tree.peek_leaf(&from, Direction::Forward, |key, value| {
                let Ok((RowHeader { ghost: false, writer, .. }, payload)) = RowHeader::split(value) else {
                    return Visit::Continue;
                };
                match Part::decode(key) {
                    Ok(Part::Page(id, _)) if txn.sees(writer) => {
                        coming.next.get_or_insert(id);
                        coming.pages.extend(named_page(payload).ok().flatten());
                    }
                    Ok(Part::Chunk(..)) => {}
                    _ => ended = true,
                }
                ended |= coming.next.is_some() && coming.pages.len() >= most;
                if ended { Visit::Stop } else { Visit::Continue }
            })?;
        }
        coming.pages.truncate(most);
        Ok(coming)
    }
}

/// The parts of a value as they are met, in their order.
struct Gathered<'o> {
    txn: &'o Transaction,
    reference: Reference,
    page_size: usize,
    /// How many pages and chunks were met.
    met: (u32, u32),
    /// Pages to be read, and where their bytes belong.
    pages: Vec<(PageId, usize)>,
    out: &'o mut Vec<u8>,
}

impl Gathered<'_> {
    /// Takes an entry of the tree; false if it is not the part that comes next.
    fn take(&mut self, key: &[u8], value: &[u8]) -> bool {
        let (id, at, len) = (self.reference.id, self.out.len(), self.reference.len as usize);
        let Ok((RowHeader { ghost: false, .. }, payload)) = RowHeader::split(value) else { return false };
        match Part::decode(key) {
            Ok(part) if part == Part::Page(id, self.met.0) && self.met.1 == 0 => {
                let Ok(named) = named_page(payload) else { return false };
                if at + self.page_size > len {
                    return false;
                }
                match named.and_then(|page| self.txn.private_image(page)) {
                    Some(image) => self.out.extend_from_slice(image),
                    None => {
                        self.pages.extend(named.map(|page| (page, at)));
                        self.out.resize(at + self.page_size, 0);
                    }
                }
                self.met.0 += 1;
            }
            Ok(part) if part == Part::Chunk(id, self.met.1) && at + payload.len() <= len => {
                self.out.extend_from_slice(payload);
                self.met.1 += 1;
            }
            _ => return false,
        }
        true
    }

    /// Reads the pages, which no thread frees meanwhile: the caller may see the value. Reader
    /// threads read what comes next, `coming` included, from page `queued` on: those before are
    /// queued already. Returns how many of `coming` are.
    fn read_pages(
        &mut self,
        pool: &BufferPool,
        mut queued: usize,
        coming: &[PageId],
    ) -> Result<usize, TableError> {
        let own = self.pages.len();
        let pages: Vec<PageId> =
            self.pages.iter().map(|(page, _)| *page).chain(coming.iter().copied()).collect();
        let one_stream = pool.reads_in_one_stream();
        let window = if one_stream { pool.bring_in_pages() } else { pool.read_window() };
        let ahead = pages_ahead(pool);
        for (first, some) in (0..).step_by(window).zip(self.pages.chunks(window)) {
            let next = first + some.len();
            let until = pages.len().min(next + ahead);
            pool.read_ahead(&pages[next.max(queued).min(until)..until], PageUse::Working);
            queued = queued.max(until);
            if own > 1 {
                pool.bring_in(&pages[first..next], PageUse::Working);
            }
            for &(page, at) in some {
                let guard = pool.shared(page).map_err(TreeError::from)?;
                self.out[at..at + self.page_size].copy_from_slice(&guard);
            }
        }
        Ok(queued.saturating_sub(own).min(coming.len()))
    }
}

/// How many pages reader threads read ahead of the client: as many frames as they may fill.
fn pages_ahead(pool: &BufferPool) -> usize {
    if pool.reads_in_one_stream() { 0 } else { pool.bring_in_pages() }
}

/// Brings in the leaves with a value's parts, and what comes behind them if values are read in
/// order. A hint: what they hold is found later.
fn bring_in_leaves(tree: &Tree, id: ValueId, pages: usize, in_order: bool) -> Result<(), TableError> {
    let (first, last) = (Position::At(id.page_key(0).to_vec()), id.page_key(u32::MAX));
    let (pool, mut leaves, most) = (tree.pool(), Vec::new(), 1 + pages / 16);
    tree.next_leaves(&first, Some(&last), Direction::Forward, most, &mut leaves)?;
    let came = pool.bring_in(&leaves, PageUse::Working);
    if in_order {
        leaves.clear();
        let behind = Position::Past(last.to_vec());
        tree.next_leaves(&behind, None, Direction::Forward, LEAVES_AHEAD, &mut leaves)?;
        match pool.reads_in_one_stream() {
            // Those of several values with one movement of the arm.
            true if came != Some(0) => _ = pool.bring_in(&leaves, PageUse::Working),
            true => {}
            false => pool.read_ahead_first(&leaves),
        }
    }
    Ok(())
}

/// Reads a value that `txn` may see into `out`; false if its parts are not whole: it has been
/// freed, its writer was rolled back, or it is damaged.
pub(crate) fn read(
    txn: &Transaction,
    state: &State,
    reference: Reference,
    out: &mut Vec<u8>,
) -> Result<bool, TableError> {
    let (tree, id, len) = (state.large_tree()?, reference.id, reference.len as usize);
    out.clear();
    out.reserve_exact(len);
    let (page_size, met, pages) = (tree.pool().page_size(), (0, 0), Vec::new());
    let (of_value, may_be_in_order) = (len / page_size, len / page_size >= PAGES_IN_ORDER);
    let queued = may_be_in_order.then(|| state.behind.queued(id)).flatten();
    let mut gathered = Gathered { txn, reference, page_size, met, pages, out };
    if of_value > PAGES_IN_A_LEAF || queued.is_some() {
        bring_in_leaves(tree, id, of_value, queued.is_some())?;
    }
    let mut position = Some(Position::At(id.page_key(0).to_vec()));
    while let Some(from) = position {
        let mut ended = false;
        position = tree.visit_leaf(&from, Direction::Forward, |key, value| {
            ended = !gathered.take(key, value) || gathered.out.len() == len;
            if ended { Visit::Stop } else { Visit::Continue }
        })?;
        if ended {
            break;
        }
    }
    let coming = match position.filter(|_| may_be_in_order) {
        None => Coming::default(),
        Some(position) => {
            let ahead = queued.map_or(0, |_| pages_ahead(tree.pool()));
            Coming::look(txn, tree, position, ahead)?
        }
    };
    let queued = gathered.read_pages(tree.pool(), queued.unwrap_or(0), &coming.pages)?;
    if may_be_in_order {
        *state.behind.next.lock() = coming.next.map(|next| (next, queued));
    }
    Ok(out.len() == len && crc32c(out) == reference.checksum)
}
