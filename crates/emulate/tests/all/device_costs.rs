//! Computed costs beside the emulated device, in virtual time: every shipped profile, 512 B to
//! 1 MiB, depths of 1 to 64, spans of 64 MiB to the whole device.

use firndb_base::rng::Rng;
use firndb_emulate::{Model, Request, profiles};
use firndb_profile::{Access, DeviceCosts, DeviceProfile, Order, Submission, Work};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Requests of a cell; a third of them comes before what is counted.
const REQUESTS: usize = 6000;
/// The same where some of the requests, by chance, take far longer than others.
const REQUESTS_ASCENDING: usize = 30_000;
/// The same where outliers are one in some hundred.
const REQUESTS_WITH_OUTLIERS: usize = 60_000;
/// No size of a cache changes what it takes once it is full; a small one is full sooner.
const CACHE_BYTES: u64 = 256 << 10;

struct Cell {
    profile: String,
    work: Work,
    computed: f64,
    measured: f64,
}

impl Cell {
    fn off(&self) -> f64 {
        self.computed / self.measured - 1.0
    }

    fn line(&self) -> String {
        let Cell { profile, work, computed, measured } = self;
        let percent = self.off() * 100.0;
        format!("{profile}: {work:?}: computed {computed:.2} µs, emulated {measured:.2} ({percent:+.1} %)")
    }
}

/// The requests of a work, one after another.
struct Requests {
    work: Work,
    rng: Rng,
    next: u64,
}

impl Requests {
    fn next(&mut self) -> Request {
        let Work { bytes, span_bytes, .. } = self.work;
        let places = (span_bytes / bytes).max(1);
        let place = match self.work.order {
            Order::Random => self.rng.below(places),
            Order::Sequential => self.next % places,
            Order::Ascending { gap_bytes } => {
                // A page is taken with the chance that leaves such gaps in the mean.
                while self.rng.below(gap_bytes + bytes) >= bytes {
                    self.next += 1;
                }
                self.next % places
            }
        };
        self.next = place + 1;
        match self.work.access {
            Access::Read => Request::read(place * bytes, bytes),
            Access::Write => Request::write(place * bytes, bytes),
            Access::DurableWrite => Request::durable_write(place * bytes, bytes),
        }
    }
}

/// Microseconds from one completion to the next, on a device whose write cache is full.
fn measured(profile: &DeviceProfile, work: &Work) -> f64 {
    let mut profile = profile.clone();
    if let Some(cache) = &mut profile.model.write_cache {
        cache.bytes = cache.bytes.min(CACHE_BYTES.max(2 * work.bytes));
    }
    let ascends = matches!(work.order, Order::Ascending { .. });
    let count = match (profile.model.outliers.is_empty(), ascends) {
        (false, _) => REQUESTS_WITH_OUTLIERS,
        (true, true) => REQUESTS_ASCENDING,
        (true, false) => REQUESTS,
    };
    let mut model = Model::new(&profile, 42).unwrap();
    let mut requests = Requests { work: *work, rng: Rng::new(7), next: 0 };
    match work.submission {
        Submission::Steady => steady(&mut model, &mut requests, count),
        Submission::Batches => batches(&mut model, &mut requests, count),
    }
}

fn steady(model: &mut Model, requests: &mut Requests, count: usize) -> f64 {
    let depth = u64::from(requests.work.depth);
    let mut clients: BinaryHeap<Reverse<Duration>> =
        (0..depth).map(|at| Reverse(Duration::from_nanos(at))).collect();
    let (mut began, mut last) = (Duration::ZERO, Duration::ZERO);
    for i in 0..count {
        let Reverse(now) = clients.pop().unwrap();
        if i == count / 3 {
            began = now;
        }
        last = now;
        clients.push(Reverse(model.submit(now, &requests.next())));
    }
    (last - began).as_secs_f64() * 1e6 / (count - count / 3 - 1) as f64
}

fn batches(model: &mut Model, requests: &mut Requests, count: usize) -> f64 {
    let depth = requests.work.depth as usize;
    let count = (count / depth).max(90);
    let (mut began, mut now) = (Duration::ZERO, Duration::ZERO);
    for i in 0..count {
        if i == count / 3 {
            began = now;
        }
        let batch: Vec<Request> = (0..depth).map(|_| requests.next()).collect();
        now = model.submit_batch(now, &batch).into_iter().max().unwrap();
    }
    (now - began).as_secs_f64() * 1e6 / ((count - count / 3) * depth) as f64
}

/// Sizes, depths and spans of the cells: a few, or all if the environment says so.
fn works(profile: &DeviceProfile) -> Vec<Work> {
    let mut works = Vec::new();
    let whole = profile.capacity_bytes;
    let (sizes, depths, spans): (&[u64], &[u32], &[u64]) = match all_cells() {
        true => (
            &[512, 4096, 16_384, 65_536, 262_144, 1 << 20],
            &[1, 2, 4, 16, 64],
            &[64 << 20, 1 << 30, whole / 8, whole],
        ),
        false => (&[4096, 262_144], &[1, 16], &[64 << 20, whole]),
    };
    for access in [Access::Read, Access::Write, Access::DurableWrite] {
        for &bytes in sizes {
            for &depth in depths {
                for submission in [Submission::Steady, Submission::Batches] {
                    for order in [
                        Order::Random,
                        Order::Sequential,
                        Order::Ascending { gap_bytes: 2 * bytes },
                        Order::Ascending { gap_bytes: 100 * bytes },
                    ] {
                        for &span_bytes in spans {
                            // A span matters where requests are anywhere in it.
                            let matters = order == Order::Random || span_bytes == profile.capacity_bytes;
                            let same = depth == 1 && submission == Submission::Batches;
                            if matters && !same {
                                works.push(Work { access, bytes, order, depth, submission, span_bytes });
                            }
                        }
                    }
                }
            }
        }
    }
    works
}

fn all_cells() -> bool {
    std::env::var_os("FIRN_ALL_COST_CELLS").is_some()
}

fn cells(profile: &DeviceProfile) -> Vec<Cell> {
    let costs = DeviceCosts::of(profile);
    let cell = |work: Work| Cell {
        profile: profile.name.clone(),
        work,
        computed: costs.request_us(&work),
        measured: measured(profile, &work),
    };
    works(profile).into_iter().map(cell).collect()
}

#[test]
fn costs_are_within_ten_percent_of_the_emulator() {
    let mut report = Vec::new();
    let (mut count, mut outside) = (0, 0);
    for profile in profiles::all() {
        let mut cells = cells(&profile);
        count += cells.len();
        cells.sort_by(|a, b| b.off().abs().total_cmp(&a.off().abs()));
        let wrong = cells.iter().filter(|cell| cell.off().abs() > 0.1).count();
        outside += wrong;
        report.push(format!("{}: {wrong} of {} cells off by more than 10 %", profile.name, cells.len()));
        report.extend(cells.iter().take(6).map(|cell| format!("    {}", cell.line())));
    }
    println!("{}\n{outside} of {count} cells are off by more than 10 %", report.join("\n"));
    // On disks, requests that ascend by little cost what the turns cost that are missed now and
    // then: neither a walk of some thousand requests nor the emulator's settles on how many.
    assert!(outside <= if all_cells() { 12 } else { 0 }, "{outside} of {count} cells are outside");
}

#[test]
fn the_assumed_device_is_the_shipped_sata_ssd() {
    let (assumed, profile) = (DeviceCosts::assumed(), profiles::get("sata-ssd").unwrap());
    assert!(assumed.is_assumed());
    let shipped = DeviceCosts::of(&profile);
    for work in works(&profile) {
        assert_eq!(assumed.request_us(&work), shipped.request_us(&work), "{work:?}");
    }
}
