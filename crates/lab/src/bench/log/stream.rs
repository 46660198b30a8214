//! The log by itself in virtual time: threads that append and wait, as in FlashLogging's
//! micro-benchmarks (3.3, 5.2), with devices that stall where that is asked for.

use super::found::{LogFound, StreamFound};
use super::machine::{Logs, simulate};
use crate::bench::cells::Cellular;
use firndb_base::rng::Rng;
use firndb_base::sync::{Arc, Mutex, thread};
use firndb_base::{DatabaseId, Epoch, Lsn, clock, sim};
use firndb_console::Failure;
use firndb_device::{Device, Fill, MemoryDevice};
use firndb_log::{Kind, Log, LogClass, LogIdentity, LogOptions, MemberId, Record};
use firndb_log_comparators::{Comparator, Compose, Hedging, LogPolicy};
use firndb_profile::VariantName;
use firndb_workloads::LatencyRecorder;
use std::time::Duration;

/// Bytes of each log device.
const DEVICE_BYTES: u64 = 64 << 20;
/// The payload of a log block: a request with this number of bytes of stream for each 512 is
/// aligned.
const PAYLOAD: u64 = 472;

/// What is appended at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// Requests of exactly this number of bytes of log blocks, a multiple of 512.
    Fixed(u64),
    /// New-Orders and Payments of TPC-C write about this much.
    Tpcc,
}

/// What a device does beside what its profile says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    pub device: usize,
    /// Share of its requests that take so long.
    pub spikes: Option<(f64, Duration)>,
    /// From when to when it completes nothing, counted from the clients' begin.
    pub frozen: Option<(Duration, Duration)>,
}

#[derive(Clone, Debug)]
pub struct StreamCell {
    pub logs: Logs,
    pub policy: LogPolicy,
    pub compose: Compose,
    pub hiding: Hedging,
    pub threads: usize,
    pub size: Size,
    /// Processor time before each append.
    pub work: Duration,
    pub fault: Option<Fault>,
    /// Not counted at the beginning.
    pub warm_up: Duration,
    pub time: Duration,
}

impl Cellular for StreamCell {
    type Found = StreamFound;

    fn name(&self) -> String {
        let policy = match self.policy {
            LogPolicy::Array => String::new(),
            other => format!(", {other:?}"),
        };
        let fault = if self.fault.is_some() { ", one device misbehaves" } else { "" };
        format!(
            "log alone, {}{policy}, {:?}, hiding {:?}, {} threads, {:?}{fault}",
            self.logs.name(),
            self.compose,
            self.hiding,
            self.threads,
            self.size
        )
    }

    fn at_end(&self, end: VariantName) -> Option<StreamCell> {
        self.logs.at_end(end).map(|logs| StreamCell { logs, ..self.clone() })
    }
}

/// The identity of a log that only a measurement uses.
pub fn identity(members: usize) -> LogIdentity {
    LogIdentity {
        database: DatabaseId(*b"firn bench log  "),
        members: (0..members as u32).map(MemberId).collect(),
        epochs: vec![(Epoch(1), Lsn::FIRST)],
        redundancy: firndb_log::Redundancy::default(),
    }
}

/// Empty devices in memory.
pub fn memories(count: usize, bytes: u64) -> Result<Vec<Arc<MemoryDevice>>, Failure> {
    let memory = |at| {
        let memory = Arc::new(MemoryDevice::new(&format!("log {at}")));
        memory.grow(bytes, Fill::Written).map_err(|error| Failure::new(error.to_string()))?;
        Ok(memory)
    };
    (0..count).map(memory).collect()
}

/// An error of the log as the command's.
pub fn failed(error: firndb_log::LogError) -> Failure {
    Failure::new(error.to_string())
}

pub fn run(cell: &StreamCell, seed: u64) -> Result<StreamFound, Failure> {
    let cell = cell.clone();
    simulate(seed, move || measured(&cell, seed)).map(|(found, _)| found)
}

/// The same in real time, on emulated devices.
pub fn run_in_real_time(cell: &StreamCell, seed: u64) -> Result<StreamFound, Failure> {
    measured(cell, seed)
}

fn measured(cell: &StreamCell, seed: u64) -> Result<StreamFound, Failure> {
    let count = cell.logs.count();
    let emulated = cell.logs.emulated(memories(count, DEVICE_BYTES)?, seed)?;
    let devices: Vec<Arc<dyn Device>> = emulated.devices.clone();
    let comparator = Comparator { policy: cell.policy, compose: cell.compose, hedging: cell.hiding };
    let options = comparator.within(LogOptions::default());
    let log = Log::create(devices, identity(count), Epoch(1), options).map_err(failed)?;
    if let Some(fault) = cell.fault {
        emulated.harm(fault)?;
    }
    let begin = clock::now();
    let after = |time| begin.after(time).unwrap_or(begin);
    let (from, end) = (after(cell.warm_up), after(cell.warm_up + cell.time));
    let total: Arc<Mutex<(LatencyRecorder, u64)>> = Arc::default();
    let clients = (0..cell.threads).map(|number| {
        let (log, total, cell) = (log.clone(), total.clone(), cell.clone());
        thread::spawn(&format!("client {number}"), move || -> Result<(), Failure> {
            let mut own = (LatencyRecorder::default(), 0);
            let mut rng = Rng::new(seed * 1000 + number as u64);
            while clock::now() < end {
                let work = cell.work.mul_f64(0.5 + rng.below(100) as f64 / 100.0);
                if sim::is_active() {
                    sim::charge(work);
                } else {
                    clock::sleep(work);
                }
                let bytes = append(&log, cell.size, &mut rng, |latency, since| {
                    if since >= from && clock::now() < end {
                        own.0.record(latency);
                        return true;
                    }
                    false
                })?;
                own.1 += bytes;
            }
            let mut total = total.lock();
            total.0.merge(&own.0);
            total.1 += own.1;
            Ok(())
        })
    });
    let clients: Vec<_> = clients.collect::<Result<_, _>>()?;
    for client in clients {
        client.join().map_err(|_| Failure::new("a client panicked"))??;
    }
    let statistics = log.statistics();
    log.close().map_err(failed)?;
    let total = total.lock();
    let seconds = cell.time.as_secs_f64();
    Ok(StreamFound {
        per_second: total.0.count() as f64 / seconds,
        mb_per_second: total.1 as f64 / seconds / 1e6,
        latency: total.0.summary(),
        log: LogFound::of(&statistics),
    })
}

/// Appends once and waits until that is durable; returns the bytes of log blocks if `counts` says
/// so of it.
fn append(
    log: &Log,
    size: Size,
    rng: &mut Rng,
    mut counts: impl FnMut(Duration, clock::Moment) -> bool,
) -> Result<u64, Failure> {
    let bytes = match size {
        Size::Fixed(bytes) => bytes / 512 * PAYLOAD,
        Size::Tpcc => rng.between(200, 2500),
    };
    let body = vec![0x5a; (bytes - Log::framed_len(0)) as usize];
    let began = clock::now();
    let at = log.append(LogClass::Normal, Record { kind: Kind::TREE_INSERT, body: &body }).map_err(failed)?;
    log.flush(at.end).map_err(failed)?;
    if log.space().normal_bytes < DEVICE_BYTES / 4 {
        log.truncate(log.durable());
    }
    Ok(if counts(began.elapsed(), began) { bytes.div_ceil(PAYLOAD) * 512 } else { 0 })
}
