//! Dropped tables of many pages, in a log much smaller than they are.

use super::{PAGE, pages, wait_until};
use crate::archive::support::{rows_of, small_behind};
use crate::support::bed::Bed;
use firndb::{ArchiveFull, Database, ErrorKind, Options, Progress};
use firndb_testkit::gate::{Gate, Mode};
use std::time::Duration;

const LOG: u64 = 256 << 10;
pub const VALUE: usize = 120;

/// Rows that stand in their leaves, some six a page. An archive may hold the log for a while.
pub fn fill(db: &Database, name: &str, rows: u32) {
    let table = db.create_table(name).expect("created");
    for chunk in 0..rows.div_ceil(200) {
        let fill = || {
            db.transact(|tx| {
                (chunk * 200..(chunk * 200 + 200).min(rows))
                    .try_for_each(|number| tx.put(&table, &number.to_be_bytes(), &[3; VALUE]).map(drop))
            })
        };
        wait_until("room", || match fill() {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Full, "{error}");
                false
            }
        });
    }
}

fn small(log: u64) -> Options {
    Options::new().page_size(PAGE).buffer_bytes(1 << 20).log(|settings| settings.devices(1).bytes(log))
}

fn comes_back_to_threads(log: u64, rows: u32) {
    let disks = Bed::new(1);
    let db = small(log).create_on(disks.devices()).expect("created");
    let kept = db.create_table("kept").expect("created");
    let empty = pages(&db);
    fill(&db, "dropped", rows);
    assert!(pages(&db) > empty + u64::from(rows) / 8);
    db.drop_table("dropped").expect("dropped");
    // No client writes anything.
    wait_until("the last page", || pages(&db) == empty);
    db.transact(|tx| tx.put(&kept, b"key", b"value").map(drop)).expect("it goes on");
    db.close().expect("closed");
}

fn comes_back_by_steps(log: u64, rows: u32) {
    let disks = Bed::new(1);
    let db = small(log).background_threads(false).create_on(disks.devices()).expect("created");
    db.create_table("kept").expect("created");
    let empty = pages(&db);
    fill(&db, "dropped", rows);
    db.drop_table("dropped").expect("dropped");
    let (mut steps, mut largest) = (0u64, 0);
    while pages(&db) > empty {
        let before = pages(&db);
        db.step().expect("a step");
        largest = largest.max(before.saturating_sub(pages(&db)));
        steps += 1;
        assert!(steps < u64::from(rows), "{} pages are left", pages(&db) - empty);
    }
    assert!(largest <= 1024, "one step freed {largest} pages: others wait meanwhile");
    db.close().expect("closed");
}

#[test]
fn many_pages_come_back_to_a_database_that_does_nothing_else() {
    comes_back_to_threads(LOG, 100_000);
}

#[test]
fn many_pages_come_back_by_steps_alone() {
    comes_back_by_steps(LOG, 100_000);
}

/// `cargo test --release -p firndb --test all two_hundred_thousand -- --ignored`
#[test]
#[ignore = "takes a minute"]
fn two_hundred_thousand_pages_come_back() {
    comes_back_to_threads(1 << 20, 1_200_000);
    comes_back_by_steps(1 << 20, 1_200_000);
}

/// Deletes leave ghosts; the drop begins to clear the tree and finds the log full; then the log
/// is given back, and the thread that removes the ghost records comes first.
#[test]
fn a_full_log_delays_it_and_ghosts_of_the_table_are_forgotten() {
    for threads in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        let (gate, disks) = (Gate::default(), Bed::new(1));
        let options = small_behind(&gate)
            .page_size(PAGE)
            .buffer_bytes(256 << 10)
            .log(|log| log.devices(1).bytes(LOG))
            .background_threads(threads)
            .archive(|archive| {
                archive
                    .directory(dir.path().join("archive"))
                    .when_full(ArchiveFull::Refuse)
                    .patience(Duration::from_secs(1))
            });
        let db = options.create_on(disks.devices()).expect("created");
        let kept = db.create_table("kept").expect("created");
        let empty = pages(&db);
        fill(&db, "dropped", 3000);
        while db.step().expect("a step") == Progress::Worked {}
        if !threads {
            gate.set(Mode::Full);
        }
        let table = db.table("dropped").expect("there");
        for number in 0..100u32 {
            let key = (number * 29).to_be_bytes();
            wait_until("space", || db.transact(|tx| tx.delete(&table, &key).map(drop)).is_ok());
        }
        drop(table);
        db.drop_table("dropped").expect("dropped");
        // With threads not before: removing the ghosts takes log beside the deletes, and these
        // would be refused.
        gate.set(Mode::Full);
        let refused = (0..100_000u32)
            .find_map(|i| db.transact(|tx| tx.put(&kept, &[i as u8], &[i as u8; VALUE]).map(drop)).err());
        assert_eq!(refused.expect("the log is full").kind(), ErrorKind::Full);
        for _ in 0..20 {
            db.step().expect("a full log is no failure of background work");
        }
        // With threads it may have been freed before the log was full.
        assert!(threads || pages(&db) > empty + 300, "it is delayed");
        assert_eq!(rows_of(&db, "kept").len(), 256.min(rows_of(&db, "kept").len()));
        gate.set(Mode::Open);
        wait_until("room", || {
            db.step().expect("a step");
            db.transact(|tx| tx.put(&kept, b"again", b"").map(drop)).is_ok()
        });
        wait_until("the pages", || {
            db.step().expect("a step");
            // The other table has some fifty, the dropped one had more than four hundred.
            pages(&db) <= empty + 100
        });
        assert_eq!(db.statistics().set_aside.1, 0);
        db.close().expect("closed");
    }
}
