//! Estimates that are wrong on purpose, to measure what that costs.

use super::bounds::KeyBounds;
use super::facts::Knowledge;
use crate::predicate::Predicate;

/// Knowledge by which conditions hold for this many times as many rows as they do.
pub struct Misjudged<'a> {
    of: &'a dyn Knowledge,
    factor: f64,
}

impl Misjudged<'_> {
    #[must_use]
    pub fn new(of: &dyn Knowledge, factor: f64) -> Misjudged<'_> {
        Misjudged { of, factor }
    }
}

impl Knowledge for Misjudged<'_> {
    fn range_rows(&self, table: usize, path: usize, bounds: &KeyBounds) -> Option<f64> {
        self.of.range_rows(table, path, bounds).map(|rows| rows * self.factor)
    }
    fn share(&self, table: usize, condition: &Predicate) -> Option<(f64, usize)> {
        self.of.share(table, condition).map(|(share, of)| ((share * self.factor).min(1.0), of))
    }
    fn distinct(&self, table: usize, column: usize) -> Option<f64> {
        self.of.distinct(table, column)
    }
}
