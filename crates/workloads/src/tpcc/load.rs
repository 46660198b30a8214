//! Loading a population: parts of it in parallel, each deterministic by the seed.
//!
//! The work is cut into [`Part`]s; each has a random stream of its own, so the rows depend on the
//! seed only, not on the number of threads or their order. Rows go in by ascending key within a
//! part, in batches of one transaction each. The population's own row goes in last: without it, an
//! interrupted load is not mistaken for a complete one.

use super::populate::{self, Row};
use super::scale::{DISTRICTS, Population, Scale};
use super::tables;
use crate::engine::{Access, Commit, CommitMode, Engine, EngineError, Outcome, Session, Transaction};
use crate::random::Random;
use crate::schema::TableId;
use firndb_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use firndb_base::{clock, sync::thread};
use std::time::Duration;

/// Options of a load.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Size of the population.
    pub scale: Scale,
    /// Equal seeds make equal populations.
    pub seed: u64,
    /// Threads that load side by side; 1 for engines with a single writer.
    pub threads: usize,
    /// Rows of one transaction.
    pub rows_per_commit: usize,
    /// The date of the load, in microseconds since the Unix epoch: C_SINCE, H_DATE, O_ENTRY_D.
    pub date_us: u64,
}

impl LoadOptions {
    /// One thread, batches of 1,000 rows, dated now.
    #[must_use]
    pub fn new(scale: Scale, seed: u64) -> LoadOptions {
        LoadOptions { scale, seed, threads: 1, rows_per_commit: 1000, date_us: crate::wall::now_us() }
    }
}

/// Progress of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadProgress {
    /// Rows committed.
    pub rows: u64,
    /// Expected rows of the whole population; the number of order lines is random.
    pub rows_expected: u64,
}

/// A piece of a population with a random stream of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// ITEM.
    Items,
    /// One warehouse's row and its districts'.
    Warehouse(u32),
    /// One warehouse's rows of STOCK.
    Stock(u32),
    /// One district's rows of CUSTOMER and HISTORY.
    Customers(u32, u8),
    /// One district's rows of ORDER, ORDER-LINE and NEW-ORDER.
    Orders(u32, u8),
}

/// Parts of a warehouse.
const PARTS: u64 = 2 + 2 * DISTRICTS as u64;

impl Part {
    fn count(scale: &Scale) -> u64 {
        1 + u64::from(scale.warehouses) * PARTS
    }

    /// Whether it has rows of a table.
    fn has(self, table: TableId) -> bool {
        let tables: &[TableId] = match self {
            Part::Items => &[tables::ITEM],
            Part::Warehouse(_) => &[tables::WAREHOUSE, tables::DISTRICT],
            Part::Stock(_) => &[tables::STOCK],
            Part::Customers(..) => &[tables::CUSTOMER, tables::HISTORY],
            Part::Orders(..) => &[tables::ORDER, tables::ORDER_LINE, tables::NEW_ORDER],
        };
        tables.contains(&table)
    }

    /// The part at a place in `0..count`.
    fn nth(place: u64) -> Part {
        let Some(place) = place.checked_sub(1) else { return Part::Items };
        let warehouse = (place / PARTS) as u32 + 1;
        let district = ((place % PARTS).saturating_sub(2) % u64::from(DISTRICTS)) as u8 + 1;
        match place % PARTS {
            0 => Part::Warehouse(warehouse),
            1 => Part::Stock(warehouse),
            within if within < 2 + u64::from(DISTRICTS) => Part::Customers(warehouse, district),
            _ => Part::Orders(warehouse, district),
        }
    }
}

impl LoadOptions {
    /// Rows of the whole population, about: the number of order lines is random.
    #[must_use]
    pub fn expected_rows(&self) -> u64 {
        populate::expected_rows(&self.scale)
    }

    /// Keys and rows of one table of the population, ascending by key, those that [`load`] inserts:
    /// for an engine that creates tables together with their rows. POPULATION is to be the last.
    pub fn rows_of(&self, table: TableId) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> + use<> {
        let (population, options) = (Population::new(self.scale, self.seed), self.clone());
        let own = (table == tables::POPULATION)
            .then(|| (super::keys::POPULATION.to_vec(), population.row().to_vec()));
        let places = (0..Part::count(&self.scale)).filter(move |place| Part::nth(*place).has(table));
        let of_part = move |place: u64| {
            let mut rows = Vec::new();
            // Stream 0 draws the constants of NURand.
            let mut random = Random::stream(options.seed, place + 1);
            let mut keep = |(of, key, row): Row<'_>| {
                if of == table {
                    rows.push((key.to_vec(), row.to_vec()));
                }
                Ok(())
            };
            populate::part(&population, Part::nth(place), options.date_us, &mut random, &mut keep)
                .expect("keeping a row cannot fail");
            rows
        };
        places.flat_map(of_part).chain(own)
    }
}

/// Loads a population into an engine's empty tables. `progress` is called after every batch, from
/// any of the threads.
pub fn load<E: Engine>(
    engine: &E,
    options: &LoadOptions,
    progress: &(dyn Fn(LoadProgress) + Sync),
) -> Outcome<Population> {
    options.scale.assert_possible();
    assert!(options.threads > 0 && options.rows_per_commit > 0);
    if Population::of(engine)?.is_some() {
        return Err(EngineError::Fatal("the tables hold a population already; load into empty ones".into()));
    }
    let population = Population::new(options.scale, options.seed);
    let shared = Shared {
        engine,
        options,
        population,
        progress,
        next_part: AtomicU64::new(0),
        rows: AtomicU64::new(0),
        failed: AtomicBool::new(false),
    };
    thread::scope(|scope| {
        let loaders: Vec<_> = (0..options.threads).map(|_| scope.spawn(|| shared.load_parts())).collect();
        loaders.into_iter().try_for_each(|loader| match loader.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    let mut last = Batch::new(engine.session()?, 1);
    last.push((tables::POPULATION, &super::keys::POPULATION, &population.row()))?;
    last.finish()?;
    Ok(population)
}

struct Shared<'a, E> {
    engine: &'a E,
    options: &'a LoadOptions,
    population: Population,
    progress: &'a (dyn Fn(LoadProgress) + Sync),
    /// The next part that no thread has taken.
    next_part: AtomicU64,
    /// Rows committed by all threads.
    rows: AtomicU64,
    /// Set when a thread fails, so that the others stop.
    failed: AtomicBool,
}

impl<E: Engine> Shared<'_, E> {
    fn load_parts(&self) -> Outcome<()> {
        let result = self.try_load_parts();
        if result.is_err() && self.failed.swap(true, Ordering::Relaxed) {
            // Another thread failed first and reports the error.
            return Ok(());
        }
        result
    }

    fn try_load_parts(&self) -> Outcome<()> {
        let mut batch = Batch::new(self.engine.session()?, self.options.rows_per_commit);
        loop {
            let place = self.next_part.fetch_add(1, Ordering::Relaxed);
            if place >= Part::count(&self.options.scale) || self.failed.load(Ordering::Relaxed) {
                return batch.finish().map(|rows| self.report(rows));
            }
            // Stream 0 draws the constants of NURand.
            let mut random = Random::stream(self.options.seed, place + 1);
            let date = self.options.date_us;
            populate::part(&self.population, Part::nth(place), date, &mut random, &mut |row| {
                let rows = batch.push(row)?;
                if rows > 0 {
                    self.report(rows);
                }
                if self.failed.load(Ordering::Relaxed) {
                    return Err(EngineError::Fatal("another thread of the load failed".into()));
                }
                Ok(())
            })?;
        }
    }

    fn report(&self, rows: u64) {
        let rows = self.rows.fetch_add(rows, Ordering::Relaxed) + rows;
        (self.progress)(LoadProgress { rows, rows_expected: populate::expected_rows(&self.options.scale) });
    }
}

/// Rows collected for one transaction, so that it can be run again unchanged.
struct Batch<S> {
    session: S,
    rows_per_commit: usize,
    /// Keys and rows, end to end.
    bytes: Vec<u8>,
    /// Of each row: table, bytes of key, bytes of row.
    entries: Vec<(TableId, usize, usize)>,
    /// The commit of the previous batch, perhaps not durable yet: at most one commit is
    /// outstanding.
    previous: Commit,
}

/// Attempts to commit a batch before the load gives up.
const BATCH_ATTEMPTS: u32 = 1000;

impl<S: Session> Batch<S> {
    fn new(session: S, rows_per_commit: usize) -> Batch<S> {
        Batch { session, rows_per_commit, bytes: Vec::new(), entries: Vec::new(), previous: Commit::Durable }
    }

    /// Adds a row, and commits if the batch is full. Returns the number of rows committed.
    fn push(&mut self, (table, key, row): Row<'_>) -> Outcome<u64> {
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(row);
        self.entries.push((table, key.len(), row.len()));
        if self.entries.len() < self.rows_per_commit {
            return Ok(0);
        }
        self.commit()
    }

    fn commit(&mut self) -> Outcome<u64> {
        let mut attempt = 0;
        let commit = loop {
            attempt += 1;
            match self.try_commit() {
                Err(EngineError::Retry(_)) if attempt < BATCH_ATTEMPTS => {
                    clock::sleep(Duration::from_millis(1));
                }
                result => break result?,
            }
        };
        std::mem::replace(&mut self.previous, commit).wait()?;
        let rows = self.entries.len() as u64;
        self.entries.clear();
        self.bytes.clear();
        Ok(rows)
    }

    fn try_commit(&mut self) -> Outcome<Commit> {
        let mut txn = self.session.begin(Access::Write)?;
        let mut rest = self.bytes.as_slice();
        for &(table, key_len, row_len) in &self.entries {
            let (key, tail) = rest.split_at(key_len);
            let (row, tail) = tail.split_at(row_len);
            txn.insert(table, key, row)?;
            rest = tail;
        }
        txn.commit(CommitMode::Async)
    }

    /// Commits what is left and waits until all is durable.
    fn finish(mut self) -> Outcome<u64> {
        let rows = if self.entries.is_empty() { 0 } else { self.commit()? };
        self.previous.wait()?;
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_made_once() {
        let scale = Scale::tiny(3);
        let parts: Vec<Part> = (0..Part::count(&scale)).map(Part::nth).collect();
        for (at, part) in parts.iter().enumerate() {
            assert!(!parts[..at].contains(part), "{part:?} twice");
        }
        for warehouse in 1..=3 {
            assert!(parts.contains(&Part::Warehouse(warehouse)) && parts.contains(&Part::Stock(warehouse)));
            for district in 1..=DISTRICTS {
                assert!(parts.contains(&Part::Customers(warehouse, district)));
                assert!(parts.contains(&Part::Orders(warehouse, district)));
            }
        }
        assert_eq!(parts.len(), 1 + 3 * (2 + 20));
    }
}
