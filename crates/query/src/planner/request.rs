//! What is to be planned, and the choice.

use super::access::{Access, AccessKind, Use};
use super::bounds::KeyBounds;
use super::costs::{Costs, Pages};
use super::facts::{Knowledge, TableFacts};
use super::joins;
use super::lookups::OrHash;
use super::remembered::Remembered;
use super::spills::{Side, Spill};
use crate::error::QueryError;
use crate::predicate::{Comparison, Predicate};
use crate::sort::SortColumn;
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// Most tables of a request.
pub(super) const TABLES_MAX: usize = 4;
/// Plans that [`plan`] returns.
const CHOICES: usize = 3;

/// A query over tables. Columns are those of all tables, one table behind the other.
#[derive(Clone, Debug)]
pub struct Request {
    pub tables: Vec<TableFacts>,
    /// Of filters and inner joins: all must be true.
    pub conditions: Vec<Predicate>,
    /// For each table the conditions of the left outer join by which it comes; `None`: it is joined
    /// by `conditions`. The first table is not joined.
    pub outer: Vec<Option<Vec<Predicate>>>,
    /// Columns that are returned.
    pub output: Vec<usize>,
    /// The order wanted.
    pub order: Vec<SortColumn>,
    /// How many rows are wanted, if not all.
    pub limit: Option<u64>,
    pub hints: Hints,
}

/// What a plan must do, whatever it costs.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    /// Tables with the path and the way in which each is read.
    pub access: Vec<(usize, AccessKind, usize)>,
    /// Tables with the operator that joins each to those before it.
    pub joins: Vec<(usize, JoinMethod)>,
    /// The order in which tables are joined.
    pub order: Option<Vec<usize>>,
}

/// An operator that joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinMethod {
    BlockNestedLoops,
    IndexNestedLoops,
    IndexSortMerge,
    SortMerge,
    Hash,
}

impl JoinMethod {
    /// All of them.
    pub const ALL: [JoinMethod; 5] = [
        JoinMethod::BlockNestedLoops,
        JoinMethod::IndexNestedLoops,
        JoinMethod::IndexSortMerge,
        JoinMethod::SortMerge,
        JoinMethod::Hash,
    ];
}

/// A part of a plan.
#[derive(Clone, Debug)]
pub enum Node {
    /// A table is read.
    Access(usize, Box<Access>),
    /// A table is joined to a part.
    Join(Box<Join>),
}

/// A join of a table to a part.
#[derive(Clone, Debug)]
pub struct Join {
    pub left: Node,
    /// The table, and how it is read.
    pub table: usize,
    pub right: Right,
    /// Columns of the left part and of the table that are equal.
    pub keys: Vec<(usize, usize)>,
    /// The rest of the join's condition.
    pub rest: Vec<Predicate>,
    /// Left rows without a match are returned, too.
    pub is_outer: bool,
    /// Conditions on the rows that it returns.
    pub filter: Vec<Predicate>,
    /// Rows that it returns, and what it costs with all below it.
    pub rows: f64,
    pub pages: Pages,
    pub us: f64,
}

/// How the table of a join is read.
#[derive(Clone, Debug)]
pub enum Right {
    /// Once for each block of left rows.
    BlockNestedLoops(Access),
    /// By the keys of left rows, through this path, unless there are too many.
    IndexNestedLoops(usize, Option<Box<OrHash>>),
    /// The entries of two indexes are merged: the left table's, and this one's.
    IndexSortMerge([(usize, KeyBounds); 2]),
    SortMerge(Access),
    Hash(Access),
}

impl Right {
    #[must_use]
    pub fn method(&self) -> JoinMethod {
        match self {
            Right::BlockNestedLoops(_) => JoinMethod::BlockNestedLoops,
            Right::IndexNestedLoops(..) => JoinMethod::IndexNestedLoops,
            Right::IndexSortMerge(_) => JoinMethod::IndexSortMerge,
            Right::SortMerge(_) => JoinMethod::SortMerge,
            Right::Hash(_) => JoinMethod::Hash,
        }
    }
}

/// A plan as it was chosen, with what it is expected to do.
#[derive(Clone, Debug)]
pub struct Choice {
    pub node: Node,
    /// Its rows are sorted at the end.
    pub is_sorted: bool,
    /// Rows that it returns.
    pub rows: f64,
    pub pages: Pages,
    /// Microseconds.
    pub us: f64,
    /// Bytes written to the spill device.
    pub spilled_bytes: f64,
    /// It needs a spill device, and there is none: it is expected to fail.
    pub lacks_spill: bool,
}

/// The best plans, the best first; at most three.
///
/// Errors: `BadArgument` if no plan does what the hints ask for, or there are more than four
/// tables.
pub fn plan(request: &Request, knowledge: &dyn Knowledge, costs: &Costs) -> Result<Vec<Choice>, QueryError> {
    if request.tables.len() > TABLES_MAX {
        let message = format!("a query joins at most {TABLES_MAX} tables, not {}", request.tables.len());
        return Err(QueryError::bad_argument(message));
    }
    let (request, knowledge) = (request.with_transitive(), Remembered::new(knowledge));
    let mut choices = match request.tables.len() {
        1 => request.of_one_table(&knowledge, costs),
        _ => joins::choices(&request, &knowledge, costs),
    };
    choices.sort_by(Choice::by_cost);
    choices.truncate(CHOICES);
    if choices.is_empty() {
        return Err(QueryError::bad_argument(
            "no plan does what the hints ask for: an index only access needs an index with all columns that the query uses, index joins need equal columns that an index begins with, a left join comes after the tables it is joined to",
        ));
    }
    Ok(choices)
}

impl Request {
    /// The first column of a table.
    #[must_use]
    pub fn first_column(&self, table: usize) -> usize {
        self.tables[..table].iter().map(|table| table.columns).sum()
    }
    /// The table of a column.
    #[must_use]
    pub fn table_of(&self, column: usize) -> usize {
        let mut first = 0;
        let holds = |table: &TableFacts| {
            first += table.columns;
            column < first
        };
        self.tables.iter().position(holds).expect("the facade has resolved the column")
    }
    /// The tables of a condition, a bit each. One without columns belongs to the first table.
    pub(super) fn tables_of(&self, condition: &Predicate) -> u32 {
        let mut tables = 0;
        condition.columns(&mut |column| tables |= 1 << self.table_of(column));
        if tables == 0 { 1 } else { tables }
    }
    /// A condition on one table by the columns of that table.
    pub(super) fn local(&self, table: usize, condition: &Predicate) -> Predicate {
        let first = self.first_column(table);
        condition.with_columns(&|column| column - first)
    }

    /// How many keys of a join two paths begin with, in one order and in the same directions; the
    /// left table's path comes first.
    pub(super) fn merged_keys(&self, keys: &[(usize, usize)], paths: [(usize, usize); 2]) -> usize {
        let [left, right] = paths.map(|(table, path)| {
            let first = self.first_column(table);
            let parts = self.tables[table].paths[path].columns.iter();
            parts.map(move |part| (first + part.column, part.descending))
        });
        let is_pair = |((left, left_descends), (right, right_descends)): &((usize, bool), (usize, bool))| {
            left_descends == right_descends && keys.contains(&(*left, *right))
        };
        left.zip(right).take_while(is_pair).count()
    }

    /// The conditions that a read of the table evaluates, by its own columns: those on it alone. Of
    /// a table that comes by an outer join, those of the join; the others see NULL, too.
    #[must_use]
    pub fn conditions_of(&self, table: usize) -> Vec<Predicate> {
        let all = self.outer[table].as_ref().unwrap_or(&self.conditions);
        let own = all.iter().filter(|one| self.tables_of(one) == 1 << table);
        own.map(|one| self.local(table, one)).collect()
    }

    /// The columns of a table, by its own numbers, that are needed above a read of it.
    #[must_use]
    pub fn needed_of(&self, table: usize) -> Vec<usize> {
        let mut needed: BTreeSet<usize> = self.output.iter().copied().collect();
        needed.extend(self.order.iter().map(|part| part.column));
        let mut add = |condition: &Predicate, may_be_read_below: bool| {
            if !(may_be_read_below && self.tables_of(condition) == 1 << table) {
                condition.columns(&mut |column| {
                    needed.insert(column);
                });
            }
        };
        self.conditions.iter().for_each(|one| add(one, self.outer[table].is_none()));
        for (joined, on) in self.outer.iter().enumerate() {
            on.iter().flatten().for_each(|one| add(one, joined == table));
        }
        let first = self.first_column(table);
        needed.range(first..first + self.tables[table].columns).map(|column| column - first).collect()
    }

    /// With what follows from equalities of columns: what one is compared with, the other is, and
    /// columns equal to a third are equal.
    pub(super) fn with_transitive(&self) -> Request {
        let mut request = self.clone();
        add_transitive(&mut request.conditions, &[]);
        for on in request.outer.iter_mut().flatten() {
            // Other columns would make it depend on tables that come later.
            let is_on_one = |one: &&Predicate| !matches!(one, Predicate::CompareColumns(..));
            let others: Vec<Predicate> = request.conditions.iter().filter(is_on_one).cloned().collect();
            add_transitive(on, &others);
        }
        request
    }

    fn of_one_table(&self, knowledge: &dyn Knowledge, costs: &Costs) -> Vec<Choice> {
        let (conditions, needed) = (self.conditions_of(0), self.needed_of(0));
        let used = Use {
            number: 0,
            facts: &self.tables[0],
            conditions: &conditions,
            needed: &needed,
            order: &self.order,
            shares: 1,
            is_alone: true,
        };
        let accesses = used.accesses(&used.ranges(knowledge), costs, knowledge).into_iter();
        let allowed = accesses.filter(|access| self.hints.allow(0, access));
        allowed
            .map(|access| {
                let (rows, pages, us) = (access.rows, access.pages, access.us);
                let is_sorted = !access.is_ordered;
                let first_us = access.first_us;
                let choice = Choice {
                    node: Node::Access(0, Box::new(access)),
                    is_sorted,
                    rows,
                    pages,
                    us,
                    spilled_bytes: 0.0,
                    lacks_spill: false,
                };
                match is_sorted {
                    true => choice.sorted(self.tables[0].row_bytes, self.limit, costs),
                    false => choice.limited(first_us, self.limit),
                }
            })
            .collect()
    }
}

impl Hints {
    pub(super) fn allow(&self, table: usize, access: &Access) -> bool {
        let of_table = |hint: &&(usize, AccessKind, usize)| hint.0 == table;
        self.access.iter().find(of_table).is_none_or(|hint| (hint.1, hint.2) == (access.kind, access.path))
    }
    /// Whether the table may be read through a path by keys of other rows.
    pub(super) fn allow_lookups(&self, table: usize, path: usize) -> bool {
        let hint = self.access.iter().find(|hint| hint.0 == table);
        hint.is_none_or(|hint| hint.2 == path && hint.1 != AccessKind::IndexOnly)
    }
    pub(super) fn allow_join(&self, table: usize, method: JoinMethod) -> bool {
        self.joins.iter().find(|hint| hint.0 == table).is_none_or(|hint| hint.1 == method)
    }
}

impl Node {
    /// Into how many parts memory for rows is divided on its account.
    pub(super) fn shares(&self) -> usize {
        match self {
            Node::Access(_, access) => access.shares(),
            Node::Join(join) => join.left.shares() + join.right.shares(),
        }
    }
}

impl Right {
    fn shares(&self) -> usize {
        match self {
            Right::BlockNestedLoops(access) | Right::Hash(access) => 1 + access.shares(),
            Right::IndexNestedLoops(_, or_hash) => 1 + or_hash.as_ref().map_or(0, |it| it.access.shares()),
            Right::SortMerge(access) => 3 + access.shares(),
            Right::IndexSortMerge(_) => 3,
        }
    }
}

impl Choice {
    /// Those that may need a spill device, where there is none, behind all others; then by time.
    pub(super) fn by_cost(&self, other: &Choice) -> Ordering {
        self.lacks_spill.cmp(&other.lacks_spill).then(self.us.total_cmp(&other.us))
    }

    /// With its rows, each of `row_bytes`, sorted at the end.
    pub(super) fn sorted(mut self, row_bytes: f64, limit: Option<u64>, costs: &Costs) -> Choice {
        let side = Side { rows: self.rows, bytes: self.rows * row_bytes };
        self.us += costs.sorted_us(self.rows);
        self.is_sorted = true;
        let share = costs.share_bytes(1 + self.node.shares());
        self = self.spilling(costs.sort_spill(side, share), costs);
        if let Some(limit) = limit {
            self.rows = self.rows.min(limit as f64);
        }
        self
    }

    /// With what its last operator spills.
    pub(super) fn spilling(mut self, spill: Spill, costs: &Costs) -> Choice {
        self.lacks_spill |= spill.bytes > 0.0 && costs.spill.is_none();
        self.us += spill.us;
        self.spilled_bytes += spill.bytes;
        self
    }

    /// Ended after `limit` rows; the first one comes after `first_us`.
    pub(super) fn limited(mut self, first_us: f64, limit: Option<u64>) -> Choice {
        let Some(limit) = limit else { return self };
        let part = if self.rows > 0.0 { (limit as f64 / self.rows).min(1.0) } else { 1.0 };
        self.us = first_us + (self.us - first_us) * part;
        self.pages = self.pages.times(part);
        self.rows *= part;
        self
    }
}

/// Adds to conditions those that follow from them, and from others that hold of the same rows.
fn add_transitive(conditions: &mut Vec<Predicate>, others: &[Predicate]) {
    let equal = |one: &Predicate| match one {
        Predicate::CompareColumns(a, Comparison::Equal, b) if a != b => Some((*a, *b)),
        _ => None,
    };
    loop {
        let mut more = Vec::new();
        for (a, b) in conditions.iter().filter_map(equal).flat_map(|(a, b)| [(a, b), (b, a)]) {
            for other in conditions.iter().chain(others) {
                let follows = match other {
                    Predicate::Compare(column, how, value) if *column == a => {
                        Predicate::Compare(b, *how, value.clone())
                    }
                    Predicate::Between(column, low, high) if *column == a => {
                        Predicate::Between(b, low.clone(), high.clone())
                    }
                    _ => match equal(other) {
                        Some((x, y)) if x == a && y != b => {
                            Predicate::CompareColumns(b, Comparison::Equal, y)
                        }
                        Some((x, y)) if y == a && x != b => {
                            Predicate::CompareColumns(b, Comparison::Equal, x)
                        }
                        _ => continue,
                    },
                };
                let is_known = |known: &Predicate| {
                    *known == follows || equal(known).is_some_and(|(x, y)| equal(&follows) == Some((y, x)))
                };
                if !conditions.iter().chain(others).chain(&more).any(is_known) {
                    more.push(follows);
                }
            }
        }
        if more.is_empty() {
            return;
        }
        conditions.append(&mut more);
    }
}
