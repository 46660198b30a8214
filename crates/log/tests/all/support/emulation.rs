//! A log on emulated devices in virtual time, with clients that commit.
use firndb_base::rng::Rng;
use firndb_base::sim::{self, SimOptions};
use firndb_base::sync::{Arc, Mutex, thread};
use firndb_base::{Epoch, clock};
use firndb_device::{Device, Fill, MemoryDevice};
use firndb_emulate::{Emulated, profiles};
use firndb_log::testing::identity;
use firndb_log::{Kind, Log, LogClass, LogOptions, LogStatistics, OutlierOptions, Record};
use firndb_log_comparators::{Comparator, Hedging};
use std::time::Duration;

/// Faults of a device in addition to its profile.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fault {
    /// Index of the device.
    pub device: usize,
    /// Share of its requests that take longer, and by how much.
    pub spikes: Option<(f64, Duration)>,
    /// When it hangs, from the time when the clients began.
    pub frozen: Option<(Duration, Duration)>,
}

#[derive(Clone, Debug)]
pub struct Run {
    pub profile: &'static str,
    pub devices: usize,
    pub hiding: Hedging,
    pub outliers: OutlierOptions,
    pub clients: u64,
    /// Processor time of a transaction before it commits.
    pub work: Duration,
    pub time: Duration,
    pub seed: u64,
    pub fault: Option<Fault>,
}

impl Default for Run {
    fn default() -> Run {
        Run {
            profile: "sata-ssd",
            devices: 3,
            hiding: Hedging::Adaptive,
            outliers: OutlierOptions::default(),
            clients: 8,
            work: Duration::from_micros(100),
            time: Duration::from_secs(2),
            seed: 1,
            fault: None,
        }
    }
}

#[derive(Debug)]
pub struct Found {
    /// Ascending.
    pub latencies: Vec<Duration>,
    pub statistics: LogStatistics,
    pub time: Duration,
}

impl Found {
    pub fn commits_a_second(&self) -> f64 {
        self.latencies.len() as f64 / self.time.as_secs_f64()
    }
    pub fn quantile(&self, q: f64) -> Duration {
        self.latencies[((self.latencies.len() as f64 * q) as usize).min(self.latencies.len() - 1)]
    }
    pub fn longest(&self) -> Duration {
        self.latencies[self.latencies.len() - 1]
    }
    /// Bytes written again, as a share of all others.
    pub fn extra_bytes(&self) -> f64 {
        let again = self.statistics.hiding.reissued_bytes;
        again as f64 / (self.statistics.written_bytes - again) as f64
    }
}

impl Run {
    pub fn go(&self) -> Found {
        let run = self.clone();
        let time = self.time;
        let options = SimOptions::measuring(self.seed, 4);
        let outcome =
            sim::run(options, move || run.simulated()).unwrap_or_else(|failure| panic!("{failure}"));
        let (mut latencies, statistics) = outcome.value;
        latencies.sort_unstable();
        Found { latencies, statistics, time }
    }

    fn simulated(self) -> (Vec<Duration>, LogStatistics) {
        let profile = profiles::get(self.profile).unwrap();
        let emulated: Vec<Arc<Emulated>> = (0..self.devices)
            .map(|i| {
                let inner = MemoryDevice::new(&format!("log {i}"));
                inner.grow(64 << 20, Fill::Written).unwrap();
                Arc::new(Emulated::new(Arc::new(inner), &profile, self.seed + i as u64).unwrap())
            })
            .collect();
        let devices = emulated.iter().map(|d| d.clone() as Arc<dyn Device>).collect();
        let options = Comparator { hedging: self.hiding, ..Comparator::default() }
            .within(LogOptions { outliers: self.outliers.clone(), ..LogOptions::default() });
        let log = Log::create(devices, identity(self.devices as u32), Epoch(1), options).unwrap();
        if let Some(fault) = self.fault {
            let device = &emulated[fault.device];
            if let Some((share, time)) = fault.spikes {
                device.spikes(share, time);
            }
            if let Some((from, to)) = fault.frozen {
                // The profile counts from the simulation's begin; formatting has taken part of that
                // time.
                let passed = clock::Moment::ZERO.elapsed();
                device.freeze(passed + from, passed + to);
            }
        }
        let latencies = Arc::new(Mutex::new(Vec::new()));
        let end = clock::now().after(self.time).unwrap();
        let clients: Vec<_> = (0..self.clients)
            .map(|client| {
                let (log, latencies, work) = (log.clone(), latencies.clone(), self.work);
                let mut rng = Rng::new(self.seed * 1000 + client);
                thread::spawn(&format!("client {client}"), move || {
                    let mut own = Vec::new();
                    while clock::now() < end {
                        sim::charge(work.mul_f64(0.5 + rng.below(100) as f64 / 100.0));
                        // New orders and payments of TPC-C write about this much.
                        let body = vec![client as u8; rng.between(200, 2500) as usize];
                        let start = clock::now();
                        let at =
                            log.append(LogClass::Normal, Record { kind: Kind(0x20), body: &body }).unwrap();
                        log.flush(at.end).unwrap();
                        own.push(start.elapsed());
                        if log.space().normal_bytes < 8 << 20 {
                            log.truncate(log.durable());
                        }
                    }
                    latencies.lock().append(&mut own);
                })
                .unwrap()
            })
            .collect();
        for client in clients {
            client.join().unwrap();
        }
        let statistics = log.statistics();
        log.close().unwrap();
        let latencies = std::mem::take(&mut *latencies.lock());
        (latencies, statistics)
    }
}
