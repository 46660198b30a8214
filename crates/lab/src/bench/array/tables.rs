//! Tables that are read and written: a loaded one, and one into which rows are inserted.

use super::devices::{Layout, Loaded, PAGE, load};
use crate::bench::made::Made;
use crate::bench::reads::rows::{self, Rows};
use firndb::Database;
use firndb_base::sync::thread;
use firndb_console::Failure;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Clients that insert.
pub const WRITERS: u64 = 32;
/// Rows of a transaction, and bytes of a row, where rows are inserted.
const BATCH: u64 = 50;
const ROW: usize = 400;
/// The table of inserted rows.
pub const WRITTEN: &str = "written";
/// Each writer's keys begin here, times its number.
const KEYS_APART: u64 = 1 << 32;

/// How much is loaded, read and written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    pub buffer: u64,
    /// The table's bytes, in units of DRAM.
    pub times: u64,
    /// Reads of each client.
    pub reads: u64,
    pub written_bytes: u64,
}

impl Size {
    /// Pages that DRAM holds.
    pub fn frames(self) -> u64 {
        self.buffer / PAGE as u64
    }
}

/// Loaded databases, by layout and bytes.
pub type AllLoaded = Made<(Layout, u64), Loaded<Rows>>;

/// A database with a table of rows, loaded if it was not before.
pub fn loaded(
    all: &AllLoaded,
    layout: Layout,
    size: Size,
    seed: u64,
) -> Result<std::sync::Arc<Loaded<Rows>>, Failure> {
    let bytes = size.buffer * size.times;
    all.get((layout, bytes), || {
        let options = layout.options(size.buffer).recovery_time(Duration::MAX);
        load(layout, options, seed, move |db| {
            let rows = rows::load(db, bytes, |_| true)?;
            if let Some(code) = layout.loaded {
                let table = db.table(Rows::TABLE)?;
                db.set_layout(&table, firndb::Layout::fragments(code.needed(), code.written()))?;
                db.checkpoint()?;
                db.move_to_layouts(&mut |_, _| ControlFlow::Continue(()))?;
            }
            Ok(rows)
        })
    })
}

/// Inserts rows by several clients until this number of bytes is inserted.
pub fn insert(db: &Database, bytes: u64) -> Result<(), Failure> {
    let (each, never) = (bytes / ROW as u64 / WRITERS, AtomicBool::new(false));
    thread::scope(|scope| {
        let never = &never;
        let write = |number: u64| move || writer(db, number, each, never);
        let threads: Vec<_> = (0..WRITERS).map(|number| scope.spawn(write(number))).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })
}

/// Inserts this number of rows in ascending order, or until it is stopped.
pub fn writer(db: &Database, number: u64, rows: u64, stop: &AtomicBool) -> Result<(), Failure> {
    let (table, row) = (db.table(WRITTEN)?, [number as u8; ROW]);
    let mut first = 0;
    while first < rows && !stop.load(Ordering::Relaxed) {
        db.transact(|tx| {
            for key in first..first + BATCH {
                tx.insert(&table, &(number * KEYS_APART + key).to_be_bytes(), &row)?;
            }
            Ok::<(), firndb::Error>(())
        })?;
        first += BATCH;
    }
    Ok(())
}
