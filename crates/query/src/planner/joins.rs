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
use crate::predicate::{Comparison, Predicate};

/// Bytes that a kept row takes besides its own.
const KEPT_BYTES: f64 = 32.0;

/// What dynamic programming asks again and again of one table.
struct Table {
    conditions: Vec<Predicate>,
    needed: Vec<usize>,
    ranges: Vec<(KeyBounds, f64)>,
    /// Cheapest first.
    accesses: Vec<Access>,
}

struct Planner<'a> {
    request: &'a Request,
    knowledge: &'a dyn Knowledge,
    costs: &'a Costs,
    tables: Vec<Table>,
}

/// The condition of one join.
struct Condition {
    keys: Vec<(usize, usize)>,
    rest: Vec<Predicate>,
    filter: Vec<Predicate>,
    is_outer: bool,
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
    let end = |choice: Choice| match request.order.is_empty() {
        true => {
            // What is not known of the time to the first row is taken to be half.
            let first_us = choice.us / 2.0;
            choice.limited(first_us, request.limit)
        }
        false => choice.sorted(row_bytes, request.limit, costs),
    };
    complete.into_iter().map(end).collect()
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

    fn use_of(&self, table: usize) -> Use<'_> {
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
        let values = self
            .distinct(condition.keys.iter().map(|key| key.0))
            .max(self.distinct(condition.keys.iter().map(|key| key.1)));
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
        let step = Step { planner: self, left, table, condition, fanout, rows: rows * filter };
        let mut all = step.with_access();
        all.extend(step.index_nested_loops());
        all.extend(step.index_sort_merge());
        all
    }
}

/// A join that is being considered.
struct Step<'a> {
    planner: &'a Planner<'a>,
    left: &'a Choice,
    table: usize,
    condition: Condition,
    /// Rows of the table for each left row, before its own conditions.
    fanout: f64,
    rows: f64,
}

impl Step<'_> {
    fn left_bytes(&self) -> f64 {
        let request = self.planner.request;
        let tables = 0..request.tables.len();
        let holds = |table: &usize| self.left.node.tables() & 1 << table != 0;
        tables.filter(holds).map(|table| request.tables[table].row_bytes).sum::<f64>() + KEPT_BYTES
    }

    fn choice(&self, right: Right, pages: Pages, us: f64, spilled_bytes: f64) -> Choice {
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
        choice.spilling(spilled_bytes, costs)
    }

    /// Joins that read the table by itself.
    fn with_access(&self) -> Vec<Choice> {
        let Some(access) = self.planner.tables[self.table].accesses.first() else { return Vec::new() };
        let costs = self.planner.costs;
        let allows = |method| self.planner.request.hints.allow_join(self.table, method);
        let right_bytes = self.planner.request.tables[self.table].row_bytes + KEPT_BYTES;
        let (left, right) = (self.left.rows * self.left_bytes(), access.rows * right_bytes);
        let share = costs.share_bytes(3);
        let mut all = Vec::new();
        if allows(JoinMethod::BlockNestedLoops) {
            let blocks = (left / share).ceil().max(1.0);
            let us = blocks * access.us + costs.compared_us(self.left.rows * access.rows);
            let right = Right::BlockNestedLoops(access.clone());
            all.push(self.choice(right, access.pages.times(blocks), us, 0.0));
        }
        if self.condition.keys.is_empty() {
            return all;
        }
        if allows(JoinMethod::Hash) {
            let spilled = (1.0 - share / right.max(1.0)).max(0.0);
            let us = access.us + costs.kept_us(self.left.rows + access.rows);
            let bytes = spilled * (left + right);
            all.push(self.choice(Right::Hash(access.clone()), access.pages, us, bytes));
        }
        if allows(JoinMethod::SortMerge) {
            let spilled = |bytes: f64| if bytes > share { bytes } else { 0.0 };
            let us = access.us + costs.sorted_us(self.left.rows) + costs.sorted_us(access.rows);
            let bytes = spilled(left) + spilled(right);
            all.push(self.choice(Right::SortMerge(access.clone()), access.pages, us, bytes));
        }
        all
    }

    /// Whether rows can be looked up by keys that a path begins with: by a part of an index, or the
    /// whole primary key. Keys that are left are compared then.
    fn can_look_up(&self, path: usize) -> bool {
        let facts = &self.planner.request.tables[self.table];
        let first = self.planner.request.first_column(self.table);
        let is_key = |column: usize| self.condition.keys.iter().any(|(_, key)| *key == first + column);
        let columns = &facts.paths[path].columns;
        let found = columns.iter().take_while(|part| is_key(part.column)).count();
        found > 0 && (path > 0 || found == columns.len())
    }

    fn index_nested_loops(&self) -> Vec<Choice> {
        let (request, costs) = (self.planner.request, self.planner.costs);
        let facts = &request.tables[self.table];
        if !request.hints.allow_join(self.table, JoinMethod::IndexNestedLoops) {
            return Vec::new();
        }
        let mut all = Vec::new();
        for path in 0..facts.paths.len() {
            if !self.can_look_up(path) || !request.hints.allow_lookups(self.table, path) {
                continue;
            }
            let probes = self.left.rows;
            let entries = probes * self.fanout;
            // The keys lie within the range that conditions leave of the path.
            let within = self.planner.tables[self.table].ranges[path].1 / facts.rows.max(1.0);
            let tree = &facts.paths[path];
            let blocks = (probes * self.left_bytes() / (costs.share_bytes(2) / 4.0)).ceil().max(1.0);
            let touched = |leaves: f64| {
                let leaves = (leaves * within).max(1.0);
                let of = |probes: f64| leaves * (1.0 - (1.0 - 1.0 / leaves).powf(probes));
                costs.read_again(of(probes), blocks * of(probes / blocks))
            };
            let (pages, us) = if path == 0 {
                let leaves = touched(facts.leaves);
                let pages = costs.by_tier(leaves, facts.residency);
                (pages, costs.pages_us(pages, Reading::Ascending(leaves), facts.tree()))
            } else {
                let own = costs.by_tier(touched(tree.leaves), tree.residency);
                let own_us = costs.pages_us(own, Reading::Ascending(1.0), tree.tree());
                let (rows, rows_us) = self.planner.use_of(self.table).rows_by_keys(path, entries, costs);
                (own.plus(rows), own_us + rows_us + costs.probes_us(probes) + costs.entries_us(entries))
            };
            // By the primary key the rows are looked up right away.
            let looked_up = if path == 0 { costs.lookups_us(probes) + costs.rows_us(entries) } else { 0.0 };
            let us = us + looked_up + costs.sorted_us(probes);
            all.push(self.choice(Right::IndexNestedLoops(path), pages, us, 0.0));
        }
        all
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
                let rows = |table: usize, path: usize, entries: f64| {
                    self.planner.use_of(table).rows_by_keys(path, pairs.min(entries), costs)
                };
                let (more_left, more_left_us) = rows(left, left_path, left_entries);
                let (more_right, more_right_us) = rows(right, right_path, right_entries);
                let pages = left_pages.plus(right_pages).plus(more_left).plus(more_right);
                let us = left_us + right_us + more_left_us + more_right_us + costs.sorted_us(pairs);
                // The left table is not read as the plan below says.
                let mut choice = self.choice(Right::IndexSortMerge([left_side, right_side]), pages, us, 0.0);
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
