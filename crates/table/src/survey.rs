//! Reading a table for its statistics, in steps.
//!
//! All steps may run in one transaction ([`crate::catalog::Catalog::survey`]), and the statistics
//! are then of its snapshot; or each in another, so that no snapshot is held while a step in the
//! background rests. Then they are of the time between the first and the last step, which is as
//! good for planning: keys only grow along a walk, so no row is counted twice, and a row that is
//! there all the time is counted.
//!
//! The scan is read ahead as every long scan. Memory: [`SAMPLE_ROWS`] rows of at most
//! [`ROW_BYTES_MAX`], and the pages of one window's rows. Leaves are counted from the nodes above
//! them; they may be of a moment after the snapshot.

use crate::attempts::Attempts;
use crate::error::{TableError, TableErrorKind};
use crate::index::{Entry, IndexState};
use crate::live_index::LiveIndex;
use crate::range::KeyRange;
use crate::state::State;
use crate::statistics::{IndexStatistics, SAMPLE_ROWS, SampledRow, TableStatistics, WINDOWS};
use crate::table::Table;
use crate::walk::Walk;
use firndb_base::rng::Rng;
use firndb_base::{PageId, TreeId, clock};
use firndb_btree::{Direction, Position, Tree};
use firndb_txn::Transaction;
use std::collections::BTreeSet;
use std::ops::Bound;

/// Bytes of key and payload of a row that is kept in a sample, at most.
const ROW_BYTES_MAX: usize = 2048;
/// Windows of entries that are read of each index, at most.
const WINDOWS_READ: usize = 16;
/// Leaves listed in a step.
const LEAVES_LISTED: usize = 4096;
/// Rows, or entries of an index, read in a step.
const ROWS_A_STEP: usize = 64;
/// Rows from one report of progress to the next.
const ROWS_REPORTED: u64 = 4096;

/// How far an analysis is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnalyzeProgress {
    /// Rows read, and about how many there are.
    Rows(u64, u64),
    /// Indexes done, and how many there are.
    Indexes(usize, usize),
}

/// A table that is being read.
pub struct Survey {
    table: Table,
    is_background: bool,
    pub(crate) attempts: Attempts,
    stage: Stage,
    rng: Rng,
    drawn: Reservoir,
    /// Indexes to be read, and how many of them have been.
    indexes: Vec<TreeId>,
    indexes_done: usize,
    found: TableStatistics,
}

/// What the next step reads.
enum Stage {
    Begin,
    Rows(Walk),
    /// Of the index that is next.
    IndexLeaves(Leaves),
    IndexWindows(u64, Windows),
    Leaves(Leaves),
    Done,
}

impl Survey {
    /// In the background a scan leaves nothing in DRAM, and is read ahead by one window at most.
    #[must_use]
    pub fn new(table: &Table, is_background: bool) -> Survey {
        Survey {
            table: table.clone(),
            is_background,
            attempts: Attempts::default(),
            stage: Stage::Begin,
            rng: Rng::new(u64::from(table.id().0)),
            drawn: Reservoir::default(),
            indexes: Vec::new(),
            indexes_done: 0,
            found: TableStatistics::default(),
        }
    }

    /// Whether nothing has been read.
    pub(crate) fn is_to_begin(&self) -> bool {
        matches!(self.stage, Stage::Begin)
    }

    /// The table that is read.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Reads a bounded piece of the table, in `txn`; false if all has been read. A step that failed
    /// can be made again.
    pub(crate) fn step(
        &mut self,
        txn: &mut Transaction,
        progress: &mut dyn FnMut(AnalyzeProgress),
    ) -> Result<bool, TableError> {
        let state = self.table.shared.state_for(txn)?;
        let Survey { drawn, found, .. } = self;
        match &mut self.stage {
            Stage::Begin => {
                found.estimate = state.tree.estimate(None, None, None)?;
                let mut walk = Walk::new(KeyRange::all(), Direction::Forward);
                walk.is_in_background(self.is_background);
                self.stage = Stage::Rows(walk);
            }
            Stage::Rows(walk) => {
                for _ in 0..ROWS_A_STEP {
                    if !walk.advance(txn, &state.tree)? {
                        drawn.shuffle(&mut self.rng);
                        let ready = |index: &&LiveIndex| index.definition.state == IndexState::Ready;
                        let ready = state.indexes.iter().filter(ready);
                        self.indexes = ready.map(|index| index.tree.id()).collect();
                        self.stage = self.next_index(progress);
                        return Ok(true);
                    }
                    if found.rows % ROWS_REPORTED == 0 {
                        progress(AnalyzeProgress::Rows(found.rows, found.estimate.max(found.rows)));
                    }
                    let (key, row) = walk.current();
                    found.rows += 1;
                    found.row_bytes += (key.len() + row.len()) as u64;
                    drawn.offer(found.rows, &mut self.rng, || draw(key, row, walk.flag()));
                }
            }
            Stage::IndexLeaves(_) | Stage::IndexWindows(..) => {
                if !self.index_step(txn, &state)? {
                    self.indexes_done += 1;
                    self.stage = self.next_index(progress);
                }
            }
            Stage::Leaves(leaves) => {
                if !leaves.step(&state.tree)? {
                    (found.leaves, found.height) = (leaves.leaves, state.tree.height()?);
                    self.stage = Stage::Done;
                }
            }
            Stage::Done => return Ok(false),
        }
        Ok(true)
    }

    /// What was found, once all has been read.
    pub(crate) fn statistics(&self) -> TableStatistics {
        assert!(matches!(self.stage, Stage::Done), "all has been read");
        let mut found = self.found.clone();
        found.sample = self.drawn.rows.iter().flatten().cloned().collect();
        found.sample_left_out = (self.drawn.rows.len() - found.sample.len()) as u32;
        found.unix_us = clock::unix_time_us();
        found.cut_sample();
        found
    }

    fn next_index(&self, progress: &mut dyn FnMut(AnalyzeProgress)) -> Stage {
        if self.indexes_done == self.indexes.len() {
            return Stage::Leaves(Leaves::default());
        }
        progress(AnalyzeProgress::Indexes(self.indexes_done, self.indexes.len()));
        Stage::IndexLeaves(Leaves::default())
    }

    /// False if the index has been read, was dropped meanwhile, or the snapshot does not see all of
    /// it.
    fn index_step(&mut self, txn: &mut Transaction, state: &State) -> Result<bool, TableError> {
        let Some(index) = state.index(self.indexes[self.indexes_done]) else { return Ok(false) };
        match index.check_readable(txn) {
            Err(error) if error.kind == TableErrorKind::Stale => return Ok(false),
            readable => readable?,
        }
        match &mut self.stage {
            Stage::IndexLeaves(leaves) => {
                if !leaves.step(&index.tree)? {
                    self.stage = Stage::IndexWindows(leaves.leaves, Windows::default());
                }
                Ok(true)
            }
            Stage::IndexWindows(leaves, windows) => {
                if windows.walk.is_none() {
                    let from = match windows.next_row(&self.drawn.rows) {
                        Some(SampledRow { key, row }) => {
                            let mut entry = Entry::default();
                            index.entry(&state.source(key, row)?, &mut entry)?;
                            Bound::Included(entry.key)
                        }
                        // No row was drawn whose entry has enough others behind it, or no row was
                        // kept.
                        None if windows.counts.is_missing() => Bound::Unbounded,
                        None => {
                            let (height, table_leaves) = (index.tree.height()?, windows.counts.means());
                            let (tree, leaves) = (index.tree.id(), *leaves);
                            self.found.indexes.push(IndexStatistics { tree, leaves, height, table_leaves });
                            return Ok(false);
                        }
                    };
                    let range = KeyRange::new(from.as_ref().map(Vec::as_slice), Bound::Unbounded);
                    let mut walk = Walk::of_index(range, Direction::Forward);
                    walk.is_in_background(self.is_background);
                    windows.walk = Some(walk);
                }
                let spec = &index.definition.spec;
                windows.step(txn, state, &index.tree, |key, value| {
                    Ok(spec.primary_key(state.kind(), key, value)?)
                })?;
                Ok(true)
            }
            _ => unreachable!("called while an index is read"),
        }
    }
}

/// A row drawn for the sample; `None`: it is too long to be kept.
type Drawn = Option<SampledRow>;

fn draw(key: &[u8], row: &[u8], is_large: bool) -> Drawn {
    let is_kept = !is_large && key.len() + row.len() <= ROW_BYTES_MAX;
    is_kept.then(|| SampledRow { key: key.to_vec(), row: row.to_vec() })
}

/// Rows drawn uniformly from all that were offered (Vitter's algorithm R).
#[derive(Default)]
struct Reservoir {
    rows: Vec<Drawn>,
}

impl Reservoir {
    /// Offers the row that is the `number`-th, from 1.
    fn offer(&mut self, number: u64, rng: &mut Rng, row: impl FnOnce() -> Drawn) {
        if self.rows.len() < SAMPLE_ROWS {
            self.rows.push(row());
            return;
        }
        let place = rng.below(number) as usize;
        if let Some(drawn) = self.rows.get_mut(place) {
            *drawn = row();
        }
    }

    /// So that any first rows are a uniform sample, too.
    fn shuffle(&mut self, rng: &mut Rng) {
        for at in (1..self.rows.len()).rev() {
            self.rows.swap(at, rng.below(at as u64 + 1) as usize);
        }
    }
}

/// The leaves of a tree, counted from the nodes above them.
struct Leaves {
    leaves: u64,
    from: Position,
}

impl Default for Leaves {
    fn default() -> Leaves {
        Leaves { leaves: 0, from: Position::Start }
    }
}

impl Leaves {
    /// Counts some; false if these were the last.
    fn step(&mut self, tree: &Tree) -> Result<bool, TableError> {
        let mut pages = Vec::new();
        let next = tree.next_leaves(&self.from, None, Direction::Forward, LEAVES_LISTED, &mut pages)?;
        self.leaves += pages.len() as u64;
        let is_more = next.is_some();
        self.from = next.unwrap_or(Position::Start);
        Ok(is_more)
    }
}

/// Windows of an index's entries.
#[derive(Default)]
struct Windows {
    counts: WindowCounts,
    /// Those that have begun at sampled rows.
    begun: usize,
    /// Of the window that is being read; and whether it began at a sampled row.
    walk: Option<Walk>,
    is_sampled: bool,
    /// The table's leaves that hold the rows of its entries, one for each entry.
    pages: Vec<PageId>,
}

impl Windows {
    /// The row at whose entry the next window begins.
    fn next_row<'a>(&mut self, drawn: &'a [Drawn]) -> Option<&'a SampledRow> {
        let row = drawn.iter().flatten().take(WINDOWS_READ).nth(self.begun);
        self.is_sampled = row.is_some();
        self.begun += usize::from(self.is_sampled);
        row
    }

    /// Reads some entries of the window, and counts it when it is as large as the largest, or at
    /// the index's end.
    fn step(
        &mut self,
        txn: &mut Transaction,
        state: &State,
        index: &Tree,
        primary_key: impl for<'a> Fn(&'a [u8], &'a [u8]) -> Result<&'a [u8], TableError>,
    ) -> Result<(), TableError> {
        let walk = self.walk.as_mut().expect("a window has begun");
        for _ in 0..ROWS_A_STEP {
            if self.pages.len() < WINDOWS[WINDOWS.len() - 1] && walk.advance(txn, index)? {
                let (key, value) = walk.current();
                let leaves =
                    primary_key(key, value).and_then(|key| Ok(state.tree.leaves(&[key], &mut self.pages)?));
                if leaves.is_err() {
                    walk.step_back();
                }
                leaves?;
                continue;
            }
            match self.is_sampled {
                true => self.counts.count(&self.pages),
                false => self.counts.count_missing(&self.pages),
            }
            self.pages.clear();
            self.walk = None;
            break;
        }
        Ok(())
    }
}

/// Leaves counted for each of [`WINDOWS`].
#[derive(Default)]
struct WindowCounts {
    leaves: [u64; WINDOWS.len()],
    windows: [u32; WINDOWS.len()],
}

impl WindowCounts {
    /// Counts the first entries of `pages` as a window of each size that they fill.
    fn count(&mut self, pages: &[PageId]) {
        for (size, window) in WINDOWS.into_iter().enumerate() {
            if let Some(pages) = pages.get(..window) {
                self.add(size, pages);
            }
        }
    }

    /// Counts `pages`, all entries of the index if they are few, for the sizes that have no window.
    fn count_missing(&mut self, pages: &[PageId]) {
        for (size, window) in WINDOWS.into_iter().enumerate() {
            if self.windows[size] == 0 {
                self.add(size, &pages[..window.min(pages.len())]);
            }
        }
    }

    fn add(&mut self, size: usize, pages: &[PageId]) {
        self.leaves[size] += pages.iter().collect::<BTreeSet<_>>().len() as u64;
        self.windows[size] += 1;
    }

    fn is_missing(&self) -> bool {
        self.windows.contains(&0)
    }

    fn means(&self) -> [f64; WINDOWS.len()] {
        std::array::from_fn(|size| self.leaves[size] as f64 / f64::from(self.windows[size].max(1)))
    }
}
