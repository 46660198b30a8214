//! One round of one cell: threads that keep requests in flight, and what they record.
//!
//! Each request in flight has a thread that issues one synchronous request (or batch) at a time, so
//! the depth is steady, as fio's is; with batches that drain before the next begins it would not
//! be. The engine itself keeps several writes in flight in the same way.
//!
//! Rates: each thread's requests over the time from its first counted request's begin to its last
//! one's end, summed over the threads. So the rate on a slow device is not distorted by the length
//! of the round.

use crate::cell::{Cell, Op};
use crate::distribution::Distribution;
use crate::error::Error;
use crate::walk::{Walk, walks};
use firndb_base::clock::{self, Moment};
use firndb_base::rng::Rng;
use firndb_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use firndb_base::sync::{Arc, Mutex, thread};
use firndb_device::{AlignedBuf, Device, DeviceError, Io, IoOp};
use std::time::Duration;

/// If no request of a round completes for this time, and for 20 mean latencies, that is a stall.
pub const STALL: Duration = Duration::from_millis(100);
/// See [`STALL`].
const STALL_TIMES: u64 = 20;
/// The first part of a round, as a divisor of its length, in which requests are not counted.
const WARM_UP: u32 = 10;
/// Most latencies that a round keeps in order: enough for spacings, and bounded (8 bytes each).
const ORDERED_MAX: usize = 1 << 18;
/// Length of a step of the timeline.
pub const TIMELINE_STEP: Duration = Duration::from_millis(100);

/// Called before each request, by several threads: returns whether to end.
pub type Stop = Arc<dyn Fn() -> bool + Send + Sync>;

/// What one round recorded.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Requests (or batches) counted.
    pub requests: u64,
    /// Requests (or batches) a second.
    pub requests_per_second: f64,
    /// Bytes moved a second.
    pub bytes_per_second: f64,
    /// Latencies of requests or batches; of a mixed cell, of its reads.
    pub latency: Distribution,
    /// Latencies recorded apart: of the second stream's writes, of syncs, of a mixed cell's writes.
    pub aside: Distribution,
    /// Nanoseconds of each request in order, for cells with one request in flight; at most 262,144.
    pub ordered: Vec<u64>,
    /// Stalls: (milliseconds since the round's begin, milliseconds it lasted).
    pub stalls: Vec<(u64, u64)>,
    /// Bytes moved in each 100 ms since the round's begin.
    pub timeline: Vec<u64>,
}

/// State that all threads of a round share.
struct Shared {
    device: Arc<dyn Device>,
    cell: Cell,
    begun: Moment,
    budget: Duration,
    /// Returns whether the caller wants the round to end early.
    stop: Stop,
    /// A thread failed: the others stop.
    failed: AtomicBool,
    /// When a request last completed, in nanoseconds since `begun`.
    completed_ns: AtomicU64,
    /// Tallies of threads that are done. The lock is a leaf.
    outcomes: Mutex<Vec<Result<Tally, DeviceError>>>,
}

/// Runs one round of `cell` for `budget` within the first `area` bytes of the device. Equal seeds
/// give equal walks. Each thread completes at least one request whatever the budget.
pub fn round(
    device: &Arc<dyn Device>,
    cell: &Cell,
    area: u64,
    budget: Duration,
    (seed, begun): (u64, u64),
    stop: &Stop,
) -> Result<Tally, Error> {
    let area = cell.area.unwrap_or(area).min(area).min(device.len());
    if area < cell.bytes as u64 {
        return Err(Error::bad_argument(format!("{area} bytes are less than one request of {}", cell.bytes)));
    }
    let walks = walks(cell, area, seed, begun);
    let shared = Arc::new(Shared {
        device: device.clone(),
        cell: *cell,
        begun: clock::now(),
        budget,
        stop: stop.clone(),
        failed: AtomicBool::new(false),
        completed_ns: AtomicU64::new(0),
        outcomes: Mutex::new(Vec::new()),
    });
    run_threads(&shared, walks, seed)?;
    let outcomes = std::mem::take(&mut *shared.outcomes.lock());
    let mut whole = Tally::default();
    for outcome in outcomes {
        whole.add(outcome?);
    }
    if stop() {
        return Err(Error::Interrupted);
    }
    let shortest = STALL_TIMES as f64 * whole.latency.mean_us() / 1000.0;
    whole.stalls.retain(|&(_, ms)| ms as f64 >= shortest);
    whole.stalls.sort_unstable();
    Ok(whole)
}

fn run_threads(shared: &Arc<Shared>, mut walks: Vec<Walk>, seed: u64) -> Result<(), Error> {
    let own = walks.pop();
    let mut threads = Vec::new();
    let mut refused = None;
    for (index, walk) in walks.into_iter().enumerate() {
        let worker = shared.clone();
        match thread::spawn(&format!("measure-{index}"), move || worker.work(walk, seed ^ index as u64)) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                shared.failed.store(true, Ordering::Relaxed);
                refused =
                    Some(Error::Unusable(format!("cannot start {} threads: {error}", shared.cell.depth)));
                break;
            }
        }
    }
    if let (Some(walk), None) = (own, &refused) {
        shared.work(walk, seed ^ u64::MAX);
    }
    for thread in threads {
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
    refused.map_or(Ok(()), Err)
}

impl Shared {
    fn work(&self, mut walk: Walk, seed: u64) {
        let outcome = self.requests(&mut walk, seed);
        if outcome.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        self.outcomes.lock().push(outcome);
    }

    fn requests(&self, walk: &mut Walk, seed: u64) -> Result<Tally, DeviceError> {
        let mut memory = Memory::new(&self.cell, walk.bytes(), seed);
        let mut tally = Tally::default();
        let warm_up = self.budget / WARM_UP;
        let mut counting_since = None;
        let mut ended = self.begun;
        loop {
            let started = clock::now();
            let warm = started.since(self.begun) >= warm_up;
            let done = tally.requests > 0 && started.since(self.begun) >= self.budget;
            if done || (self.stop)() || self.failed.load(Ordering::Relaxed) {
                break;
            }
            let Some(timed) = self.request(walk, &mut memory, started)? else { break };
            self.note_completion(&mut tally, timed.ended);
            if warm {
                counting_since.get_or_insert(started);
                ended = timed.ended;
                tally.note(&timed, self.cell.depth == 1);
            }
        }
        let seconds = counting_since.map_or(0.0, |since| ended.since(since).as_secs_f64());
        if seconds > 0.0 {
            tally.requests_per_second = tally.requests as f64 / seconds;
            tally.bytes_per_second = tally.requests_per_second * (walk.bytes() * self.cell.batch) as f64;
        }
        Ok(tally)
    }

    /// Performs one request; returns `None` at the end of unwritten ground.
    fn request(
        &self,
        walk: &mut Walk,
        memory: &mut Memory,
        started: Moment,
    ) -> Result<Option<Timed>, DeviceError> {
        let cell = &self.cell;
        if cell.batch > 1 {
            return self.batch(walk, memory, started);
        }
        let Some(step) = walk.step() else { return Ok(None) };
        let write = match cell.op {
            Op::Read => false,
            Op::Mixed { read_percent } => !walk.chance(read_percent),
            Op::Beside { writes } => writes && walk.is_beside(),
            Op::WriteDurable | Op::WriteLater | Op::WriteThenSync => true,
        };
        match write {
            true => self.device.write(step.offset, memory.data(), cell.op.durability())?,
            false => self.device.read(step.offset, &mut memory.reads)?,
        }
        let ended = clock::now();
        let mut timed = Timed { took: Some(ended.since(started)), aside: None, ended };
        if step.aside || walk.is_beside() || (write && matches!(cell.op, Op::Mixed { .. })) {
            (timed.took, timed.aside) = (None, timed.took);
        }
        if cell.op == Op::WriteThenSync {
            self.device.sync()?;
            timed.ended = clock::now();
            timed.aside = Some(timed.ended.since(ended));
        }
        Ok(Some(timed))
    }

    fn batch(
        &self,
        walk: &mut Walk,
        memory: &mut Memory,
        started: Moment,
    ) -> Result<Option<Timed>, DeviceError> {
        assert!(self.cell.op == Op::Read, "batches are of reads: {}", self.cell);
        let offsets: Vec<u64> =
            (0..self.cell.batch).filter_map(|_| walk.step()).map(|step| step.offset).collect();
        if offsets.len() < self.cell.batch {
            return Ok(None);
        }
        let mut ios: Vec<Io<'_>> = memory
            .reads
            .chunks_exact_mut(self.cell.bytes)
            .zip(offsets)
            .map(|(buf, offset)| Io { offset, op: IoOp::Read(buf), outcome: Ok(()) })
            .collect();
        self.device.submit(&mut ios);
        let ended = clock::now();
        ios.into_iter().try_for_each(|io| io.outcome)?;
        Ok(Some(Timed { took: Some(ended.since(started)), aside: None, ended }))
    }

    fn note_completion(&self, tally: &mut Tally, ended: Moment) {
        let since = ended.since(self.begun);
        let now_ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        let before = self.completed_ns.fetch_max(now_ns, Ordering::Relaxed);
        if Duration::from_nanos(now_ns.saturating_sub(before)) >= STALL {
            tally.stalls.push((before / 1_000_000, (now_ns - before) / 1_000_000));
        }
        let step = usize::try_from(since.as_millis() / TIMELINE_STEP.as_millis()).unwrap_or(usize::MAX);
        // At most an hour of steps; a longer one shows in the stalls.
        if step < 36_000 {
            if tally.timeline.len() <= step {
                tally.timeline.resize(step + 1, 0);
            }
            tally.timeline[step] += (self.cell.bytes * self.cell.batch) as u64;
        }
    }
}

/// One request's times: of the first kind, of the second, or both.
struct Timed {
    took: Option<Duration>,
    aside: Option<Duration>,
    ended: Moment,
}

impl Tally {
    fn note(&mut self, timed: &Timed, in_order: bool) {
        self.requests += 1;
        if let Some(took) = timed.took {
            self.latency.record(took);
            if in_order && self.ordered.len() < ORDERED_MAX {
                self.ordered.push(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
            }
        }
        if let Some(took) = timed.aside {
            self.aside.record(took);
        }
    }

    fn add(&mut self, other: Tally) {
        self.requests += other.requests;
        self.requests_per_second += other.requests_per_second;
        self.bytes_per_second += other.bytes_per_second;
        self.latency.merge(&other.latency);
        self.aside.merge(&other.aside);
        self.ordered.extend(other.ordered);
        self.stalls.extend(other.stalls);
        if self.timeline.len() < other.timeline.len() {
            self.timeline.resize(other.timeline.len(), 0);
        }
        self.timeline.iter_mut().zip(&other.timeline).for_each(|(sum, bytes)| *sum += bytes);
    }
}

/// A thread's buffers.
struct Memory {
    /// Random bytes, different in each block of each write: devices may compress, or write equal
    /// blocks once.
    data: AlignedBuf,
    reads: AlignedBuf,
    stamp: u64,
}

/// Smallest unit that a device could find equal to another.
const STAMPED: usize = 512;

impl Memory {
    fn new(cell: &Cell, bytes: usize, seed: u64) -> Memory {
        let mut data = AlignedBuf::zeroed(bytes);
        let mut rng = Rng::new(seed);
        if cell.op.writes() {
            data.chunks_mut(8)
                .for_each(|part| part.copy_from_slice(&rng.next_u64().to_le_bytes()[..part.len()]));
        }
        Memory { data, reads: AlignedBuf::zeroed(bytes * cell.batch), stamp: rng.next_u64() }
    }

    /// The next write's bytes.
    fn data(&mut self) -> &[u8] {
        for block in self.data.chunks_mut(STAMPED) {
            self.stamp = self.stamp.wrapping_add(0x9E37_79B9_7F4A_7C15);
            block[..8].copy_from_slice(&self.stamp.to_le_bytes());
        }
        &self.data
    }
}
