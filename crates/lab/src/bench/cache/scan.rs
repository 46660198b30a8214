//! Clients that scan a table larger than DRAM, beside those of TPC-C: reports that run while orders
//! come in.

use firndb_base::sync::atomic::{AtomicBool, Ordering};
use firndb_base::sync::thread;
use firndb_workloads::tpcc::keys;
use firndb_workloads::tpcc::tables::STOCK;
use firndb_workloads::{Access, Commit, CommitMode, Engine, Outcome, Scan, Session, Transaction, Visit};

/// Rows of one transaction: some dozens of pages, so that no snapshot is old.
const ROWS: usize = 1000;

/// Runs `main` with `scanners` threads that scan STOCK of `warehouses` warehouses, each from a
/// place of its own and again and again, until `stop` is set or `main` has returned.
pub fn beside<E: Engine, T>(
    engine: &E,
    (scanners, warehouses): (usize, u32),
    stop: &AtomicBool,
    main: impl FnOnce() -> Outcome<T>,
) -> Outcome<T> {
    if scanners == 0 {
        return main();
    }
    let ended = AtomicBool::new(false);
    let over = || stop.load(Ordering::Relaxed) || ended.load(Ordering::Relaxed);
    let over = &over;
    thread::scope(|scope| {
        let scan = |number: usize| {
            let first = 1 + number as u32 * warehouses / scanners as u32;
            scope.spawn(move || scans(engine, first, over))
        };
        let threads: Vec<_> = (0..scanners).map(scan).collect();
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
