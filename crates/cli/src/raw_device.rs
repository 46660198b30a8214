//! The raw device's synchronous writes: what a commit costs if the engine costs nothing.
//!
//! The same kind of file as the log's (pre-written, direct), the same flags, as many writes in flight.

use crate::Failure;
use firn::device::{AlignedBuf, Device, Durability, FileDevice, FileOptions, Fill};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What a raw run measured.
#[derive(Clone, Debug)]
pub struct RawRun {
    /// Writes a second, all streams together.
    pub writes_per_second: f64,
    /// Of one write, in microseconds.
    pub p50_us: f64,
    /// As above.
    pub p99_us: f64,
}

/// Bytes of the file; each stream writes through a part of its own.
const FILE_BYTES: u64 = 64 << 20;

/// Writes `bytes` at a time, synchronously, from `streams` threads, each sequentially in a part of a
/// pre-written file of its own, for `time`.
pub fn run(path: &Path, streams: usize, bytes: usize, time: Duration) -> Result<RawRun, Failure> {
    let device = FileDevice::create(path, &FileOptions::default()).map_err(firn::Error::from)?;
    let outcome = run_on(&device, streams, bytes, time);
    drop(device);
    let _ = std::fs::remove_file(path);
    outcome
}

fn run_on(device: &FileDevice, streams: usize, bytes: usize, time: Duration) -> Result<RawRun, Failure> {
    device.grow(FILE_BYTES, Fill::Written).map_err(firn::Error::from)?;
    let block = device.info().logical_block;
    let bytes = bytes.next_multiple_of(block);
    let stop = AtomicBool::new(false);
    let writes = AtomicU64::new(0);
    let started = Instant::now();
    let latencies = std::thread::scope(|scope| {
        let share = FILE_BYTES / streams as u64 / bytes as u64 * bytes as u64;
        let threads: Vec<_> = (0..streams as u64)
            .map(|stream| {
                let (stop, writes) = (&stop, &writes);
                scope.spawn(move || -> Result<Vec<u32>, firn::Error> {
                    let data = AlignedBuf::zeroed(bytes);
                    let mut latencies = Vec::new();
                    let mut at = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let begun = Instant::now();
                        device.write(stream * share + at, &data, Durability::Durable)?;
                        latencies.push(begun.elapsed().as_nanos().min(u128::from(u32::MAX)) as u32);
                        writes.fetch_add(1, Ordering::Relaxed);
                        at = (at + bytes as u64) % share;
                    }
                    Ok(latencies)
                })
            })
            .collect();
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for thread in threads {
            match thread.join() {
                Ok(latencies) => all.extend(latencies?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok::<_, firn::Error>(all)
    });
    let seconds = started.elapsed().as_secs_f64();
    let mut latencies = latencies?;
    latencies.sort_unstable();
    let at = |share: f64| {
        let index = ((latencies.len() as f64 * share) as usize).min(latencies.len().saturating_sub(1));
        latencies.get(index).map_or(0.0, |ns| f64::from(*ns) / 1000.0)
    };
    let writes_per_second = writes.load(Ordering::Relaxed) as f64 / seconds;
    Ok(RawRun { writes_per_second, p50_us: at(0.5), p99_us: at(0.99) })
}
