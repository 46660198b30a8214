//! With two copies of each request, the loss of any one of three devices loses nothing that was
//! flushed: at any moment of a crash, before recovery, while it reads, and after it has begun to
//! append.

use crate::support;
use crate::support::{Model, as_records, device_with, identity_with, random_group};
use firndb_base::rng::Rng;
use firndb_base::{Epoch, Lsn};
use firndb_device::{
    AbsentDevice, CrashPlan, Device, DeviceError, DeviceErrorKind, Durability, FaultPlan, Faulty,
    MemoryDevice, Survival,
};
use firndb_log::testing::options;
use firndb_log::{Hiding, Log, LogClass, LogError, LogIdentity, LogOptions, LogScan, MemberId, Redundancy};
use firndb_testkit::bytes::contents;
use std::sync::Arc;

const MEMBERS: u32 = 3;

/// Devices for a log of `members` members.
fn empty(members: u32) -> Vec<Arc<MemoryDevice>> {
    (0..members).map(|i| device_with(&format!("log {i}"), 512, 160 << 10)).collect()
}

fn two_copies(rng: &mut Rng) -> LogOptions {
    LogOptions {
        copies: 2,
        buffer_bytes: 64 << 10,
        request_bytes: 4096 << rng.below(3),
        workers: rng.one_in(2),
        hiding: if rng.one_in(3) { Hiding::Off } else { Hiding::Adaptive },
        ..options()
    }
}

fn absent(place: usize) -> Arc<dyn Device> {
    let why = DeviceError::new(DeviceErrorKind::Failed, format!("log {place}: unplugged"));
    Arc::new(AbsentDevice::new(&format!("log {place}"), why))
}

fn as_devices(images: &[Arc<MemoryDevice>], lost: Option<usize>) -> Vec<Arc<dyn Device>> {
    let mut devices: Vec<Arc<dyn Device>> = images.iter().map(|d| d.clone() as Arc<dyn Device>).collect();
    if let Some(lost) = lost {
        devices[lost] = absent(lost);
    }
    devices
}

fn duplicates(images: &[Arc<MemoryDevice>]) -> Vec<Arc<MemoryDevice>> {
    images.iter().map(|image| Arc::new(image.duplicate())).collect()
}

fn identity(epochs: &[(Epoch, Lsn)]) -> LogIdentity {
    LogIdentity { redundancy: Redundancy::since(Lsn::FIRST, 2), ..identity_with(MEMBERS, epochs) }
}

fn scan(devices: Vec<Arc<dyn Device>>, epochs: &[(Epoch, Lsn)], from: Lsn) -> Result<LogScan, LogError> {
    LogScan::new(devices, identity(epochs), from, &mut |_, _| {})
}

/// The last values marked as `2 * lsn` and `2 * lsn + 1`: the flushed LSN, and the start of a scan.
fn marks(marks: &[u64]) -> (Lsn, Lsn) {
    let of = |odd: u64| marks.iter().rev().find(|&&mark| mark % 2 == odd).map_or(Lsn::FIRST, |m| Lsn(m / 2));
    (of(0), of(1))
}

fn work(log: &Log, plan: &CrashPlan, model: &mut Model, rng: &mut Rng) {
    for _ in 0..rng.between(20, 80) {
        let group = random_group(rng, 1500);
        let Ok(appended) = log.append_group(LogClass::Normal, &as_records(&group)) else {
            log.flush(log.end()).unwrap();
            let durable = log.durable();
            plan.mark(durable.0 * 2);
            plan.mark(durable.0 * 2 + 1);
            log.truncate(durable);
            continue;
        };
        model.add(appended, &group);
        match rng.below(3) {
            0 => log.request_flush(appended.end),
            1 => drop(log.step()),
            _ => {
                log.flush(appended.end).unwrap();
                plan.mark(appended.end.0 * 2);
            }
        }
    }
}

/// Events that one crash image went through.
#[derive(Default)]
struct Tally {
    images: usize,
    thin: usize,
    again: usize,
    bad_places: usize,
}

/// The devices, of which the one at `spoilt` cannot read an eighth of its blocks.
fn with_bad_places(images: &[Arc<MemoryDevice>], spoilt: usize, rng: &mut Rng) -> Vec<Arc<dyn Device>> {
    let mut devices = as_devices(images, None);
    let faulty = Faulty::new(devices[spoilt].clone(), &FaultPlan::new(0));
    // One copy of the member header may be among them.
    faulty.make_unreadable(512 * rng.below(2), 512);
    for at in (1024..faulty.len()).step_by(512).filter(|_| rng.one_in(8)) {
        faulty.make_unreadable(at, 512);
    }
    devices[spoilt] = Arc::new(faulty);
    devices
}

fn check_image(
    images: &[Arc<MemoryDevice>],
    (flushed, from): (Lsn, Lsn),
    model: &Model,
    rng: &mut Rng,
    tally: &mut Tally,
) {
    let epochs = [(Epoch(1), Lsn::FIRST)];
    for lost in [None, Some(0), Some(1), Some(2)] {
        let found = scan(as_devices(images, lost), &epochs, from).unwrap();
        assert!(found.end() >= flushed, "without {lost:?} the log ends at {} < {flushed}", found.end());
        model.check(&found, from);
        assert_eq!(found.lost().len(), usize::from(lost.is_some()));
        tally.images += 1;
    }
    // One device has places that cannot be read.
    let spoilt = rng.below(u64::from(MEMBERS)) as usize;
    let found = scan(with_bad_places(images, spoilt, rng), &epochs, from)
        .unwrap_or_else(|error| panic!("with bad places on {spoilt}: {error}"));
    assert!(
        found.end() >= flushed,
        "with bad places on {spoilt} the log ends at {} < {flushed}",
        found.end()
    );
    model.check(&found, from);
    tally.bad_places += 1;
    // Recovery begins with all devices, and crashes; then one is lost.
    let plan = CrashPlan::new();
    let held: Vec<Arc<dyn Device>> =
        images.iter().map(|image| plan.device_holding(image) as Arc<dyn Device>).collect();
    let found = scan(held, &epochs, from).unwrap();
    tally.thin += usize::from(found.has_thin_log());
    let start = found.next_epoch_start();
    let epochs = [epochs[0], (Epoch(2), start)];
    let options = LogOptions { copies: 2, workers: false, ..options() };
    let log = found.open_log(Epoch(2), start, options).unwrap();
    assert!(log.is_covered());
    // From here on recovery may depend on the log that it found.
    plan.mark(1);
    let more = random_group(rng, 600);
    log.append_group(LogClass::System, &as_records(&more)).unwrap();
    log.flush(log.end()).unwrap();
    let built_upon = found.end();
    let mut replay = plan.replay();
    loop {
        let survival = Survival::ALL[rng.below(Survival::ALL.len() as u64) as usize];
        let image = replay.image(survival, rng);
        let opened = !replay.marks().is_empty();
        for lost in [None, Some(0), Some(1), Some(2)] {
            let again = scan(as_devices(&image, lost), &epochs, from)
                .unwrap_or_else(|error| panic!("without {lost:?} after a crash in recovery: {error}"));
            assert!(again.end() >= flushed);
            assert!(!opened || again.end() >= built_upon, "{} < {built_upon}", again.end());
            tally.again += 1;
        }
        if replay.step().is_none() {
            break;
        }
    }
}

fn run(seed: u64, tally: &mut Tally) {
    let mut rng = Rng::new(seed);
    let options = two_copies(&mut rng);
    let images = empty(MEMBERS);
    let plan = CrashPlan::new();
    let held = images.iter().map(|image| plan.device_holding(image) as Arc<dyn Device>).collect();
    let log = Log::create(held, identity(&[(Epoch(1), Lsn::FIRST)]), Epoch(1), options).unwrap();
    plan.settle();
    let mut model = Model::default();
    work(&log, &plan, &mut model, &mut rng);
    drop(log);
    let mut replay = plan.replay();
    for _ in 0..6 {
        let at =
            replay.position() + rng.below((replay.event_count() - replay.position()) as u64 / 3 + 1) as usize;
        replay.advance_to(at);
        let survival = Survival::ALL[rng.below(Survival::ALL.len() as u64) as usize];
        let image = replay.image(survival, &mut rng);
        check_image(&duplicates(&image), marks(replay.marks()), &model, &mut rng, tally);
    }
}

fn many(seeds: std::ops::Range<u64>) {
    let mut tally = Tally::default();
    for seed in seeds {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(seed, &mut tally)));
        outcome.unwrap_or_else(|panic| {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic)
        });
    }
    eprintln!(
        "{} images, {} with thin log, {} of crashes in recovery, {} with bad places",
        tally.images, tally.thin, tally.again, tally.bad_places
    );
    assert!(tally.thin > 0, "no crash left a request on too few devices: the test sees nothing");
}

#[test]
fn whichever_device_is_lost_at_whichever_moment() {
    many(0..25);
}

/// `cargo test --release -p firndb-log --test all copies_survive_lost_devices -- --ignored`
#[test]
#[ignore = "takes minutes"]
fn whichever_device_is_lost_at_whichever_moment_long() {
    many(1000..4000);
}

/// Shows that the test above can fail: with one copy, losing a device loses log, and that is
/// reported.
#[test]
fn without_copies_a_lost_device_is_an_error() {
    let images = empty(2);
    let identity = identity_with(2, &[(Epoch(1), Lsn::FIRST)]);
    let log = Log::create(as_devices(&images, None), identity.clone(), Epoch(1), options()).unwrap();
    log.flush(log.end()).unwrap();
    let error = LogScan::new(as_devices(&images, Some(1)), identity, Lsn::FIRST, &mut |_, _| {}).unwrap_err();
    assert!(error.message.contains("unplugged"), "{error}");
}

/// One of three devices returns wrong data: it lost its last writes, or all writes from some moment
/// on, or bits of it decayed. This includes the very last request, to which no later one refers.
#[test]
fn what_one_device_lost_or_spoilt_is_on_another() {
    let mut rng = Rng::new(5);
    for round in 0..40 {
        let images = empty(MEMBERS);
        let epochs = [(Epoch(1), Lsn::FIRST)];
        let options = LogOptions { copies: 2, ..options() };
        let log = Log::create(as_devices(&images, None), identity(&epochs), Epoch(1), options).unwrap();
        let mut model = Model::default();
        let mut older = duplicates(&images);
        let commits = rng.between(5, 40);
        let kept = rng.below(commits);
        for n in 0..commits {
            if n == kept {
                older = duplicates(&images);
            }
            let group = random_group(&mut rng, 900);
            let appended = log.append_group(LogClass::Normal, &as_records(&group)).unwrap();
            model.add(appended, &group);
            log.flush(appended.end).unwrap();
        }
        let end = log.end();
        drop(log);
        let bad = rng.below(u64::from(MEMBERS)) as usize;
        let mut devices = as_devices(&images, None);
        if round % 2 == 0 {
            devices[bad] = older[bad].clone();
        } else {
            let bytes = contents(&*images[bad]);
            let last = support::log_blocks(&bytes).last().map(|block| block.0);
            for (at, ..) in support::log_blocks(&bytes) {
                if Some(at) == last || rng.one_in(3) {
                    let mut block = bytes[at..at + 512].to_vec();
                    block[rng.below(512) as usize] ^= 1 << rng.below(8);
                    images[bad].write(at as u64, &block, Durability::Durable).unwrap();
                }
            }
        }
        let found = scan(devices, &epochs, Lsn::FIRST).unwrap();
        assert_eq!(found.end(), end, "round {round}: device {bad} was spoilt");
        model.check(&found, Lsn::FIRST);
    }
}

#[test]
fn every_request_lies_on_two_devices() {
    let images = empty(MEMBERS);
    let options = LogOptions { copies: 2, ..options() };
    let log = Log::create(as_devices(&images, None), identity(&[(Epoch(1), Lsn::FIRST)]), Epoch(1), options)
        .unwrap();
    let (mut model, mut rng) = (Model::default(), Rng::new(11));
    for _ in 0..50 {
        let group = random_group(&mut rng, 300);
        let appended = log.append_group(LogClass::Normal, &as_records(&group)).unwrap();
        model.add(appended, &group);
        log.flush(appended.end).unwrap();
    }
    let mut copies = std::collections::BTreeMap::new();
    for image in &images {
        for (_, lsn, fill, _) in support::log_blocks(&contents(&**image)) {
            *copies.entry((lsn, fill)).or_insert(0) += 1;
        }
    }
    assert!(copies.values().all(|&count| count == 2), "{copies:?}");
    let ids: Vec<MemberId> = log.members().into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, [MemberId(0), MemberId(1), MemberId(2)]);
}
