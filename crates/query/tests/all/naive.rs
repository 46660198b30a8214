//! The naive evaluator: loops over rows in vectors, with its own idea of every operator.

use crate::common::{Filled, borrowed};
use firndb_btree::Direction;
use firndb_query::{Comparison, IndexSide, JoinKind, On, Plan, Predicate, SortColumn, Source};
use firndb_table::{Index, KeyRange, Value, ValueRef};
use std::cmp::Ordering;

pub type Rows = Vec<Vec<Value>>;

/// What a plan returns.
pub struct Expected {
    pub rows: Rows,
    /// Whether in this order.
    pub ordered: bool,
    /// Any so many of the rows; `None`: all.
    pub any: Option<usize>,
}

impl Expected {
    fn of(rows: Rows, ordered: bool) -> Expected {
        Expected { rows, ordered, any: None }
    }

    /// Panics with `what` unless these are the rows.
    pub fn assert_is(mut self, mut found: Rows, what: &dyn Fn() -> String) {
        if self.ordered {
            assert!(
                self.rows == found,
                "{}\nexpected {:?}\nfound {:?}",
                what(),
                brief(&self.rows),
                brief(&found)
            );
            return;
        }
        self.rows.sort();
        found.sort();
        if let Some(any) = self.any {
            assert_eq!(found.len(), any.min(self.rows.len()), "{}", what());
            let mut rest = self.rows.iter();
            assert!(found.iter().all(|row| rest.any(|other| other == row)), "{}", what());
            return;
        }
        if self.rows != found {
            let (missing, extra) = (without(&self.rows, &found), without(&found, &self.rows));
            panic!("missing {:?}\nextra {:?}\n{}", brief(&missing), brief(&extra), what());
        }
    }

    pub fn differs_from(self, found: Rows) -> bool {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.assert_is(found, &String::new)))
            .is_err()
    }
}

/// The rows of one sorted list that are not in another.
fn without(rows: &Rows, others: &Rows) -> Rows {
    let mut others = others.iter().peekable();
    let is_missing = |row: &&Vec<Value>| {
        while others.next_if(|other| *other < *row).is_some() {}
        others.next_if(|other| other == row).is_none()
    };
    rows.iter().filter(is_missing).cloned().collect()
}

/// Rows without what fills pages.
fn brief(rows: &Rows) -> Vec<String> {
    rows.iter().map(|row| row.iter().map(|value| format!("{value:.12?} ")).collect()).collect()
}

fn compare(a: ValueRef<'_>, how: Comparison, b: ValueRef<'_>) -> Option<bool> {
    if a.is_null() || b.is_null() {
        return None;
    }
    Some(match how {
        Comparison::Equal => a == b,
        Comparison::NotEqual => a != b,
        Comparison::Less => a < b,
        Comparison::LessOrEqual => a <= b,
        Comparison::Greater => a > b,
        Comparison::GreaterOrEqual => a >= b,
    })
}

pub fn holds(predicate: &Predicate, row: &[Value]) -> Option<bool> {
    match predicate {
        Predicate::Compare(column, how, value) => compare(row[*column].as_ref(), *how, value.as_ref()),
        Predicate::CompareColumns(a, how, b) => compare(row[*a].as_ref(), *how, row[*b].as_ref()),
        Predicate::Between(column, low, high) => {
            let above = Predicate::Compare(*column, Comparison::GreaterOrEqual, low.clone());
            let below = Predicate::Compare(*column, Comparison::LessOrEqual, high.clone());
            holds(&Predicate::And(vec![above, below]), row)
        }
        Predicate::IsNull(column) => Some(row[*column] == Value::Null),
        Predicate::Not(of) => holds(of, row).map(|value| !value),
        Predicate::And(all) => {
            let values: Vec<_> = all.iter().map(|one| holds(one, row)).collect();
            let known = if values.contains(&None) { None } else { Some(true) };
            if values.contains(&Some(false)) { Some(false) } else { known }
        }
        Predicate::Or(any) => {
            let values: Vec<_> = any.iter().map(|one| holds(one, row)).collect();
            let known = if values.contains(&None) { None } else { Some(false) };
            if values.contains(&Some(true)) { Some(true) } else { known }
        }
    }
}

fn filled<'t>(tables: &'t [Filled], source: &Source) -> &'t Filled {
    tables.iter().find(|filled| filled.table.id() == source.table().id()).expect("a table of the test")
}

fn selected(source: &Source, row: &[Value]) -> Option<Vec<Value>> {
    let wanted = holds(source.predicate(), row) == Some(true);
    wanted.then(|| source.columns().iter().map(|column| row[*column].clone()).collect())
}

/// The key of a row's entry in an index.
fn entry_key(of: &Filled, index: &Index, row: &[Value]) -> Vec<u8> {
    let definition = index.definition().expect("a definition");
    let values: Vec<ValueRef<'_>> =
        definition.columns().iter().map(|part| row[part.column].as_ref()).collect();
    let mut key = Vec::new();
    index.encode(&values, &mut key).expect("a key");
    if !definition.spec.unique || values.iter().any(|value| value.is_null()) {
        key.extend_from_slice(&primary_key(of, row));
    }
    key
}

fn primary_key(of: &Filled, row: &[Value]) -> Vec<u8> {
    let row = borrowed(row);
    let values: Vec<ValueRef<'_>> = of.schema.key().iter().map(|part| row[part.column]).collect();
    let mut key = Vec::new();
    of.schema.encode_key(&values, &mut key).expect("a key");
    key
}

/// The rows of a source whose keys lie in a range, in the order of the keys.
fn through(
    tables: &[Filled],
    source: &Source,
    index: Option<&Index>,
    range: &KeyRange,
    direction: Direction,
) -> Rows {
    let of = filled(tables, source);
    let key = |row: &Vec<Value>| match index {
        Some(index) => entry_key(of, index, row),
        None => primary_key(of, row),
    };
    let mut rows: Vec<(Vec<u8>, &Vec<Value>)> = of.rows.iter().map(|row| (key(row), row)).collect();
    rows.retain(|(key, _)| range.place(key) == Ordering::Equal);
    rows.sort();
    if direction == Direction::Backward {
        rows.reverse();
    }
    rows.into_iter().filter_map(|(_, row)| selected(source, row)).collect()
}

fn by_columns(a: &[Value], b: &[Value], by: &[SortColumn]) -> Ordering {
    let orders = by.iter().map(|part| {
        let order = a[part.column].cmp(&b[part.column]);
        if part.descending { order.reverse() } else { order }
    });
    orders.fold(Ordering::Equal, Ordering::then)
}

fn join(left: Rows, right: &Rows, width: usize, on: &On) -> Expected {
    let mut rows = Rows::new();
    for left in left {
        let before = rows.len();
        for right in right {
            let equal = |(l, r): &(usize, usize)| left[*l] != Value::Null && left[*l] == right[*r];
            if on.keys.iter().all(equal) {
                let both = [&left[..], right].concat();
                rows.extend((holds(&on.rest, &both) == Some(true)).then_some(both));
            }
        }
        if rows.len() == before && on.kind == JoinKind::LeftOuter {
            rows.push([left, vec![Value::Null; width]].concat());
        }
    }
    Expected::of(rows, false)
}

/// What a plan returns, of tables with these rows.
pub fn evaluate(plan: &Plan, tables: &[Filled]) -> Expected {
    match plan {
        Plan::TableScan { source, range, direction } => {
            Expected::of(through(tables, source, None, range, *direction), true)
        }
        Plan::IndexScan { source, index, range, direction }
        | Plan::IndexOnly { source, index, range, direction } => {
            Expected::of(through(tables, source, Some(index), range, *direction), true)
        }
        Plan::IndexFetch { source, index, range, .. } => {
            Expected::of(through(tables, source, Some(index), range, Direction::Forward), false)
        }
        Plan::Filter { input, predicate } => {
            let mut expected = evaluate(input, tables);
            assert!(expected.any.is_none(), "a random plan has no filter above a limit");
            expected.rows.retain(|row| holds(predicate, row) == Some(true));
            expected
        }
        Plan::Project { input, columns } => {
            let mut expected = evaluate(input, tables);
            let project = |row: Vec<Value>| columns.iter().map(|column| row[*column].clone()).collect();
            expected.rows = expected.rows.into_iter().map(project).collect();
            expected
        }
        Plan::Limit { input, rows } => {
            let mut expected = evaluate(input, tables);
            if expected.ordered {
                expected.rows.truncate(*rows as usize);
            } else {
                expected.any = Some(expected.any.unwrap_or(usize::MAX).min(*rows as usize));
            }
            expected
        }
        Plan::Count { input } => {
            let expected = evaluate(input, tables);
            let count = expected.rows.len().min(expected.any.unwrap_or(usize::MAX));
            Expected::of(vec![vec![Value::U64(count as u64)]], true)
        }
        Plan::Sort { input, by } => {
            let mut expected = evaluate(input, tables);
            expected.rows.sort_by(|a, b| by_columns(a, b, by));
            expected
        }
        Plan::BlockNestedLoops { left, right, on }
        | Plan::SortMerge { left, right, on }
        | Plan::HashJoin { left, right, on } => {
            let width = right.types().expect("types").len();
            join(evaluate(left, tables).rows, &evaluate(right, tables).rows, width, on)
        }
        Plan::IndexNestedLoops { left, right, on, .. } => {
            let inner = through(tables, right, None, &KeyRange::all(), Direction::Forward);
            join(evaluate(left, tables).rows, &inner, right.columns().len(), on)
        }
        Plan::IndexSortMerge { left, right, on } => {
            let rows = |side: &IndexSide| {
                through(tables, &side.source, Some(&side.index), &side.range, Direction::Forward)
            };
            join(rows(left), &rows(right), right.source.columns().len(), on)
        }
    }
}
