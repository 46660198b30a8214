//! Clients that scan a table larger than DRAM, beside those of TPC-C: reports that run while orders
//! come in.

use crate::cost::model::CostModel;
use firndb::{Database, Direction, KeyRange};
use firndb_base::sim;
use firndb_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use firndb_base::sync::thread;
use firndb_workloads::tpcc::keys;
use firndb_workloads::tpcc::tables::STOCK;
use firndb_workloads::{
    Access, Commit, CommitMode, Engine, EngineError, Outcome, Scan, Session, Transaction, Visit,
};

/// Rows of one transaction: some dozens of pages, so that no snapshot is old.
const ROWS: usize = 1000;

/// Rows that a scanner of a table apart reads between two looks whether it is over.
const LOOK_ROWS: u64 = 256;

/// Which rows scanners read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scanned {
    /// STOCK, whose pages the clients of TPC-C use, too.
    Stock,
    /// A table of this name that they do not use.
    Apart(&'static str),
}

/// Runs `main` with `scanners` threads that scan STOCK of `warehouses` warehouses, each from a
/// place of its own and again and again, until `stop` is set or `main` has returned.
pub fn beside<E: Engine, T>(
    engine: &E,
    (scanners, warehouses): (usize, u32),
    stop: &AtomicBool,
    main: impl FnOnce() -> Outcome<T>,
) -> Outcome<T> {
    let first = |number: usize| 1 + number as u32 * warehouses / scanners as u32;
    with_threads(scanners, stop, &|number, over| scans(engine, first(number), over), main)
}

/// Runs `main` with `scanners` threads that scan a whole table, each pass in a transaction,
/// likewise; they add the rows that they read to `rows`, and take the processor's time for them.
pub fn beside_apart<T>(
    db: &Database,
    table: &str,
    (scanners, rows): (usize, &AtomicU64),
    stop: &AtomicBool,
    main: impl FnOnce() -> Outcome<T>,
) -> Outcome<T> {
    with_threads(
        scanners,
        stop,
        &|_, over| scans_apart(db, table, rows, over).map_err(EngineError::fatal),
        main,
    )
}

/// Runs `main` beside threads that `scan`: it is given a thread's number and a function, and
/// returns soon after that function returns true.
fn with_threads<T>(
    count: usize,
    stop: &AtomicBool,
    scan: &(impl Fn(usize, &dyn Fn() -> bool) -> Outcome<()> + Sync),
    main: impl FnOnce() -> Outcome<T>,
) -> Outcome<T> {
    if count == 0 {
        return main();
    }
    let ended = AtomicBool::new(false);
    let over = || stop.load(Ordering::Relaxed) || ended.load(Ordering::Relaxed);
    let over = &over;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|number| scope.spawn(move || scan(number, over))).collect();
        let outcome = main();
        ended.store(true, Ordering::Relaxed);
        for thread in threads {
            match thread.join() {
                Ok(scanned) => scanned?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        outcome
    })
}

/// Scans a whole table until it is over.
fn scans_apart(
    db: &Database,
    table: &str,
    rows: &AtomicU64,
    over: &dyn Fn() -> bool,
) -> Result<(), firndb::Error> {
    let table = db.table(table)?;
    while !over() {
        let mut tx = db.snapshot();
        let mut cursor = tx.scan(&table, KeyRange::all(), Direction::Forward);
        sim::charge(CostModel::FIRN.begin + CostModel::FIRN.scan);
        let mut read = 0;
        while cursor.next(&mut tx)?.is_some() {
            read += 1;
            if read % LOOK_ROWS == 0 {
                rows.fetch_add(LOOK_ROWS, Ordering::Relaxed);
                sim::charge(CostModel::FIRN.row * LOOK_ROWS as u32);
                if over() {
                    return Ok(());
                }
            }
        }
        rows.fetch_add(read % LOOK_ROWS, Ordering::Relaxed);
    }
    Ok(())
}

/// Scans all warehouses, the first time from `warehouse` on.
fn scans<E: Engine>(engine: &E, warehouse: u32, over: &dyn Fn() -> bool) -> Outcome<()> {
    let mut session = engine.session()?;
    let mut next = keys::warehouse(warehouse).to_vec();
    while !over() {
        let (mut last, mut rows) = (Vec::new(), 0);
        let mut transaction = session.begin(Access::Read)?;
        transaction.scan(STOCK, Scan::between(&next, &[]).first(ROWS), &mut |key, _| {
            rows += 1;
            last.clear();
            last.extend_from_slice(key);
            Visit::Continue
        })?;
        let commit: Commit = transaction.commit(CommitMode::Wait)?;
        commit.wait()?;
        next = last;
        // Past the last row; from the beginning after the last one.
        if rows < ROWS { next.clear() } else { next.push(0) }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_workloads::MemoryEngine;
    use firndb_workloads::tpcc::{self, LoadOptions, Scale};

    #[test]
    fn scanners_read_whole_transactions_until_the_main_work_has_ended() {
        let engine = MemoryEngine::new(&tpcc::schema());
        let scale = Scale { warehouses: 2, items: 700, customers: 30 };
        tpcc::load(&engine, &LoadOptions::new(scale, 1), &|_| ()).unwrap();
        let asked = std::sync::atomic::AtomicUsize::new(0);
        // Two transactions a round of 1,400 rows: the third begins again.
        let over = || asked.fetch_add(1, Ordering::Relaxed) == 5;
        scans(&engine, 2, &over).unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 6);
        let stop = AtomicBool::new(false);
        assert_eq!(beside(&engine, (2, 2), &stop, || Ok(7)), Ok(7));
    }
}
