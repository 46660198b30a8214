//! Threads that commit side by side over several log devices, with the engine's own threads at
//! work: after a power cut at any moment each thread finds everything acknowledged to it, whole,
//! and nothing that it never wrote.
//!
//! Which writes overlap differs from run to run; what was recorded is judged, not what might have
//! been.

use crate::support::bed::Bed;
use firndb::device::{CrashPlan, CrashReplay, Survival};
use firndb::{Database, Error, Options, Table};
use firndb_base::rng::Rng;
use firndb_testkit::cases::{Failures, caught};
use firndb_testkit::watchdog::Watchdog;
use std::time::Duration;

const THREADS: u64 = 4;
/// In a mark: below it the number of a transaction, above it the thread and whether it was
/// acknowledged.
const NUMBERS: u64 = 1 << 32;

fn options(logs: usize) -> Options {
    Options::new()
        .page_size(1024)
        .buffer_bytes(96 << 10)
        .tuning(|tuning| tuning.version_bytes(8 << 10).checkpoint_log_bytes(64 << 10))
        .log(|log| log.bytes(logs as u64 * (256 << 10)))
}

fn head(thread: u64, which: u64) -> Vec<u8> {
    format!("head {which} of {thread}").into_bytes()
}
fn entry(thread: u64, number: u64) -> Vec<u8> {
    format!("entry {thread} {number:06}").into_bytes()
}

/// Transaction `number` of a thread: sets two rows to its number and adds a third.
fn write(db: &Database, table: &Table, plan: &CrashPlan, thread: u64, number: u64) -> Result<(), Error> {
    let mut tx = db.begin();
    tx.put(table, &head(thread, 1), &number.to_be_bytes())?;
    tx.insert(table, &entry(thread, number), &[b'e'; 100])?;
    tx.put(table, &head(thread, 2), &number.to_be_bytes())?;
    plan.mark(2 * thread * NUMBERS + number);
    tx.commit()?;
    plan.mark((2 * thread + 1) * NUMBERS + number);
    Ok(())
}

/// What each thread may find: from what was acknowledged to it to what it had tried.
fn allowed(replay: &CrashReplay, thread: u64) -> (u64, u64) {
    let newest = |class: u64| {
        let of_class = replay.marks().iter().rev().find(|&&mark| mark / NUMBERS == class);
        of_class.map_or(0, |mark| mark % NUMBERS)
    };
    (newest(2 * thread + 1), newest(2 * thread))
}

fn judge(bed: &Bed, options: &Options, replay: &CrashReplay) -> Result<(), String> {
    let explain = |error: Error| format!("{:?}: {error}", error.kind());
    let db = options.clone().background_threads(false).open_on(bed.plain()).map_err(explain)?;
    let table = db.table("t").map_err(explain)?;
    let mut tx = db.snapshot();
    for thread in 0..THREADS {
        let mut found = [0; 2];
        for which in 0..2 {
            let row = tx.get(&table, &head(thread, which + 1)).map_err(explain)?;
            found[which as usize] =
                row.map_or(0, |row| u64::from_be_bytes(row.try_into().expect("eight bytes")));
        }
        let (least, most) = allowed(replay, thread);
        if found[0] != found[1] || found[0] < least || found[0] > most {
            return Err(format!("thread {thread} finds {found:?}; {least} was acknowledged, {most} tried"));
        }
        for number in 1..=most {
            let there = tx.get(&table, &entry(thread, number)).map_err(explain)?.is_some();
            if there != (number <= found[0]) {
                return Err(format!("thread {thread}: entry {number} of {} is there: {there}", found[0]));
            }
        }
    }
    drop(tx);
    let report = db.check(&mut |_| {}).map_err(explain)?;
    if report.is_clean() { Ok(()) } else { Err(format!("damaged: {}", report.damage.join("; "))) }
}

fn threads_and_images(logs: usize, commits: u64, images: u64) {
    let dog = Watchdog::start();
    let options = options(logs).log(|log| log.devices(logs));
    let bed = Bed::new(logs);
    {
        let db = options.clone().create_on(bed.plain()).expect("creates");
        db.create_table("t").expect("creates");
        db.close().expect("closes");
    }
    let plan = CrashPlan::new();
    let db = options.clone().open_on(bed.crashing(&plan)).expect("opens");
    plan.set_latency(Duration::from_micros(50));
    let table = db.table("t").expect("was created");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, table, plan) = (&db, &table, &plan);
            scope.spawn(move || {
                for number in 1..=commits {
                    write(db, table, plan, thread, number).expect("nothing fails");
                }
            });
        }
    });
    plan.set_latency(Duration::ZERO);
    drop(table);
    db.close().expect("closes");
    let mut rng = Rng::new(logs as u64);
    let mut replay = plan.replay();
    let mut failures = Failures::default();
    let (mut seen, mut events) = (0, 0);
    loop {
        events += 1;
        for survival in Survival::ALL {
            if rng.below(plan.event_count() as u64 * Survival::ALL.len() as u64) >= images {
                continue;
            }
            let place = format!("{logs} logs: {survival:?} at event {}", replay.position());
            dog.case(&*place);
            seen += 1;
            let bed = Bed::of_image(replay.image(survival, &mut rng));
            let judged = caught(|| judge(&bed, &options, &replay)).and_then(|judged| judged);
            if let Err(sentence) = judged {
                failures.add(format!("{place}: {sentence}"));
            }
        }
        if replay.step().is_none() {
            break;
        }
    }
    eprintln!("{logs} log devices: {events} events, {seen} images, {} failures", failures.count());
    failures.assert_none("threads and crashes");
}

#[test]
fn commits_of_threads_survive_on_one_log_device() {
    threads_and_images(1, 60, 100);
}

#[test]
fn commits_of_threads_survive_on_two_log_devices() {
    threads_and_images(2, 60, 100);
}

#[test]
fn commits_of_threads_survive_on_four_log_devices() {
    threads_and_images(4, 60, 100);
}

/// The same, longer and with more images.
#[test]
#[ignore = "takes minutes"]
fn many_images_of_threads() {
    for logs in [1, 2, 4] {
        threads_and_images(logs, 300, 1500);
    }
}
