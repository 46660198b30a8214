//! Where the leaves of a table and of its indexes are: for planning.

use crate::error::TableError;
use crate::index::Entry;
use crate::index_handle::Index;
use crate::state::State;
use crate::statistics::SampledRow;
use crate::table::Table;
use firndb_btree::{Direction, Position, Tree};
use firndb_tier::Whereabouts;

/// Shares of a tree's leaves by where they are, from a sample of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Residency {
    /// In DRAM.
    pub dram: f64,
    /// In a cache above the store, and not in DRAM.
    pub cache: f64,
    /// Of pairs of neighbouring leaves in the store: the second lies right behind the first.
    pub adjacent: f64,
}

/// Where nothing is known: none in memory, and leaves lie in their order.
impl Default for Residency {
    fn default() -> Residency {
        Residency { dram: 0.0, cache: 0.0, adjacent: 1.0 }
    }
}

/// Sampled leaves whose neighbours are looked for, and how many of each.
const NEIGHBOURHOODS: usize = 16;
const NEIGHBOURS: usize = 8;
/// Pairs of neighbours in the store that say something.
const PAIRS_MIN: usize = 8;
/// Places from one leaf to the next over which a drive still reads in sequence.
const SKIPPED: u64 = 4;

impl Table {
    /// Where the leaves are that hold these rows. Reads no leaf, but perhaps nodes above them.
    ///
    /// Errors: those of reading nodes; `Dropped`.
    pub fn residency(&self, sample: &[SampledRow]) -> Result<Residency, TableError> {
        let state = self.shared.state()?;
        of_leaves(&state.tree, sample.iter().map(|row| row.key.clone()).collect())
    }
}

impl Index {
    /// Where the leaves are that hold the entries of these rows of its table. Reads no leaf, but
    /// perhaps nodes above them.
    ///
    /// Errors: those of reading nodes; `Damaged` if a row is none of the table's; `Dropped`.
    pub fn residency(&self, sample: &[SampledRow]) -> Result<Residency, TableError> {
        let state = self.table.shared.state()?;
        let index = self.live(&state)?;
        index.check_whole()?;
        of_leaves(&index.tree, self.keys_of(&state, sample)?)
    }

    fn keys_of(&self, state: &State, sample: &[SampledRow]) -> Result<Vec<Vec<u8>>, TableError> {
        let (index, mut entry) = (self.live(state)?, Entry::default());
        let key = |row: &SampledRow| {
            index.entry(&state.source(&row.key, &row.row)?, &mut entry)?;
            Ok(entry.key.clone())
        };
        sample.iter().map(key).collect()
    }
}

fn of_leaves(tree: &Tree, mut keys: Vec<Vec<u8>>) -> Result<Residency, TableError> {
    keys.sort_unstable();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let (mut pages, mut in_dram, mut places) = (Vec::new(), Vec::new(), Vec::new());
    tree.leaves(&keys, &mut pages)?;
    if pages.is_empty() {
        return Ok(Residency::default());
    }
    tree.pool().resident(&pages, &mut in_dram);
    tree.pool().tier().whereabouts(&pages, &mut places);
    let share = |count: usize| count as f64 / pages.len() as f64;
    let cached = places.iter().zip(&in_dram).filter(|(place, dram)| !**dram && **place == Whereabouts::Cache);
    Ok(Residency {
        dram: share(in_dram.iter().filter(|dram| **dram).count()),
        cache: share(cached.count()),
        adjacent: adjacent(tree, &keys)?,
    })
}

/// Of neighbours of the leaves that hold some of these sorted keys, the share that lie in a row.
fn adjacent(tree: &Tree, keys: &[&[u8]]) -> Result<f64, TableError> {
    let (mut pages, mut places) = (Vec::new(), Vec::new());
    let (mut pairs, mut in_a_row) = (0, 0);
    for key in keys.iter().step_by((keys.len() / NEIGHBOURHOODS).max(1)) {
        pages.clear();
        places.clear();
        let from = Position::At(key.to_vec());
        tree.next_leaves(&from, None, Direction::Forward, NEIGHBOURS, &mut pages)?;
        tree.pool().tier().whereabouts(&pages, &mut places);
        for two in places.windows(2) {
            if let [Whereabouts::Store { place: first }, Whereabouts::Store { place: second }] = two {
                pairs += 1;
                in_a_row += usize::from((1..=SKIPPED).contains(&second.wrapping_sub(*first)));
            }
        }
    }
    Ok(if pairs < PAIRS_MIN { Residency::default().adjacent } else { in_a_row as f64 / pairs as f64 })
}
