//! Every fault does what it says to the call it was planned for, and to no other.

use firndb_base::rng::Rng;
use firndb_device::{
    Calls, CrashPlan, Device, DeviceErrorKind, Durability, Fault, FaultPlan, FaultRule, Faulty, Fill, Io,
    IoOp, MemoryDevice, Survival, When,
};
use firndb_testkit::bytes::contents;
use std::sync::Arc;
use std::time::{Duration, Instant};

const BLOCK: usize = 512;

/// A device of 16 blocks, block i filled with i, the same beneath without faults, and the plan.
fn setup(seed: u64) -> (Faulty, Arc<MemoryDevice>, FaultPlan) {
    let inner = Arc::new(MemoryDevice::new("data"));
    inner.grow(16 * BLOCK as u64, Fill::Written).expect("grown");
    for i in 0..16u8 {
        inner.write(u64::from(i) * BLOCK as u64, &[i; BLOCK], Durability::Durable).expect("written");
    }
    let plan = FaultPlan::new(seed);
    (Faulty::new(inner.clone(), &plan), inner, plan)
}

/// First byte of each block.
fn blocks(device: &dyn Device) -> Vec<u8> {
    contents(device).chunks(BLOCK).map(|block| block[0]).collect()
}

fn untouched() -> Vec<u8> {
    (0..16).collect()
}

#[test]
fn the_nth_call_over_all_devices_fails_once_or_from_then_on() {
    for for_ever in [false, true] {
        for failing in 0..6 {
            let (one, _, plan) = setup(0);
            let two = Faulty::new(Arc::new(MemoryDevice::new("other")), &plan);
            match for_ever {
                true => plan.fail_from(failing, Calls::Any, DeviceErrorKind::Failed),
                false => plan.fail_nth(failing, Calls::Any, DeviceErrorKind::Failed),
            }
            let mut buf = [0; BLOCK];
            let outcomes = [
                one.read(0, &mut buf).is_err(),
                two.grow(BLOCK as u64, Fill::Written).is_err(),
                one.write(0, &buf, Durability::Later).is_err(),
                two.sync().is_err(),
                one.discard(0, BLOCK as u64).is_err(),
                two.shrink(0).is_err(),
            ];
            let expected: [bool; 6] =
                std::array::from_fn(|i| if for_ever { i as u64 >= failing } else { i as u64 == failing });
            assert_eq!(outcomes, expected);
            assert_eq!(plan.calls(), 6);
            assert_eq!(plan.fired(), expected.iter().filter(|&&failed| failed).count() as u64);
            assert_eq!(plan.calls_of(Calls::Discards), 2);
            plan.heal();
            one.sync().expect("healed");
        }
    }
}

#[test]
fn rules_count_only_the_calls_they_see() {
    let (one, _, plan) = setup(0);
    let two = Faulty::new(Arc::new(MemoryDevice::new("other")), &plan);
    plan.add(FaultRule {
        calls: Calls::Syncs,
        device: Some("other".to_owned()),
        when: When::Nth(1),
        fault: Fault::Fail(DeviceErrorKind::NoSpace),
    });
    one.sync().expect("not this device");
    two.sync().expect("not this time");
    two.grow(BLOCK as u64, Fill::Sparse).expect("not this kind");
    one.sync().expect("not this device");
    let error = two.sync().expect_err("now");
    assert_eq!(error.kind, DeviceErrorKind::NoSpace);
    assert!(error.message.contains("other: syncing failed on purpose, at call 4"), "{error}");
    two.sync().expect("once only");
}

#[test]
fn a_growth_without_space_keeps_the_length() {
    let (device, _, plan) = setup(0);
    plan.fail_nth(0, Calls::Grows, DeviceErrorKind::NoSpace);
    let error = device.grow(1 << 20, Fill::Written).expect_err("no space");
    assert_eq!((error.kind, device.len()), (DeviceErrorKind::NoSpace, 16 * BLOCK as u64));
    device.grow(1 << 20, Fill::Written).expect("space again");
}

#[test]
fn a_torn_write_leaves_its_first_blocks_and_never_all() {
    for (blocks_written, expected) in [(0, 0), (2, 2), (3, 3), (9, 3)] {
        for error in [Some(DeviceErrorKind::Failed), None] {
            let (device, inner, plan) = setup(0);
            plan.nth(0, Calls::Writes, Fault::Torn { blocks: blocks_written, error });
            let outcome = device.write(BLOCK as u64, &[0xee; 4 * BLOCK], Durability::Durable);
            assert_eq!(outcome.map_err(|error| error.kind).err(), error);
            let mut model = untouched();
            model[1..1 + expected].fill(0xee);
            assert_eq!(blocks(&*inner), model);
        }
    }
}

#[test]
fn lost_misdirected_and_late_failing_writes() {
    let (device, inner, plan) = setup(0);
    plan.nth(0, Calls::Writes, Fault::Lost);
    plan.nth(1, Calls::Writes, Fault::Misdirected { by: 3 * BLOCK as i64 });
    plan.nth(2, Calls::Writes, Fault::Misdirected { by: -2 * BLOCK as i64 });
    plan.nth(3, Calls::Writes, Fault::FailLate(DeviceErrorKind::Failed));
    for stamp in [0xa0, 0xa1, 0xa2] {
        device.write(0, &[stamp; BLOCK], Durability::Durable).expect("acknowledged");
    }
    device.write(BLOCK as u64, &[0xa3; BLOCK], Durability::Later).expect_err("done, but not said so");
    let mut model = untouched();
    (model[3], model[14], model[1]) = (0xa1, 0xa2, 0xa3);
    assert_eq!(blocks(&*inner), model);
    assert_eq!(plan.fired(), 4);
}

#[test]
fn misdirected_and_stale_reads() {
    let (device, _, plan) = setup(0);
    let mut buf = [0; 2 * BLOCK];
    plan.nth(0, Calls::Reads, Fault::Misdirected { by: 5 * BLOCK as i64 });
    device.read(0, &mut buf).expect("read");
    assert_eq!((buf[0], buf[BLOCK]), (5, 6));

    plan.nth(1, Calls::Reads, Fault::Stale);
    device.write(0, &[0xb1; BLOCK], Durability::Durable).expect("written");
    device.write(0, &[0xb2; BLOCK], Durability::Durable).expect("written");
    device.read(0, &mut buf).expect("read");
    assert_eq!((buf[0], buf[BLOCK]), (0xb2, 1));
    device.read(0, &mut buf).expect("read");
    assert_eq!((buf[0], buf[BLOCK]), (0xb1, 1), "the version before, where there is one");
    device.read(0, &mut buf).expect("read");
    assert_eq!(buf[0], 0xb2, "once only");
}

#[test]
fn bits_rot_on_the_way_in_for_good_and_on_the_way_out_once() {
    let differing = |a: &[u8], b: &[u8]| a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>();
    let (device, inner, plan) = setup(7);
    let mut buf = [0; BLOCK];
    plan.nth(0, Calls::Reads, Fault::BitRot { bits: 1 });
    device.read(0, &mut buf).expect("read");
    assert_eq!(differing(&buf, &[0; BLOCK]), 1);
    device.read(0, &mut buf).expect("read");
    assert_eq!(buf, [0; BLOCK]);

    plan.nth(0, Calls::Writes, Fault::BitRot { bits: 1 });
    device.write(0, &[9; BLOCK], Durability::Durable).expect("written");
    inner.read(0, &mut buf).expect("read");
    assert_eq!(differing(&buf, &[9; BLOCK]), 1);

    let calls = plan.calls();
    device.rot(2 * BLOCK as u64, BLOCK, 1, 99).expect("damaged");
    inner.read(2 * BLOCK as u64, &mut buf).expect("read");
    assert_eq!(differing(&buf, &[2; BLOCK]), 1);
    assert_eq!(plan.calls(), calls, "damaging the medium is no call");
}

#[test]
fn an_unreadable_block_spoils_every_read_that_touches_it_until_it_is_written() {
    let (device, inner, plan) = setup(0);
    device.make_unreadable(5 * BLOCK as u64, 2 * BLOCK as u64);
    assert_eq!(device.unreadable_blocks(), 2);
    let mut one = [0; BLOCK];
    let mut two = [0; 2 * BLOCK];
    device.read(4 * BLOCK as u64, &mut one).expect("beside it");
    let error = device.read(4 * BLOCK as u64, &mut two).expect_err("one of both");
    assert!(error.kind == DeviceErrorKind::Failed && error.message.contains("2560"), "{error}");
    let read = |at: u64, buf| Io { offset: at * BLOCK as u64, op: IoOp::Read(buf), outcome: Ok(()) };
    let mut batch = [read(4, &mut one), read(6, &mut two[..BLOCK])];
    device.submit(&mut batch);
    assert!(batch[0].outcome.is_ok() && batch[1].outcome.is_err());
    device.write(5 * BLOCK as u64, &[9; BLOCK], Durability::Later).expect("written");
    assert_eq!((device.unreadable_blocks(), plan.fired()), (1, 0));
    device.read(5 * BLOCK as u64, &mut one).expect("mended");
    assert_eq!((one[0], blocks(&*inner)[6]), (9, 6), "what is beneath stays as it is");
}

#[test]
fn a_worn_out_block_takes_no_write_either() {
    let (device, inner, _) = setup(0);
    device.wear_out(5 * BLOCK as u64, BLOCK as u64);
    device.make_unreadable(4 * BLOCK as u64, 2 * BLOCK as u64);
    assert_eq!(device.unreadable_blocks(), 2);
    let error = device.write(4 * BLOCK as u64, &[9; 2 * BLOCK], Durability::Later).expect_err("one of both");
    assert!(error.kind == DeviceErrorKind::Failed && error.message.contains("2560"), "{error}");
    assert_eq!(blocks(&*inner)[4], 4, "nothing of it was written");
    device.write(4 * BLOCK as u64, &[9; BLOCK], Durability::Later).expect("beside it");
    assert_eq!(device.unreadable_blocks(), 1);
    assert!(device.read(5 * BLOCK as u64, &mut [0; BLOCK]).is_err(), "for ever");
}

#[test]
fn a_stalled_call_is_late_and_done() {
    let (device, inner, plan) = setup(0);
    let time = Duration::from_millis(30);
    plan.nth(0, Calls::Any, Fault::Stall(time));
    let started = Instant::now();
    device.write(0, &[1; BLOCK], Durability::Durable).expect("written");
    assert!(started.elapsed() >= time);
    assert_eq!(blocks(&*inner)[0], 1);
}

#[test]
fn transfers_of_a_batch_go_wrong_one_by_one() {
    let (device, inner, plan) = setup(0);
    plan.fail_nth(1, Calls::Writes, DeviceErrorKind::Failed);
    let data = [0xcc; BLOCK];
    let mut buf = [0; BLOCK];
    let mut batch: Vec<Io<'_>> = (0..3)
        .map(|i| Io {
            offset: i * BLOCK as u64,
            op: IoOp::Write(&data, Durability::Durable),
            outcome: Ok(()),
        })
        .collect();
    batch.push(Io { offset: 15 * BLOCK as u64, op: IoOp::Read(&mut buf), outcome: Ok(()) });
    device.submit(&mut batch);
    let failed: Vec<bool> = batch.iter().map(|io| io.outcome.is_err()).collect();
    assert_eq!(failed, [false, true, false, false]);
    assert_eq!(blocks(&*inner)[..4], [0xcc, 1, 0xcc, 3]);
    assert_eq!((buf[0], plan.calls()), (15, 4));
}

#[test]
fn equal_seeds_give_equal_faults() {
    let run = |seed| {
        let (device, _, plan) = setup(seed);
        plan.one_in(3, Calls::Any, Fault::Fail(DeviceErrorKind::Failed));
        plan.one_in(4, Calls::Reads, Fault::BitRot { bits: 2 });
        let mut seen = Vec::new();
        for i in 0..60 {
            let mut buf = [0; BLOCK];
            let failed = match i % 3 {
                0 => device.read(0, &mut buf).is_err(),
                1 => device.write(BLOCK as u64, &buf, Durability::Later).is_err(),
                _ => device.sync().is_err(),
            };
            seen.push((failed, buf));
        }
        (seen, plan.fired())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    assert!((5..40).contains(&run(1).1));
}

#[test]
fn a_disk_that_lies_about_syncs_loses_data_in_a_crash() {
    let crash = CrashPlan::new();
    let faults = FaultPlan::new(0);
    let device = Faulty::new(crash.device("liar"), &faults);
    device.grow(4096, Fill::Written).expect("grown");
    faults.nth(0, Calls::Syncs, Fault::Lost);
    device.write(0, &[1; BLOCK], Durability::Later).expect("written");
    device.sync().expect("acknowledged");
    let image = crash.crash_image(Survival::Nothing, &mut Rng::new(0));
    assert_eq!(blocks(&*image[0])[0], 0);
    device.sync().expect("this one is true");
    let image = crash.crash_image(Survival::Nothing, &mut Rng::new(0));
    assert_eq!(blocks(&*image[0])[0], 1);
}
