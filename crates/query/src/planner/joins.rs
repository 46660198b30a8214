//! The order of joins, and the operator of each: left-deep dynamic programming over sets of tables.
//!
//! Of each set the cheapest plan is kept: joins return rows in no particular order, so that no plan
//! is better for what comes above. An inner join may come in any order; a table that comes by an
//! outer join comes after all tables that its condition names.

use super::access::{Access, Use};
use super::bounds::KeyBounds;
use super::costs::{Costs, Pages, Reading};
use super::facts::{Knowledge, guess};
use super::request::{Choice, Join, JoinMethod, Node, Request, Right};
use super::spills::{Side, Spill};
use crate::fetch::reads_of;
use crate::predicate::{Comparison, Predicate};

/// Bytes that a kept row takes besides its own.
pub(super) const KEPT_BYTES: f64 = 32.0;

/// What dynamic programming asks again and again of one table.
pub(super) struct Table {
    conditions: Vec<Predicate>,
    needed: Vec<usize>,
    pub(super) ranges: Vec<(KeyBounds, f64)>,
    /// Cheapest first.
    pub(super) accesses: Vec<Access>,
}

pub(super) struct Planner<'a> {
    pub(super) request: &'a Request,
    knowledge: &'a dyn Knowledge,
    pub(super) costs: &'a Costs,
    pub(super) tables: Vec<Table>,
}

/// The condition of one join.
pub(super) struct Condition {
    pub(super) keys: Vec<(usize, usize)>,
    rest: Vec<Predicate>,
    filter: Vec<Predicate>,
    pub(super) is_outer: bool,
}

/// All ways to join all tables, as far as their parts are the cheapest.
pub(super) fn choices(request: &Request, knowledge: &dyn Knowledge, costs: &Costs) -> Vec<Choice> {
    let table = |number: usize| {
        let (conditions, needed) = (request.conditions_of(number), request.needed_of(number));
        let used = Use {
            number,
            facts: &request.tables[number],
            conditions: &conditions,
            needed: &needed,
            order: &[],
            shares: 3,
            is_alone: false,
        };
        let ranges = used.ranges(knowledge);
        let mut accesses = used.accesses(&ranges, costs, knowledge);
        accesses.retain(|access| request.hints.allow(number, access));
        accesses.sort_by(|a, b| a.us.total_cmp(&b.us));
        Table { conditions, needed, ranges, accesses }
    };
    let tables: Vec<Table> = (0..request.tables.len()).map(table).collect();
    let planner = Planner { request, knowledge, costs, tables };
    let all = (1u32 << request.tables.len()) - 1;
    let mut best: Vec<Option<Choice>> = vec![None; all as usize + 1];
    let mut complete = Vec::new();
    for set in 1..=all {
        let mut found = Vec::new();
        for last in 0..request.tables.len() {
            let rest = set & !(1 << last);
            if set & 1 << last == 0 || !planner.may_come(last, rest) {
                continue;
            }
            if rest == 0 {
                found.extend(planner.tables[last].accesses.first().map(|access| first(last, access)));
            } else if let Some(left) = &best[rest as usize] {
                found.extend(planner.join(left, rest, last));
            }
        }
        if set == all {
            complete = found;
        } else {
            best[set as usize] = found.into_iter().min_by(Choice::by_cost);
        }
    }
    let row_bytes: f64 = request.tables.iter().map(|table| table.row_bytes).sum();
    let projected = |choice: Choice| Choice { us: choice.us + costs.returned_us(choice.rows), ..choice };
    let end = |choice: Choice| match request.order.is_empty() {
        true => {
            // What is not known of the time to the first row is taken to be half.
            let first_us = choice.us / 2.0;
            choice.limited(first_us, request.limit)
        }
        false => choice.sorted(row_bytes, request.limit, costs),
    };
    complete.into_iter().map(projected).map(end).collect()
}

fn first(table: usize, access: &Access) -> Choice {
    Choice {
        node: Node::Access(table, Box::new(access.clone())),
        is_sorted: false,
        rows: access.rows,
        pages: access.pages,
        us: access.us,
        spilled_bytes: 0.0,
        lacks_spill: false,
    }
}

impl Planner<'_> {
    /// Whether a table may come behind the tables of a set.
    fn may_come(&self, table: usize, behind: u32) -> bool {
        if let Some(order) = &self.request.hints.order {
            let place = behind.count_ones() as usize;
            if order.get(place).is_some_and(|wanted| *wanted != table) {
                return false;
            }
        }
        match &self.request.outer[table] {
            Some(on) => {
                let named = on.iter().fold(0, |tables, one| tables | self.request.tables_of(one));
                // Its condition may name none: it still keeps every row of those before it.
                behind & 1 != 0 && named & !(1 << table) & !behind == 0
            }
            None => true,
        }
    }

    /// What holds of pairs of rows of a set and a table, and was not evaluated below.
    fn condition(&self, set: u32, table: usize) -> Condition {
        let own = 1 << table;
        let is_new = |one: &&Predicate| {
            let tables = self.request.tables_of(one);
            tables & own != 0 && tables & !(set | own) == 0
        };
        let (on, filter): (Vec<&Predicate>, Vec<Predicate>) = match &self.request.outer[table] {
            Some(on) => {
                (on.iter().collect(), self.request.conditions.iter().filter(is_new).cloned().collect())
            }
            None => (self.request.conditions.iter().filter(is_new).collect(), Vec::new()),
        };
        let mut condition = Condition {
            keys: Vec::new(),
            rest: Vec::new(),
            filter,
            is_outer: self.request.outer[table].is_some(),
        };
        for one in on {
            if self.request.tables_of(one) == own {
                continue;
            }
            match one {
                Predicate::CompareColumns(a, Comparison::Equal, b)
                    if (self.request.table_of(*a) == table) != (self.request.table_of(*b) == table) =>
                {
                    let is_right = self.request.table_of(*a) == table;
                    condition.keys.push(if is_right { (*b, *a) } else { (*a, *b) });
                }
                other => condition.rest.push(other.clone()),
            }
        }
        // One table's column may be equal to several: one key for each is enough.
        let mut seen = Vec::new();
        let keys = std::mem::take(&mut condition.keys);
        for (left, right) in keys {
            match seen.contains(&right) {
                true => condition.rest.push(Predicate::CompareColumns(left, Comparison::Equal, right)),
                false => {
                    seen.push(right);
                    condition.keys.push((left, right));
                }
            }
        }
        condition
    }

    pub(super) fn use_of(&self, table: usize) -> Use<'_> {
        Use {
            number: table,
            facts: &self.request.tables[table],
            conditions: &self.tables[table].conditions,
            needed: &self.tables[table].needed,
            order: &[],
            shares: 3,
            is_alone: false,
        }
    }

    /// How many values the key columns of one side have together, at most as many as it has rows.
    fn distinct(&self, columns: impl Iterator<Item = usize>) -> f64 {
        let (mut values, mut rows) = (1.0, f64::INFINITY);
        for column in columns {
            let table = self.request.table_of(column);
            let facts = &self.request.tables[table];
            let local = column - self.request.first_column(table);
            let is_key = |path: &super::facts::PathFacts| {
                path.is_unique && path.columns.len() == 1 && path.columns[0].column == local
            };
            let unknown = || (facts.rows / 10.0).max(1.0);
            values *= match facts.paths.iter().any(is_key) {
                true => facts.rows,
                false => self.knowledge.distinct(table, local).unwrap_or_else(unknown),
            };
            rows = facts.rows.min(rows);
        }
        values.min(rows).max(1.0)
    }

    /// Every way to join a table to the cheapest plan of a set.
    fn join(&self, left: &Choice, set: u32, table: usize) -> Vec<Choice> {
        let condition = self.condition(set, table);
        let facts = &self.request.tables[table];
        let own = &self.tables[table];
        // Conditions on key columns hold of the left rows' keys, too, and are not counted twice.
        let is_key = |column: usize| {
            condition.keys.iter().any(|(_, key)| *key == column + self.request.first_column(table))
        };
        let counted = own.conditions.iter().filter(|one| {
            let mut on_keys = true;
            one.columns(&mut |column| on_keys &= is_key(column));
            !on_keys
        });
        let counted: Vec<Predicate> = counted.cloned().collect();
        let left_values = self.distinct(condition.keys.iter().map(|key| key.0));
        let values = left_values.max(self.distinct(condition.keys.iter().map(|key| key.1)));
        // Rows of the table for each left row, before its own conditions.
        let fanout = if condition.keys.is_empty() { facts.rows } else { facts.rows / values };
        let matching = match condition.keys.is_empty() {
            true => own.accesses.first().map_or(facts.rows, |access| access.rows),
            false => {
                let ranges: Vec<(KeyBounds, f64)> = facts
                    .paths
                    .iter()
                    .map(|path| (KeyBounds::new(&counted, &path.columns), facts.rows))
                    .collect();
                fanout * facts.rows_where(table, &counted, &ranges, self.knowledge) / facts.rows.max(1.0)
            }
        };
        let rest: f64 = condition.rest.iter().map(guess).product();
        let pairs = left.rows * matching * rest;
        let rows = if condition.is_outer { pairs.max(left.rows) } else { pairs };
        let filter: f64 = condition.filter.iter().map(guess).product();
        let step = Step { planner: self, left, table, condition, fanout, left_values, rows: rows * filter };
        let mut all = step.with_access();
        all.extend(step.index_nested_loops());
        all.extend(step.index_sort_merge());
        all
    }
}

/// Bytes that a pair of keys in memory takes, by their usual length.
pub(super) const PAIR_BYTES: f64 = 60.0;

/// How an index sort-merge reads the rows of its pairs.
struct MergedEntries {
    /// Left rows are read once for each.
    blocks: f64,
    /// Right rows are.
    pieces: f64,
    /// Right rows that are read, some of them for several pieces.
    lookups: f64,
}

impl MergedEntries {
    /// With left rows of which one read returns `together`.
    fn new(left: f64, pairs: f64, right_entries: f64, share: f64, together: f64) -> MergedEntries {
        let blocks = ((left + pairs) * PAIR_BYTES / (share / 3.0)).ceil().max(1.0);
        let pieces = reads_of(left, together).max((pairs * PAIR_BYTES / (share / 4.0)).ceil()).max(blocks);
        MergedEntries { blocks, pieces, lookups: met_in_parts(right_entries, pairs, pieces) }
    }
}

/// How often a value is met first in one of `parts` of as many rows, which have `values` together.
pub(super) fn met_in_parts(values: f64, rows: f64, parts: f64) -> f64 {
    let values = values.min(rows).max(1.0);
    parts * values * (1.0 - (1.0 - 1.0 / parts).powf(rows / values))
}

/// How many of `all` are met when as many are drawn.
pub(super) fn distinct_of(all: f64, drawn: f64) -> f64 {
    let all = all.max(1.0);
    all * (1.0 - (1.0 - 1.0 / all).powf(drawn))
}

/// A join that is being considered.
pub(super) struct Step<'a> {
    pub(super) planner: &'a Planner<'a>,
    pub(super) left: &'a Choice,
    pub(super) table: usize,
    pub(super) condition: Condition,
    /// Rows of the table for each left row, before its own conditions.
    pub(super) fanout: f64,
    /// Values that the left key columns have in all.
    pub(super) left_values: f64,
    rows: f64,
}

impl Step<'_> {
    pub(super) fn left_bytes(&self) -> f64 {
        let request = self.planner.request;
        let tables = 0..request.tables.len();
        let holds = |table: &usize| self.left.node.tables() & 1 << table != 0;
        tables.filter(holds).map(|table| request.tables[table].row_bytes).sum()
    }

    pub(super) fn choice(&self, right: Right, pages: Pages, us: f64, spill: Spill) -> Choice {
        let (costs, condition) = (self.planner.costs, &self.condition);
        let pages = self.left.pages.plus(pages);
        let us = self.left.us + us + costs.returned_us(self.rows);
        let join = Join {
            left: self.left.node.clone(),
            table: self.table,
            right,
            keys: condition.keys.clone(),
            rest: condition.rest.clone(),
            is_outer: condition.is_outer,
            filter: condition.filter.clone(),
            rows: self.rows,
            pages,
            us,
        };
        let choice = Choice {
            node: Node::Join(Box::new(join)),
            is_sorted: false,
            rows: self.rows,
            pages,
            us,
            spilled_bytes: self.left.spilled_bytes,
            lacks_spill: self.left.lacks_spill,
        };
        choice.spilling(spill, costs)
    }

    /// Joins that read the table by itself.
    fn with_access(&self) -> Vec<Choice> {
        let Some(access) = self.planner.tables[self.table].accesses.first() else { return Vec::new() };
        let costs = self.planner.costs;
        let allows = |method| self.planner.request.hints.allow_join(self.table, method);
        let [left, right] = self.sides(access, self.left.rows);
        // Of what is read below, and of the operator itself.
        let below = self.left.node.shares() + access.shares();
        let mut all = Vec::new();
        if allows(JoinMethod::BlockNestedLoops) {
            let kept = left.bytes + left.rows * KEPT_BYTES;
            let blocks = (kept / costs.share_bytes(below + 1)).ceil().max(1.0);
            let us = blocks * access.us + costs.compared_us(self.left.rows * access.rows);
            let right = Right::BlockNestedLoops(access.clone());
            all.push(self.choice(right, access.pages.times(blocks), us, Spill::default()));
        }
        if self.condition.keys.is_empty() {
            return all;
        }
        if allows(JoinMethod::Hash) {
            let (us, spill) = self.hash(access, left.rows, false, costs.share_bytes(below + 1));
            all.push(self.choice(Right::Hash(access.clone()), access.pages, us, spill));
        }
        if allows(JoinMethod::SortMerge) {
            let share = costs.share_bytes(below + 3);
            let spill = costs.sort_spill(left, share).plus(costs.sort_spill(right, share));
            let sorted = |rows: f64| costs.sorted_us(rows) + costs.returned_us(rows);
            let us = access.us + sorted(self.left.rows) + sorted(access.rows);
            all.push(self.choice(Right::SortMerge(access.clone()), access.pages, us, spill));
        }
        all
    }

    /// The time of a hash join of this many left rows with what an access returns, and what it
    /// spills.
    pub(super) fn hash(&self, access: &Access, left: f64, builds_left: bool, share: f64) -> (f64, Spill) {
        let costs = self.planner.costs;
        let [left, right] = self.sides(access, left);
        let spill = match builds_left {
            true => {
                let matching = (left.rows * self.fanout / right.rows.max(1.0)).min(1.0);
                costs.hash_spill(left, right, matching, share)
            }
            false => costs.hash_spill(right, left, self.fanout.min(1.0), share),
        };
        (access.us + costs.kept_us(left.rows + right.rows), spill)
    }

    /// This many left rows, and those that an access of the table returns.
    pub(super) fn sides(&self, access: &Access, left: f64) -> [Side; 2] {
        let row_bytes = self.planner.request.tables[self.table].row_bytes;
        let side = |rows: f64, bytes: f64| Side { rows, bytes: rows * bytes };
        [side(left, self.left_bytes()), side(access.rows, row_bytes)]
    }

    /// Joins of two tables that merge the entries of two indexes.
    fn index_sort_merge(&self) -> Vec<Choice> {
        let (request, costs) = (self.planner.request, self.planner.costs);
        let Node::Access(left, _) = &self.left.node else { return Vec::new() };
        if !request.hints.allow_join(self.table, JoinMethod::IndexSortMerge) || self.condition.keys.is_empty()
        {
            return Vec::new();
        }
        let (left, right) = (*left, self.table);
        let mut all = Vec::new();
        for left_path in 1..request.tables[left].paths.len() {
            for right_path in 1..request.tables[right].paths.len() {
                let is_allowed = request.hints.allow_lookups(left, left_path)
                    && request.hints.allow_lookups(right, right_path);
                let paths = [(left, left_path), (right, right_path)];
                if !is_allowed || request.merged_keys(&self.condition.keys, paths) == 0 {
                    continue;
                }
                let side = |table: usize, path: usize| {
                    let (bounds, entries) = &self.planner.tables[table].ranges[path];
                    let tree = &request.tables[table].paths[path];
                    let leaves = tree.leaves * entries / request.tables[table].rows.max(1.0);
                    let pages = costs.by_tier(leaves.max(1.0), tree.residency);
                    let us = costs.pages_us(pages, Reading::Scan, tree.tree()) + costs.entries_us(*entries);
                    ((path, bounds.clone()), *entries, pages, us)
                };
                let (left_side, left_entries, left_pages, left_us) = side(left, left_path);
                let (right_side, right_entries, right_pages, right_us) = side(right, right_path);
                // Rows of pairs of entries that match.
                let pairs = left_entries * self.fanout;
                let matched = pairs.min(left_entries);
                let share = costs.share_bytes(3);
                let together = costs.fetched_together(share);
                let work = MergedEntries::new(matched, pairs, right_entries, share, together);
                let rows = |table: usize, path: usize, entries: f64, lists: f64| {
                    self.planner.use_of(table).rows_by_lists(path, entries, lists, costs)
                };
                let (more_left, more_left_us) = rows(left, left_path, matched, work.blocks);
                let (more_right, more_right_us) = rows(right, right_path, work.lookups, work.pieces);
                let pages = left_pages.plus(right_pages).plus(more_left).plus(more_right);
                let us = left_us + right_us + more_left_us + more_right_us;
                let us = us + costs.sorted_us(matched) + costs.keys_sorted_us(pairs);
                // The left table is not read as the plan below says.
                let sides = Right::IndexSortMerge([left_side, right_side]);
                let mut choice = self.choice(sides, pages, us, Spill::default());
                choice.us -= self.left.us;
                choice.pages = pages;
                if let Node::Join(join) = &mut choice.node {
                    (join.us, join.pages) = (choice.us, pages);
                }
                all.push(choice);
            }
        }
        all
    }
}

impl Node {
    /// Its tables, a bit each.
    pub(super) fn tables(&self) -> u32 {
        match self {
            Node::Access(table, _) => 1 << table,
            Node::Join(join) => join.left.tables() | 1 << join.table,
        }
    }
}
