//! Analyzing a table: its rows are read once, in one snapshot, beside writers.
//!
//! The scan is read ahead as every long scan. Memory: [`SAMPLE_ROWS`] rows of at most
//! [`ROW_BYTES_MAX`], and the pages of one window's rows. Leaves are counted from the nodes above
//! them; they may be of a moment after the snapshot.
//!
//! The statistics are written by one transaction after all was read: a crash before it has
//! committed leaves the old ones.

use crate::catalog::Catalog;
use crate::catalog_rows;
use crate::error::{TableError, TableErrorKind};
use crate::index::{Entry, IndexState};
use crate::live_index::LiveIndex;
use crate::range::KeyRange;
use crate::state::{Shared, State};
use crate::statistics::{IndexStatistics, SAMPLE_ROWS, SampledRow, TableStatistics, WINDOWS};
use crate::table::Table;
use crate::walk::Walk;
use firndb_base::PageId;
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::Ordering;
use firndb_btree::{Direction, Position, Tree};
use firndb_txn::{Isolation, Transaction, TxnOptions};
use std::collections::BTreeSet;
use std::ops::Bound;

/// Bytes of key and payload of a row that is kept in a sample, at most.
const ROW_BYTES_MAX: usize = 2048;
/// Windows of entries that are read of each index, at most.
const WINDOWS_READ: usize = 16;
/// Leaves listed at a time.
const LEAVES_LISTED: usize = 4096;
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

impl Catalog {
    /// Reads a table in one snapshot, while other transactions run. Writes nothing: see
    /// [`Catalog::keep_statistics`].
    ///
    /// Errors: the transaction's; `Dropped` if the table is dropped meanwhile.
    pub fn survey(
        &self,
        table: &Table,
        options: TxnOptions,
        progress: &mut dyn FnMut(AnalyzeProgress),
    ) -> Result<TableStatistics, TableError> {
        let options = TxnOptions { read_only: true, isolation: Isolation::Snapshot, ..options };
        let mut txn = self.manager.begin(options);
        let state = table.shared.state_for(&txn)?;
        let mut statistics = read(&mut txn, &table.shared, &state, progress)?;
        txn.rollback()?;
        statistics.cut_sample();
        Ok(statistics)
    }

    /// Keeps what [`Catalog::survey`] found of a table, in place of the statistics it had.
    ///
    /// Errors: the transaction's; `Dropped` if the table was dropped meanwhile.
    pub fn keep_statistics(&self, table: &Table, statistics: &TableStatistics) -> Result<(), TableError> {
        self.check_own(table)?;
        let bytes = statistics.encode(table.shared.id);
        // A table that is dropped after this erases its statistics with it.
        let _change = table.shared.definition_change.lock();
        table.shared.state()?;
        let _writing = self.writing.lock();
        let outcome =
            self.commit(|txn| catalog_rows::write_statistics(txn, &self.system, table.shared.id, &bytes));
        // Also after an error, since the commit may have come about all the same.
        table.shared.statistics_version.fetch_add(1, Ordering::SeqCst);
        outcome
    }

    /// As [`Catalog::table_statistics`], read once for each time that they are written; they may
    /// still have those of dropped indexes, whose trees' ids are not given out again.
    ///
    /// Errors: as there.
    pub fn planning_statistics(&self, table: &Table) -> Result<Option<Arc<TableStatistics>>, TableError> {
        let shared = &table.shared;
        // Read first: what is then read is of this version or a later one, and is not used past it.
        let version = shared.statistics_version.load(Ordering::SeqCst);
        let known = shared.statistics.lock().clone();
        if let Some((of, statistics)) = known
            && of == version
        {
            return Ok(statistics);
        }
        let statistics = self.table_statistics(table)?.map(Arc::new);
        *shared.statistics.lock() = Some((version, statistics.clone()));
        Ok(statistics)
    }

    /// The statistics kept of a table and of its present indexes; `None` if it was never analyzed.
    /// Read anew each time.
    ///
    /// Errors: the transaction's; `Damaged` and `TooNew` if they cannot be used. The table itself
    /// is none the worse: analyze it again.
    pub fn table_statistics(&self, table: &Table) -> Result<Option<TableStatistics>, TableError> {
        let mut txn = self.manager.begin(TxnOptions { read_only: true, ..TxnOptions::default() });
        let state = table.shared.state_for(&txn)?;
        let bytes = catalog_rows::read_statistics(&mut txn, &self.system, table.shared.id)?;
        txn.rollback()?;
        let Some(bytes) = bytes else { return Ok(None) };
        let mut statistics = TableStatistics::decode(&bytes, table.shared.id)?;
        // Those of dropped indexes stay in the catalog until the table is analyzed again.
        statistics.indexes.retain(|index| state.index(index.tree).is_some());
        Ok(Some(statistics))
    }
}

fn read(
    txn: &mut Transaction,
    shared: &Shared,
    state: &State,
    progress: &mut dyn FnMut(AnalyzeProgress),
) -> Result<TableStatistics, TableError> {
    let tree = &state.tree;
    let mut rng = Rng::new(u64::from(tree.id().0));
    let mut drawn = Reservoir::default();
    let (mut rows, mut row_bytes) = (0, 0);
    let expected = tree.estimate(None, None, None)?;
    let mut walk = Walk::new(KeyRange::all(), Direction::Forward);
    while walk.advance(txn, tree)? {
        if rows % ROWS_REPORTED == 0 {
            progress(AnalyzeProgress::Rows(rows, expected.max(rows)));
        }
        let (key, row) = walk.current();
        rows += 1;
        row_bytes += (key.len() + row.len()) as u64;
        drawn.offer(rows, &mut rng, || draw(key, row, walk.flag()));
    }
    drawn.shuffle(&mut rng);
    // The snapshot is later than `state`: its rows may have a column that was added in between.
    let newer = shared.newer(state)?;
    let state = newer.as_deref().unwrap_or(state);
    let ready: Vec<&LiveIndex> =
        state.indexes.iter().filter(|index| index.definition.state == IndexState::Ready).collect();
    let mut indexes = Vec::new();
    for (done, index) in ready.iter().enumerate() {
        progress(AnalyzeProgress::Indexes(done, ready.len()));
        if let Some(read) = read_index(txn, state, index, &drawn.rows)? {
            indexes.push(read);
        }
    }
    let sampled = drawn.rows.len();
    let sample: Vec<SampledRow> = drawn.rows.into_iter().flatten().collect();
    let sample_left_out = (sampled - sample.len()) as u32;
    let (leaves, height) = (leaves(tree)?, tree.height()?);
    Ok(TableStatistics { rows, row_bytes, leaves, height, indexes, sample, sample_left_out })
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
fn leaves(tree: &Tree) -> Result<u64, TableError> {
    let (mut leaves, mut pages) = (0, Vec::new());
    let mut from = Some(Position::Start);
    while let Some(position) = from {
        pages.clear();
        from = tree.next_leaves(&position, None, Direction::Forward, LEAVES_LISTED, &mut pages)?;
        leaves += pages.len() as u64;
    }
    Ok(leaves)
}

/// `None` if the snapshot does not see all of the index.
fn read_index(
    txn: &mut Transaction,
    state: &State,
    index: &LiveIndex,
    drawn: &[Drawn],
) -> Result<Option<IndexStatistics>, TableError> {
    match index.check_readable(txn) {
        Err(error) if error.kind == TableErrorKind::Stale => return Ok(None),
        readable => readable?,
    }
    let (leaves, height) = (leaves(&index.tree)?, index.tree.height()?);
    let mut windows = WindowCounts::default();
    let (mut entry, mut pages) = (Entry::default(), Vec::new());
    for SampledRow { key, row } in drawn.iter().flatten().take(WINDOWS_READ) {
        index.entry(&state.source(key, row)?, &mut entry)?;
        pages_of_entries(txn, state, index, Some(&entry.key), &mut pages)?;
        windows.count(&pages);
    }
    if windows.is_missing() {
        // No row was drawn whose entry has enough others behind it, or no row was kept.
        pages_of_entries(txn, state, index, None, &mut pages)?;
        windows.count_missing(&pages);
    }
    Ok(Some(IndexStatistics { tree: index.tree.id(), leaves, height, table_leaves: windows.means() }))
}

/// Replaces `pages` by the table's leaves that hold the rows of the next entries, one for each
/// entry, as many as the largest window has; from an entry's key or the index's beginning.
fn pages_of_entries(
    txn: &mut Transaction,
    state: &State,
    index: &LiveIndex,
    from: Option<&[u8]>,
    pages: &mut Vec<PageId>,
) -> Result<(), TableError> {
    pages.clear();
    let spec = &index.definition.spec;
    let low = from.map_or(Bound::Unbounded, Bound::Included);
    let mut walk = Walk::of_index(KeyRange::new(low, Bound::Unbounded), Direction::Forward);
    while pages.len() < WINDOWS[WINDOWS.len() - 1] && walk.advance(txn, &index.tree)? {
        let (key, value) = walk.current();
        let primary_key = spec.primary_key(state.kind(), key, value)?;
        state.tree.leaves(&[primary_key], pages)?;
    }
    Ok(())
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
