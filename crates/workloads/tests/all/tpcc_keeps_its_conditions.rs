//! TPC-C on the memory engine: loaded, run and checked; and a check that must fail, to show that
//! the check detects errors.

use firndb_workloads::tpcc::{
    self, ClientOptions, Condition, LoadOptions, Mix, Population, Scale, Terminals, When, keys, rows, tables,
};
use firndb_workloads::{
    Access, CommitMode, DriverOptions, Engine, EngineError, Length, MemoryEngine, RunReport, Scan, Session,
    TableId, Transaction, Visit,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

fn loaded(scale: Scale, seed: u64, threads: usize) -> MemoryEngine {
    let engine = MemoryEngine::new(&tpcc::schema());
    let mut options = LoadOptions::new(scale, seed);
    options.threads = threads;
    options.rows_per_commit = 100;
    options.date_us = 1_700_000_000_000_000;
    let rows = AtomicU64::new(0);
    tpcc::load(&engine, &options, &|progress| {
        rows.fetch_max(progress.rows, Ordering::Relaxed);
        assert!(progress.rows < 2 * progress.rows_expected);
    })
    .unwrap();
    assert!(rows.load(Ordering::Relaxed) > 0);
    engine
}

fn drive(engine: &MemoryEngine, terminals: Terminals, transactions: u64, seed: u64) -> RunReport {
    let mut driver = DriverOptions::new(2, Duration::ZERO);
    driver.length = Length::TransactionsPerClient(transactions);
    let clients = ClientOptions { mix: Mix::default(), terminals, seed };
    tpcc::run(engine, &driver, &clients, &AtomicBool::new(false), &mut |_| ()).unwrap()
}

fn all_rows(engine: &MemoryEngine) -> Vec<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut session = engine.session().unwrap();
    let mut txn = session.begin(Access::Read).unwrap();
    (0..engine.schema().tables.len())
        .map(|table| {
            let mut rows = BTreeMap::new();
            txn.scan(TableId(table), Scan::all(), &mut |key, row| {
                rows.insert(key.to_vec(), row.to_vec());
                Visit::Continue
            })
            .unwrap();
            rows
        })
        .collect()
}

fn failed(conditions: &[Condition]) -> Vec<u8> {
    conditions.iter().filter(|condition| !condition.holds()).map(|condition| condition.number).collect()
}

fn assert_sound(engine: &MemoryEngine, when: When) {
    for condition in tpcc::check(engine, when).unwrap() {
        assert!(condition.holds(), "{condition}");
    }
}

/// Changes one row behind the workload's back.
fn corrupt(engine: &MemoryEngine, table: TableId, key: &[u8], change: impl FnOnce(&mut Vec<u8>)) {
    let mut session = engine.session().unwrap();
    let mut txn = session.begin(Access::Write).unwrap();
    let mut row = Vec::new();
    assert!(txn.get(table, key, &mut row).unwrap());
    change(&mut row);
    txn.put(table, key, &row).unwrap();
    txn.commit(CommitMode::Wait).unwrap().wait().unwrap();
}

#[test]
fn conditions_hold_after_the_load_and_after_a_run() {
    for (scale, terminals) in [(Scale::tiny(1), Terminals::Drawn), (Scale::tiny(3), Terminals::Pinned)] {
        let engine = loaded(scale, 11, 1);
        assert_eq!(tpcc::check(&engine, When::AfterLoad).unwrap().len(), 13);
        assert_sound(&engine, When::AfterLoad);
        let report = drive(&engine, terminals, 2000, 12);
        // Every transaction ended in one of two ways, in the shares of the deck.
        assert_eq!(report.commits() + report.user_aborts(), 4000);
        let of = |kind: usize| report.kinds[kind].commits + report.kinds[kind].user_aborts;
        assert_eq!([0, 1, 2, 3, 4].map(of), [1800, 1720, 160, 160, 160]);
        let rolled_back = report.kinds[0].user_aborts;
        assert!((3..=50).contains(&rolled_back), "{rolled_back} of 1800 New-Orders rolled back, not 1 %");
        assert_sound(&engine, When::AfterRun);
        let grown = tpcc::check(&engine, When::AfterLoad).unwrap();
        assert_eq!(failed(&grown), [11], "condition 11 is of the load only");
    }
}

#[test]
fn equal_seeds_load_equal_rows_on_any_number_of_threads() {
    let one = all_rows(&loaded(Scale::tiny(2), 5, 1));
    assert_eq!(one, all_rows(&loaded(Scale::tiny(2), 5, 3)));
    assert_ne!(one, all_rows(&loaded(Scale::tiny(2), 6, 1)));
}

#[test]
fn a_population_can_be_read_back_and_is_loaded_once() {
    let engine = MemoryEngine::new(&tpcc::schema());
    assert_eq!(Population::of(&engine).unwrap(), None);
    assert!(tpcc::check(&engine, When::AfterRun).is_err());
    let engine = loaded(Scale::tiny(2), 5, 1);
    assert_eq!(Population::of(&engine).unwrap(), Some(Population::new(Scale::tiny(2), 5)));
    let again = tpcc::load(&engine, &LoadOptions::new(Scale::tiny(2), 5), &|_| ());
    assert!(matches!(again, Err(EngineError::Fatal(_))));
}

#[test]
fn the_population_has_the_shares_the_specification_asks_for() {
    let engine = loaded(Scale { warehouses: 1, items: 1000, customers: 100 }, 3, 1);
    let tables_ = all_rows(&engine);
    let table = |id: TableId| &tables_[id.0];
    assert_eq!(table(tables::CUSTOMER).len(), 1000);
    assert_eq!(table(tables::HISTORY).len(), 1000);
    assert_eq!(table(tables::ORDER).len(), 1000);
    assert_eq!(table(tables::NEW_ORDER).len(), 300);
    let bad = table(tables::CUSTOMER).values().filter(|row| rows::customer::CREDIT.get(row) == b"BC");
    assert_eq!(bad.count(), 100);
    for goods in [tables::ITEM, tables::STOCK] {
        let original = table(goods).values().filter(|row| row.windows(8).any(|window| window == b"ORIGINAL"));
        assert_eq!(original.count(), 100);
    }
    let mut buyers: Vec<u32> =
        table(tables::ORDER).values().take(100).map(|row| rows::order::CUSTOMER.get(row)).collect();
    assert_ne!(buyers, (1..=100).collect::<Vec<_>>(), "orders are a permutation of customers");
    buyers.sort_unstable();
    assert_eq!(buyers, (1..=100).collect::<Vec<_>>());
}

#[test]
fn each_condition_fails_when_one_row_is_wrong() {
    use rows::{customer, district, history, order, order_line, warehouse};
    let engine = loaded(Scale::tiny(1), 2, 1);
    drive(&engine, Terminals::Drawn, 300, 2);
    assert_sound(&engine, When::AfterRun);
    let first_history = all_rows(&engine)[tables::HISTORY.0].keys().next().unwrap().clone();
    type Wrong<'a> = (TableId, Vec<u8>, &'a dyn Fn(&mut Vec<u8>), &'a [u8]);
    let cases: [Wrong<'_>; 8] = [
        (
            tables::WAREHOUSE,
            keys::warehouse(1).into(),
            &|row| warehouse::YTD.change(row, |ytd| ytd + 1),
            &[1, 8],
        ),
        (
            tables::DISTRICT,
            keys::district(1, 3).into(),
            &|row| district::YTD.change(row, |ytd| ytd - 1),
            &[1, 9],
        ),
        (
            tables::DISTRICT,
            keys::district(1, 4).into(),
            &|row| district::NEXT_ORDER.change(row, |next| next + 1),
            &[2],
        ),
        (
            tables::ORDER,
            keys::order(1, 1, 1).into(),
            &|row| order::CARRIER.set(row, order::NO_CARRIER),
            &[5, 7],
        ),
        (
            tables::ORDER,
            keys::order(1, 2, 1).into(),
            &|row| order::LINE_COUNT.change(row, |count| count + 1),
            &[4, 6],
        ),
        (
            tables::ORDER_LINE,
            keys::order_line(1, 1, 1, 1).into(),
            &|row| order_line::AMOUNT.change(row, |amount| amount + 7),
            &[10, 12],
        ),
        (
            tables::CUSTOMER,
            keys::customer(1, 5, 5).into(),
            &|row| customer::YTD_PAYMENT.change(row, |paid| paid + 1),
            &[12],
        ),
        (
            tables::HISTORY,
            first_history,
            &|row| history::AMOUNT.change(row, |amount| amount + 1),
            &[8, 9, 10],
        ),
    ];
    for (table, key, change, expected) in cases {
        let mut before = Vec::new();
        corrupt(&engine, table, &key, |row| {
            before.clone_from(row);
            change(row);
        });
        let conditions = tpcc::check(&engine, When::AfterRun).unwrap();
        assert_eq!(failed(&conditions), expected, "{conditions:?}");
        corrupt(&engine, table, &key, |row| row.clone_from(&before));
        assert_sound(&engine, When::AfterRun);
    }
}

#[test]
fn a_lost_or_cut_row_is_reported_and_not_believed() {
    let engine = loaded(Scale::tiny(1), 2, 1);
    corrupt(&engine, tables::STOCK, &keys::stock(1, 7), |row| row.truncate(10));
    assert_eq!(failed(&tpcc::check(&engine, When::AfterLoad).unwrap()), [0]);

    let engine = loaded(Scale::tiny(1), 2, 1);
    let mut session = engine.session().unwrap();
    let mut txn = session.begin(Access::Write).unwrap();
    let newest = keys::order(1, 1, 30);
    assert!(txn.delete(tables::NEW_ORDER, &newest).unwrap());
    txn.commit(CommitMode::Wait).unwrap().wait().unwrap();
    assert_eq!(failed(&tpcc::check(&engine, When::AfterLoad).unwrap()), [2, 5, 11]);
}
