//! Dropping a table always works: the pages that can be reached come back, whatever of the table is
//! damaged and however full the log is; the rest of the database goes on, now and after every
//! opening.

use crate::backup_support::{Gate, Mode, rows_of};
use crate::bad_support::{Disks, contents, flip};
use firndb::{Database, ErrorKind, IndexPart, IndexSpec, Options, Progress, SetAside, TableSpec};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PAGE: usize = 1024;

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what} does not come");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn pages(db: &Database) -> u64 {
    db.statistics().store.pages_allocated
}

mod of_damaged_trees {
    use super::*;

    /// Trees of the first table created: its rows, its large values, its index; of the second the
    /// next three.
    const ROWS: u32 = 16;
    const LARGE: u32 = 17;
    const INDEX: u32 = 18;

    fn options() -> Options {
        Options::new().page_size(PAGE).buffer_bytes(1 << 20).log_devices(1).log_bytes(2 << 20)
    }

    fn large(number: u32) -> Vec<u8> {
        (0..20_000u32).map(|at| (at * 7 + number) as u8).collect()
    }

    /// Two equal tables, `bad` and `good`, each of several levels, with large values and an index.
    fn closed_database() -> Disks {
        let disks = Disks::new(1);
        let db = options().background_threads(false).create_on(disks.devices()).expect("created");
        for name in ["bad", "good"] {
            let by_number = IndexSpec::ranges("by_number", false, vec![IndexPart::Value(0..4)]);
            let table =
                db.create_table_with(name, TableSpec::raw().with_index(by_number)).expect("a new table");
            for chunk in 0..30u32 {
                db.transact(|tx| {
                    for number in chunk * 20..chunk * 20 + 20 {
                        let value = [&number.to_be_bytes()[..], &[7; 150]].concat();
                        tx.put(&table, format!("key {number:06}").as_bytes(), &value)?;
                    }
                    tx.put(&table, &chunk.to_be_bytes(), &large(chunk)).map(drop)
                })
                .expect("there is space");
            }
        }
        db.close().expect("closed");
        disks
    }

    /// Flips a bit in every image of the tree's nodes that `wanted` chooses by level and order, in
    /// whatever version; returns in how many.
    fn damage(disks: &Disks, tree: u32, mut wanted: impl FnMut(u8, usize) -> bool) -> usize {
        let bytes = contents(&disks.store);
        let mut found = 0;
        for (at, block) in (0..).step_by(512).zip(bytes.windows(PAGE).step_by(512)) {
            let of_tree = block[20..24] == tree.to_le_bytes();
            // Format, flags, and a reserved field: see `docs/format/tree.md`.
            if of_tree && block[0] == 1 && block[1] < 8 && block[2] < 4 && block[18..20] == [0, 0] {
                if wanted(block[1], found) {
                    flip(&disks.store, at + 700, 3);
                }
                found += 1;
            }
        }
        found
    }

    fn highest_level(disks: &Disks, tree: u32) -> u8 {
        let mut highest = 0;
        damage(disks, tree, |level, _| {
            highest = highest.max(level);
            false
        });
        highest
    }

    fn assert_good(db: &Database) {
        let rows = rows_of(db, "good");
        assert_eq!(rows.len(), 630);
        assert_eq!(rows[&5u32.to_be_bytes()[..]], large(5));
        db.transact(|tx| tx.put(&db.table("good").expect("there"), b"key 000001", &[1, 2, 3, 4]).map(drop))
            .expect("written");
        db.transact(|tx| {
            let value = [&1u32.to_be_bytes()[..], &[7; 150]].concat();
            tx.put(&db.table("good").expect("there"), b"key 000001", &value).map(drop)
        })
        .expect("written");
    }

    /// Drops the damaged table with threads at work; returns what was set aside, and how many pages
    /// a check then finds leaked.
    fn drop_and_reopen(disks: &Disks) -> (Vec<SetAside>, u64) {
        let heard: Arc<Mutex<Vec<SetAside>>> = Arc::default();
        let hears = heard.clone();
        let db = options()
            .on_set_aside(move |work| hears.lock().expect("not poisoned").push(work.clone()))
            .open_on(disks.devices())
            .expect("opened");
        let before = pages(&db);
        db.drop_table("bad").expect("dropped");
        // All but what cannot be reached: at least the trees that are whole.
        let mut seen = (before, Instant::now());
        wait_until("an end of the drop", || {
            if pages(&db) != seen.0 {
                seen = (pages(&db), Instant::now());
            }
            seen.0 < before && seen.1.elapsed() > Duration::from_millis(300)
        });
        assert_good(&db);
        db.close().expect("closed");
        let mut leaked = 0;
        for _ in 0..2 {
            // With threads and nothing to do but what the opening finds.
            let db = options().open_on(disks.devices()).expect("opened");
            std::thread::sleep(Duration::from_millis(100));
            assert_good(&db);
            db.close().expect("closed");
            let db = options().background_threads(false).open_on(disks.devices()).expect("opened");
            while db.step().expect("a step") == Progress::Worked {}
            let report = db.check(&mut |_| {}).expect("checked");
            assert!(report.is_clean(), "{:?}", report.damage);
            leaked = report.leaked_pages;
            let (set_aside, count) = db.statistics().set_aside;
            assert_eq!((set_aside, count), (Vec::new(), 0), "it is not met again at every opening");
            db.close().expect("closed");
        }
        let heard = heard.lock().expect("not poisoned").clone();
        (heard, leaked)
    }

    #[test]
    fn whose_leaves_are_damaged_come_back_whole() {
        for tree in [ROWS, LARGE, INDEX] {
            let disks = closed_database();
            assert!(damage(&disks, tree, |level, _| level == 0) > 10);
            let (set_aside, leaked) = drop_and_reopen(&disks);
            // The marks of large values are looked for at the opening.
            let drops: Vec<_> = set_aside.iter().filter(|work| work.work.contains("dropped")).collect();
            assert!(drops.is_empty() && leaked == 0, "tree {tree}: {drops:?}, {leaked}");
        }
    }

    #[test]
    fn whose_roots_are_damaged_are_lost_space_and_nothing_worse() {
        for (tree, what) in [
            (ROWS, "table \"bad\""),
            (LARGE, "large values of table \"bad\""),
            (INDEX, "index \"by_number\" of table \"bad\""),
        ] {
            let disks = closed_database();
            let top = highest_level(&disks, tree);
            assert!(top > 0);
            damage(&disks, tree, |level, _| level == top);
            let (mut set_aside, leaked) = drop_and_reopen(&disks);
            // The marks of large values are looked for at the opening.
            set_aside.retain(|work| work.work.contains("dropped"));
            assert_eq!(set_aside.len(), 1, "{set_aside:?}");
            assert_eq!(set_aside[0].work, format!("freeing the dropped {what}"));
            assert!(set_aside[0].cause.contains("a check counts them as leaked"), "{}", set_aside[0].cause);
            assert!(leaked > 10, "{leaked} pages of tree {tree}");
        }
    }

    #[test]
    fn whose_inner_nodes_are_damaged_come_back_but_for_what_is_below() {
        let disks = closed_database();
        let top = highest_level(&disks, LARGE);
        assert!(top >= 2, "the tree of large values has {top} levels above its leaves");
        let mut damaged = 0;
        // Every second one, in every version there is of it: some of them may be hit more than
        // once.
        damage(&disks, LARGE, |level, number| {
            let hit = level == 1 && number % 2 == 0;
            damaged += usize::from(hit);
            hit
        });
        assert!(damaged > 0);
        let (set_aside, leaked) = drop_and_reopen(&disks);
        assert!(!set_aside.is_empty() && leaked > 0, "{set_aside:?}, {leaked}");
        let every = set_aside.iter().all(|work| work.work.contains("large values of table \"bad\""));
        assert!(every, "{set_aside:?}");
    }

    /// The row says where the only node is.
    #[test]
    fn of_one_page_lose_nothing() {
        let disks = Disks::new(1);
        let db = options().background_threads(false).create_on(disks.devices()).expect("created");
        for name in ["bad", "good"] {
            let table = db.create_table(name).expect("created");
            db.transact(|tx| tx.put(&table, b"key", b"value").map(drop)).expect("there is space");
        }
        db.close().expect("closed");
        damage(&disks, ROWS, |_, _| true);
        let db = options().open_on(disks.devices()).expect("opened");
        let before = pages(&db);
        db.drop_table("bad").expect("dropped");
        wait_until("both pages", || pages(&db) == before - 2);
        wait_until("a report", || db.statistics().set_aside.1 == 1);
        assert_eq!(rows_of(&db, "good").len(), 1);
        db.close().expect("closed");
        let db = options().background_threads(false).open_on(disks.devices()).expect("opened");
        let report = db.check(&mut |_| {}).expect("checked");
        assert!(report.is_clean() && report.leaked_pages == 0, "{report:?}");
        assert_eq!(rows_of(&db, "good").len(), 1);
    }

    /// The first look at the marks is at every opening.
    #[test]
    fn of_large_values_stop_the_freeing_of_one_table_only() {
        let disks = closed_database();
        damage(&disks, LARGE, |level, _| level == 0);
        for opening in 0..2u32 {
            let db = options().open_on(disks.devices()).expect("opened");
            wait_until("a report", || db.statistics().set_aside.1 == 1);
            let (set_aside, _) = db.statistics().set_aside;
            assert!(set_aside[0].work.contains("large values of table \"bad\""), "{set_aside:?}");
            let before = pages(&db);
            let (bad, good) = (db.table("bad").expect("there"), db.table("good").expect("there"));
            for table in [&bad, &good] {
                // The row is gone; what it led to is freed where it can be.
                db.transact(|tx| tx.delete(table, &opening.to_be_bytes()).map(drop)).ok();
            }
            wait_until("the pages of a large value", || pages(&db) + 15 < before);
            assert_eq!(db.statistics().set_aside.1, 1, "it is not tried again");
            assert!(rows_of(&db, "good").len() == 629 - opening as usize);
            db.close().expect("closed");
        }
    }
}

mod in_a_small_log {
    use super::*;

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
        Options::new().page_size(PAGE).buffer_bytes(1 << 20).log_devices(1).log_bytes(log)
    }

    fn comes_back_to_threads(log: u64, rows: u32) {
        let disks = Disks::new(1);
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
        let disks = Disks::new(1);
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
            let (gate, disks) = (Gate::default(), Disks::new(1));
            let options = gate
                .options()
                .page_size(PAGE)
                .buffer_bytes(256 << 10)
                .log_devices(1)
                .log_bytes(LOG)
                .background_threads(threads)
                .archive(dir.path().join("archive"))
                .archive_when_full(firndb::ArchiveFull::Refuse)
                .archive_patience(Duration::from_secs(1));
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
}

/// In virtual time: figures are equal on any machine.
mod of_cached_pages {
    use super::*;
    use firndb::device::{Device, MemoryDevice};
    use firndb::{CachePolicy, Devices};
    use firndb_base::clock;
    use firndb_base::rng::Rng;
    use firndb_base::sim::{self, SimOptions};
    use firndb_base::sync::thread;
    use firndb_emulate::{Emulated, profiles};

    /// What clients met while a table was dropped, or was not.
    #[derive(Debug)]
    struct Met {
        longest: Duration,
        cache_written: u64,
        transactions: u64,
    }

    fn emulated(name: &str, profile: &str) -> Arc<dyn Device> {
        let inner = Arc::new(MemoryDevice::new(name));
        Arc::new(Emulated::new(inner, &profiles::get(profile).expect("shipped"), 1).expect("emulated"))
    }

    /// Clients read and change rows that do not fit into DRAM; meanwhile a table of `dropped`
    /// pages, most of which are in the cache, is dropped or kept.
    fn run(dropped: u32, drops: bool) -> Met {
        let simulation = SimOptions { step_limit: u64::MAX, ..SimOptions::measuring(1, 4) };
        let outcome = sim::run(simulation, move || {
            let cache_bytes = (u64::from(dropped) * 5 / 4 + 4000) * 1100;
            let options = Options::new()
                .page_size(PAGE)
                .buffer_bytes(1 << 20)
                .log_devices(1)
                .log_bytes(8 << 20)
                .cache_bytes(cache_bytes)
                .cache_policy(CachePolicy::Keeping);
            let devices = Devices {
                superblock: Arc::new(MemoryDevice::new("superblock")),
                logs: vec![emulated("log.0", "x25-e")],
                store: emulated("store", "cheetah-15k-raid8"),
                cache: Some(emulated("cache", "x25-e")),
            };
            let db = options.create_on(devices).expect("created");
            let empty = pages(&db);
            in_a_small_log::fill(&db, "kept", 20_000);
            let kept_pages = pages(&db) - empty;
            in_a_small_log::fill(&db, "dropped", dropped * 7);
            db.checkpoint().expect("a checkpoint");
            let cached = db.statistics().cache.expect("there is one").pages_valid;
            assert!(cached > u64::from(dropped) * 3 / 4, "{cached} pages are cached");
            let table = db.table("kept").expect("there");
            let (before, begun) = (db.io_counts(), clock::now());
            let time = Duration::from_secs(15) + Duration::from_micros(u64::from(dropped) * 500);
            let (longest, transactions) = thread::scope(|scope| {
                let clients: Vec<_> = (0..4u64)
                    .map(|client| {
                        let (db, table) = (&db, &table);
                        scope.spawn(move || {
                            let mut rng = Rng::new(client);
                            let (mut longest, mut round) = (Duration::ZERO, 0u64);
                            let started = begun;
                            while started.elapsed() < time {
                                let begun = clock::now();
                                round += 1;
                                let key = (rng.below(20_000) as u32).to_be_bytes();
                                db.transact(|tx| match round % 3 {
                                    0 => tx.put(table, &key, &[round as u8; in_a_small_log::VALUE]).map(drop),
                                    _ => tx.get(table, &key).map(drop),
                                })
                                .expect("it goes on");
                                longest = longest.max(begun.elapsed());
                            }
                            (longest, round)
                        })
                    })
                    .collect();
                clock::sleep(Duration::from_millis(300));
                if drops {
                    db.drop_table("dropped").expect("dropped");
                }
                let clients = clients.into_iter().map(|client| client.join().expect("no panic"));
                clients.fold((Duration::ZERO, 0), |all, client| (all.0.max(client.0), all.1 + client.1))
            });
            let cache_written = db.io_counts().since(&before).cache_total().write_bytes;
            if drops {
                assert!(pages(&db) <= empty + kept_pages + 10, "it has been freed: {}", pages(&db));
                let left = db.statistics().cache.expect("there is one").pages_valid;
                assert!(left < kept_pages + 2000, "{left} pages are cached");
            }
            db.close().expect("closed");
            Met { longest, cache_written, transactions }
        });
        match outcome {
            Ok(outcome) => outcome.value,
            Err(failure) => panic!("{failure}"),
        }
    }

    fn compare(dropped: u32) {
        let (kept, gone) = (run(dropped, false), run(dropped, true));
        eprintln!("{dropped} pages kept: {kept:?}; dropped: {gone:?}");
        assert!(gone.longest <= kept.longest + Duration::from_millis(100), "{gone:?} beside {kept:?}");
        let each = |met: &Met| met.cache_written as f64 / met.transactions as f64;
        assert!(each(&gone) < each(&kept) * 1.05, "{gone:?} beside {kept:?}");
        assert!(gone.transactions as f64 > kept.transactions as f64 * 0.9, "{gone:?} beside {kept:?}");
    }

    #[test]
    fn stall_no_client() {
        compare(8_000);
    }

    /// `cargo test --release -p firndb --test all half_a_million -- --ignored --nocapture`
    #[test]
    #[ignore = "takes minutes and 2 GB"]
    fn half_a_million_of_them_stall_no_client() {
        compare(500_000);
    }
}
