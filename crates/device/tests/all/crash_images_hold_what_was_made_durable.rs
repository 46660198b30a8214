//! Crash images hold everything that was made durable, nothing that was never written, and, over
//! many draws, every mixture of the rest; and they find a protocol that forgets a sync.

use firndb_base::rng::Rng;
use firndb_device::{
    CrashDevice, CrashPlan, Device, DeviceErrorKind, Durability, Fill, Io, IoOp, MemoryDevice, Survival,
    crash::{Event, SECTOR_BYTES},
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const SECTORS: u64 = 24;

/// A sector filled with `stamp`.
fn sectors(stamp: u64, count: u64) -> Vec<u8> {
    stamp.to_le_bytes().repeat(count as usize * SECTOR_BYTES / 8)
}

/// The stamp of a sector, which must be whole.
fn stamp_of(device: &dyn Device, sector: u64) -> u64 {
    let mut bytes = [0; SECTOR_BYTES];
    device.read(sector * SECTOR_BYTES as u64, &mut bytes).expect("inside the device");
    let stamp = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    assert!(bytes.chunks(8).all(|part| part == stamp.to_le_bytes()), "a sector never tears within");
    stamp
}

fn grown(plan: &CrashPlan, name: &str) -> Arc<CrashDevice> {
    let device = plan.device(name);
    device.grow(SECTORS * SECTOR_BYTES as u64, Fill::Written).expect("grown");
    device
}

/// For one sector: the stamp that is surely there or replaced, and those that may have replaced it.
#[derive(Clone, Default)]
struct Expected {
    durable: u64,
    /// Oldest first.
    maybe: Vec<u64>,
}

/// Runs a random single-threaded workload; returns what may be found at each mark, taken after each
/// call.
fn run(plan: &CrashPlan, devices: &[Arc<CrashDevice>], rng: &mut Rng) -> Vec<Vec<Vec<Expected>>> {
    let mut now = vec![vec![Expected::default(); SECTORS as usize]; devices.len()];
    let mut history = Vec::new();
    for stamp in 1..=120 {
        let at = rng.below(devices.len() as u64) as usize;
        let (device, model) = (&devices[at], &mut now[at]);
        let first = rng.below(SECTORS);
        let count = rng.between(1, (SECTORS - first).min(5));
        let range = first as usize..(first + count) as usize;
        let offset = first * SECTOR_BYTES as u64;
        match rng.below(8) {
            0 => {
                device.sync().expect("synced");
                for sector in model {
                    sector.durable = sector.maybe.last().copied().unwrap_or(sector.durable);
                    sector.maybe.clear();
                }
            }
            1 | 2 => {
                device.write(offset, &sectors(stamp, count), Durability::Durable).expect("written");
                model[range].fill(Expected { durable: stamp, maybe: Vec::new() });
            }
            3 => {
                device.discard(offset, count * SECTOR_BYTES as u64).expect("discarded");
                model[range].iter_mut().for_each(|sector| sector.maybe.push(0));
            }
            _ => {
                device.write(offset, &sectors(stamp, count), Durability::Later).expect("written");
                model[range].iter_mut().for_each(|sector| sector.maybe.push(stamp));
            }
        }
        plan.mark(history.len() as u64);
        history.push(now.clone());
    }
    history
}

#[test]
fn at_every_event_and_for_every_survival() {
    for seed in 0..8 {
        let mut rng = Rng::new(seed);
        let plan = CrashPlan::new();
        let devices = [grown(&plan, "one"), grown(&plan, "two")];
        plan.settle();
        let history = run(&plan, &devices, &mut rng);
        let mut replay = plan.replay();
        while let Some(event) = replay.step().cloned() {
            replay.check();
            let Event::Mark(mark) = event else { continue };
            for survival in Survival::ALL {
                let image = replay.image(survival, &mut rng);
                for (device, expected) in image.iter().zip(&history[mark as usize]) {
                    for (sector, expected) in expected.iter().enumerate() {
                        let found = stamp_of(&**device, sector as u64);
                        let newest = expected.maybe.last().copied().unwrap_or(expected.durable);
                        let allowed = match survival {
                            Survival::Nothing => found == expected.durable,
                            Survival::Everything => found == newest,
                            _ => found == expected.durable || expected.maybe.contains(&found),
                        };
                        assert!(allowed, "seed {seed} mark {mark} {survival:?} sector {sector}: {found}");
                    }
                }
            }
        }
        for (device, live) in replay.image(Survival::Everything, &mut rng).iter().zip(&devices) {
            for sector in 0..SECTORS {
                assert_eq!(stamp_of(&**device, sector), stamp_of(&**live, sector));
            }
        }
    }
}

#[test]
fn every_mixture_of_unsynced_sectors_occurs() {
    let plan = CrashPlan::new();
    let device = grown(&plan, "data");
    device.write(0, &sectors(1, 2), Durability::Later).expect("written");
    device.write(0, &sectors(2, 2), Durability::Later).expect("written");
    let mut rng = Rng::new(3);
    let mut found = |survival| -> BTreeSet<(u64, u64)> {
        (0..400)
            .map(|_| plan.crash_image(survival, &mut rng))
            .map(|image| (stamp_of(&*image[0], 0), stamp_of(&*image[0], 1)))
            .collect()
    };
    assert_eq!(found(Survival::Nothing), BTreeSet::from([(0, 0)]));
    assert_eq!(found(Survival::Everything), BTreeSet::from([(2, 2)]));
    assert_eq!(found(Survival::Sectors).len(), 9);
    assert_eq!(found(Survival::Writes), BTreeSet::from([(0, 0), (1, 1), (2, 2)]));
    assert_eq!(found(Survival::AllButOne), BTreeSet::from([(1, 1), (2, 2)]));
    assert_eq!(found(Survival::OnlyOne), BTreeSet::from([(1, 1), (2, 2)]));
    assert_eq!(found(Survival::Prefix), BTreeSet::from([(0, 0), (1, 1), (2, 2)]));
    let torn = BTreeSet::from([(0, 0), (1, 0), (0, 1), (1, 1), (2, 1), (1, 2), (2, 2)]);
    assert_eq!(found(Survival::Torn), torn);
}

#[test]
fn equal_seeds_give_equal_images() {
    let plan = CrashPlan::new();
    let device = grown(&plan, "data");
    run(&plan, std::slice::from_ref(&device), &mut Rng::new(1));
    for survival in Survival::ALL {
        let read =
            |image: Vec<Arc<MemoryDevice>>| (0..SECTORS).map(|s| stamp_of(&*image[0], s)).collect::<Vec<_>>();
        let (one, two) =
            (plan.image_at(60, survival, &mut Rng::new(9)), plan.image_at(60, survival, &mut Rng::new(9)));
        assert_eq!(read(one), read(two));
    }
}

#[test]
fn durable_writes_in_flight_may_be_partly_there_and_those_of_a_batch_in_any_mixture() {
    let plan = CrashPlan::new();
    let device = grown(&plan, "log");
    plan.settle();
    let data = [sectors(1, 1), sectors(2, 2)];
    let mut batch: Vec<Io<'_>> = data
        .iter()
        .enumerate()
        .map(|(i, bytes)| Io {
            offset: i as u64 * 4096,
            op: IoOp::Write(bytes, Durability::Durable),
            outcome: Ok(()),
        })
        .collect();
    device.submit(&mut batch);
    assert!(batch.iter().all(|io| io.outcome.is_ok()));
    let events = plan.events();
    assert!(
        matches!(
            events[..],
            [
                Event::WriteBegins { .. },
                Event::WriteBegins { .. },
                Event::WriteEnds { .. },
                Event::WriteEnds { .. }
            ]
        ),
        "{events:?}"
    );
    let mut rng = Rng::new(2);
    let mut found = |index| -> BTreeSet<[u64; 3]> {
        (0..200)
            .map(|_| plan.image_at(index, Survival::Sectors, &mut rng))
            .map(|image| [stamp_of(&*image[0], 0), stamp_of(&*image[0], 8), stamp_of(&*image[0], 9)])
            .collect()
    };
    assert_eq!(found(0), BTreeSet::from([[0, 0, 0]]));
    assert_eq!(found(2).len(), 8, "both are in flight: any of three sectors");
    assert_eq!(found(3).len(), 4, "the first has returned");
    assert_eq!(found(4), BTreeSet::from([[1, 2, 2]]));
}

#[test]
fn a_sync_covers_only_what_had_returned_when_it_began_on_its_own_device() {
    let plan = CrashPlan::new();
    let (one, two) = (grown(&plan, "one"), grown(&plan, "two"));
    plan.settle();
    two.write(0, &sectors(5, 1), Durability::Later).expect("written");
    plan.set_latency(Duration::from_millis(400));
    std::thread::scope(|scope| {
        // The write is in flight for 400 ms; the sync begins and ends within.
        scope.spawn(|| one.write(0, &sectors(1, 1), Durability::Later).expect("written"));
        while plan.event_count() == 2 {
            std::thread::yield_now();
        }
        plan.set_latency(Duration::ZERO);
        one.sync().expect("synced");
    });
    let image = plan.crash_image(Survival::Nothing, &mut Rng::new(0));
    assert_eq!(stamp_of(&*image[0], 0), 0, "the write had not returned");
    assert_eq!(stamp_of(&*image[1], 0), 0, "the other device was not synced");
    one.sync().expect("synced");
    let image = plan.crash_image(Survival::Nothing, &mut Rng::new(0));
    assert_eq!(stamp_of(&*image[0], 0), 1);
}

#[test]
fn what_was_acknowledged_to_any_thread_is_in_every_later_image() {
    const THREADS: u64 = 4;
    let plan = CrashPlan::new();
    let device = grown(&plan, "data");
    plan.settle();
    plan.set_latency(Duration::from_micros(20));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (plan, device) = (&plan, &device);
            // Each thread has a sector of its own and counts up in it, durable in either way.
            scope.spawn(move || {
                for round in 1..=20u64 {
                    let durability = if round % 3 == 0 { Durability::Durable } else { Durability::Later };
                    let offset = thread * SECTOR_BYTES as u64;
                    device.write(offset, &sectors(round, 1), durability).expect("written");
                    if durability == Durability::Later {
                        device.sync().expect("synced");
                    }
                    plan.mark(thread << 32 | round);
                }
            });
        }
    });
    let mut replay = plan.replay();
    let mut rng = Rng::new(6);
    let mut acknowledged = [0; THREADS as usize];
    while let Some(event) = replay.step() {
        if let Event::Mark(mark) = event {
            acknowledged[(mark >> 32) as usize] = mark & 0xffff_ffff;
        }
        replay.check();
        for survival in Survival::ALL {
            let image = replay.image(survival, &mut rng);
            for (thread, &acknowledged) in acknowledged.iter().enumerate() {
                let found = stamp_of(&*image[0], thread as u64);
                assert!(
                    found == acknowledged || found == acknowledged + 1,
                    "{survival:?}: acknowledged {acknowledged}, found {found}"
                );
            }
        }
    }
    assert_eq!((acknowledged, replay.pending_writes()), ([20; THREADS as usize], 0));
}

#[test]
fn lengths_are_durable_when_the_call_returns_and_either_while_it_runs() {
    let plan = CrashPlan::new();
    let device = plan.device_holding(&MemoryDevice::with("small", 4096, 16384));
    device.grow(8192, Fill::Reserved).expect("grown");
    device.write(4096, &sectors(4, 8), Durability::Later).expect("written");
    device.shrink(4096).expect("shrunk");
    device.grow(8192, Fill::Sparse).expect("grown");
    let error = device.grow(16385, Fill::Sparse).expect_err("over the limit");
    assert_eq!(error.kind, DeviceErrorKind::NoSpace);
    let mut rng = Rng::new(4);
    let mut lengths = |index| -> BTreeSet<u64> {
        (0..50).map(|_| plan.image_at(index, Survival::Sectors, &mut rng)[0].len()).collect()
    };
    assert_eq!(lengths(0), BTreeSet::from([0]));
    assert_eq!(lengths(1), BTreeSet::from([0, 8192]));
    assert_eq!(lengths(2), BTreeSet::from([8192]));
    assert_eq!(lengths(5), BTreeSet::from([4096, 8192]));
    assert_eq!(lengths(6), BTreeSet::from([4096]));
    assert_eq!(lengths(8), BTreeSet::from([8192]));
    let image = plan.crash_image(Survival::Everything, &mut rng);
    let mut bytes = [1; 4096];
    image[0].read(4096, &mut bytes).expect("inside the device");
    assert_eq!(bytes, [0; 4096], "what was cut off does not come back");
    assert_eq!(image[0].info().logical_block, 4096);
}

#[test]
fn images_can_crash_again_and_the_power_stays_off() {
    let plan = CrashPlan::new();
    let device = grown(&plan, "data");
    device.write(0, &sectors(1, 1), Durability::Durable).expect("written");
    plan.power_off();
    for refused in [
        device.write(0, &sectors(2, 1), Durability::Durable),
        device.read(0, &mut [0; 512]),
        device.sync(),
        device.grow(1 << 20, Fill::Sparse),
    ] {
        assert_eq!(refused.expect_err("the power is off").kind, DeviceErrorKind::Failed);
    }
    let mut rng = Rng::new(0);
    let image = plan.crash_image(Survival::Everything, &mut rng);

    let again = CrashPlan::new();
    let device = again.device_holding(&image[0]);
    assert_eq!(stamp_of(&*device, 0), 1);
    device.write(0, &sectors(3, 1), Durability::Later).expect("written");
    let lost = again.crash_image(Survival::Nothing, &mut rng);
    assert_eq!(stamp_of(&*lost[0], 0), 1, "what the first life made durable is durable in the second");
    assert_eq!(stamp_of(&*image[0], 0), 1, "the first image is not changed by the second life");
}

/// Two slots on one device, a pointer to the valid one on another; the record of one change each
/// round.
fn change_twice(plan: &CrashPlan, sync_before_publishing: bool) -> bool {
    let (slots, pointer) = (grown(plan, "slots"), grown(plan, "pointer"));
    plan.settle();
    for round in 1..=6 {
        slots.write(round % 2 * 4096, &sectors(round, 4), Durability::Later).expect("written");
        if sync_before_publishing {
            slots.sync().expect("synced");
        }
        pointer.write(0, &sectors(round, 1), Durability::Durable).expect("written");
        plan.mark(round);
    }
    let mut replay = plan.replay();
    let mut rng = Rng::new(5);
    loop {
        for survival in Survival::ALL {
            let image = replay.image(survival, &mut rng);
            let published = stamp_of(&*image[1], 0);
            let whole =
                published == 0 || (0..4).all(|s| stamp_of(&*image[0], published % 2 * 8 + s) == published);
            if !whole || published < replay.marks().last().copied().unwrap_or(0) {
                return false;
            }
        }
        if replay.step().is_none() {
            return true;
        }
    }
}

#[test]
fn a_protocol_that_forgets_its_sync_is_caught_and_the_right_one_passes() {
    assert!(change_twice(&CrashPlan::new(), true));
    assert!(!change_twice(&CrashPlan::new(), false), "the harness must see the missing sync");
}
