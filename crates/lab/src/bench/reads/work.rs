//! What is done with the rows: scans, fetches by the index, reads of single rows and of many; in
//! real and in virtual time alike.

use super::rows::{Rows, key};
use firndb::{Database, Direction, KeyRange};
use firndb_base::clock;
use firndb_base::rng::Rng;
use firndb_base::sync::thread;
use firndb_console::Failure;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Rows of a scan between two looks at the clock.
const SCANNED_AT_ONCE: u64 = 64;
/// Most rows of a short range.
const SHORT_MOST: u64 = 100;

/// When it ends: after this number of rows (of each client) or this time, whichever is first; or
/// when it is interrupted.
#[derive(Clone, Copy, Debug)]
pub struct Length<'a> {
    pub rows: u64,
    pub time: Duration,
    pub stop: &'a AtomicBool,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    pub rows: u64,
    pub seconds: f64,
    /// Pages that DRAM missed meanwhile, where that is counted.
    missed: u64,
}

impl Done {
    pub fn per_second(&self) -> f64 {
        self.rows as f64 / self.seconds
    }

    /// Share of the rows whose pages had to be read. Where nodes above the leaves are missed as
    /// well, no row counts twice.
    pub fn missed_share(&self) -> f64 {
        self.missed.min(self.rows) as f64 / self.rows as f64
    }

    /// Rows a second whose pages had to be read.
    pub fn missed_per_second(&self) -> f64 {
        self.missed_share() * self.per_second()
    }
}

/// Runs `body`, and counts the pages that DRAM misses meanwhile.
fn counting(db: &Database, body: impl FnOnce() -> Result<Done, Failure>) -> Result<Done, Failure> {
    let before = db.statistics().buffer.misses;
    let done = body()?;
    Ok(Done { missed: db.statistics().buffer.misses - before, ..done })
}

/// Repeats `step`, which returns the number of rows that it read, 0 at the end. Looks at the clock
/// whenever this number of rows was read: 1 where each may wait for a device, since a queue may be
/// longer than all of the time.
fn repeat(
    length: Length<'_>,
    look_rows: u64,
    mut step: impl FnMut() -> Result<u64, firndb::Error>,
) -> Result<Done, Failure> {
    let (began, mut rows, mut look_at) = (clock::now(), 0, look_rows);
    loop {
        let more = step()?;
        rows += more;
        let over = more == 0 || rows >= length.rows;
        if over || rows >= look_at {
            look_at = rows + look_rows;
            let took = began.elapsed();
            if over || took >= length.time || length.stop.load(Ordering::Relaxed) {
                return Ok(Done { rows, seconds: took.as_secs_f64(), missed: 0 });
            }
        }
    }
}

/// Reads all rows in order.
pub fn scan(db: &Database, length: Length<'_>) -> Result<Done, Failure> {
    let (table, mut tx) = (Rows::table(db)?, db.snapshot());
    let mut cursor = tx.scan(&table, KeyRange::all(), Direction::Forward);
    repeat(length, SCANNED_AT_ONCE, || Ok(u64::from(cursor.next(&mut tx)?.is_some())))
}

/// Reads the rows of a group by the index.
pub fn fetch(db: &Database, group: u64, length: Length<'_>) -> Result<Done, Failure> {
    let (index, mut tx) = (Rows::index(db)?, db.snapshot());
    let mut cursor = tx.scan_index(&index, Rows::group(group), Direction::Forward);
    repeat(length, SCANNED_AT_ONCE, || Ok(u64::from(cursor.next(&mut tx)?.is_some())))
}

/// Runs this number of clients side by side, each with a seed of its own.
fn side_by_side(
    clients: u64,
    seed: u64,
    client: impl Fn(Rng) -> Result<Done, Failure> + Sync,
) -> Result<Done, Failure> {
    let client = &client;
    let began = clock::now();
    let rows = thread::scope(|scope| {
        let run = |number: u64| scope.spawn(move || client(Rng::new(seed.wrapping_mul(1009) + number)));
        let threads: Vec<_> = (0..clients).map(run).collect();
        threads.into_iter().try_fold(0, |rows, thread| match thread.join() {
            Ok(done) => Ok::<_, Failure>(rows + done?.rows),
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    Ok(Done { rows, seconds: began.elapsed().as_secs_f64(), missed: 0 })
}

/// Reads single rows at random, by `clients` clients, each in a transaction.
pub fn points(
    db: &Database,
    rows: Rows,
    clients: u64,
    seed: u64,
    length: Length<'_>,
) -> Result<Done, Failure> {
    let table = Rows::table(db)?;
    counting(db, || {
        side_by_side(clients, seed, |mut rng| {
            let mut row = Vec::new();
            repeat(length, 1, || {
                let found = db.snapshot().get_into(&table, &key(rng.below(rows.rows)), &mut row)?;
                assert!(found, "every row is there");
                Ok(1)
            })
        })
    })
}

/// Reads single rows at random, one after the other; returns the median time of those whose pages
/// had to be read, in microseconds.
pub fn latency_us(db: &Database, rows: Rows, seed: u64, length: Length<'_>) -> Result<f64, Failure> {
    let table = Rows::table(db)?;
    let (mut rng, mut row, mut all) = (Rng::new(seed), Vec::new(), Vec::new());
    let done = counting(db, || {
        repeat(length, 1, || {
            let began = clock::now();
            let found = db.snapshot().get_into(&table, &key(rng.below(rows.rows)), &mut row)?;
            all.push(began.elapsed().as_secs_f64() * 1e6);
            assert!(found, "every row is there");
            Ok(1)
        })
    })?;
    all.sort_by(f64::total_cmp);
    // What hits is fastest: the median of the others.
    let place = (1.0 - done.missed_share() / 2.0) * all.len() as f64;
    Ok(all.get(place as usize).copied().unwrap_or(f64::NAN))
}

/// Reads `each` rows at random at a time, by one client.
pub fn many(db: &Database, rows: Rows, each: usize, seed: u64, length: Length<'_>) -> Result<Done, Failure> {
    let table = Rows::table(db)?;
    let (mut rng, mut found) = (Rng::new(seed), firndb::Rows::new());
    let mut keys = vec![[0; 8]; each];
    counting(db, || {
        repeat(length, 1, || {
            keys.iter_mut().for_each(|to| *to = key(rng.below(rows.rows)));
            db.snapshot().get_many_into(&table, &keys, &mut found)?;
            assert!(found.iter().all(|row| row.is_some()), "every row is there");
            Ok(each as u64)
        })
    })
}

/// Reads ranges of one to a hundred rows from random places on, by `clients` clients.
pub fn short_ranges(
    db: &Database,
    rows: Rows,
    clients: u64,
    seed: u64,
    length: Length<'_>,
) -> Result<Done, Failure> {
    let table = Rows::table(db)?;
    side_by_side(clients, seed, |mut rng| {
        repeat(length, 1, || {
            let (first, most) = (rng.below(rows.rows), rng.between(1, SHORT_MOST));
            let (low, high) = (key(first), key(first + most));
            let range = KeyRange::new(Bound::Included(&low[..]), Bound::Excluded(&high[..]));
            let mut tx = db.snapshot();
            let mut cursor = tx.scan(&table, range, Direction::Forward);
            let mut read = 0;
            while cursor.next(&mut tx)?.is_some() {
                read += 1;
            }
            Ok(read)
        })
    })
}
