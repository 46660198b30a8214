//! Lazy cleaning at its best: its authors chose the share of dirty pages at which the cleaner
//! starts for each workload, so it is measured at several, and the best is what figures show.

use super::compared::LC;
use super::machine::{CacheCell, Cell};
use firndb_cache_comparators::{Comparator, Compared};

/// Shares of dirty pages that are tried.
pub const SHARES: [f64; 3] = [0.2, 0.5, 0.8];
/// With `--quick`.
const QUICK_SHARES: [f64; 2] = [0.5, 0.8];

/// The shares that the arguments name as `lc:SHARE`, or the usual ones.
pub fn shares(policies: &[String], quick: bool) -> Vec<f64> {
    let named: Vec<f64> = policies
        .iter()
        .filter_map(|name| match Compared::named(name)? {
            Compared::Other(Comparator::LazyCleaning { dirty_percent_max }) if *name != LC.name() => {
                Some(f64::from(dirty_percent_max) / 100.0)
            }
            _ => None,
        })
        .collect();
    match (named.is_empty(), quick) {
        (false, _) => named,
        (true, true) => QUICK_SHARES.to_vec(),
        (true, false) => SHARES.to_vec(),
    }
}

/// The cells of which the best stands for this one: with lazy cleaning at these shares. `None` if
/// it stands for itself.
pub fn swept(cell: &Cell, shares: &[f64]) -> Option<Vec<Cell>> {
    let cache = cell.cache.as_ref().filter(|cache| cache.policy == LC)?;
    let at = |share: &f64| {
        let cache = CacheCell { policy: Compared::lazy_cleaning(*share), ..cache.clone() };
        Cell { cache: Some(cache), ..cell.clone() }
    };
    Some(shares.iter().map(at).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_are_those_named_or_the_usual_ones() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(shares(&names(&["lc", "gsc"]), false), SHARES);
        assert_eq!(shares(&[], true), QUICK_SHARES);
        assert_eq!(shares(&names(&["lc:0.5", "keep", "lc:0.2"]), false), [0.5, 0.2]);
    }
}
