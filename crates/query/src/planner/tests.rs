//! Tables of expected choices.

use super::*;
use crate::predicate::{Comparison, Predicate};
use crate::sort::SortColumn;
use firndb_base::sync::Arc;
use firndb_profile::{DeviceCosts, DeviceProfile};
use firndb_table::{KeyColumn, Residency, Value};
use std::ops::Bound;

/// Values of each column are uniform from 0 to what `distinct` says; nothing is sampled.
struct Uniform<'a> {
    tables: &'a [TableFacts],
    /// Values of each column, by table.
    values: &'a [&'a [f64]],
}

impl Knowledge for Uniform<'_> {
    fn range_rows(&self, table: usize, path: usize, bounds: &KeyBounds) -> Option<f64> {
        let (facts, values) = (&self.tables[table], self.values[table]);
        let columns = &facts.paths[path].columns;
        let mut rows = facts.rows;
        for part in &columns[..bounds.equal.len()] {
            rows /= values[part.column];
        }
        let number = |bound: &Bound<Value>, open: f64| match bound {
            Bound::Unbounded => open,
            Bound::Included(Value::I64(v)) | Bound::Excluded(Value::I64(v)) => *v as f64,
            other => panic!("{other:?}"),
        };
        if let Some(part) = columns.get(bounds.equal.len()) {
            let all = values[part.column];
            rows *= ((number(&bounds.high, all) - number(&bounds.low, 0.0)) / all).clamp(0.0, 1.0);
        }
        Some(rows)
    }
    fn share(&self, _: usize, _: &Predicate) -> Option<(f64, usize)> {
        None
    }
    fn distinct(&self, table: usize, column: usize) -> Option<f64> {
        Some(self.values[table][column])
    }
}

fn path(name: &str, columns: &[usize], of: usize, leaves: f64, table_leaves: [f64; 4]) -> PathFacts {
    let covers = |column: usize| name.is_empty() || column == 0 || columns.contains(&column);
    PathFacts {
        name: name.to_owned(),
        columns: columns.iter().map(|column| KeyColumn::ascending(*column)).collect(),
        is_unique: name.is_empty(),
        covers: (0..of).map(covers).collect(),
        leaves,
        residency: Residency::default(),
        table_leaves: Some(table_leaves),
    }
}

const SCATTERED: [f64; 4] = [1.0, 100.0, 995.0, 9_500.0];
const TOGETHER: [f64; 4] = [1.0, 5.0, 50.0, 500.0];

/// Thesis, figure 4-2: 2,000,000 rows of 206 bytes; column 0 is the key, `by_k` on column 1 lies
/// anywhere, `by_c` on column 2 as the table does.
fn two_million() -> TableFacts {
    TableFacts {
        name: "t".to_owned(),
        columns: 4,
        rows: 2_000_000.0,
        row_bytes: 206.0,
        leaves: 100_600.0,
        residency: Residency::default(),
        paths: vec![
            path("", &[0], 4, 100_600.0, [0.0; 4]),
            path("by_k", &[1], 4, 10_000.0, SCATTERED),
            path("by_c", &[2, 1], 4, 12_000.0, TOGETHER),
        ],
        origin: Origin::Analyzed,
    }
}

fn profiled(toml: &str) -> Arc<DeviceTimes> {
    DeviceTimes::new(DeviceCosts::of(&DeviceProfile::from_toml(toml).expect("it ships")))
}
fn disk() -> Costs {
    Costs {
        store: profiled(include_str!("../../../emulate/profiles/disk-7200.toml")),
        ..Costs::assumed(4096)
    }
}
fn nvme() -> Costs {
    Costs { store: profiled(include_str!("../../../emulate/profiles/nvme.toml")), ..Costs::assumed(4096) }
}

fn request(tables: &[TableFacts], conditions: Vec<Predicate>, output: &[usize]) -> Request {
    Request {
        tables: tables.to_vec(),
        conditions,
        outer: vec![None; tables.len()],
        output: output.to_vec(),
        order: Vec::new(),
        limit: None,
        hints: Hints::default(),
    }
}

fn less(column: usize, value: i64) -> Predicate {
    Predicate::Compare(column, Comparison::Less, value.into())
}
fn is(column: usize, value: i64) -> Predicate {
    Predicate::Compare(column, Comparison::Equal, value.into())
}
fn equal(left: usize, right: usize) -> Predicate {
    Predicate::CompareColumns(left, Comparison::Equal, right)
}

const VALUES: &[f64] = &[2e6, 200_000.0, 200_000.0, 100.0];

/// By `by_k`, insured against too high an estimate.
const SCAN_BY_K: &str = "adaptive fetch of t by by_k, a range, likely a scan";

fn chosen(request: &Request, costs: &Costs, values: &[&[f64]]) -> String {
    let choices = plan(request, &Uniform { tables: &request.tables, values }, costs).expect("a plan");
    assert!(choices.len() <= 3 && choices.windows(2).all(|two| two[0].us <= two[1].us));
    choices[0].describe(request)
}

#[test]
fn one_table_is_read_as_its_devices_and_conditions_ask() {
    let (t, all) = (two_million(), [0, 1, 2, 3]);
    let up = |column| SortColumn { column, descending: false };
    /// Its name, conditions, columns, order, limit and devices; and the plan that is expected.
    type Case<'a> = (&'a str, Vec<Predicate>, &'a [usize], &'a [SortColumn], Option<u64>, &'a Costs, &'a str);
    let cases: [Case<'_>; 16] = [
        ("all", vec![], &all, &[], None, &nvme(), "table scan of t"),
        ("a row", vec![is(0, 5)], &all, &[], None, &nvme(), "table scan of t, a range"),
        (
            "0.01 %, flash",
            vec![less(1, 20)],
            &all,
            &[],
            None,
            &nvme(),
            "adaptive fetch of t by by_k, a range",
        ),
        ("1 %, flash", vec![less(1, 2000)], &all, &[], None, &nvme(), "adaptive fetch of t by by_k, a range"),
        ("1 %, disk", vec![less(1, 2000)], &all, &[], None, &disk(), SCAN_BY_K),
        ("0.02 %, disk", vec![less(1, 40)], &all, &[], None, &disk(), "adaptive fetch of t by by_k, a range"),
        ("30 %, flash", vec![less(1, 60_000)], &all, &[], None, &nvme(), SCAN_BY_K),
        ("clustered", vec![less(2, 1000)], &all, &[], None, &disk(), "adaptive fetch of t by by_c, a range"),
        ("covered", vec![less(1, 60_000)], &[0, 1], &[], None, &disk(), "index only of t by by_k, a range"),
        ("covered, no range", vec![], &[1], &[], None, &disk(), "index only of t by by_k"),
        (
            "the narrower",
            vec![less(1, 50), less(2, 2000)],
            &all,
            &[],
            None,
            &nvme(),
            "adaptive fetch of t by by_k, a range",
        ),
        (
            "two columns",
            vec![is(2, 7), less(1, 50)],
            &all,
            &[],
            None,
            &disk(),
            "adaptive fetch of t by by_c, a range",
        ),
        ("first ten", vec![], &all, &[up(1)], Some(10), &disk(), "index scan of t by by_k"),
        ("all sorted", vec![], &all, &[up(3)], None, &spilling(nvme()), "table scan of t; sort"),
        ("by key", vec![less(1, 60_000)], &all, &[up(0)], None, &nvme(), "table scan of t"),
        (
            "by key, few",
            vec![less(1, 20)],
            &all,
            &[up(0)],
            None,
            &nvme(),
            "adaptive fetch of t by by_k, a range; sort",
        ),
    ];
    for (what, conditions, output, order, limit, costs, expected) in cases {
        let request =
            Request { order: order.to_vec(), limit, ..request(std::slice::from_ref(&t), conditions, output) };
        assert_eq!(chosen(&request, costs, &[VALUES]), expected, "{what}");
    }
}

fn spilling(costs: Costs) -> Costs {
    Costs { spill: Some(costs.store.clone()), ..costs }
}

#[test]
fn what_is_in_memory_moves_the_crossover() {
    let mut t = two_million();
    let request_of = |t: &TableFacts| request(std::slice::from_ref(t), vec![less(1, 6000)], &[0, 1, 2, 3]);
    assert_eq!(chosen(&request_of(&t), &disk(), &[VALUES]), SCAN_BY_K);
    t.residency = Residency { dram: 1.0, ..Residency::default() };
    for path in &mut t.paths {
        path.residency = t.residency;
    }
    let by_index = |plan: String| plan.ends_with("of t by by_k, a range");
    assert!(by_index(chosen(&request_of(&t), &disk(), &[VALUES])));
    // On flash that is cached nearly everything of a disk's random reads is saved, too.
    t.residency = Residency { cache: 1.0, ..Residency::default() };
    let cached = Costs { cache: Some(nvme().store), ..disk() };
    assert!(by_index(chosen(&request_of(&t), &cached, &[VALUES])));
    // Without a cache its share means nothing.
    assert_eq!(chosen(&request_of(&t), &disk(), &[VALUES]), SCAN_BY_K);
}

#[test]
fn hints_force_an_access_and_refuse_what_cannot_be() {
    let t = two_million();
    for (kind, path, expected) in [
        (AccessKind::TableScan, 0, Some("table scan of t")),
        (AccessKind::IndexScan, 2, Some("index scan of t by by_c")),
        (AccessKind::IndexFetch, 1, Some("index fetch of t by by_k, a range")),
        (AccessKind::IndexOnly, 1, None),
    ] {
        let mut request = request(std::slice::from_ref(&t), vec![less(1, 20)], &[0, 1, 2, 3]);
        request.hints.access.push((0, kind, path));
        let found = plan(&request, &Uniform { tables: &request.tables, values: &[VALUES] }, &nvme());
        match expected {
            Some(expected) => assert_eq!(found.unwrap()[0].describe(&request), expected),
            None => assert!(found.unwrap_err().message.contains("hints")),
        }
    }
}

#[test]
fn rows_of_entries_lie_between_together_and_anywhere() {
    let t = two_million();
    assert_eq!(t.leaves_of(1, 1.0), 1.0);
    assert!((90.0..=100.0).contains(&t.leaves_of(1, 100.0)), "{}", t.leaves_of(1, 100.0));
    assert!((490.0..=700.0).contains(&t.leaves_of(2, 10_000.0)), "{}", t.leaves_of(2, 10_000.0));
    for path in 0..3 {
        let mut last = 0.0;
        for entries in [0.0, 1.0, 10.0, 100.0, 3000.0, 10_000.0, 1e5, 1e6, 2e6] {
            let leaves = t.leaves_of(path, entries);
            assert!(
                leaves >= last && leaves <= t.leaves + 0.5 && leaves <= entries.max(1.0),
                "{path} {entries} {leaves}"
            );
            last = leaves;
        }
    }
}

/// Thesis, figure 5-1: 300,000 customers, 3,000,000 orders of ten for each; an index of either on
/// the customer's key. Columns 0 to 2 are the customers', 3 to 5 the orders'.
fn customers_and_orders() -> [TableFacts; 2] {
    let table = |name: &str, rows: f64, row_bytes: f64, leaves: f64, index, index_leaves| TableFacts {
        name: name.to_owned(),
        columns: 3,
        rows,
        row_bytes,
        leaves,
        residency: Residency::default(),
        paths: vec![path("", &[0], 3, leaves, [0.0; 4]), path(index, &[1], 3, index_leaves, SCATTERED)],
        origin: Origin::Analyzed,
    };
    [
        table("customer", 300_000.0, 210.0, 16_000.0, "c_by_key", 1_440.0),
        table("orders", 3_000_000.0, 130.0, 99_000.0, "o_by_customer", 15_000.0),
    ]
}
const JOINED: &[&[f64]] = &[&[300_000.0, 300_000.0, 25.0], &[3e6, 300_000.0, 3.0]];

#[test]
fn joins_are_by_index_while_few_rows_match_and_by_hash_when_many_do() {
    let tables = customers_and_orders();
    let flash = spilling(nvme());
    let by_hash = "adaptive fetch of customer by c_by_key, a range, likely a scan; adaptive index nested loops join with orders by o_by_customer, likely by hash";
    let by_lookup = "index fetch of customer by c_by_key, a range; index nested loops join with orders";
    // What is compared with x: the customers' keys, the orders', or a column of customers.
    let cases: [(Predicate, &Costs, &str); 6] = [
        (less(1, 300_000), &flash, by_hash),
        (less(1, 150_000), &spilling(disk()), by_hash),
        (
            is(0, 7),
            &nvme(),
            "table scan of customer, a range; index nested loops join with orders by o_by_customer",
        ),
        (
            is(0, 7),
            &disk(),
            "table scan of customer, a range; index nested loops join with orders by o_by_customer",
        ),
        (
            is(3, 7),
            &nvme(),
            "table scan of orders, a range; index nested loops join with customer by c_by_key",
        ),
        (less(1, 300), &nvme(), ""),
    ];
    for (condition, costs, expected) in cases {
        let request = request(&tables, vec![equal(1, 4), condition.clone()], &[0, 2, 3, 5]);
        let found = chosen(&request, costs, JOINED);
        match expected.is_empty() {
            // Ranges of both indexes, however they are put together: no table is scanned.
            true => assert!(found != by_hash && !found.contains("table scan"), "{found}, not {by_lookup}"),
            false => assert_eq!(found, expected, "{condition:?}"),
        }
    }
}

#[test]
fn hints_force_joins_and_their_order() {
    let tables = customers_and_orders();
    for (first, second) in [(0, 1), (1, 0)] {
        for method in JoinMethod::ALL {
            let mut request = request(&tables, vec![equal(1, 4), less(1, 300)], &[0, 2, 3, 5]);
            request.hints.order = Some(vec![first, second]);
            request.hints.joins = vec![(second, method)];
            let found = chosen(&request, &spilling(nvme()), JOINED);
            assert!(found.contains(&format!("; {method} join with ")), "{found}");
            let (at, behind) = (found.find(&tables[first].name), found.find(&tables[second].name));
            assert!(at < behind, "{found}");
        }
    }
}

#[test]
fn an_outer_join_keeps_its_tables_behind_those_it_names() {
    let tables = customers_and_orders();
    for (first, is_possible) in [(0, true), (1, false)] {
        let mut request = request(&tables, vec![less(1, 300)], &[0, 2, 3, 5]);
        request.outer[1] = Some(vec![equal(1, 4)]);
        request.hints.order = Some(vec![first, 1 - first]);
        let found = plan(&request, &Uniform { tables: &tables, values: JOINED }, &nvme());
        assert_eq!(found.is_ok(), is_possible);
        if let Ok(found) = found {
            assert!(found[0].describe(&request).contains("left "));
            assert!(found[0].rows >= 300.0, "{}", found[0].rows);
        }
    }
    // The condition on customers reaches the orders' index through the join's.
    let mut request = request(&tables, vec![less(1, 300)], &[0, 2, 3, 5]);
    request.outer[1] = Some(vec![equal(1, 4)]);
    request.hints.access = vec![(1, AccessKind::IndexFetch, 1)];
    request.hints.joins = vec![(1, JoinMethod::Hash)];
    assert!(chosen(&request, &nvme(), JOINED).ends_with("index fetch of orders by o_by_customer, a range"));
}

/// Customers of the first keys, each with the orders that it has, if any: by lookups, or by a hash
/// join of all orders.
fn left_joined(tables: &[TableFacts], customers: i64, method: Option<JoinMethod>) -> Request {
    let mut request = request(tables, vec![less(0, customers)], &[0, 2, 3, 5]);
    request.outer[1] = Some(vec![equal(1, 4)]);
    request.hints.order = Some(vec![0, 1]);
    request.hints.joins = method.into_iter().map(|method| (1, method)).collect();
    request
}

fn or_hash(choice: &Choice) -> Option<&OrHash> {
    match &choice.node {
        Node::Join(join) => match &join.right {
            Right::IndexNestedLoops(_, or_hash) => or_hash.as_deref(),
            _ => None,
        },
        Node::Access(..) => None,
    }
}

#[test]
fn lookups_hand_over_where_a_hash_join_is_as_cheap() {
    let tables = customers_and_orders();
    let first = |request: Request, costs: &Costs| {
        plan(&request, &Uniform { tables: &tables, values: JOINED }, costs).expect("a plan").remove(0)
    };
    for (costs, name) in [(spilling(nvme()), "nvme"), (spilling(disk()), "disk")] {
        let few = first(left_joined(&tables, 20, None), &costs);
        let most = or_hash(&few).expect("an adaptive join").rows;
        assert!((100..200_000).contains(&most), "{name}: {most}");
        let us =
            |customers: u64, method| first(left_joined(&tables, customers as i64, Some(method)), &costs).us;
        for (customers, is_cheaper) in [(most / 2, true), (most * 9 / 10, true), (most * 5 / 4, false)] {
            let (lookups, hash) =
                (us(customers, JoinMethod::IndexNestedLoops), us(customers, JoinMethod::Hash));
            assert_eq!(lookups < hash, is_cheaper, "{name}: {customers} of {most}: {lookups} {hash}");
        }
    }
}

#[test]
fn joins_are_adaptive_unless_a_hint_or_the_lack_of_a_spill_device_forbids_it() {
    let tables = customers_and_orders();
    let adaptive =
        "table scan of customer, a range; left adaptive index nested loops join with orders by o_by_customer";
    let forced = "table scan of customer, a range; left index nested loops join with orders by o_by_customer";
    let hash = "table scan of customer, a range; left hash join with table scan of orders";
    let flash = spilling(nvme());
    let lookups = Some(JoinMethod::IndexNestedLoops);
    for (customers, method, costs, expected) in [
        (20, None, &flash, adaptive),
        (20, lookups, &flash, forced),
        (20, None, &nvme(), forced),
        (250_000, lookups, &flash, forced),
        (250_000, Some(JoinMethod::Hash), &flash, hash),
    ] {
        assert_eq!(chosen(&left_joined(&tables, customers, method), costs, JOINED), expected);
    }
}

/// Customers by a range of the key that orders have, too: what is thought of it is wrong of both.
#[test]
fn wrong_estimates_leave_a_join_adaptive_and_move_its_break_even_little() {
    let tables = customers_and_orders();
    let (costs, uniform) = (spilling(nvme()), Uniform { tables: &tables, values: JOINED });
    let request = request(&tables, vec![equal(0, 4), less(0, 3000)], &[0, 2, 3, 5]);
    let most = |factor: f64| {
        let found = plan(&request, &Misjudged::new(&uniform, factor), &costs).expect("a plan").remove(0);
        let or_hash = or_hash(&found).unwrap_or_else(|| panic!("{factor}: {}", found.describe(&request)));
        assert!(or_hash.counts_ahead && or_hash.builds_left, "{factor}: {or_hash:?}");
        assert_eq!(or_hash.is_expected, factor > 1.0);
        assert!(or_hash.access.shares() == 0, "{factor}: a fetch would be of as many: {or_hash:?}");
        or_hash.rows as f64
    };
    let (few, many) = (most(0.01), most(100.0));
    assert!(few > 10_000.0 && many < 100_000.0 && (0.5..2.0).contains(&(few / many)), "{few} {many}");
}

/// Its left rows are the build side that the hash join would have, with the same memory.
#[test]
fn an_adaptive_join_is_planned_to_cost_what_a_hash_join_does() {
    let tables = customers_and_orders();
    for memory_bytes in [4e6, 64e6] {
        let costs = Costs { memory_bytes, ..spilling(nvme()) };
        let first = |order: Vec<usize>, method: Option<(usize, JoinMethod)>| {
            let mut request = request(&tables, vec![equal(1, 4), less(1, 200_000)], &[0, 2, 3, 5]);
            request.hints.order = Some(order);
            request.hints.joins = method.into_iter().collect();
            plan(&request, &Uniform { tables: &tables, values: JOINED }, &costs).expect("a plan").remove(0)
        };
        let adaptive = first(vec![0, 1], None);
        assert!(or_hash(&adaptive).is_some_and(|it| it.is_expected), "{adaptive:?}");
        let hash = first(vec![1, 0], Some((0, JoinMethod::Hash)));
        assert!((0.94..1.0).contains(&(adaptive.us / hash.us)), "{} {}", adaptive.us, hash.us);
        assert!((0.99..1.01).contains(&(adaptive.spilled_bytes / hash.spilled_bytes.max(1.0)).max(1.0)));
    }
}

#[test]
fn a_small_pool_reads_less_at_once() {
    let t = two_million();
    let us = |pool_pages: f64, kind: AccessKind, path: usize| {
        let mut request = request(std::slice::from_ref(&t), vec![less(1, 2000)], &[0, 1, 2, 3]);
        request.hints.access = vec![(0, kind, path)];
        let costs = Costs { pool_pages, ..nvme() };
        plan(&request, &Uniform { tables: std::slice::from_ref(&t), values: &[VALUES] }, &costs)
            .expect("a plan")[0]
            .us
    };
    for (kind, path) in [(AccessKind::TableScan, 0), (AccessKind::IndexFetch, 1)] {
        let [little, enough, much] = [256.0, 4096.0, 65_536.0].map(|pool_pages| us(pool_pages, kind, path));
        assert!(little > 1.3 * enough, "{kind:?}: {little} {enough}");
        assert!((0.9..1.01).contains(&(much / enough)), "{kind:?}: {enough} {much}");
    }
}
