//! The whole plan on a device with known properties, in virtual time: the measurements match them.

use crate::recognition;
use firndb_base::clock;
use firndb_base::sim::{self, SimOptions};
use firndb_base::sync::{Arc, Mutex};
use firndb_characterize::{Effort, Measurements, Op, Pattern, Plan, Purpose, Target};
use firndb_device::{Device, DeviceError, DeviceInfo, Durability, Fill, MemoryDevice};
use firndb_profile::DeviceProfile;
use std::time::Duration;

/// Four channels; sequential requests take 1 ms and 1 us a KiB, random reads 1.5 times as long,
/// random durable writes three times as long; every hundredth durable write takes 50 ms; other
/// writes take 0.1 ms; a sync 5 ms.
#[derive(Debug)]
struct Built {
    memory: MemoryDevice,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When each channel is free, in virtual time since the start.
    free: [Duration; CHANNELS],
    /// Where streams end: the last few requests.
    ends: Vec<u64>,
    durable: u64,
}

const CHANNELS: usize = 4;
const AREA: u64 = 1 << 30;
const OUTLIER_EVERY: u64 = 100;

impl Built {
    fn serve(&self, begun: clock::Moment, offset: u64, bytes: usize, kind: Option<Durability>) {
        let now = clock::now();
        let until = {
            let mut state = self.state.lock();
            let state = &mut *state;
            let sequential = state.ends.contains(&offset) || offset == 0;
            state.ends.insert(0, offset + bytes as u64);
            state.ends.truncate(32);
            let normal = Duration::from_millis(1) + Duration::from_nanos(bytes as u64 * 1000 / 1024);
            let mut took = match (kind, sequential) {
                (Some(Durability::Later), _) => Duration::from_micros(100),
                (_, true) => normal,
                (None, false) => normal * 3 / 2,
                (Some(Durability::Durable), false) => normal * 3,
            };
            if kind == Some(Durability::Durable) {
                state.durable += 1;
                if state.durable.is_multiple_of(OUTLIER_EVERY) {
                    took = Duration::from_millis(50);
                }
            }
            let channel = (0..CHANNELS).min_by_key(|&channel| state.free[channel]).unwrap();
            let end = state.free[channel].max(now.since(begun)) + took;
            state.free[channel] = end;
            end
        };
        clock::sleep(until.saturating_sub(now.since(begun)));
    }
}

#[derive(Debug)]
struct Clocked(Built, clock::Moment);

impl Device for Clocked {
    fn info(&self) -> &DeviceInfo {
        self.0.memory.info()
    }
    fn len(&self) -> u64 {
        AREA
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.0.serve(self.1, offset, buf.len(), None);
        Ok(())
    }
    fn write(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), DeviceError> {
        self.0.serve(self.1, offset, data.len(), Some(durability));
        Ok(())
    }
    fn sync(&self) -> Result<(), DeviceError> {
        clock::sleep(Duration::from_millis(5));
        Ok(())
    }
    fn grow(&self, _: u64, _: Fill) -> Result<(), DeviceError> {
        Ok(())
    }
    fn shrink(&self, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }
}

fn characterized(seed: u64) -> (Measurements, DeviceProfile) {
    let body = || {
        let built = Built { memory: MemoryDevice::new("built"), state: Mutex::new(State::default()) };
        let target = Target::given(Arc::new(Clocked(built, clock::now())));
        let mut plan = Plan::new(Effort::Quick);
        // A device this slow needs longer rounds for rare events.
        for cell in &mut plan.cells {
            cell.budget *= 5;
        }
        recognition::characterized(&target, plan, AREA)
    };
    let outcome = sim::run(SimOptions::seeded(seed), body).unwrap_or_else(|failure| panic!("{failure:?}"));
    outcome.value
}

fn near(what: &str, found: f64, built: f64, tolerance: f64) {
    assert!((found / built - 1.0).abs() <= tolerance, "{what}: {found} instead of {built}");
}

#[test]
fn times_channels_outliers_and_choices_are_those_that_were_built_in() {
    let (measured, profile) = characterized(1);
    assert_eq!(measured.cut_short, 0);
    let model = &profile.model;
    for (what, table, factor) in [
        ("sequential reads", &model.read_sequential, 1.0),
        ("random reads", &model.read_random, 1.5),
        ("sequential writes", &model.write_sequential, 1.0),
        ("random writes", &model.write_random, 3.0),
    ] {
        for kib in [4u64, 64, 1024] {
            near(what, table.us(kib << 10), factor * (1000.0 + kib as f64), 0.03);
        }
    }
    assert_eq!((model.channels, profile.logical_block), (4, 512));
    near("syncs", model.sync_us, 5000.0, 0.01);
    let cache = model.write_cache.as_ref().expect("other writes return in a tenth of the time");
    near("accepted writes", cache.accept_us, 100.0, 0.02);

    let [outliers] = &model.outliers[..] else { panic!("one class, not {:?}", model.outliers) };
    near("outliers' share", outliers.share, 0.01, 0.15);
    near("outliers' time", (outliers.from_us + outliers.to_us) / 2.0, 50_000.0, 0.01);
    let (least, most) = outliers.spacing.expect("they come like clockwork");
    assert!(least.abs_diff(100) <= 2 && most.abs_diff(100) <= 15, "{least} to {most}");

    let choices = profile.choices.as_ref().unwrap();
    assert_eq!(choices.log_width.as_ref().unwrap().value, 4);
    assert_eq!(choices.outlier_threshold.as_ref().unwrap().value, 2.0);
    near("random : sequential read", choices.random_to_sequential_read.as_ref().unwrap().value, 1.5, 0.03);
    // Ratio of means with outliers: (0.99 x 3.012 + 0.5) / (0.99 x 1.004 + 0.5).
    near("random : sequential write", choices.random_to_sequential_write.as_ref().unwrap().value, 2.33, 0.15);
}

#[test]
fn one_seed_measures_the_same_to_the_last_request() {
    let ((one, first), (other, second)) = (characterized(7), characterized(7));
    assert_eq!(first, second);
    let counts = |measured: &Measurements| -> Vec<u64> {
        measured.cells.iter().map(|cell| cell.tally.requests).collect()
    };
    assert_eq!(counts(&one), counts(&other));
    let deep = one.of(Purpose::ByDepth, Op::Read, Pattern::Random);
    let rates: Vec<f64> = deep.iter().map(|cell| cell.requests_per_second()).collect();
    near("four in flight", rates[1] / rates[0], 4.0, 0.05);
    near("sixteen in flight", rates[2] / rates[0], 4.0, 0.05);
}
