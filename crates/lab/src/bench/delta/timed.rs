//! The time of requests: by the unit costs of their kinds, as the paper takes it, and measured on
//! emulated drives.

use super::cell::KindCount;
use firndb_console::Failure;
use firndb_emulate::{Load, Model, Request};
use firndb_page_comparators::medium::{self, Direction, Watch};
use firndb_profile::{DeviceProfile, Op, Pattern};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

/// Requests in flight where time is measured.
const DEPTH: usize = 32;
/// Requests by which a unit cost is taken.
const UNIT_REQUESTS: usize = 3000;
/// Pages of the longer request whose cost is taken: between one page and this many it is linear.
const RUN_PAGES: u64 = 64;
/// Pages that the store writes with a request where a fifth of its places is free, about.
const STORE_RUN: u64 = 2;
/// Regions of the stream's addresses, each a part of the drive.
const REGIONS: u64 = 4;
const REGION_BITS: u32 = 45;

/// A drive that requests are replayed on, [`DEPTH`] of them at a time.
struct Drive {
    model: Model,
    capacity: u64,
    in_flight: BinaryHeap<Reverse<Duration>>,
    now: Duration,
    last: Duration,
    began: Duration,
}

/// Drives that see every request of a medium.
pub struct Timed(BTreeMap<String, Drive>);

impl Timed {
    pub fn new(drives: &[&'static str], seed: u64) -> Result<Timed, Failure> {
        let drive = |name: &&'static str| {
            let profile = crate::tpcc::machine::profile(name)?;
            let model = Model::new(&profile, seed).map_err(|error| Failure::new(error.to_string()))?;
            let drive = Drive {
                model,
                capacity: profile.capacity_bytes,
                in_flight: BinaryHeap::new(),
                now: Duration::ZERO,
                last: Duration::ZERO,
                began: Duration::ZERO,
            };
            Ok(((*name).to_owned(), drive))
        };
        Ok(Timed(drives.iter().map(drive).collect::<Result<_, Failure>>()?))
    }

    /// How long each took since it began to be measured.
    pub fn seconds(&self) -> BTreeMap<String, f64> {
        let each = self.0.iter();
        each.map(|(name, drive)| (name.clone(), (drive.last - drive.began).as_secs_f64())).collect()
    }
}

impl Drive {
    fn request(&mut self, request: medium::Request) {
        if self.in_flight.len() == DEPTH {
            let Reverse(done) = self.in_flight.pop().expect("there are some");
            self.now = self.now.max(done);
        }
        let part = self.capacity / REGIONS;
        let within = (request.offset & ((1 << REGION_BITS) - 1)) % part;
        let offset = (request.offset >> REGION_BITS) * part + within;
        let offset = offset & !511;
        let request = match request.direction {
            Direction::Read => Request::read(offset, request.bytes),
            Direction::Write => Request::durable_write(offset, request.bytes),
        };
        let done = self.model.submit(self.now, &request);
        self.last = self.last.max(done);
        self.in_flight.push(Reverse(done));
    }
}

impl Watch for Timed {
    fn request(&mut self, request: medium::Request) {
        self.0.values_mut().for_each(|drive| drive.request(request));
    }
    fn restart(&mut self) {
        self.0.values_mut().for_each(|drive| drive.began = drive.last);
    }
}

/// Mean microseconds of requests of a page and of a run, alone on the drive, one at a time.
#[derive(Clone, Copy, Debug)]
struct Unit {
    page: f64,
    run: f64,
}

/// Unit costs of a drive, for pages of one size.
pub struct Units {
    page_size: u64,
    /// Random and sequential reads, random and sequential writes.
    units: [Unit; 4],
}

impl Units {
    pub fn of(profile: &DeviceProfile, page_size: u64) -> Result<Units, Failure> {
        let unit = |(op, pattern)| -> Result<Unit, Failure> {
            let cost = |bytes: u64| -> Result<f64, Failure> {
                let model = Model::new(profile, 1).map_err(|error| Failure::new(error.to_string()));
                let load = Load { op, pattern, bytes, durable: true, depth: 1 };
                Ok(load.run(&mut model?, profile.capacity_bytes, UNIT_REQUESTS, 1).mean_us)
            };
            Ok(Unit { page: cost(page_size)?, run: cost(page_size * RUN_PAGES)? })
        };
        let kinds = [
            (Op::Read, Pattern::Random),
            (Op::Read, Pattern::Sequential),
            (Op::Write, Pattern::Random),
            (Op::Write, Pattern::Sequential),
        ];
        let [a, b, c, d] = kinds.map(unit);
        Ok(Units { page_size, units: [a?, b?, c?, d?] })
    }

    /// Microseconds of a request.
    fn cost(&self, write: bool, sequential: bool, bytes: u64) -> f64 {
        let Unit { page, run } = self.units[2 * usize::from(write) + usize::from(sequential)];
        let more = (bytes as f64 / self.page_size as f64 - 1.0) / (RUN_PAGES - 1) as f64;
        // What is smaller than a page is taken to cost as much.
        page + (run - page) * more.max(0.0)
    }

    /// Seconds of all requests, each by the unit cost of its kind.
    pub fn seconds(&self, requests: &[KindCount]) -> f64 {
        let each = requests.iter();
        each.map(|&(write, sequential, bytes, count)| count as f64 * self.cost(write, sequential, bytes))
            .sum::<f64>()
            / 1e6
    }

    /// The cost of a page read at random over that of one written, in a run as the store's are.
    pub fn read_over_write(&self) -> f64 {
        let run = self.cost(true, false, STORE_RUN * self.page_size);
        self.units[0].page / (run / STORE_RUN as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_emulate::profiles;

    /// The costs are those that the profile prints.
    #[test]
    fn units_are_the_drives_and_runs_cost_less_than_their_pages() {
        let units = Units::of(&profiles::get("myers-a").unwrap(), 4096).unwrap();
        let near =
            |value: f64, expected: f64| assert!((value / expected - 1.0).abs() < 0.01, "{value} {expected}");
        near(units.cost(false, false, 4096), 459.25);
        near(units.cost(true, false, 4096), 46_342.7);
        near(units.cost(true, true, 4096), 413.74);
        assert!(units.cost(true, false, 64 * 4096) < 3.0 * units.cost(true, false, 4096));
        let seconds = units.seconds(&[(false, false, 4096, 1000), (true, true, 4096, 1000)]);
        near(seconds, 0.459_25 + 0.413_74);
    }

    #[test]
    fn a_drive_takes_its_time_for_what_comes_after_the_restart() {
        let mut timed = Timed::new(&["myers-a"], 1).unwrap();
        let read = |at: u64| medium::Request { direction: Direction::Read, offset: at * 40_960, bytes: 4096 };
        (0..100).for_each(|at| timed.request(read(at * 7 % 100)));
        timed.restart();
        (0..1000).for_each(|at| timed.request(read(at * 7 % 1000)));
        // One channel: a read at a time.
        let seconds = timed.seconds()["myers-a"];
        assert!((seconds / 0.459_25 - 1.0).abs() < 0.01, "{seconds}");
    }
}
