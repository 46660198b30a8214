//! What was asked while planning, so that it is not asked again: each pair of tables that is
//! considered for a join asks for the same shares and numbers of values, and each answer costs a
//! walk over a sample of rows.

use super::bounds::KeyBounds;
use super::facts::Knowledge;
use crate::predicate::Predicate;
use std::cell::RefCell;

/// Sampled rows for which a condition is true, as a share, and how many were sampled.
type Share = Option<(f64, usize)>;

/// Knowledge with its answers so far.
pub(super) struct Remembered<'a> {
    of: &'a dyn Knowledge,
    shares: RefCell<Vec<(usize, Predicate, Share)>>,
    distinct: RefCell<Vec<(usize, usize, Option<f64>)>>,
}

impl Remembered<'_> {
    pub(super) fn new(of: &dyn Knowledge) -> Remembered<'_> {
        Remembered { of, shares: RefCell::default(), distinct: RefCell::default() }
    }
}

impl Knowledge for Remembered<'_> {
    /// Asked once for each path as it is.
    fn range_rows(&self, table: usize, path: usize, bounds: &KeyBounds) -> Option<f64> {
        self.of.range_rows(table, path, bounds)
    }

    fn share(&self, table: usize, condition: &Predicate) -> Share {
        let mut known = self.shares.borrow_mut();
        if let Some(found) = known.iter().find(|one| one.0 == table && one.1 == *condition) {
            return found.2;
        }
        let share = self.of.share(table, condition);
        known.push((table, condition.clone(), share));
        share
    }

    fn distinct(&self, table: usize, column: usize) -> Option<f64> {
        let mut known = self.distinct.borrow_mut();
        if let Some(found) = known.iter().find(|one| (one.0, one.1) == (table, column)) {
            return found.2;
        }
        let values = self.of.distinct(table, column);
        known.push((table, column, values));
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[derive(Default)]
    struct Counting {
        asked: Cell<usize>,
    }
    impl Knowledge for Counting {
        fn range_rows(&self, _: usize, _: usize, _: &KeyBounds) -> Option<f64> {
            None
        }
        fn share(&self, table: usize, _: &Predicate) -> Share {
            self.asked.set(self.asked.get() + 1);
            (table > 0).then_some((table as f64 / 10.0, 100))
        }
        fn distinct(&self, table: usize, column: usize) -> Option<f64> {
            self.asked.set(self.asked.get() + 1);
            (column > 0).then_some((table * 10 + column) as f64)
        }
    }

    #[test]
    fn each_question_is_asked_once() {
        let counting = Counting::default();
        let remembered = Remembered::new(&counting);
        for _ in 0..3 {
            for (table, share) in [(0, None), (1, Some((0.1, 100)))] {
                assert_eq!(remembered.share(table, &Predicate::IsNull(3)), share);
            }
            assert_eq!(remembered.share(1, &Predicate::IsNull(4)), Some((0.1, 100)));
            for (table, column, values) in [(0, 0, None), (0, 2, Some(2.0)), (1, 2, Some(12.0))] {
                assert_eq!(remembered.distinct(table, column), values);
            }
        }
        assert_eq!(counting.asked.get(), 6);
    }
}
