//! What is known of the tables of a query.

use super::bounds::KeyBounds;
use super::costs::Tree;
use crate::predicate::{Comparison, Predicate};
use firndb_table::{KeyColumn, Residency, WINDOWS};

/// Where the numbers of a table come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Its statistics.
    Analyzed,
    /// The upper nodes of its trees: it was never analyzed.
    Estimated,
}

/// A table of a query.
#[derive(Clone, Debug)]
pub struct TableFacts {
    /// Its name in the query.
    pub name: String,
    /// How many columns it has.
    pub columns: usize,
    pub rows: f64,
    /// Bytes of a row with its key.
    pub row_bytes: f64,
    pub leaves: f64,
    pub residency: Residency,
    /// The primary key, and then the indexes that are ready.
    pub paths: Vec<PathFacts>,
    pub origin: Origin,
}

/// A way to rows: a tree in the order of some columns.
#[derive(Clone, Debug)]
pub struct PathFacts {
    /// Of the index; empty for the primary key.
    pub name: String,
    pub columns: Vec<KeyColumn>,
    /// No two rows are equal in all of its columns, unless one is NULL.
    pub is_unique: bool,
    /// Columns of the table that its entries hold; of the primary key all.
    pub covers: Vec<bool>,
    pub leaves: f64,
    pub residency: Residency,
    /// Leaves of the table for [`WINDOWS`] of consecutive entries; `None`: unknown.
    pub table_leaves: Option<[f64; WINDOWS.len()]>,
}

/// What is asked of the tables themselves while planning. `None`: it cannot be said.
pub trait Knowledge {
    /// How many rows a range of a path holds.
    fn range_rows(&self, table: usize, path: usize, bounds: &KeyBounds) -> Option<f64>;
    /// The share of sampled rows for which a condition on the table's columns is true, and how many
    /// were sampled.
    fn share(&self, table: usize, condition: &Predicate) -> Option<(f64, usize)>;
    /// How many values a column has.
    fn distinct(&self, table: usize, column: usize) -> Option<f64>;
}

/// Sampled rows that make a share believable.
const HITS: f64 = 10.0;

impl PathFacts {
    pub(super) fn tree(&self) -> Tree {
        Tree { leaves: self.leaves, residency: self.residency }
    }
}

impl TableFacts {
    pub(super) fn tree(&self) -> Tree {
        Tree { leaves: self.leaves, residency: self.residency }
    }

    /// Leaves of the table that hold the rows of this many consecutive entries of a path.
    ///
    /// Between two bounds: rows that lie together, and rows that lie anywhere (Cardenas); where
    /// between, the windows that were measured tell. Unmeasured: anywhere.
    pub(super) fn leaves_of(&self, path: usize, entries: f64) -> f64 {
        let together = |entries: f64| (entries * self.leaves / self.rows.max(1.0)).clamp(1.0, self.leaves);
        let anywhere = |entries: f64| self.leaves * (1.0 - (1.0 - 1.0 / self.leaves.max(1.0)).powf(entries));
        let scatter = match self.paths[path].table_leaves {
            _ if path == 0 => 0.0,
            None => 1.0,
            Some(measured) => {
                let at = |window: usize| {
                    let entries = (WINDOWS[window] as f64).min(self.rows);
                    let (low, high) = (together(entries), anywhere(entries));
                    match high - low > 0.5 {
                        true => ((measured[window] - low) / (high - low)).clamp(0.0, 1.0),
                        // All of the table, or a leaf: it makes no difference.
                        false => 1.0,
                    }
                };
                let place = (entries.max(1.0).log10() - 1.0).clamp(1.0, 3.0);
                let (below, part) = (place.floor(), place.fract());
                at(below as usize) * (1.0 - part) + at((below as usize + 1).min(3)) * part
            }
        };
        let low = together(entries).min(entries.max(1.0));
        let high = anywhere(entries).max(low);
        if entries <= 0.0 { 0.0 } else { low + scatter * (high - low) }
    }

    /// About how many rows satisfy all conditions.
    pub(super) fn rows_where(
        &self,
        number: usize,
        conditions: &[Predicate],
        ranges: &[(KeyBounds, f64)],
        knowledge: &dyn Knowledge,
    ) -> f64 {
        if conditions.is_empty() {
            return self.rows;
        }
        let share = |conditions: Vec<Predicate>| knowledge.share(number, &Predicate::And(conditions));
        let bounded = ranges.iter().filter(|(bounds, _)| bounds.is_bounded());
        let narrowest = bounded.min_by(|a, b| a.1.total_cmp(&b.1));
        let most = narrowest.map_or(self.rows, |(_, rows)| *rows);
        let all = share(conditions.to_vec());
        if let Some((all, of)) = all
            && all * of as f64 >= HITS
        {
            return (self.rows * all).min(most);
        }
        let taken: &[usize] = narrowest.map_or(&[], |(bounds, _)| &bounds.conditions);
        let part = |wanted: bool| -> Vec<Predicate> {
            let numbers = (0..conditions.len()).filter(|number| taken.contains(number) == wanted);
            numbers.map(|number| conditions[number].clone()).collect()
        };
        let rest = part(false);
        if rest.is_empty() {
            return most;
        }
        // Among the rows of the range if enough of them were sampled, else among all.
        let within = match (all, share(part(true))) {
            (Some((all, _)), Some((range, of))) if range * of as f64 >= HITS => {
                Some((all / range).max(0.5 / (range * of as f64)))
            }
            _ => share(rest.clone()).map(|(rest, of)| rest.max(0.5 / of as f64)),
        };
        most * within.unwrap_or_else(|| rest.iter().map(guess).product())
    }
}

/// The share of rows for which a condition is true, where nothing is known.
pub(super) fn guess(condition: &Predicate) -> f64 {
    match condition {
        Predicate::Compare(_, how, _) | Predicate::CompareColumns(_, how, _) => match how {
            Comparison::Equal => 0.05,
            Comparison::NotEqual => 0.95,
            _ => 1.0 / 3.0,
        },
        Predicate::Between(..) => 0.25,
        Predicate::IsNull(_) => 0.05,
        Predicate::Not(of) => 1.0 - guess(of),
        Predicate::And(all) => all.iter().map(guess).product(),
        Predicate::Or(any) => 1.0 - any.iter().map(|one| 1.0 - guess(one)).product::<f64>(),
    }
}
