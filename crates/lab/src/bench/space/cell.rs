//! One database in memory that loses rows: what its store's file then takes, by counts.
//!
//! No thread and no time is in it: background work is done in steps until none is left, or some
//! steps after each transaction.

use crate::bench::cells::Cellular;
use firndb::device::{Device, MemoryDevice};
use firndb::{Database, Deltas, Devices, Options, Placement, Progress, Table};
use firndb_base::rng::Rng;
use firndb_console::Failure;
use firndb_profile::VariantName;
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Rows of one transaction.
const BATCH: u64 = 500;
/// Steps of background work after a transaction, at most.
const STEPS: usize = 4;
/// Tables; half of them are dropped.
const TABLES: u64 = 4;
const PAGE_BYTES: u64 = 4096;

/// How rows go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Nine in ten, at random keys.
    Random,
    /// The first nine tenths of the keys.
    Range,
    /// Half of the tables are dropped.
    Tables,
    /// Ten times as many as there are come and go.
    Churn,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    pub loss: Loss,
    /// In all tables, of `row_bytes` each.
    pub rows: u64,
    pub row_bytes: usize,
    pub deltas: bool,
    pub segments: bool,
}

impl Cellular for Cell {
    type Found = Found;

    fn name(&self) -> String {
        let deltas = if self.deltas { "on" } else { "off" };
        let placement = if self.segments { "segments" } else { "threaded" };
        format!("{:?}, deltas {deltas}, {placement}", self.loss).to_lowercase()
    }

    fn at_end(&self, _: VariantName) -> Option<Cell> {
        None
    }
}

/// What the store's file takes at one moment.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Taken {
    /// Bytes of pages that are allocated in trees.
    pub live_bytes: u64,
    /// Bytes of pages that have space on the device.
    pub page_bytes: u64,
    /// Length of the file, with metadata and holes.
    pub file_bytes: u64,
}

impl Taken {
    /// Bytes of pages with space over those of live ones.
    pub fn allocated(&self) -> f64 {
        self.page_bytes as f64 / self.live_bytes as f64
    }

    pub fn file(&self) -> f64 {
        self.file_bytes as f64 / self.live_bytes as f64
    }
}

/// What came of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Found {
    /// Before rows were lost, and before there was background work to do.
    pub before: Taken,
    /// When the background came to rest.
    pub background: Taken,
    /// After compaction.
    pub compacted: Taken,
    /// Pages copied by the background, and by compaction.
    pub copied: (u64, u64),
    /// The most bytes of pages with space over live ones, while rows came and went.
    pub most: f64,
    /// Bytes of keys and values that are left.
    pub row_bytes: u64,
}

struct World {
    db: Database,
    tables: Vec<Table>,
    rng: Rng,
    row_bytes: usize,
    stop: &'static AtomicBool,
}

/// Runs a cell.
pub fn run(cell: &Cell, seed: u64, stop: &'static AtomicBool) -> Result<Found, Failure> {
    let mut world = World::new(cell, seed, stop)?;
    let each = cell.rows / TABLES;
    for table in 0..TABLES as usize {
        world.insert(table, 0..each)?;
    }
    world.settle()?;
    let before = world.taken();
    let copied_before = world.copied();
    let mut most = 0.0;
    let rows_left = match cell.loss {
        Loss::Random => world.delete(each, |_, rng| rng.below(10) > 0)?,
        Loss::Range => world.delete(each, |key, _| key < each / 10 * 9)?,
        Loss::Tables => {
            world.tables.truncate(TABLES as usize / 2);
            for table in TABLES / 2..TABLES {
                world.db.drop_table(&name(table))?;
            }
            cell.rows / 2
        }
        Loss::Churn => world.churn(each, &mut most)?,
    };
    world.settle()?;
    let (background, copied) = (world.taken(), world.copied());
    let report = world.db.compact(&mut |_| match stop.load(Ordering::Relaxed) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    })?;
    world.settle()?;
    let compacted = world.taken();
    let by_compaction = world.copied() - copied;
    if !report.complete {
        return Err(Failure::interrupted("stopped while compacting"));
    }
    world.db.close()?;
    Ok(Found {
        before,
        background,
        compacted,
        copied: (copied - copied_before, by_compaction),
        most,
        row_bytes: rows_left * (8 + cell.row_bytes as u64),
    })
}

fn name(table: u64) -> String {
    format!("t{table}")
}

/// Spreads keys, so that those that follow each other in time do not in the tree.
fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

impl World {
    fn new(cell: &Cell, seed: u64, stop: &'static AtomicBool) -> Result<World, Failure> {
        let device = |name: &str| Arc::new(MemoryDevice::new(name)) as Arc<dyn Device>;
        let devices = Devices {
            superblock: device("superblock"),
            logs: vec![device("log")],
            store: device("store"),
            store_others: Vec::new(),
            cache: None,
        };
        let options = Options::new()
            .page_size(PAGE_BYTES as usize)
            .buffer_bytes(8 << 20)
            .background_threads(false)
            .log(|log| log.devices(1).bytes(64 << 20))
            .tuning(|tuning| {
                let tuning = tuning.deltas(if cell.deltas { Deltas::On } else { Deltas::Off });
                tuning.placement(if cell.segments { Placement::Segments } else { Placement::Threaded })
            });
        let db = options.create_on(devices)?;
        let tables = (0..TABLES).map(|table| db.create_table(&name(table)));
        let tables = tables.collect::<Result<Vec<_>, _>>()?;
        Ok(World { db, tables, rng: Rng::new(seed), row_bytes: cell.row_bytes, stop })
    }

    fn insert(&mut self, table: usize, numbers: std::ops::Range<u64>) -> Result<(), Failure> {
        let mut from = numbers.start;
        while from < numbers.end {
            let to = numbers.end.min(from + BATCH);
            let value: Vec<u8> = (0..self.row_bytes).map(|_| self.rng.next_u64() as u8).collect();
            let table = &self.tables[table];
            self.db.transact(|tx| {
                (from..to).try_for_each(|number| tx.put(table, &key(number), &value).map(drop))?;
                Ok::<_, firndb::Error>(())
            })?;
            from = to;
            self.background()?;
        }
        Ok(())
    }

    /// Deletes what `is_chosen` chooses of the first `each` of every table; returns what is left.
    fn delete(
        &mut self,
        each: u64,
        mut is_chosen: impl FnMut(u64, &mut Rng) -> bool,
    ) -> Result<u64, Failure> {
        let mut left = 0;
        for table in 0..self.tables.len() {
            for from in (0..each).step_by(BATCH as usize) {
                let to = each.min(from + BATCH);
                let chosen: Vec<u64> =
                    (from..to).filter(|number| is_chosen(*number, &mut self.rng)).collect();
                left += to - from - chosen.len() as u64;
                let table = &self.tables[table];
                self.db.transact(|tx| {
                    chosen.iter().try_for_each(|number| tx.delete(table, &key(*number)).map(drop))?;
                    Ok::<_, firndb::Error>(())
                })?;
                self.background()?;
            }
        }
        Ok(left)
    }

    /// Ten times `each` rows come into every table, and as many go, the oldest first.
    fn churn(&mut self, each: u64, most: &mut f64) -> Result<u64, Failure> {
        for from in (0..10 * each).step_by(BATCH as usize) {
            for table in 0..self.tables.len() {
                self.insert(table, each + from..each + from + BATCH)?;
                let table = &self.tables[table];
                self.db.transact(|tx| {
                    let numbers = from..from + BATCH;
                    numbers.into_iter().try_for_each(|number| tx.delete(table, &key(number)).map(drop))?;
                    Ok::<_, firndb::Error>(())
                })?;
                self.background()?;
            }
            *most = most.max(self.taken().allocated());
        }
        Ok(each * self.tables.len() as u64)
    }

    fn background(&self) -> Result<(), Failure> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Failure::interrupted("stopped before all was measured"));
        }
        for _ in 0..STEPS {
            if self.db.step()? == Progress::Idle {
                break;
            }
        }
        Ok(())
    }

    /// Background work until there is none, and what it waits for: a checkpoint.
    fn settle(&self) -> Result<(), Failure> {
        for _ in 0..3 {
            self.db.checkpoint()?;
            while self.db.step()? == Progress::Worked {
                if self.stop.load(Ordering::Relaxed) {
                    return Err(Failure::interrupted("stopped before all was measured"));
                }
            }
        }
        Ok(())
    }

    fn taken(&self) -> Taken {
        let statistics = self.db.statistics();
        Taken {
            live_bytes: statistics.store.pages_allocated * PAGE_BYTES,
            page_bytes: statistics.store.places * PAGE_BYTES,
            file_bytes: statistics.store_device.1,
        }
    }

    fn copied(&self) -> u64 {
        self.db.statistics().store.images_moved
    }
}
