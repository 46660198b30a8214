//! Draws the scenario of a seed.

use super::{CacheChange, CacheSetup, End, Round, Scenario, Severity, StoreSetup, Trouble, device_names};
use crate::array::{ArrayRound, ArraySetup};
use crate::chores::{self, ChoresRound};
use crate::medium::Survival;
use firndb::device::{Calls, DeviceErrorKind, Fault, FaultRule, When};
use firndb::{Isolation, PageRecovery, Placement};
use firndb_base::rng::Rng;
use firndb_base::sim::Policy;
use firndb_cache_comparators::{Comparator, Compared};
use firndb_log_comparators::Hedging::{Adaptive, Naive, Off, TwoStream};
use std::time::Duration;

pub(super) fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.below(from.len() as u64) as usize]
}

/// Memory for deltas, of its own numbers, so that what else a seed stands for stays what it was.
fn delta_bytes(seed: u64, page_size: usize) -> Option<usize> {
    let rng = &mut Rng::new(seed ^ 0xDE17_A501);
    let pages = pick(rng, &[0, 2, 8, 64]);
    rng.one_in(2).then_some(pages * page_size)
}

/// How pages of page files become durable, and memory for private ones; of its own numbers, too.
fn page_files(seed: u64, page_size: usize) -> (PageRecovery, usize) {
    let rng = &mut Rng::new(seed ^ 0x9A6E_F11E);
    let recovery =
        pick(rng, &[PageRecovery::Log, PageRecovery::Shadow, PageRecovery::Hybrid, PageRecovery::Adaptive]);
    (recovery, pick(rng, &[0, 2, 8, 64]) * page_size)
}

/// The time that reading the log may take after a crash: so little that checkpoints follow each
/// other; of its own numbers, too.
fn recovery_time(seed: u64) -> Option<Duration> {
    let rng = &mut Rng::new(seed ^ 0x57E9_0001);
    pick(rng, &[None, None, Some(100), Some(2000)]).map(Duration::from_micros)
}

/// From which page number on compaction moves pages; of its own numbers, too.
fn numbers_limit(seed: u64) -> Option<u64> {
    let rng = &mut Rng::new(seed ^ 0x9A6E_0B35);
    pick(rng, &[None, Some(10), Some(25), Some(60), Some(150)])
}

impl StoreSetup {
    /// Of its own numbers, too.
    fn draw(seed: u64) -> StoreSetup {
        let numbers_limit = numbers_limit(seed);
        let rng = &mut Rng::new(seed ^ 0x9A6E_A901);
        // Of theirs, too. Small groups are often given back.
        let others = &mut Rng::new(seed ^ 0x9A6E_D15C);
        let refuses_one_in = pick(others, &[None, None, Some(1), Some(2), Some(5)]);
        let small = pick(others, &[None, None, Some((1024, 1)), Some((1024, 2)), Some((512, 2))]);
        StoreSetup {
            numbers_limit,
            refuses_one_in,
            placement: pick(rng, &[Placement::Threaded, Placement::Segments]),
            layout: pick(rng, &[None, None, Some((1024, 2)), Some((1024, 8)), Some((512, 2))]).or(small),
            map_share: pick(rng, &[None, None, Some(16), Some(4), Some(1)]),
            array: rng.one_in(4).then(|| {
                pick(rng, &[(1, 2, 2), (1, 2, 3), (2, 3, 3), (3, 4, 4), (2, 4, 4), (1, 3, 3), (1, 1, 2)])
            }),
        }
    }
}

impl Scenario {
    /// The scenario of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Scenario {
        let rng = &mut Rng::new(seed ^ 0x5CE9_A810);
        let page_size = pick(rng, &[1024, 1024, 1024, 2048, 4096]);
        let log_devices = pick(rng, &[1, 1, 2, 3, 4]);
        let cache = rng.one_in(2).then(|| CacheSetup::draw(rng));
        let names: Vec<String> = device_names(log_devices, cache.is_some());
        let mut cache_rebuildable = false;
        let mut rounds: Vec<Round> = (0..rng.between(2, 5)).map(|_| Round::draw(rng, &names)).collect();
        if cache.is_some() {
            // Of their own, so that what else a seed stands for stays what it was.
            let rng = &mut Rng::new(seed ^ 0xCAC4_E001);
            rounds.iter_mut().for_each(|round| round.cache_changes = CacheChange::draw_some(rng));
            let rng = &mut Rng::new(seed ^ 0xCAC4_E002);
            cache_rebuildable = rng.one_in(2);
            for round in &mut rounds {
                // Of what rots elsewhere nothing may be needed that is rebuilt.
                round.cache_lost = cache_rebuildable && round.rot.is_none() && rng.one_in(3);
            }
        }
        let array = ArraySetup::draw(seed, log_devices, &mut rounds);
        chores::draw(seed, log_devices, array.copies, &mut rounds);
        if array.lenient || array.copies > 1 || array.archive.is_some_and(|archive| archive.completes) {
            // A log device that is given up because others have what recovery needs may have had
            // older log alone.
            rounds.iter_mut().for_each(|round| round.cache_lost = false);
        }
        Scenario {
            array,
            seed,
            page_size,
            frames: pick(rng, &[64, 80, 128, 512]),
            version_bytes: pick(rng, &[1000, 20_000, 1 << 20]),
            delta_bytes: delta_bytes(seed, page_size),
            page_files: page_files(seed, page_size),
            store: StoreSetup::draw(seed),
            log_devices,
            log_bytes_each: pick(rng, &[512 << 10, 768 << 10, 1 << 20, 2 << 20]),
            recovery_time: recovery_time(seed),
            hiding: pick(rng, &[Off, Naive, TwoStream, Adaptive, Adaptive]),
            cache,
            cache_rebuildable,
            // A store begins with about 4,096 places.
            store_limit: 4096 * page_size as u64 * pick(rng, &[5, 8, 16, 16]) / 4,
            slowest: names.iter().map(|_| Duration::from_micros(pick(rng, &[20, 100, 400, 8000]))).collect(),
            clients: rng.between(1, 6),
            keys: pick(rng, &[3, 8, 24]),
            isolation: pick(
                rng,
                &[
                    Isolation::Snapshot,
                    Isolation::Snapshot,
                    Isolation::Serializable,
                    Isolation::ReadCommitted,
                ],
            ),
            lock_deadline: rng.one_in(3).then(|| Duration::from_millis(rng.between(1, 50))),
            cores: pick(rng, &[1, 2, 4]),
            preempt_one_in: pick(rng, &[2, 5, 20, 100]),
            spurious_one_in: pick(rng, &[0, 0, 50]),
            policy: match rng.below(4) {
                0 => Policy::Priorities { changes: rng.between(1, 6) as u32, over_steps: 100_000 },
                _ => Policy::Random,
            },
            rounds,
            pause: Duration::ZERO,
            canary: None,
            time_limit: Duration::from_secs(3600),
            step_limit: 40_000_000,
        }
    }
}

impl Round {
    pub(crate) fn draw(rng: &mut Rng, names: &[String]) -> Round {
        let survival =
            |rng: &mut Rng| pick(rng, &[Survival::None, Survival::Ended, Survival::Any, Survival::Any]);
        let mut troubles: Vec<Trouble> =
            (0..pick(rng, &[0, 0, 0, 1, 1, 2])).map(|_| Trouble::draw(rng, names)).collect();
        // Nothing vouches for the last request before a crash: where a device loses what it wrote,
        // the round has no other trouble, and ends with a seal (docs/fault-model.md).
        let vouched = troubles.iter().all(|trouble| !trouble.lasting);
        troubles.retain(|trouble| vouched || trouble.lasting);
        let end = match rng.below(6) {
            drawn if drawn == 0 || !vouched => End::Close,
            1 => End::Drop,
            _ => End::PowerCut(Duration::from_micros(rng.between(50, 60_000)), survival(rng)),
        };
        let cut_in_recovery =
            rng.one_in(3).then(|| (Duration::from_micros(rng.between(20, 10_000)), survival(rng)));
        let rot = rng.one_in(12).then(|| (rng.below(names.len() as u64) as usize, rng.between(1, 3) as u32));
        let array = ArrayRound::default();
        let transactions = rng.between(5, 40);
        Round {
            cache_changes: Vec::new(),
            transactions,
            troubles,
            cut_in_recovery,
            end,
            cache_lost: false,
            rot,
            array,
            chores: ChoresRound::default(),
        }
    }
}

impl CacheChange {
    fn draw_some(rng: &mut Rng) -> Vec<(Duration, CacheChange)> {
        let count = pick(rng, &[0, 0, 1, 2, 4, 8]);
        let change = |rng: &mut Rng| match rng.below(5) {
            0 | 1 => CacheChange::Detach,
            2 => CacheChange::Resize(rng.between(100, 3000)),
            _ => CacheChange::Attach(CacheSetup::draw(rng)),
        };
        (0..count).map(|_| (Duration::from_micros(rng.between(50, 15_000)), change(rng))).collect()
    }
}

impl CacheSetup {
    fn draw(rng: &mut Rng) -> CacheSetup {
        let group_pages = pick(rng, &[4, 8, 32]);
        let policy = pick(rng, &Compared::ALL);
        // Lazy cleaning has a least size of its own.
        let least = if policy == Compared::Other(Comparator::LC) { 200 } else { 0 };
        CacheSetup {
            policy,
            pages: (group_pages as u64 * pick(rng, &[20, 30, 100])).max(least),
            group_pages,
            write_through: rng.one_in(5),
        }
    }
}

impl Trouble {
    fn draw(rng: &mut Rng, names: &[String]) -> Trouble {
        let device = (!rng.one_in(4)).then(|| names[rng.below(names.len() as u64) as usize].clone());
        let nth = When::Nth(rng.below(200));
        if rng.one_in(6) {
            return Trouble::lasting(rng, names);
        }
        let (name, calls, fault, when, severity) = match rng.below(9) {
            0 => {
                let time = Duration::from_millis(pick(rng, &[1, 50, 5000]));
                ("a stall", Calls::Any, Fault::Stall(time), nth, Severity::Survived)
            }
            1 => {
                let time = Duration::from_millis(pick(rng, &[1, 10]));
                let when = When::OneIn(rng.between(5, 50));
                ("spikes", Calls::Any, Fault::Stall(time), when, Severity::Survived)
            }
            2 => ("EIO once", Calls::Any, Fault::Fail(DeviceErrorKind::Failed), nth, Severity::Survived),
            3 => {
                let when = When::From(rng.below(200));
                ("a device gone", Calls::Any, Fault::Fail(DeviceErrorKind::Failed), when, Severity::Survived)
            }
            4 => (
                "done, and EIO",
                Calls::Any,
                Fault::FailLate(DeviceErrorKind::Failed),
                nth,
                Severity::Survived,
            ),
            5 => {
                let when = When::From(rng.below(20));
                ("ENOSPC", Calls::Grows, Fault::Fail(DeviceErrorKind::NoSpace), when, Severity::Survived)
            }
            6 => {
                let fault = Fault::Torn { blocks: rng.below(4), error: Some(DeviceErrorKind::Failed) };
                ("a torn write", Calls::Writes, fault, nth, Severity::Survived)
            }
            7 => ("a spoilt read", Calls::Reads, Fault::BitRot { bits: 1 }, nth, Severity::Detected),
            _ => {
                let by = 512 * pick(rng, &[-8, -1, 1, 8]);
                ("a misdirected read", Calls::Reads, Fault::Misdirected { by }, nth, Severity::Detected)
            }
        };
        Trouble { name, rule: FaultRule { calls, device, when, fault }, severity, lasting: false }
    }

    /// A write of the superblock or the log that is acknowledged and not done, or done elsewhere.
    /// What nothing can notice of the store's is for `bad_input::devices_tell_no_lies`, which knows
    /// its layout.
    fn lasting(rng: &mut Rng, names: &[String]) -> Trouble {
        let of_store = names.iter().position(|name| name == "store").expect("there is a store");
        let device = Some(names[rng.below(of_store as u64) as usize].clone());
        let (name, fault) = match rng.below(3) {
            0 => ("a lost write", Fault::Lost),
            1 => ("a spoilt write", Fault::BitRot { bits: 1 }),
            _ => ("a misdirected write", Fault::Misdirected { by: 512 * pick(rng, &[-8, -1, 1, 8]) }),
        };
        let rule = FaultRule { calls: Calls::Writes, device, when: When::Nth(rng.below(60)), fault };
        Trouble { name, rule, severity: Severity::Detected, lasting: true }
    }
}
