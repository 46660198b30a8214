//! What runs on the flash: TPC-C, and updates of rows at random keys.

use crate::cost::charged::Charged;
use crate::cost::model::CostModel;
use firndb::{Database, Isolation, Table};
use firndb_adapter::FirnEngine;
use firndb_base::clock;
use firndb_base::rng::Rng;
use firndb_console::Failure;
use firndb_workloads::tpcc::{self, ClientOptions, LoadOptions, Mix, Scale, Terminals};
use firndb_workloads::{DriverOptions, LiveRate};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Rows that are neighbours in the tree and are drawn alike: about a page of them.
const NEIGHBOURS: u64 = 16;
const ROW_BYTES: usize = 200;
/// Updates of one transaction, each of another page.
const UPDATES: u64 = 4;
/// Processors' time of such a transaction.
const CPU: Duration = Duration::from_micros(40);
/// Exponent of the distribution by which pages are drawn where some are hotter.
const ZIPF: f64 = 0.8;
const TABLE: &str = "rows";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Load {
    Tpcc,
    Uniform,
    /// Pages by a Zipf distribution.
    Skewed,
}

impl Load {
    pub const ALL: [Load; 3] = [Load::Tpcc, Load::Uniform, Load::Skewed];

    pub fn title(self) -> &'static str {
        match self {
            Load::Tpcc => "TPC-C",
            Load::Uniform => "updates, uniform",
            Load::Skewed => "updates, Zipf 0.8",
        }
    }

    pub fn key(self) -> &'static str {
        match self {
            Load::Tpcc => "tpcc",
            Load::Uniform => "uniform",
            Load::Skewed => "skewed",
        }
    }
}

/// How much there is, and for how long it is worked on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Extent {
    pub scale: Scale,
    pub clients: usize,
    /// Of the table whose rows are updated.
    pub rows: u64,
    /// DRAM of the database, less than a tenth of its pages.
    pub buffer_bytes: usize,
    /// Transactions before the measurement and in it: of TPC-C, and of updates.
    pub transactions: (u64, u64),
    pub updates: (u64, u64),
}

impl Extent {
    /// Full, quick, tiny.
    pub const SIZES: [Extent; 3] = [Extent::FULL, Extent::QUICK, Extent::TINY];
    /// So large that 90 % of ten groups of the store are live, nearly.
    const FULL: Extent = Extent {
        scale: Scale { warehouses: 10, items: 12_650, customers: 380 },
        clients: 20,
        rows: 587_200,
        buffer_bytes: 12 << 20,
        transactions: (20_000, 10_000),
        updates: (32_000, 16_000),
    };
    /// Of five groups.
    const QUICK: Extent = Extent {
        scale: Scale { warehouses: 10, items: 6_325, customers: 190 },
        clients: 10,
        rows: 293_600,
        buffer_bytes: 6 << 20,
        transactions: (10_000, 5_000),
        updates: (16_000, 8_000),
    };
    const TINY: Extent = Extent {
        scale: Scale { warehouses: 2, items: 2_000, customers: 60 },
        clients: 4,
        rows: 40_000,
        buffer_bytes: 2 << 20,
        transactions: (1_000, 500),
        updates: (500, 500),
    };

    /// Transactions before the measurement, and in it.
    pub fn lengths(&self, load: Load) -> (u64, u64) {
        if load == Load::Tpcc { self.transactions } else { self.updates }
    }
}

/// Whether the work goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goes {
    On,
    Ends,
}

/// Called now and then with the transactions that have committed.
pub type Look<'a> = &'a mut dyn FnMut(u64, &Database) -> Result<Goes, Failure>;

/// Fills an empty database.
pub fn fill(load: Load, extent: &Extent, db: Database, seed: u64) -> Result<Database, Failure> {
    if load == Load::Tpcc {
        let engine = FirnEngine::new(db, tpcc::schema(), Isolation::Snapshot)?;
        tpcc::load(&engine, &LoadOptions::new(extent.scale, seed), &|_| ())?;
        return Ok(engine.into_database());
    }
    let (table, mut rng) = (db.create_table(TABLE)?, Rng::new(seed));
    for from in (0..extent.rows).step_by(500) {
        let rows = from..extent.rows.min(from + 500);
        db.transact(|tx| rows.clone().try_for_each(|row| put(tx, &table, row, &mut rng)))?;
    }
    Ok(db)
}

fn put(tx: &mut firndb::Transaction, table: &Table, row: u64, rng: &mut Rng) -> Result<(), firndb::Error> {
    let value: Vec<u8> = (0..ROW_BYTES).map(|_| rng.next_u64() as u8).collect();
    tx.put(table, &row.to_be_bytes(), &value).map(drop)
}

/// Works until `look` ends it. Called within a simulation.
pub fn work(
    load: Load,
    extent: &Extent,
    db: Database,
    (seed, stop): (u64, &AtomicBool),
    look: Look<'_>,
) -> Result<Database, Failure> {
    if load == Load::Tpcc {
        transactions(extent, db, seed, stop, look)
    } else {
        updates(load, extent, db, seed, stop, look)
    }
}

fn interrupted() -> Failure {
    Failure::interrupted("stopped before all was measured")
}

fn transactions(
    extent: &Extent,
    db: Database,
    seed: u64,
    interrupted_by: &AtomicBool,
    look: Look<'_>,
) -> Result<Database, Failure> {
    let engine = Charged::new(FirnEngine::new(db, tpcc::schema(), Isolation::Snapshot)?, CostModel::FIRN);
    let mut driver = DriverOptions::new(extent.clients, Duration::from_secs(90 * 3600));
    (driver.warm_up, driver.report_every) = (Duration::ZERO, Duration::from_millis(20));
    let clients = ClientOptions { mix: Mix::default(), terminals: Terminals::Drawn, seed };
    let (stop, mut outcome) = (AtomicBool::new(false), Ok(Goes::On));
    let ran = tpcc::run(&engine, &driver, &clients, &stop, &mut |live: LiveRate| {
        if matches!(outcome, Ok(Goes::On)) {
            outcome = look(live.commits, engine.inner().database());
        }
        if !matches!(outcome, Ok(Goes::On)) || interrupted_by.load(Ordering::Relaxed) {
            stop.store(true, Ordering::Relaxed);
        }
    });
    ran?;
    match outcome? {
        Goes::On => Err(interrupted()),
        Goes::Ends => Ok(engine.into_inner().into_database()),
    }
}

fn updates(
    load: Load,
    extent: &Extent,
    db: Database,
    seed: u64,
    interrupted_by: &AtomicBool,
    look: Look<'_>,
) -> Result<Database, Failure> {
    let (table, mut rng) = (db.open_table(TABLE)?, Rng::new(seed));
    for done in 0.. {
        if done % 16 == 0 && look(done, &db)? == Goes::Ends {
            break;
        }
        if interrupted_by.load(Ordering::Relaxed) {
            return Err(interrupted());
        }
        clock::sleep(CPU);
        db.transact(|tx| {
            (0..UPDATES).try_for_each(|_| put(tx, &table, drawn(load, extent.rows, &mut rng), &mut rng))
        })?;
    }
    Ok(db)
}

/// The row that is updated next.
fn drawn(load: Load, rows: u64, rng: &mut Rng) -> u64 {
    let pages = rows / NEIGHBOURS;
    let page = match load {
        Load::Skewed => {
            // The inverse of the distribution's integral, near enough for more than a few pages.
            let drawn = rng.below(1 << 53) as f64 / (1u64 << 53) as f64;
            let rank = (drawn.powf(1.0 / (1.0 - ZIPF)) * pages as f64) as u64;
            // Hot pages do not lie together: the factor is a prime.
            (u128::from(rank) * 0x9E37_79B1 % u128::from(pages)) as u64
        }
        _ => rng.below(pages),
    };
    page * NEIGHBOURS + rng.below(NEIGHBOURS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_fifth_of_the_pages_has_most_of_the_skewed_updates_and_a_fifth_of_the_uniform_ones() {
        let share = |load| {
            let (mut rng, mut counts) = (Rng::new(3), BTreeMap::<u64, u64>::new());
            for _ in 0..200_000 {
                *counts.entry(drawn(load, 16_000, &mut rng) / NEIGHBOURS).or_default() += 1;
            }
            let mut counts: Vec<u64> = counts.into_values().collect();
            assert!(counts.len() > 900, "nearly every page is drawn: {}", counts.len());
            counts.sort_unstable_by(|a, b| b.cmp(a));
            counts[..200].iter().sum::<u64>() as f64 / 200_000.0
        };
        // 0.2 to the power of 0.2.
        assert!((0.70..0.75).contains(&share(Load::Skewed)), "{}", share(Load::Skewed));
        assert!((0.20..0.24).contains(&share(Load::Uniform)), "{}", share(Load::Uniform));
    }
}
