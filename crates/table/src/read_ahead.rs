//! What a scan has read before it comes there.
//!
//! Nothing for a short range: the first leaves are read one by one. From the third on, a window of
//! leaves is queued for the buffer's readers, refilled when half of it has been visited, or what a
//! reader takes at a time. It grows with the scan: to a sixteenth of the leaves visited, so that a
//! scan that is given up has wasted few reads; faster, doubling from [`FIRST`], where the range has
//! an end, which the window never goes past, or is the whole tree. After as many leaves as a scan
//! may keep in DRAM, what it reads is the scan's alone ([`PageUse::Once`]).
//!
//! All of it is a hint. A scan does not depend on it, nor do errors come from it.

use crate::range::KeyRange;
use firndb_base::PageId;
use firndb_btree::{Direction, Position, Tree};
use firndb_buffer::PageUse;
use firndb_tier::Whereabouts;

/// Leaves that a scan has to itself.
const ALONE: usize = 2;
/// Leaves of the first window of a range with an end.
const FIRST: usize = 4;
/// Most leaves of an index ahead of a cursor that reads the rows.
const LEAVES_BESIDE_ROWS: usize = 6;
/// A window of a range without an end is this part of the leaves visited.
const SHARE: usize = 16;

/// Leaves of a window from which the nodes above the leaves behind it are read ahead, too: that
/// many at a time.
const PARENTS_FROM: usize = 32;
const PARENTS: usize = 4;

/// How far a scan is read ahead.
#[derive(Default)]
pub(crate) struct ReadAhead {
    /// The scan goes from one end of the tree to the other.
    is_whole: bool,
    /// Each leaf of the scan, an index, has many other pages read for its rows: few leaves are
    /// worth having ahead, since they would be gone again.
    pub(crate) is_beside_rows: bool,
    /// The scan is background work: it leaves nothing in DRAM, and has little read ahead.
    pub(crate) is_in_background: bool,
    /// Leaves that the scan has come past.
    pub(crate) visited: usize,
    /// What a short scan does without.
    window: Option<Box<Window>>,
}

/// What is ahead of a scan.
#[derive(Default)]
struct Window {
    /// Leaves wanted ahead when they were asked for last.
    size: usize,
    /// Leaves asked for that the scan has not come to, about: structure changes make it differ.
    ahead: usize,
    /// Where the leaves behind these begin; `None` if the scan ends with them.
    next: Option<Position>,
    pages: Vec<PageId>,
    parents: Vec<PageId>,
    resident: Vec<bool>,
    places: Vec<Whereabouts>,
}

impl ReadAhead {
    pub(crate) fn of(range: &KeyRange, is_beside_rows: bool) -> ReadAhead {
        let is_whole = range.low().is_none() && range.high().is_none();
        ReadAhead { is_whole, is_beside_rows, ..ReadAhead::default() }
    }

    /// What the scan uses its next leaf for.
    pub(crate) fn page_use(&self, tree: &Tree) -> PageUse {
        let is_short = self.visited < tree.pool().working_set_of_a_scan().max(ALONE);
        if is_short && !self.is_in_background { PageUse::Working } else { PageUse::Once }
    }

    /// Notes that the scan has come past a leaf, and continues at `from`, up to `to`.
    pub(crate) fn step(&mut self, tree: &Tree, from: &Position, to: Option<&[u8]>, direction: Direction) {
        self.visited += 1;
        if self.visited < ALONE {
            return;
        }
        let page_use = self.page_use(tree);
        let window = self.window.get_or_insert_default();
        let overtaken = window.ahead == 0;
        window.ahead = window.ahead.saturating_sub(1);
        let refill = (window.size / 2).min(tree.pool().read_window());
        if window.ahead + refill > window.size {
            return;
        }
        let most = if self.is_beside_rows { LEAVES_BESIDE_ROWS } else { usize::MAX };
        let most = if self.is_in_background { tree.pool().read_window().min(most) } else { most };
        let most = tree.pool().read_ahead_pages().min(most);
        let share = self.visited / SHARE;
        let doubled = if self.is_whole || to.is_some() { (2 * window.size).max(FIRST) } else { 0 };
        window.size = share.max(doubled).min(most);
        if overtaken {
            window.next = Some(from.clone());
        }
        window.fill(tree, to, direction, page_use);
    }
}

impl Window {
    /// Asks for the leaves that are wanted and were not asked for.
    fn fill(&mut self, tree: &Tree, to: Option<&[u8]>, direction: Direction, page_use: PageUse) {
        let wanted = self.size.saturating_sub(self.ahead);
        let Some(begin) = self.next.as_ref().filter(|_| wanted > 0) else { return };
        self.pages.clear();
        let Ok(next) = tree.next_leaves(begin, to, direction, wanted, &mut self.pages) else {
            // The scan meets the error if it comes there.
            self.next = None;
            return;
        };
        self.next = next;
        self.ahead += self.pages.len();
        tree.pool().resident(&self.pages, &mut self.resident);
        if self.resident.iter().all(|is_resident| *is_resident) {
            return;
        }
        self.read_parents(tree, to, direction);
        self.sort_by_place(tree);
        tree.pool().read_ahead(&self.pages, page_use);
    }

    /// Has the nodes read that will be asked for the leaves behind these, if the scan is long.
    fn read_parents(&mut self, tree: &Tree, to: Option<&[u8]>, direction: Direction) {
        let Some(next) = self.next.as_ref().filter(|_| self.size >= PARENTS_FROM) else { return };
        self.parents.clear();
        // An error is met where the nodes are needed.
        if tree.next_parents(next, to, direction, PARENTS, &mut self.parents).is_ok() {
            tree.pool().read_ahead_first(&self.parents);
        }
    }

    /// Puts the pages in the order of their places, so that neighbours are read as one.
    fn sort_by_place(&mut self, tree: &Tree) {
        tree.pool().tier().whereabouts(&self.pages, &mut self.places);
        let place = |found: &Whereabouts| match found {
            Whereabouts::Store { place } => (1, *place),
            Whereabouts::Cache | Whereabouts::Unwritten => (0, 0),
            Whereabouts::Unknown => (2, 0),
        };
        let mut placed: Vec<_> = self.places.iter().map(place).zip(self.pages.iter().copied()).collect();
        placed.sort_by_key(|(place, _)| *place);
        self.pages.clear();
        self.pages.extend(placed.into_iter().map(|(_, page)| page));
    }
}
