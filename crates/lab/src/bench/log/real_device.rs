//! `--real`: what figures 16 and 17 ask, asked of the device under a directory, in real time.

use super::figure::{Figure, Panel, Point, round};
use super::measuring::Bench;
use super::stream::{failed, identity};
use crate::bench::commit::{self, BenchCommit};
use crate::bench::sampled::{Sampled, median};
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::{AtomicU64, Ordering};
use firndb_base::{Epoch, Lsn};
use firndb_console::Failure;
use firndb_device::{AlignedBuf, Device, FileDevice, FileOptions, Fill};
use firndb_log::{Kind, Log, LogClass, LogOptions, LogScan, LogSources, Record};
use serde_json::json;
use std::path::Path;
use std::time::Instant;

/// Names of targets, as they stand also where they are not measured.
pub const SCAN_TARGET: &str = "recovery scan on the real device / its raw sequential reads";
pub const WIDTH_TARGET: &str = "real device, 32 clients: the chosen log width / one log device";
pub const RAW_TARGET: &str =
    "real device, 32 clients: commits / (raw writes of as many streams x mean group)";

const CLIENTS: u32 = 32;
/// Bytes of one raw read, as the scan reads.
const READ: usize = LogSources::READ_BYTES;

/// Runs `body` with a directory that is removed afterwards.
fn in_dir<T>(bench: &Bench, body: impl FnOnce(&Path) -> Result<T, Failure>) -> Result<T, Failure> {
    let dir = bench.dir()?;
    std::fs::create_dir_all(&dir).map_err(|error| Failure::new(format!("{}: {error}", dir.display())))?;
    let outcome = body(&dir);
    let _ = std::fs::remove_dir_all(&dir);
    outcome
}

/// One log width, by rounds.
#[derive(Default)]
struct Width {
    commits: Vec<f64>,
    raw: Vec<f64>,
    /// Commits that one write carries.
    group: Vec<f64>,
}

/// Figure 17: durable commits of 32 clients over the number of log devices on one real drive,
/// beside raw writes.
///
/// All widths are measured in every round, one after the other; ratios are of medians over rounds.
pub fn widths(bench: &Bench) -> Result<Figure, Failure> {
    in_dir(bench, |dir| {
        let (rounds, seconds) = if bench.is_quick() { (2, 0.3) } else { (5, 3.0) };
        let asked: Vec<Option<u32>> = if bench.is_quick() {
            vec![None, Some(1), Some(4)]
        } else {
            vec![None, Some(1), Some(2), Some(4), Some(8)]
        };
        let args = |log_devices| BenchCommit {
            dir: dir.to_owned(),
            clients: vec![CLIENTS],
            seconds,
            rounds,
            log_devices,
            spinners: None,
            json: None,
        };
        let arguments: Vec<BenchCommit> = asked.iter().map(|&count| args(count)).collect();
        let mut running = Vec::new();
        for (at, args) in arguments.iter().enumerate() {
            bench.cells.check_interrupt()?;
            running.push(commit::Bench::new(args, &dir.join(at.to_string()), bench.stop)?);
        }
        let chosen = running[0].log_devices();
        let mut found: Vec<Width> = running.iter().map(|_| Width::default()).collect();
        let mut figure = Figure::new("17", "one real drive as K log devices, 32 clients");
        for number in 0..rounds {
            for (commits, width) in running.iter_mut().zip(&mut found) {
                let count = commits.log_devices();
                bench.cells.check_interrupt()?;
                let one = commits.round(0, CLIENTS, None)?;
                let rate = one.idle.report.per_second(one.idle.report.commits());
                width.commits.push(rate);
                width.raw.push(one.raw.writes_per_second);
                width.group.push(1.0 / one.idle.writes_per_commit);
                figure.rows.push(json!({
                    "figure": "17", "series": "real device", "log_devices": count, "clients": CLIENTS,
                    "round": number, "commits_per_second": round(rate), "p50_us": one.idle.p50_us(),
                    "writes_per_commit": round(one.idle.writes_per_commit),
                    "raw_writes_per_second": round(one.raw.writes_per_second),
                    "raw_write_bytes": one.raw.write_bytes, "raw_streams": one.raw.streams,
                }));
            }
        }
        let title = "32 clients on one real drive with one to eight log files";
        let key = "flashlogging-figure-17-real";
        let mut panel = Panel::new(key, title, "log files", "durable commits a second");
        panel.log_x = true;
        let rate = |width: &Width| Sampled::new(width.commits.clone(), None, None);
        let bound = |width: &Width| Sampled::once(median(&width.raw) * median(&width.group));
        for (commits, width) in running.iter().zip(&found).skip(1) {
            let count = commits.log_devices();
            let point = |value: &Sampled| Point::new(f64::from(count), count.to_string(), value);
            panel.add("commits", point(&rate(width)));
            panel.add("raw writes x commits in a write", point(&bound(width)));
        }
        figure.panels.push(panel);
        let over = |one: f64, two: f64| Sampled::once(one / two);
        let [chosen_rate, of_one] = [0, 1].map(|at: usize| median(&found[at].commits));
        figure.at_least(WIDTH_TARGET, &over(chosen_rate, of_one), 1.3);
        figure.at_least(RAW_TARGET, &over(chosen_rate, bound(&found[0]).median()), 0.9);
        figure.notes.push(format!(
            "A new database takes {chosen} log devices here, as the drive's latency asks for."
        ));
        figure.notes.push("In real time, on the device under --dir.".into());
        Ok(figure)
    })
}

/// A log on files, closed, and the bytes that were written to them.
fn written(dir: &Path, count: usize, bytes: u64, seed: u64) -> Result<(Vec<Arc<FileDevice>>, u64), Failure> {
    let mut files = Vec::new();
    for at in 0..count {
        let path = dir.join(format!("log.{count}.{at}"));
        let file = FileDevice::create(&path, &FileOptions::default()).map_err(firndb::Error::from)?;
        let len = bytes * 2 / count as u64 + (16 << 20);
        file.grow(len.next_multiple_of(1 << 20), Fill::Written).map_err(firndb::Error::from)?;
        files.push(Arc::new(file));
    }
    let devices = files.iter().map(|file| file.clone() as Arc<dyn Device>).collect();
    let log = Log::create(devices, identity(count), Epoch(1), LogOptions::default()).map_err(failed)?;
    let mut rng = Rng::new(seed);
    while log.end().since(Lsn::FIRST) < bytes {
        // What fills a request to its most: writing it is not what is measured.
        for _ in 0..64 {
            let body = vec![0x5a; rng.between(200, 2500) as usize];
            let record = Record { kind: Kind::TREE_INSERT, body: &body };
            log.append(LogClass::Normal, record).map_err(failed)?;
        }
        log.flush(log.end()).map_err(failed)?;
    }
    let written = log.statistics().written_bytes;
    log.close().map_err(failed)?;
    Ok((files, written))
}

/// Reads `each` bytes of every file, all in parallel, with as many reads of a file in flight as the
/// scan has; returns bytes a second.
fn raw_reads(files: &[Arc<FileDevice>], each: u64) -> Result<f64, Failure> {
    let began = Instant::now();
    std::thread::scope(|scope| {
        let read = |file: &FileDevice, next: &AtomicU64| -> Result<(), Failure> {
            let mut buf = AlignedBuf::zeroed(READ);
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= each / READ as u64 {
                    return Ok(());
                }
                file.read(at * READ as u64, &mut buf).map_err(firndb::Error::from)?;
            }
        };
        let mut threads = Vec::new();
        for file in files {
            let next = Arc::new(AtomicU64::new(0));
            for _ in 0..LogSources::READS_IN_FLIGHT {
                let next = Arc::clone(&next);
                threads.push(scope.spawn(move || read(file, &next)));
            }
        }
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    let bytes = each / READ as u64 * READ as u64 * files.len() as u64;
    Ok(bytes as f64 / began.elapsed().as_secs_f64())
}

/// Figure 16: the recovery scan beside raw sequential reads of the same files, as many side by
/// side.
pub fn scans(bench: &Bench) -> Result<Figure, Failure> {
    in_dir(bench, |dir| {
        let mut figure = Figure::new("16", "bandwidth of the recovery scan on a real drive");
        let (rounds, bytes) = if bench.is_quick() { (2, 32 << 20) } else { (5, 512 << 20) };
        let title = "Reading the log of a crash on one real drive, beside raw reads";
        let key = "flashlogging-figure-16-real";
        let mut panel = Panel::new(key, title, "log files", "MB a second");
        panel.log_x = true;
        let mut worst = f64::MAX;
        for count in [1usize, 2, 4] {
            bench.cells.check_interrupt()?;
            let (files, written) = written(dir, count, bytes, bench.seed())?;
            let (mut scans, mut raws) = (Vec::new(), Vec::new());
            for number in 0..rounds {
                bench.cells.check_interrupt()?;
                let devices = files.iter().map(|file| file.clone() as Arc<dyn Device>).collect();
                let began = Instant::now();
                let scan =
                    LogScan::new(devices, identity(count), Lsn::FIRST, &mut |_, _| {}).map_err(failed)?;
                let seconds = began.elapsed().as_secs_f64();
                assert!(scan.end().since(Lsn::FIRST) >= bytes, "a log that was closed is found whole");
                scans.push(written as f64 / seconds);
                raws.push(raw_reads(&files, written / count as u64)?);
                figure.rows.push(json!({
                    "figure": "16", "series": "real device", "log_devices": count, "log_bytes": written,
                    "round": number, "scan_bytes_per_second": round(scans[scans.len() - 1]),
                    "raw_bytes_per_second": round(raws[raws.len() - 1]),
                }));
            }
            let median_ratio = median(&scans) / median(&raws);
            for (series, rates) in [("recovery scan", scans), ("raw reads", raws)] {
                let rates = Sampled::new(rates, None, None).map(|rate| rate / 1e6);
                panel.add(series, Point::new(count as f64, count.to_string(), &rates));
            }
            worst = worst.min(median_ratio);
        }
        figure.panels.push(panel);
        figure.at_least(SCAN_TARGET, &Sampled::once(worst), 0.9);
        figure.notes.push("In real time, on the device under --dir; bytes are those on the device.".into());
        figure.notes.push(format!(
            "The scan and the raw reads have {} reads of {} KiB in flight on each file.",
            LogSources::READS_IN_FLIGHT,
            READ >> 10
        ));
        Ok(figure)
    })
}
