//! Reads that are begun and taken as they complete: each once, with the bytes of its place.

use firndb_base::clock;
use firndb_base::rng::Rng;
use firndb_device::{
    AlignedBuf, Calls, Counting, Device, DeviceErrorKind, Durability, Fault, FaultPlan, FaultRule, Faulty,
    FileDevice, FileOptions, Fill, InFlight, MemoryDevice, Overlay, OverlaySpace, OwnedRead, When,
};
use std::sync::Arc;
use std::time::Duration;

const BLOCK: usize = 4096;
const BLOCKS: u64 = 512;

/// Fills the device; returns its bytes.
fn filled(device: &dyn Device) -> Vec<u8> {
    let mut rng = Rng::new(7);
    let bytes: Vec<u8> =
        (0..BLOCKS as usize * BLOCK / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
    device.grow(BLOCKS * BLOCK as u64, Fill::Written).expect("grown");
    device.write(0, &bytes, Durability::Durable).expect("written");
    bytes
}

fn begin(device: &dyn Device, in_flight: &mut InFlight, tag: u64, (block, blocks): (u64, usize)) {
    let len = blocks * BLOCK;
    let buf = AlignedBuf::zeroed(len.next_power_of_two());
    device.begin_read(in_flight, OwnedRead { offset: block * BLOCK as u64, len, buf, tag });
}

/// Keeps up to 200 reads in flight, some of them beyond the end.
fn matches(device: &dyn Device, bytes: &[u8]) {
    let (mut rng, mut in_flight) = (Rng::new(1), InFlight::default());
    let mut wanted: Vec<Option<(u64, usize)>> = Vec::new();
    let mut taken = 0;
    while taken < 2000 {
        while wanted.len() < 2000 && in_flight.count() < 200 && !rng.one_in(20) {
            let place = (rng.below(BLOCKS), 1 + rng.below(4) as usize);
            begin(device, &mut in_flight, wanted.len() as u64, place);
            wanted.push(Some(place));
        }
        let until = rng.one_in(3).then(clock::now);
        let Some(done) = device.next_read(&mut in_flight, until) else { continue };
        let (block, blocks) = wanted[done.read.tag as usize].take().expect("a read is taken once");
        taken += 1;
        match block + blocks as u64 <= BLOCKS {
            true => {
                done.outcome.expect("inside the device");
                let from = block as usize * BLOCK;
                assert!(done.read.buf[..done.read.len] == bytes[from..from + blocks * BLOCK]);
            }
            false => assert_eq!(done.outcome.expect_err("beyond").kind, DeviceErrorKind::OutOfRange),
        }
    }
    assert_eq!(in_flight.count(), 0);
    assert!(device.next_read(&mut in_flight, None).is_none(), "nothing is under way");
    // What is left behind is waited for.
    (0..50).for_each(|tag| begin(device, &mut in_flight, tag, (tag, 1)));
    drop(device.next_read(&mut in_flight, None));
    assert_eq!(in_flight.count(), 49);
}

#[test]
fn on_files_in_memory_and_through_wrappers() {
    let directory = tempfile::tempdir().expect("the temporary directory is writable");
    for (case, io_uring) in [true, false].into_iter().enumerate() {
        let options = FileOptions { io_uring, ..FileOptions::default() };
        let path = directory.path().join(case.to_string());
        let file: Arc<dyn Device> = Arc::new(FileDevice::create(&path, &options).expect("created"));
        let bytes = filled(&*file);
        matches(&*file, &bytes);
        let counting = Counting::new(Arc::new(Overlay::new(file, Arc::new(OverlaySpace::new(1 << 20)))));
        matches(&counting, &bytes);
        let counts = counting.snapshot();
        assert_eq!(counts.reads.ops, 2050);
        assert!(counts.errors > 0, "some lay beyond the end");
    }
    let memory = MemoryDevice::new("memory");
    let bytes = filled(&memory);
    matches(&memory, &bytes);
}

#[test]
fn a_read_that_stalls_or_fails_holds_up_no_other() {
    let memory = Arc::new(MemoryDevice::new("memory"));
    let bytes = filled(&*memory);
    let plan = FaultPlan::new(1);
    let device = Faulty::new(memory, &plan);
    for (nth, fault) in [
        (3, Fault::Stall(Duration::from_millis(50))),
        (5, Fault::Fail(DeviceErrorKind::Failed)),
        (7, Fault::Stall(Duration::from_millis(20))),
    ] {
        plan.add(FaultRule { calls: Calls::Reads, device: None, when: When::Nth(nth), fault });
    }
    let mut in_flight = InFlight::default();
    (0..10).for_each(|tag| begin(&device, &mut in_flight, tag, (tag, 1)));
    let mut order = Vec::new();
    while let Some(done) = device.next_read(&mut in_flight, None) {
        let tag = done.read.tag;
        assert_eq!(done.outcome.is_err(), tag == 5);
        let from = tag as usize * BLOCK;
        assert!(tag == 5 || done.read.buf[..BLOCK] == bytes[from..from + BLOCK]);
        order.push(tag);
        if order.len() == 8 {
            assert!(device.next_read(&mut in_flight, Some(clock::now())).is_none(), "the others stall");
        }
    }
    assert_eq!(order, [0, 1, 2, 4, 5, 6, 8, 9, 7, 3]);
}
