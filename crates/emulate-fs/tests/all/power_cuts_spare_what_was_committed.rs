//! SQLite on the file system, with power cuts in the middle of transactions: the database is not
//! damaged, and holds every acknowledged transaction, as far as SQLite promises it for its
//! settings. With settings that promise nothing, transactions are lost, which shows that the cuts
//! take effect. `FIRN_SEEDS=100` makes 100 cuts of each kind.

use crate::support::{Place, end, ms};
use firndb_base::rng::Rng;
use firndb_emulate_fs::FixedTiming;
use rusqlite::Connection;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

/// Rows of a transaction: enough to fill several pages, so that a torn one would show.
const ROWS: i64 = 40;

struct Settings {
    journal: &'static str,
    synchronous: &'static str,
    direct: bool,
}

fn open(path: &Path, settings: &Settings) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", settings.journal)?;
    connection.pragma_update(None, "synchronous", settings.synchronous)?;
    // A cache so small that transactions write to the database before they commit.
    connection.pragma_update(None, "cache_size", 10)?;
    connection.pragma_update(None, "wal_autocheckpoint", 50)?;
    Ok(connection)
}

fn transaction(connection: &mut Connection, number: i64) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    for row in 0..ROWS {
        // Keys spread over the tree: old pages are changed, not only new ones added.
        let key = (number * 7919 + row * 104_729) % 1_000_003;
        transaction.execute(
            "INSERT OR REPLACE INTO t VALUES (?1, ?2, ?3)",
            rusqlite::params![key, number, vec![number as u8; 300]],
        )?;
    }
    transaction.execute("INSERT INTO done VALUES (?1)", [number])?;
    transaction.commit()
}

/// The state after a cut.
#[derive(Debug, PartialEq)]
enum Left {
    /// All that was acknowledged, in a sound database.
    Everything,
    /// A sound database that lacks this number of acknowledged transactions, the last ones.
    Without(i64),
    /// Not a database any more, or a state that never existed.
    Damaged(String),
}

/// Runs transactions until the power is cut after a time drawn from the seed; returns what a
/// remount finds. `None` where mounting doesn't work.
fn cut(settings: &Settings, seed: u64) -> Option<Left> {
    let place = Place::new();
    let device = FixedTiming { write: ms(0), sync: ms(1), durable_write: ms(1), ..FixedTiming::default() };
    let change = |options: &mut firndb_emulate_fs::MountOptions| {
        options.seed = seed;
        options.direct = settings.direct;
    };
    let mounted = place.mount_as(device.clone(), change)?;
    let path = mounted.mount_point().join("db");
    {
        let connection = open(&path, settings).expect("a database");
        let tables =
            "CREATE TABLE t (k INTEGER PRIMARY KEY, n, b); CREATE TABLE done (n INTEGER PRIMARY KEY)";
        connection.execute_batch(tables).expect("tables");
    }
    // The prepared files are durable whatever the settings: the cut concerns only what follows.
    for entry in std::fs::read_dir(mounted.mount_point()).expect("a directory") {
        std::fs::File::open(entry.expect("an entry").path())
            .and_then(|file| file.sync_all())
            .expect("synced");
    }
    let acknowledged = AtomicI64::new(0);
    // No program would see what SQLite acknowledges once the power is off: after it has deleted the
    // journal, which is the commit, it ignores that it cannot open the directory to sync it.
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut connection = open(&path, settings).expect("a database");
            (1..).try_for_each(|number| {
                transaction(&mut connection, number)?;
                if !ends.load(Ordering::SeqCst) {
                    acknowledged.store(number, Ordering::SeqCst);
                }
                Ok::<(), rusqlite::Error>(())
            })
        });
        std::thread::sleep(Duration::from_micros(Rng::new(seed).between(50_000, 350_000)));
        ends.store(true, Ordering::SeqCst);
        mounted.cut_power();
        writer.join().expect("no panic").expect_err("nothing can be written without power");
    });
    let ending = end(mounted);
    assert!(ending.power_cut.is_some());

    let mounted = place.mount_as(device, change)?;
    let left = examine(&path, acknowledged.load(Ordering::SeqCst));
    end(mounted);
    Some(left.unwrap_or_else(|error| Left::Damaged(error.to_string())))
}

fn examine(path: &Path, acknowledged: i64) -> rusqlite::Result<Left> {
    let connection = Connection::open(path)?;
    let one = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let check: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    if check != "ok" {
        return Ok(Left::Damaged(check));
    }
    let (count, last) = (one("SELECT count(*) FROM done")?, one("SELECT coalesce(max(n), 0) FROM done")?);
    let stray = one("SELECT count(*) FROM t WHERE n NOT IN (SELECT n FROM done)")?;
    let newest = one(&format!("SELECT count(*) FROM t WHERE n = {last}"))?;
    if count != last || stray > 0 || (last > 0 && newest != ROWS) {
        return Ok(Left::Damaged(format!(
            "{count} of {last} transactions, {stray} stray rows, {newest} rows"
        )));
    }
    Ok(if last >= acknowledged { Left::Everything } else { Left::Without(acknowledged - last) })
}

fn seeds(from: u64) -> std::ops::Range<u64> {
    let count = std::env::var("FIRN_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(5);
    from..from + count
}

fn cuts(settings: &Settings, seeds: std::ops::Range<u64>) -> Vec<Left> {
    seeds.map_while(|seed| cut(settings, seed)).collect()
}

fn nothing_is_lost(settings: &Settings, seeds: std::ops::Range<u64>) {
    for (number, left) in cuts(settings, seeds.clone()).iter().enumerate() {
        assert_eq!(*left, Left::Everything, "seed {}", seeds.start + number as u64);
    }
}

#[test]
fn wal_with_full_syncs_loses_nothing() {
    nothing_is_lost(&Settings { journal: "wal", synchronous: "full", direct: false }, seeds(0));
}

#[test]
fn wal_past_the_page_cache_loses_nothing() {
    nothing_is_lost(&Settings { journal: "wal", synchronous: "full", direct: true }, seeds(10));
}

#[test]
fn a_rollback_journal_with_extra_syncs_loses_nothing() {
    nothing_is_lost(&Settings { journal: "delete", synchronous: "extra", direct: false }, seeds(20));
}

#[test]
fn a_rollback_journal_with_full_syncs_loses_one_transaction_at_most() {
    // FULL does not sync the directory after the journal is deleted, which is the commit.
    for left in cuts(&Settings { journal: "delete", synchronous: "full", direct: true }, seeds(30)) {
        assert!(matches!(left, Left::Everything | Left::Without(1)), "{left:?}");
    }
}

#[test]
fn without_syncs_transactions_are_lost() {
    let settings = Settings { journal: "wal", synchronous: "off", direct: false };
    let left = cuts(&settings, seeds(40));
    assert!(left.is_empty() || left.iter().any(|left| *left != Left::Everything), "{left:?}");
}
