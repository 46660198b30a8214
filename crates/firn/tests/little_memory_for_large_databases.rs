//! What opening and checking cost in memory, and that a check finds no fault beside writers. The
//! allocator of this program counts.

use firndb::device::MemoryDevice;
use firndb::{CheckPhase, Devices, Options, Progress};
use firndb_base::rng::Rng;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// What is counted is the whole program's.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

// SAFETY: passes everything on to the system's allocator, and counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(NOW.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: passed on.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Most bytes in use at a time during a check, beyond those in use before it.
#[derive(Clone, Copy, Debug)]
struct Peak {
    /// Up to where the check reads the log.
    before_log: usize,
    whole: usize,
}

impl Peak {
    /// How much more it is than `other`, in either part.
    fn beyond(self, other: Peak) -> usize {
        let [before_log, whole] = [(self.before_log, other.before_log), (self.whole, other.whole)]
            .map(|(a, b)| a.saturating_sub(b));
        before_log.max(whole)
    }
}

/// Bytes of this process in memory.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("Linux tells of its memory");
    let kib = line.split_whitespace().nth(1).and_then(|kib| kib.parse::<usize>().ok());
    kib.expect("in kB") << 10
}

fn devices() -> Devices {
    Devices {
        superblock: Arc::new(MemoryDevice::new("superblock")),
        logs: vec![Arc::new(MemoryDevice::new("log"))],
        store: Arc::new(MemoryDevice::new("store")),
        store_others: Vec::new(),
        cache: None,
    }
}

fn options() -> Options {
    Options::new().log(|log| log.devices(1).bytes(4 << 20)).background_threads(false)
}

/// Makes a database of about `pages` pages of 1 KiB. Returns the number of pages that a check
/// finds, and the memory that it takes.
fn check_of(pages: u64) -> (u64, Peak) {
    let options = options().page_size(1024).buffer_bytes(1 << 20);
    let db = options.create_on(devices()).expect("created");
    let tables: Vec<_> = (0..3).map(|n| db.create_table(&format!("t{n}")).expect("a table")).collect();
    // Ascending keys leave full leaves: some eight rows each. The values stay in their rows: names
    // of large ones have a budget of their own.
    for first in (0..pages * 8).step_by(500) {
        let mut tx = db.begin();
        for key in first..first + 500 {
            tx.put(&tables[key as usize % 3], &key.to_be_bytes(), &[7; 80]).expect("put");
        }
        tx.commit().expect("committed");
        while db.step().expect("a step") == Progress::Worked {}
    }
    // Reading the log takes more than a megabyte, which would hide what the phases before it take.
    let check = || {
        let (before, mut before_log) = (NOW.load(Relaxed), 0);
        PEAK.store(before, Relaxed);
        let report = db.check(&mut |phase| {
            if phase == CheckPhase::Log {
                before_log = PEAK.load(Relaxed) - before;
            }
        });
        let whole = PEAK.load(Relaxed) - before;
        let report = report.expect("checked");
        assert_eq!(report.damage, Vec::<String>::new());
        assert_eq!(report.leaked_pages, 0);
        (report.pages, Peak { before_log, whole })
    };
    // What the engine keeps from the first time on is not the check's.
    check();
    check()
}

#[test]
fn a_check_takes_less_than_two_bytes_a_page() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // Of both the log is full, so that reading it takes the same.
    let (few, least) = check_of(20_000);
    let (many, most) = check_of(80_000);
    assert!(few > 16_000 && many > 3 * few, "{few} and {many} pages");
    eprintln!("{least:?} for {few} pages, {most:?} for {many}");
    assert!(most.beyond(least) < 2 * (many - few) as usize, "{least:?} for {few} pages, {most:?} for {many}");
}

/// From 1 GiB to 10 GiB of pages: `cargo test --release -p firndb --test
/// little_memory_for_large_databases -- --ignored`.
#[test]
#[ignore = "writes 11 GiB into memory"]
fn a_check_takes_less_than_two_bytes_a_page_of_large_databases() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let ((few, least), (many, most)) = (check_of(1 << 20), check_of(10 << 20));
    assert!(most.beyond(least) < 2 * (many - few) as usize, "{few}: {least:?}, {many}: {most:?}");
}

#[test]
fn opening_does_not_touch_the_buffer() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    const BUFFER: usize = 4 << 30;
    let before = resident();
    let db = options().buffer_bytes(BUFFER).create_on(devices()).expect("created");
    let opened = resident().saturating_sub(before);
    assert!(opened < BUFFER / 50, "{opened} bytes are in memory");
    db.close().expect("closed");
}

/// Tables that each writer creates and drops beside one check, at most.
const ROUNDS_A_CHECK: u64 = 30;

/// Tables come and go, rows and large values are written and deleted, pages are evicted, and checks
/// run all the while.
#[test]
fn a_check_beside_writers_finds_no_fault() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let options = options().page_size(1024).buffer_bytes(1 << 20).background_threads(true);
    let db = options.create_on(devices()).expect("created");
    let kept = db.create_table("kept").expect("a table");
    let (stop, checks) = (AtomicBool::new(false), AtomicU64::new(1));
    std::thread::scope(|scope| {
        for part in 0..2u64 {
            let (db, kept, stop, checks) = (&db, &kept, &stop, &checks);
            scope.spawn(move || {
                let mut rng = Rng::new(part);
                for round in 0.. {
                    // Else, on a busy machine, tables are dropped faster than they are freed, each
                    // check takes longer than the one before, and this has no end.
                    while round >= ROUNDS_A_CHECK * checks.load(Relaxed) && !stop.load(Relaxed) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    if stop.load(Relaxed) {
                        break;
                    }
                    let name = format!("t{part}.{round}");
                    let own = db.create_table(&name).expect("a table");
                    for _ in 0..10 {
                        let len = if rng.one_in(10) { 5000 } else { rng.below(150) as usize };
                        let done = db.transact::<_, firndb::Error>(|tx| {
                            for _ in 0..20 {
                                let key = [&rng.below(3000).to_be_bytes()[..], &[part as u8]].concat();
                                if rng.one_in(3) {
                                    tx.delete(kept, &key)?;
                                } else {
                                    tx.put(kept, &key, &vec![1; len])?;
                                }
                                tx.put(&own, &key, &[2; 100])?;
                            }
                            Ok(())
                        });
                        done.expect("committed");
                    }
                    db.drop_table(&name).expect("dropped");
                }
            });
        }
        // Ends the others if this one fails, too.
        struct SetOnDrop<'a>(&'a AtomicBool);
        impl Drop for SetOnDrop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Relaxed);
            }
        }
        let _guard = SetOnDrop(&stop);
        for _ in 0..12 {
            let report = db.check(&mut |_| {}).expect("checked");
            assert_eq!((report.faults, report.damage), (0, Vec::new()));
            assert!(report.pages > 0 && report.trees > 2);
            checks.fetch_add(1, Relaxed);
        }
    });
    while db.step().expect("a step") == Progress::Worked {}
    let report = db.check(&mut |_| {}).expect("checked");
    assert_eq!((report.faults, report.damage), (0, Vec::new()));
}
