//! Where the leaves of a table and of its indexes are: for planning.

use crate::error::TableError;
use crate::index::Entry;
use crate::index_handle::Index;
use crate::planning::PlanningStatistics;
use crate::statistics::SampledRow;
use crate::table::Table;
use firndb_base::PageId;
use firndb_btree::Tree;
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

/// Sampled rows whose leaves are looked for. The standard error of a share `p` of them is
/// `sqrt(p (1 - p) / 64)`, at most 0.06.
const ROWS: usize = 64;
/// Pairs of neighbours in the store that say something.
const PAIRS_MIN: usize = 8;
/// Places from one leaf to the next over which a drive still reads in sequence.
const SKIPPED: u64 = 4;

impl Table {
    /// Where the leaves are that hold sampled rows. Reads no leaf, but perhaps nodes above them.
    ///
    /// Errors: those of reading nodes; `Dropped`.
    pub fn residency(&self, statistics: &PlanningStatistics) -> Result<Residency, TableError> {
        let state = self.shared.state()?;
        let key = |row: &SampledRow| Ok(row.key.clone());
        of_leaves(&state.tree, statistics, key)
    }
}

impl Index {
    /// Where the leaves are that hold the entries of sampled rows of its table. Reads no leaf, but
    /// perhaps nodes above them.
    ///
    /// Errors: those of reading nodes; `Damaged` if a row is none of the table's; `Dropped`.
    pub fn residency(&self, statistics: &PlanningStatistics) -> Result<Residency, TableError> {
        let state = self.table.shared.state()?;
        let index = self.live(&state)?;
        index.check_whole()?;
        let mut entry = Entry::default();
        let key = |row: &SampledRow| {
            index.entry(&state.source(&row.key, &row.row)?, &mut entry)?;
            Ok(entry.key.clone())
        };
        of_leaves(&index.tree, statistics, key)
    }
}

/// The rows are the same each time; where their leaves are is found out anew.
fn of_leaves(
    tree: &Tree,
    statistics: &PlanningStatistics,
    key: impl FnMut(&SampledRow) -> Result<Vec<u8>, TableError>,
) -> Result<Residency, TableError> {
    let keys = statistics.keys(tree.id(), || statistics.known.sample.iter().take(ROWS).map(key).collect())?;
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let (mut pairs, mut in_dram, mut places) = (Vec::new(), Vec::new(), Vec::new());
    tree.leaves_with_next(&keys, &mut pairs)?;
    let pages: Vec<PageId> = pairs.iter().map(|(page, _)| *page).collect();
    tree.pool().resident(&pages, &mut in_dram);
    let share = |count: usize| count as f64 / pages.len() as f64;
    let nowhere_else = Residency::default();
    let dram = match in_dram.iter().filter(|dram| **dram).count() {
        _ if pages.is_empty() => return Ok(nowhere_else),
        // Where else they are makes no difference.
        all if all == pages.len() => return Ok(Residency { dram: 1.0, ..nowhere_else }),
        some => share(some),
    };
    // One that has none behind it is twice in one place.
    let both: Vec<PageId> = pairs.iter().flat_map(|(page, next)| [*page, next.unwrap_or(*page)]).collect();
    tree.pool().tier().whereabouts(&both, &mut places);
    let own = places.iter().step_by(2).zip(&in_dram);
    let cached = own.filter(|(place, dram)| !**dram && **place == Whereabouts::Cache).count();
    Ok(Residency { dram, cache: share(cached), adjacent: adjacent(&places) })
}

/// Of places of leaves, each with that of the leaf behind it, the share that lie in a row.
fn adjacent(places: &[Whereabouts]) -> f64 {
    let (mut pairs, mut in_a_row) = (0, 0);
    for two in places.chunks_exact(2) {
        if let [Whereabouts::Store { place: first }, Whereabouts::Store { place: second }] = two
            && first != second
        {
            pairs += 1;
            in_a_row += usize::from((1..=SKIPPED).contains(&second.wrapping_sub(*first)));
        }
    }
    if pairs < PAIRS_MIN { Residency::default().adjacent } else { in_a_row as f64 / pairs as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_lie_in_a_row_if_the_second_is_close_behind_the_first() {
        let places = |pairs: &[(u64, u64)]| -> Vec<Whereabouts> {
            let both = pairs.iter().flat_map(|(first, second)| [*first, *second]);
            both.map(|place| Whereabouts::Store { place }).collect()
        };
        let mut four_of_ten = vec![(10, 11), (30, 34), (50, 52), (70, 73)];
        four_of_ten.extend([(90, 95), (11, 10), (7, 3), (1, 1000), (1000, 1), (90, 290)]);
        assert_eq!(adjacent(&places(&four_of_ten)), 0.4);
        // The same page twice is no pair, and what is in no place says nothing.
        let mut others = places(&four_of_ten);
        others.extend(places(&[(5, 5), (6, 6)]));
        others.extend([Whereabouts::Cache, Whereabouts::Store { place: 8 }]);
        assert_eq!(adjacent(&others), 0.4);
        assert_eq!(adjacent(&places(&four_of_ten[3..])), 1.0, "too few to say");
    }
}
