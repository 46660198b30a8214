//! An overlay behaves as a device of its own, and its base is never asked for anything but reads.

use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_device::{
    AbsentDevice, AlignedBuf, Counting, Device, DeviceError, DeviceErrorKind, Durability, Fill, Io, IoOp,
    MemoryDevice, Overlay, OverlaySpace,
};
use firndb_testkit::bytes::contents;

const BLOCK: u64 = 512;

/// A base of `blocks` blocks of `block` bytes, each filled with its number.
fn base(block: usize, blocks: u64) -> Arc<Counting> {
    let memory = MemoryDevice::with("base", block, u64::MAX);
    memory.grow(blocks * block as u64, Fill::Written).expect("memory grows");
    for number in 0..blocks {
        let bytes = vec![number as u8 + 1; block];
        memory.write(number * block as u64, &bytes, Durability::Later).expect("written");
    }
    Arc::new(Counting::new(Arc::new(memory)))
}

fn untouched(base: &Counting, before: &firndb_device::DeviceCounts) {
    let counts = base.snapshot().since(before);
    assert_eq!((counts.writes.ops, counts.syncs, counts.shrinks), (0, 0, 0));
    assert_eq!((counts.grows.ops, counts.discards.ops, counts.errors), (0, 0, 0));
}

/// One batch: `before` is read twice at `from`; `data` is written behind it, in between.
fn write_amid_reads(overlay: &Overlay, before: &[u8], from: u64, data: &[u8]) {
    let (mut one, mut other) = (vec![0; before.len()], vec![0; before.len()]);
    let behind = from + before.len() as u64;
    let mut batch = [
        Io { offset: from, op: IoOp::Read(&mut one), outcome: Ok(()) },
        Io { offset: behind, op: IoOp::Write(data, Durability::Later), outcome: Ok(()) },
        Io { offset: from, op: IoOp::Read(&mut other), outcome: Ok(()) },
    ];
    overlay.submit(&mut batch);
    assert!(batch.iter().all(|io| io.outcome.is_ok()), "at {from}");
    assert_eq!((&one[..], &other[..]), (before, before));
}

/// Random calls on an overlay and on a vector. What is discarded may be anything, so it is written
/// again.
fn agrees_with_a_model(block: usize, budget: u64, seed: u64) {
    let size = block as u64;
    let base = base(block, 40);
    let (before, original) = (base.snapshot(), contents(&*base));
    let mut model = original.clone();
    let space = Arc::new(OverlaySpace::new(budget));
    let overlay = Overlay::new(base.clone(), space.clone());
    let mut rng = Rng::new(seed);
    let mut most = (0, 0);
    for round in 0..1500u32 {
        let blocks = model.len() as u64 / size;
        let first = rng.below(blocks + 1);
        let count = rng.below((blocks - first).min(20) + 1);
        let (from, to) = ((first * size) as usize, ((first + count) * size) as usize);
        match rng.below(10) {
            0 => {
                let len = rng.below(60) * size;
                overlay.shrink(len).expect("shrunk");
                model.truncate(len as usize);
            }
            1 => {
                let len = rng.below(60) * size;
                overlay.grow(len, Fill::Reserved).expect("grown");
                model.resize(model.len().max(len as usize), 0);
            }
            2 => {
                overlay.discard(first * size, count * size).expect("discarded");
                let data = vec![round as u8; to - from];
                overlay.write(first * size, &data, Durability::Later).expect("written");
                model[from..to].copy_from_slice(&data);
            }
            3..=5 => {
                let data: Vec<u8> = (0..to - from).map(|at| (at as u32 ^ round) as u8).collect();
                overlay.write(first * size, &data, Durability::Durable).expect("written");
                model[from..to].copy_from_slice(&data);
            }
            6 => {
                let middle = from + (to - from) / size as usize / 2 * size as usize;
                let data = vec![!(round as u8); (to - middle).min(size as usize)];
                write_amid_reads(&overlay, &model[from..middle], from as u64, &data);
                model[middle..middle + data.len()].copy_from_slice(&data);
            }
            _ => {
                let mut bytes = vec![0xee; to - from];
                overlay.read(first * size, &mut bytes).expect("read");
                assert_eq!(bytes, model[from..to], "round {round}");
            }
        }
        overlay.sync().expect("nothing to sync");
        assert_eq!(overlay.len(), model.len() as u64);
        let used = space.used();
        assert!(used.0 <= budget, "{used:?}");
        most = (most.0.max(used.0), most.1.max(used.1));
    }
    assert_eq!(contents(&overlay), model);
    assert!(most.0 > 0 || budget == 0);
    assert_eq!(most.1 > 0, budget < 1 << 20, "beyond the budget, and only then, the file is used: {most:?}");
    overlay.shrink(0).expect("shrunk");
    assert_eq!(space.used(), (0, 0), "all is given back");
    assert_eq!(contents(&*base), original);
    untouched(&base, &before);
}

#[test]
fn an_overlay_in_memory_agrees_with_a_vector() {
    (0..4).for_each(|seed| agrees_with_a_model(512, 1 << 20, seed));
    agrees_with_a_model(4096, 1 << 24, 4);
    agrees_with_a_model(65536, 1 << 26, 5);
}

#[test]
fn beyond_its_budget_it_agrees_too() {
    (0..4).for_each(|seed| agrees_with_a_model(512, 8 << 10, seed));
    agrees_with_a_model(4096, 0, 4);
    agrees_with_a_model(65536, 65536 * 3, 5);
}

#[test]
fn a_sector_that_cannot_be_read_is_of_no_account_once_it_was_written_over() {
    use firndb_device::{Calls, Fault, FaultPlan, FaultRule, Faulty, When};
    let plan = FaultPlan::new(1);
    let failing: Arc<dyn Device> = Arc::new(Faulty::new(base(512, 8), &plan));
    plan.add(FaultRule {
        calls: Calls::Reads,
        device: None,
        when: When::From(0),
        fault: Fault::Fail(DeviceErrorKind::Failed),
    });
    let overlay = Overlay::new(failing, Arc::new(OverlaySpace::new(1 << 20)));
    overlay.write(BLOCK, &[7; 512], Durability::Later).expect("writing one block of a chunk reads nothing");
    let mut bytes = [0; 512];
    overlay.read(BLOCK, &mut bytes).expect("only what is kept is read");
    assert_eq!(bytes, [7; 512]);
    overlay.read(0, &mut bytes).expect_err("the base cannot be read");
}

#[test]
fn transfers_beyond_the_end_are_refused_and_an_absent_base_says_why() {
    let overlay = Overlay::new(base(512, 4), Arc::new(OverlaySpace::new(1 << 20)));
    let mut buf = AlignedBuf::zeroed(1024);
    assert_eq!(overlay.read(3 * BLOCK, &mut buf).expect_err("beyond").kind, DeviceErrorKind::OutOfRange);
    for offset in [3 * BLOCK, 4 * BLOCK, u64::MAX / BLOCK * BLOCK] {
        let error = overlay.write(offset, &buf, Durability::Later).expect_err("beyond the end");
        assert_eq!(error.kind, DeviceErrorKind::OutOfRange);
    }
    overlay.write(0, &buf[..512], Durability::Later).expect("written");
    assert_eq!(overlay.read(3 * BLOCK, &mut buf).expect_err("beyond").kind, DeviceErrorKind::OutOfRange);
    let shorter = Overlay::new(base(512, 4), Arc::new(OverlaySpace::new(1 << 20)));
    shorter.shrink(BLOCK).expect("shrunk");
    assert_eq!(shorter.read(BLOCK, &mut buf).expect_err("cut off").kind, DeviceErrorKind::OutOfRange);
    let why = DeviceError::new(DeviceErrorKind::Failed, "log.1: unplugged");
    let absent =
        Overlay::new(Arc::new(AbsentDevice::new("log.1", why.clone())), Arc::new(OverlaySpace::new(1 << 20)));
    assert_eq!(absent.read(0, &mut buf), Err(why));
}
