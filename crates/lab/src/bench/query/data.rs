//! The data of Myers' thesis (sections 4.2 and 5), loaded once for all cells.
//!
//! * *tuples* (figure 4-2): rows by ascending number, an index on an integer that is uniform in a
//!   tenth of their number. Rows are as long as 412 MB for 2,000,000 of them make them.
//! * *queue* (figure 5-1): customers and orders of TPC-H in random order, clustered by the number
//!   of the row, with an index of both on the customer's key;
//! * *btree*: the same, clustered by their primary keys and inserted in random order, so that
//!   neighbouring leaves lie anywhere; with an index of the orders on the customer's key.
//!
//! What is not compared or joined is bytes that make rows as long as table 5.1 says. As in TPC-H,
//! every third customer has no orders. The thesis' data are of TPC-H's generator.

use crate::bench::made::Made;
use crate::bench::simulation::simulate;
use firndb::{
    Column, ColumnType, Database, Devices, Hiding, IndexSpec, KeyColumn, Options, Schema, TableSpec, Value,
};
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_console::Failure;
use firndb_device::MemoryDevice;
use std::time::Duration;

/// Rows and memory, in units of the thesis'.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale(pub f64);

impl Scale {
    /// This much of what the thesis has.
    pub fn of(self, full: f64) -> u64 {
        (full * self.0).round().max(1.0) as u64
    }
}

/// Which tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Data {
    Tuples,
    Queue,
    Tree,
}

impl Data {
    pub fn name(self) -> &'static str {
        match self {
            Data::Tuples => "tuples",
            Data::Queue => "queue",
            Data::Tree => "btree",
        }
    }
}

/// Rows at full scale, and what one takes.
const TUPLES: f64 = 2_000_000.0;
const TUPLE_PAD: usize = 165;
const CUSTOMERS: f64 = 300_000.0;
const CUSTOMER_PAD: usize = 172;
const ORDERS_OF_EACH: u64 = 10;
const ORDER_PAD: usize = 84;
/// Rows of a transaction that loads.
const BATCH: u64 = 500;
/// Rows after which the log is emptied.
const ROWS_A_CHECKPOINT: u64 = 1_000_000;
/// Bytes of log of the databases, which only loading fills.
const LOG_BYTES: u64 = 512 << 20;
/// Cores of the simulated machine.
pub const CORES: usize = 4;

/// A loaded database, and what it has.
pub struct Loaded {
    pub superblock: MemoryDevice,
    pub log: MemoryDevice,
    pub store: MemoryDevice,
    pub facts: Facts,
}

/// Of a loaded database: rows, and pages of each tree by its name.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Rows of the table that a query's selectivity is of.
    pub rows: u64,
    pub pages: Vec<(&'static str, u64)>,
}

impl Facts {
    /// Bytes of all trees.
    pub fn bytes(&self) -> u64 {
        self.pages.iter().map(|(_, pages)| pages * PAGE).sum()
    }
}

pub const PAGE: u64 = 4096;

/// Loaded databases, by data, scale (in thousandths) and seed.
pub type AllLoaded = Made<(Data, u64, u64), Loaded>;

pub fn options(buffer_bytes: u64) -> Options {
    let options = Options::new().buffer_bytes(buffer_bytes as usize).recovery_time(Duration::MAX);
    // The whole page map, which is not what is measured; and plans by the same statistics.
    let options = options.tuning(|tuning| tuning.map_bytes(32 << 20).analyze_in_background(false));
    options.log(|log| log.devices(1).bytes(LOG_BYTES).hiding(Hiding::Off))
}

/// Loads a database, which takes no time of a device, and analyzes its tables.
pub fn load(data: Data, scale: Scale, seed: u64) -> Result<Loaded, Failure> {
    let (loaded, _) = simulate(seed, CORES, move || {
        let [superblock, log, store] =
            ["superblock", "log", "store"].map(|name| Arc::new(MemoryDevice::new(name)));
        let devices = Devices {
            superblock: superblock.clone(),
            logs: vec![log.clone()],
            store: store.clone(),
            store_others: Vec::new(),
            cache: None,
        };
        let buffer = (scale.0 * f64::from(1 << 30)) as u64 + (64 << 20);
        let db = options(buffer).create_on(devices)?;
        let mut rng = Rng::new(seed);
        let facts = match data {
            Data::Tuples => tuples(&db, scale, &mut rng)?,
            Data::Queue | Data::Tree => customers_and_orders(&db, data, scale, &mut rng)?,
        };
        for name in db.table_names() {
            db.analyze(&db.table(&name)?)?;
        }
        db.close()?;
        let [superblock, log, store] = [superblock, log, store].map(|device| device.duplicate());
        Ok(Loaded { superblock, log, store, facts })
    })?;
    Ok(loaded)
}

fn allocated(db: &Database) -> u64 {
    db.statistics().store.pages_allocated
}

/// Creates a table of 64-bit columns and one of bytes, and inserts `rows` rows that `row` makes.
fn table(
    db: &Database,
    (name, columns, pad): (&str, &[&str], usize),
    rows: u64,
    mut row: impl FnMut(u64) -> Vec<i64>,
) -> Result<(), Failure> {
    let mut all: Vec<Column> = columns.iter().map(|name| Column::new(*name, ColumnType::I64)).collect();
    all.push(Column::new(format!("{name}_pad"), ColumnType::Bytes));
    let schema = Schema::with_key(all, &columns[..1]).map_err(firndb::Error::from)?;
    let table = db.create_table_with(name, TableSpec::typed(schema))?.typed()?;
    let pad = Value::Bytes(vec![b'x'; pad]);
    let mut next = 0;
    while next < rows {
        db.transact(|tx| {
            let end = rows.min(next + BATCH);
            for number in next..end {
                let values: Vec<Value> =
                    row(number).into_iter().map(Value::I64).chain([pad.clone()]).collect();
                let values: Vec<_> = values.iter().map(Value::as_ref).collect();
                table.insert(tx, &values)?;
            }
            next = end;
            Ok::<(), firndb::Error>(())
        })?;
        if next.is_multiple_of(ROWS_A_CHECKPOINT) {
            db.checkpoint()?;
        }
    }
    Ok(())
}

fn index(db: &Database, table: &str, name: &str, column: usize) -> Result<(), Failure> {
    let spec = IndexSpec::columns(name, false, vec![KeyColumn::ascending(column)]);
    db.create_index(&db.table(table)?, spec)?;
    Ok(())
}

/// Measures what each step adds.
struct Steps<'a> {
    db: &'a Database,
    pages: Vec<(&'static str, u64)>,
    before: u64,
}

impl Steps<'_> {
    fn of(db: &Database) -> Steps<'_> {
        Steps { db, pages: Vec::new(), before: allocated(db) }
    }
    fn note(&mut self, name: &'static str) {
        let now = allocated(self.db);
        self.pages.push((name, now - self.before));
        self.before = now;
    }
}

fn tuples(db: &Database, scale: Scale, rng: &mut Rng) -> Result<Facts, Failure> {
    let rows = scale.of(TUPLES);
    let values = rows / 10;
    let mut steps = Steps::of(db);
    table(db, ("tuples", &["id", "value"], TUPLE_PAD), rows, |number| {
        vec![number as i64, rng.below(values) as i64]
    })?;
    steps.note("tuples");
    index(db, "tuples", "by_value", 1)?;
    steps.note("by_value");
    Ok(Facts { rows, pages: steps.pages })
}

/// The numbers below `count` in random order.
fn shuffled(count: u64, rng: &mut Rng) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..count).collect();
    for at in (1..numbers.len()).rev() {
        numbers.swap(at, rng.below(at as u64 + 1) as usize);
    }
    numbers
}

fn customers_and_orders(db: &Database, data: Data, scale: Scale, rng: &mut Rng) -> Result<Facts, Failure> {
    let rows = scale.of(CUSTOMERS);
    let orders = rows * ORDERS_OF_EACH;
    let mut steps = Steps::of(db);
    let keys = shuffled(rows, rng);
    // Keys begin with 1; each third customer has no orders.
    let mut customer = move || loop {
        let key = 1 + rng.below(rows);
        if !key.is_multiple_of(3) {
            return key as i64;
        }
    };
    let numbers = shuffled(orders, &mut Rng::new(rows));
    let key_of = |row: u64| 1 + keys[row as usize] as i64;
    if data == Data::Queue {
        let columns = ["c_row", "c_custkey", "c_nationkey"];
        table(db, ("customer", &columns, CUSTOMER_PAD - 8), rows, |row| {
            vec![row as i64, key_of(row), row as i64 % 25]
        })?;
        steps.note("customer");
        let columns = ["o_row", "o_orderkey", "o_custkey"];
        table(db, ("orders", &columns, ORDER_PAD - 8), orders, |row| {
            vec![row as i64, numbers[row as usize] as i64, customer()]
        })?;
        steps.note("orders");
        index(db, "customer", "c_by_custkey", 1)?;
        steps.note("c_by_custkey");
        index(db, "orders", "o_by_custkey", 2)?;
    } else {
        let columns = ["c_custkey", "c_nationkey"];
        table(db, ("customer", &columns, CUSTOMER_PAD), rows, |row| vec![key_of(row), row as i64 % 25])?;
        steps.note("customer");
        let columns = ["o_orderkey", "o_custkey"];
        table(db, ("orders", &columns, ORDER_PAD), orders, |row| {
            vec![numbers[row as usize] as i64, customer()]
        })?;
        steps.note("orders");
        index(db, "orders", "o_by_custkey", 1)?;
    }
    steps.note("o_by_custkey");
    Ok(Facts { rows, pages: steps.pages })
}
