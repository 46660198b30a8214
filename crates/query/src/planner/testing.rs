//! What the planner's tests share.

use crate::predicate::{Comparison, Predicate};
use firndb_base::rng::Rng;

/// A comparison of one of the first `columns` columns with a small number.
pub(super) fn random_comparison(rng: &mut Rng, columns: u64) -> Predicate {
    use Comparison::*;
    let (column, value) = (rng.below(columns) as usize, rng.below(6) as i64);
    match rng.below(8) {
        0 => Predicate::Between(column, value.into(), (value + 2).into()),
        how => {
            let how = [Equal, Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual][how as usize - 1];
            Predicate::Compare(column, how, value.into())
        }
    }
}
