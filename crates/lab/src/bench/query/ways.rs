//! The queries of the thesis, the ways to run them, and where two ways cost the same.

use super::data::Data;
use super::machine::MakeQuery;
use firndb::Database;
use firndb::query::{AccessKind, Hint, JoinMethod, col};
use std::sync::Arc;

/// A way to run a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    pub name: &'static str,
    hints: &'static [Forced],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forced {
    Scan(&'static str),
    Range(&'static str, AccessKind, &'static str),
    Join(&'static str, JoinMethod),
    Order(&'static [&'static str]),
}
use Forced::{Join, Order, Range, Scan};

impl Way {
    pub fn hints(&self) -> Vec<Hint> {
        let hint = |forced: &Forced| match *forced {
            Scan(table) => Hint::Access(table.into(), AccessKind::TableScan, None),
            Range(table, kind, index) => Hint::Access(table.into(), kind, Some(index.into())),
            Join(table, method) => Hint::Join(table.into(), method),
            Order(tables) => Hint::Order(tables.iter().map(|table| (*table).to_owned()).collect()),
        };
        self.hints.iter().map(hint).collect()
    }
}

pub const SCAN: Way = Way { name: "scan", hints: &[Scan("tuples")] };
/// Row by row, as the thesis follows its index.
pub const INDEX_SCAN: Way =
    Way { name: "index, row by row", hints: &[Range("tuples", AccessKind::IndexScan, "by_value")] };
pub const INDEX_FETCH: Way =
    Way { name: "index fetch", hints: &[Range("tuples", AccessKind::IndexFetch, "by_value")] };

/// Customers are looked up for each order of a scan, as in the thesis.
pub const LOOKUPS: Way = Way {
    name: "index nested loops",
    hints: &[Order(&["orders", "customer"]), Scan("orders"), Join("customer", JoinMethod::IndexNestedLoops)],
};
pub const HASH: Way = Way {
    name: "hash",
    hints: &[
        Order(&["orders", "customer"]),
        Scan("orders"),
        Scan("customer"),
        Join("customer", JoinMethod::Hash),
    ],
};
const MERGE_ENTRIES: Way = Way {
    name: "index sort-merge",
    hints: &[Order(&["customer", "orders"]), Join("orders", JoinMethod::IndexSortMerge)],
};
/// The customers' index is their table: a range of it, and the orders that an index finds.
const MERGE_RANGES: Way = Way {
    name: "index sort-merge",
    hints: &[
        Order(&["customer", "orders"]),
        Scan("customer"),
        Range("orders", AccessKind::IndexFetch, "o_by_custkey"),
        Join("orders", JoinMethod::SortMerge),
    ],
};

/// The joins of figure 5-1, but for plain nested loops, which the thesis does not show either.
pub fn joins(data: Data) -> [Way; 3] {
    let merge = if data == Data::Queue { MERGE_ENTRIES } else { MERGE_RANGES };
    [merge, LOOKUPS, HASH]
}

const fn join(name: &'static str, hints: &'static [Forced]) -> Way {
    Way { name, hints }
}

/// Every operator in both orders; how each table is read is left to the planner.
const EVERY_JOIN: [Way; 8] = [
    join("orders into customer, lookups", &[Order(OC), Join("customer", JoinMethod::IndexNestedLoops)]),
    join("customer into orders, lookups", &[Order(CO), Join("orders", JoinMethod::IndexNestedLoops)]),
    join("merge of entries", &[Order(CO), Join("orders", JoinMethod::IndexSortMerge)]),
    join("sort-merge", &[Order(CO), Join("orders", JoinMethod::SortMerge)]),
    join("hash of customer", &[Order(OC), Join("customer", JoinMethod::Hash)]),
    join("hash of orders", &[Order(CO), Join("orders", JoinMethod::Hash)]),
    join("hash of customer, scans", &[Order(OC), Scan("orders"), Join("customer", JoinMethod::Hash)]),
    join(
        "lookups of customer, scan",
        &[Order(OC), Scan("orders"), Join("customer", JoinMethod::IndexNestedLoops)],
    ),
];
const OC: &[&str] = &["orders", "customer"];
const CO: &[&str] = &["customer", "orders"];

/// The fixed plans between which an adaptive one goes over.
pub fn fixed(data: Data) -> &'static [Way] {
    const JOINS: [Way; 4] = [EVERY_JOIN[0], EVERY_JOIN[1], EVERY_JOIN[4], EVERY_JOIN[5]];
    match data {
        Data::Tuples => &[SCAN, INDEX_FETCH],
        Data::Queue | Data::Tree => &JOINS,
    }
}

/// All ways that the planner's choice is compared with.
pub fn every(data: Data) -> &'static [Way] {
    match data {
        Data::Tuples => &[SCAN, INDEX_SCAN, INDEX_FETCH],
        Data::Queue | Data::Tree => &EVERY_JOIN,
    }
}

/// The thesis' query of this data, whose rows are this share of the first table's, in per cent.
pub fn query(data: Data, rows: u64, percent: f64) -> MakeQuery {
    let below = |values: f64| (values * percent / 100.0).round() as i64;
    match data {
        Data::Tuples => {
            let below = below(rows as f64 / 10.0);
            Arc::new(move |db: &Database| db.query("tuples").filter(col("value").lt(below)))
        }
        Data::Queue | Data::Tree => {
            // Keys begin with 1.
            let below = 1 + below(rows as f64);
            Arc::new(move |db: &Database| {
                let both = db.query("customer").join("orders", col("c_custkey").eq(col("o_custkey")));
                both.filter(col("c_custkey").lt(below))
            })
        }
    }
}

/// Where the first curve comes to cost more than the second, in per cent: between the two points
/// where the ratio passes one, by its logarithm. `None`: it is cheaper, or dearer, at all of them.
pub fn crossover(percents: &[f64], first: &[f64], second: &[f64]) -> Option<f64> {
    let ratio = |at: usize| (first[at] / second[at]).ln();
    let at = (1..percents.len()).find(|at| ratio(at - 1) < 0.0 && ratio(*at) >= 0.0)?;
    let part = -ratio(at - 1) / (ratio(at) - ratio(at - 1));
    Some((percents[at - 1].ln() * (1.0 - part) + percents[at].ln() * part).exp())
}

/// How far apart two crossovers are, as a factor of at least one: infinitely if there is only one
/// of them.
pub fn factor(one: f64, two: f64) -> f64 {
    match (one.is_finite(), two.is_finite()) {
        (true, true) => (one / two).max(two / one),
        (false, false) => 1.0,
        _ => f64::INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_cross_where_their_ratio_passes_one() {
        let percents = [0.1, 1.0, 10.0];
        // Equal where the first has grown to 5: at a half by its logarithm.
        let at = crossover(&percents, &[1.0, 2.5, 10.0], &[5.0; 3]).unwrap();
        assert!((at / 10f64.sqrt() - 1.0).abs() < 1e-9, "{at}");
        assert_eq!(crossover(&percents, &[1.0, 2.0, 3.0], &[5.0; 3]), None);
        assert_eq!(crossover(&percents, &[6.0, 7.0, 8.0], &[5.0; 3]), None);
        assert_eq!((factor(2.0, 4.0), factor(4.0, 2.0)), (2.0, 2.0));
        assert_eq!((factor(f64::NAN, 4.0), factor(f64::NAN, f64::NAN)), (f64::INFINITY, 1.0));
    }
}
