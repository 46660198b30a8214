//! What is counted: the databases, and the operations on them.

use crate::{Error, pages};
use firndb::{Database, Deltas, Direction, Isolation, KeyRange, Options, Progress, Table};
use firndb_adapter::FirnEngine;
use firndb_workloads::tpcc::{
    self, ClientOptions, KINDS, LoadOptions, Mix, Population, Scale, Terminals, TpccClient, When,
};
use firndb_workloads::{Attempt, Client, Commit, CommitMode, EngineError, PendingCommit, Random};
use std::ops::Bound;
use std::path::Path;

/// Transactions of TPC-C that run before any is counted.
const WARM_UP: u64 = 500;
/// Transactions of the mix that are counted.
const MIX_COUNT: u64 = 2000;
/// Transactions of each kind that are counted.
const KIND_COUNT: u64 = 200;
/// Parts in which they are counted. Before each the background work is brought to its end: what
/// a transaction meets of deleted rows depends on the transactions of its part alone.
const PARTS: u64 = 20;
/// Rows of the table of small rows: keys of 8 bytes, values of 100.
const ROWS: u64 = 200_000;
const VALUE_LEN: usize = 100;
/// How often each operation on a row is counted.
const ROW_COUNT: u64 = 4000;

/// The functions that callgrind counts: one for each operation, none inlined, no two alike.
pub mod measured {
    macro_rules! operations {
        ($($name:ident)*) => {
            /// Callgrind finds them by this module's name.
            mod operation {
                $(
                    #[inline(never)]
                    pub fn $name(work: &mut dyn FnMut()) {
                        // Equal bodies would be made one function.
                        std::hint::black_box(stringify!($name));
                        work();
                        std::hint::black_box(stringify!($name));
                    }
                )*
            }
            /// All of them.
            pub const NAMES: &[&str] = &[$(stringify!($name)),*];
            /// The function of an operation.
            pub fn by_name(name: &str) -> fn(&mut dyn FnMut()) {
                match name {
                    $(stringify!($name) => operation::$name,)*
                    _ => panic!("no function is called {name}"),
                }
            }
        };
    }
    operations! {
        mix new_order payment order_status delivery stock_level
        get update get_for_update_and_update update_with insert_random insert_ascending
        first_of_range ten_of_range begin_update_commit_async
        put_page_logged put_page_shadow read_page write_page_part
    }
}

/// Counts `runs` runs of an operation, all made by one call of `work`.
pub fn count(name: &str, runs: u64, work: &mut dyn FnMut()) {
    // In the order in which callgrind writes its dumps.
    println!("counted {name} {runs}");
    measured::by_name(name)(work);
}

/// A flash cache of a third of the database, which DRAM holds as a whole: it cannot help.
const CACHE_BYTES: u64 = 32 << 20;

pub fn options() -> Options {
    Options::new()
        .buffer_bytes(1 << 30)
        .log(|log| log.devices(1))
        .tuning(|tuning| tuning.version_bytes(256 << 20).analyze_in_background(false))
}

/// What lies below a buffer that holds the database as a whole, and cannot help.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    Plain,
    Cache,
    Deltas,
}

impl Tier {
    pub fn name(self) -> &'static str {
        match self {
            Tier::Plain => "plain",
            Tier::Cache => "cache",
            Tier::Deltas => "deltas",
        }
    }
    pub fn by_name(name: &str) -> Option<Tier> {
        [Tier::Plain, Tier::Cache, Tier::Deltas].into_iter().find(|tier| tier.name() == name)
    }
    fn options(self) -> Options {
        match self {
            Tier::Plain => options().tuning(|tuning| tuning.deltas(Deltas::Off)),
            Tier::Cache => options().cache(|cache| cache.bytes(CACHE_BYTES)),
            Tier::Deltas => options().tuning(|tuning| tuning.deltas(Deltas::On)),
        }
    }
}

fn row_key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn from(key: &[u8]) -> KeyRange {
    KeyRange::new(Bound::Included(key), Bound::Unbounded)
}

/// Makes the databases.
pub fn load(dir: &Path) -> Result<(), Error> {
    load_tpcc(&dir.join("tpcc"), Tier::Plain)?;
    let db = options().open(dir.join("rows"))?;
    let table = db.create_table("rows")?;
    // Even numbers: the odd ones are left for rows to be inserted between them.
    for first in (0..ROWS).step_by(1000) {
        db.transact(|tx| {
            (first..first + 1000)
                .try_for_each(|number| tx.insert(&table, &row_key(2 * number), &[number as u8; VALUE_LEN]))
        })?;
    }
    db.close()?;
    pages::load(&dir.join("pages"))
}

/// Makes a database of one warehouse.
pub fn load_tpcc(dir: &Path, tier: Tier) -> Result<(), Error> {
    let engine = FirnEngine::new(tier.options().open(dir)?, tpcc::schema(), Isolation::Snapshot)?;
    tpcc::load(&engine, &LoadOptions::new(Scale::full(1), 7), &|_| ())?;
    Ok(engine.into_database().close()?)
}

/// Opens that database, reads every row of it, and runs the mix, `transactions` times. Two runs
/// differ by their transactions, and by what the engine's threads do for them: the rest is the
/// same.
pub fn run_mix(dir: &Path, tier: Tier, transactions: u64) -> Result<(), Error> {
    let engine = FirnEngine::new(tier.options().open(dir)?, tpcc::schema(), Isolation::Snapshot)?;
    tpcc::check(&engine, When::AfterLoad)?;
    let population = Population::of(&engine)?.ok_or("no population")?;
    let options = ClientOptions { mix: Mix::default(), terminals: Terminals::Drawn, seed: 7 };
    let mut client = TpccClient::new(&engine, population, &options, 0)?;
    let mut left = transactions;
    while left > 0 {
        let now = left.min(MIX_COUNT / PARTS);
        settle(run_transactions(&mut client, now)?)?;
        left -= now;
    }
    drop(client);
    Ok(engine.into_database().close()?)
}

/// Runs everything; callgrind counts what is in [`measured`].
pub fn run(dir: &Path) -> Result<(), Error> {
    run_tpcc(&dir.join("tpcc"))?;
    run_rows(&dir.join("rows"))?;
    pages::run(&dir.join("pages"))
}

fn run_tpcc(dir: &Path) -> Result<(), Error> {
    let engine = FirnEngine::new(options().open(dir)?, tpcc::schema(), Isolation::Snapshot)?;
    // Reads every row.
    tpcc::check(&engine, When::AfterLoad)?;
    let population = Population::of(&engine)?.ok_or("no population")?;
    let client = |number, mix| {
        let options = ClientOptions { mix, terminals: Terminals::Drawn, seed: 7 };
        TpccClient::new(&engine, population, &options, number)
    };
    let mut mixed = client(0, Mix::default())?;
    settle(run_transactions(&mut mixed, WARM_UP)?)?;
    counted_transactions("mix", engine.database(), &mut mixed, MIX_COUNT)?;
    for (kind, name) in KINDS.iter().enumerate() {
        let mut shares = [0; 5];
        shares[kind] = 1;
        let mut client = client(1 + kind, Mix(shares))?;
        settle(run_transactions(&mut client, KIND_COUNT / 10)?)?;
        counted_transactions(name, engine.database(), &mut client, KIND_COUNT)?;
    }
    drop(mixed);
    Ok(engine.into_database().close()?)
}

fn counted_transactions(name: &str, db: &Database, client: &mut impl Client, runs: u64) -> Result<(), Error> {
    for _ in 0..PARTS {
        while db.step()? == Progress::Worked {}
        let mut outcome = Ok(Vec::new());
        count(name, runs / PARTS, &mut || outcome = run_transactions(client, runs / PARTS));
        settle(outcome?)?;
    }
    Ok(())
}

/// Runs transactions with asynchronous commits, and returns the commits.
fn run_transactions(client: &mut impl Client, runs: u64) -> Result<Vec<Box<dyn PendingCommit>>, EngineError> {
    let mut outstanding = Vec::with_capacity(runs as usize);
    for _ in 0..runs {
        client.draw();
        if let Attempt::Committed(Commit::Pending(pending)) = client.attempt(CommitMode::Async)? {
            outstanding.push(pending);
        }
    }
    Ok(outstanding)
}

fn settle(outstanding: Vec<Box<dyn PendingCommit>>) -> Result<(), Error> {
    outstanding.into_iter().try_for_each(|pending| pending.wait())?;
    Ok(())
}

fn run_rows(dir: &Path) -> Result<(), Error> {
    let db = options().open(dir)?;
    let table = db.table("rows")?;
    let mut read = db.snapshot();
    let mut rows = read.scan(&table, KeyRange::all(), Direction::Forward);
    let mut found = 0;
    while rows.next(&mut read)?.is_some() {
        found += 1;
    }
    drop((rows, read));
    if found != ROWS {
        return Err(format!("{found} rows instead of {ROWS}").into());
    }
    // Each once without being counted, and once counted.
    for warm in [true, false] {
        for (name, operation) in OPERATIONS {
            row_operation(&db, &table, name, *operation, warm)?;
        }
    }
    Ok(db.close()?)
}

type Operation =
    fn(&Database, &mut firndb::Transaction, &Table, &mut Draws, u64) -> Result<(), firndb::Error>;

/// Operations within one transaction each, which has begun before.
const OPERATIONS: &[(&str, Operation)] = &[
    ("get", |_, tx, table, draws, _| {
        let found = tx.get_into(table, &row_key(draws.even()), &mut draws.value)?;
        assert!(found && draws.value.len() == VALUE_LEN, "a row that was loaded");
        Ok(())
    }),
    ("first_of_range", |_, tx, table, draws, _| {
        let mut rows = tx.scan(table, from(&row_key(draws.even())), Direction::Forward);
        assert!(rows.next(tx)?.is_some(), "a row that was loaded");
        Ok(())
    }),
    ("ten_of_range", |_, tx, table, draws, _| {
        let first = draws.even() % (2 * ROWS - 100);
        let mut rows = tx.scan(table, from(&row_key(first)), Direction::Forward);
        for _ in 0..10 {
            assert!(rows.next(tx)?.is_some(), "ten rows that were loaded");
        }
        Ok(())
    }),
    ("update", |_, tx, table, draws, number| {
        let value = draws.value_for(number);
        assert!(tx.update(table, &row_key(draws.even()), &value)?, "a row that was loaded");
        Ok(())
    }),
    ("get_for_update_and_update", |_, tx, table, draws, number| {
        let key = row_key(draws.even());
        assert!(tx.get_for_update_into(table, &key, &mut draws.value)?, "a row that was loaded");
        let value = draws.value_for(number);
        tx.update(table, &key, &value).map(drop)
    }),
    ("update_with", |_, tx, table, draws, number| {
        let (key, value) = (row_key(draws.even()), draws.value_for(number));
        let there = tx.update_with(table, &key, &mut draws.value, |row| row.copy_from_slice(&value))?;
        assert!(there, "a row that was loaded");
        Ok(())
    }),
    ("insert_random", |_, tx, table, draws, number| {
        let (key, value) = (row_key(draws.fresh_odd(number)), draws.value_for(number));
        tx.insert(table, &key, &value)
    }),
    ("insert_ascending", |_, tx, table, draws, number| {
        let value = draws.value_for(number);
        tx.insert(table, &row_key((1 << 40) + (u64::from(draws.pass) << 30) + number), &value)
    }),
    ("begin_update_commit_async", |db, _, table, draws, number| {
        let value = draws.value_for(number);
        let mut tx = db.begin();
        assert!(tx.update(table, &row_key(draws.even()), &value)?, "a row that was loaded");
        tx.commit_async().map(drop)
    }),
];

/// Keys and values, drawn from a seed.
struct Draws {
    random: Random,
    value: Vec<u8>,
    pass: u8,
}

impl Draws {
    fn even(&mut self) -> u64 {
        2 * self.random.between(0, ROWS - 1)
    }
    /// Odd numbers all over the table, none twice: `ROWS` and the step have no common factor.
    fn fresh_odd(&self, number: u64) -> u64 {
        2 * ((number + ROW_COUNT * u64::from(self.pass)) * 77_773 % ROWS) + 1
    }
    fn value_for(&self, number: u64) -> [u8; VALUE_LEN] {
        [number as u8 ^ self.pass; VALUE_LEN]
    }
}

fn row_operation(
    db: &Database,
    table: &Table,
    name: &str,
    operation: Operation,
    warm: bool,
) -> Result<(), Error> {
    let mut draws =
        Draws { random: Random::stream(7, u64::from(warm)), value: Vec::new(), pass: u8::from(warm) };
    let mut tx = db.begin();
    let mut outcome = Ok(());
    let mut work = || {
        outcome = (0..ROW_COUNT).try_for_each(|number| operation(db, &mut tx, table, &mut draws, number));
    };
    match warm {
        true => work(),
        false => count(name, ROW_COUNT, &mut work),
    }
    outcome?;
    tx.commit()?;
    Ok(())
}
