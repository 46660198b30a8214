//! The raw device's synchronous writes: what a commit costs if the engine costs nothing.
//!
//! As the log has it: a file for each stream, of a log file's default size, pre-written, opened
//! with the same flags, written by the same call, sequentially, round and round.

use firndb::device::{AlignedBuf, Device, Durability, FileDevice, FileOptions, Fill};
use firndb_console::Failure;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What a raw run measured.
#[derive(Clone, Copy, Debug)]
pub struct RawRun {
    /// Writes in flight.
    pub streams: usize,
    pub write_bytes: usize,
    /// Writes a second, all streams together.
    pub writes_per_second: f64,
    /// Of one write, in microseconds.
    pub p50_us: f64,
    pub p99_us: f64,
}

/// Bytes of a file: a fourth of the default log.
const FILE_BYTES: u64 = 64 << 20;

pub struct RawFiles {
    files: Vec<FileDevice>,
    /// Where the next write of each begins: a run goes on where the last one ended.
    next: Vec<u64>,
}

impl RawFiles {
    /// Makes `count` files in a directory that has none of their names.
    pub fn create(dir: &Path, count: usize) -> Result<RawFiles, Failure> {
        let mut files = Vec::new();
        for number in 0..count {
            let file = FileDevice::create(&dir.join(format!("raw.{number}")), &FileOptions::default())
                .map_err(firndb::Error::from)?;
            file.grow(FILE_BYTES, Fill::Written).map_err(firndb::Error::from)?;
            files.push(file);
        }
        Ok(RawFiles { next: vec![0; files.len()], files })
    }

    /// Writes `bytes` at a time (rounded up to whole blocks) from `streams` threads, each to its
    /// own file, for `time` after a fifth of it that is not counted, or until `interrupt`.
    pub fn run(
        &mut self,
        streams: usize,
        bytes: usize,
        time: Duration,
        interrupt: &AtomicBool,
    ) -> Result<RawRun, Failure> {
        assert!(streams >= 1 && streams <= self.files.len(), "a stream has a file of its own");
        let bytes = bytes.next_multiple_of(self.files[0].info().logical_block);
        let (counting, stop) = (AtomicBool::new(false), AtomicBool::new(false));
        let mut latencies = std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .files
                .iter()
                .zip(&mut self.next)
                .take(streams)
                .map(|(file, next)| {
                    let (counting, stop) = (&counting, &stop);
                    scope.spawn(move || stream(file, next, bytes, (counting, stop)))
                })
                .collect();
            sleep(time / 5, interrupt);
            counting.store(true, Ordering::Relaxed);
            sleep(time, interrupt);
            stop.store(true, Ordering::Relaxed);
            let mut all = Vec::new();
            for thread in threads {
                match thread.join() {
                    Ok(latencies) => all.extend(latencies?),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            Ok::<_, firndb::Error>(all)
        })?;
        latencies.sort_unstable();
        let at = |share: f64| {
            let index = ((latencies.len() as f64 * share) as usize).min(latencies.len().saturating_sub(1));
            latencies.get(index).map_or(0.0, |ns| f64::from(*ns) / 1000.0)
        };
        Ok(RawRun {
            streams,
            write_bytes: bytes,
            writes_per_second: latencies.len() as f64 / time.as_secs_f64(),
            p50_us: at(0.5),
            p99_us: at(0.99),
        })
    }
}

/// How often a sleeping run looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

/// Sleeps for `time`, or until `interrupt`.
fn sleep(time: Duration, interrupt: &AtomicBool) {
    let begun = Instant::now();
    while !interrupt.load(Ordering::Relaxed) {
        let Some(left) = time.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) else { return };
        std::thread::sleep(left.min(LOOK));
    }
}

/// Writes until `stop`; returns how many nanoseconds each write took while `counting`.
fn stream(
    file: &FileDevice,
    next: &mut u64,
    bytes: usize,
    (counting, stop): (&AtomicBool, &AtomicBool),
) -> Result<Vec<u32>, firndb::Error> {
    let data = AlignedBuf::zeroed(bytes);
    let mut latencies = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        if *next + bytes as u64 > FILE_BYTES {
            *next = 0;
        }
        let begun = Instant::now();
        file.write(*next, &data, Durability::Durable)?;
        if counting.load(Ordering::Relaxed) {
            latencies.push(u32::try_from(begun.elapsed().as_nanos()).unwrap_or(u32::MAX));
        }
        *next += bytes as u64;
    }
    Ok(latencies)
}
