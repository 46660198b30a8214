//! Random batches through io_uring, through positioned I/O and through memory all do what a vector
//! does.

use firndb_base::rng::Rng;
use firndb_device::{
    AlignedBuf, Device, DeviceErrorKind, Durability, FileDevice, FileOptions, Fill, Io, IoOp, MemoryDevice,
};
use std::sync::Arc;

const BLOCKS: u64 = 512;
const BLOCK: usize = 4096;

/// One planned transfer: disjoint from the others of its batch, since their order is free.
struct Plan {
    block: u64,
    blocks: u64,
    /// Bytes by which the memory misses the alignment of direct I/O.
    skew: usize,
    write: Option<Durability>,
}

fn plan_batch(rng: &mut Rng) -> Vec<Plan> {
    let mut plans = Vec::new();
    let mut block = rng.below(8);
    let most = if rng.one_in(4) { 200 } else { 10 };
    while block < BLOCKS && plans.len() < most {
        let longest = if rng.one_in(8) { 32 } else { 3 };
        let blocks = rng.between(1, longest);
        let write = match rng.below(5) {
            0 | 1 => Some(Durability::Later),
            2 => Some(Durability::Durable),
            _ => None,
        };
        plans.push(Plan { block, blocks, skew: if rng.one_in(6) { 1 } else { 0 }, write });
        block += blocks + rng.below(4);
    }
    plans
}

/// Performs the plans and checks every outcome; plans that reach over the end must say so.
fn perform(device: &dyn Device, plans: &[Plan], rng: &mut Rng, model: &mut [u8]) {
    let mut memory: Vec<AlignedBuf> = plans
        .iter()
        .map(|plan| {
            let mut bytes = AlignedBuf::zeroed(plan.blocks as usize * BLOCK + plan.skew);
            let salt = rng.next_u64();
            bytes.chunks_mut(8).for_each(|part| part.copy_from_slice(&salt.to_le_bytes()[..part.len()]));
            bytes
        })
        .collect();
    let mut batch: Vec<Io<'_>> = plans
        .iter()
        .zip(&mut memory)
        .map(|(plan, bytes)| Io {
            offset: plan.block * BLOCK as u64,
            op: match plan.write {
                Some(durability) => IoOp::Write(&bytes[plan.skew..], durability),
                None => IoOp::Read(&mut bytes[plan.skew..]),
            },
            outcome: Ok(()),
        })
        .collect();
    device.submit(&mut batch);
    let outcomes: Vec<_> = batch.into_iter().map(|io| io.outcome).collect();
    for ((plan, bytes), outcome) in plans.iter().zip(&memory).zip(outcomes) {
        let (start, end) = (plan.block as usize * BLOCK, (plan.block + plan.blocks) as usize * BLOCK);
        if end > model.len() {
            assert_eq!(outcome.expect_err("beyond the end").kind, DeviceErrorKind::OutOfRange);
            continue;
        }
        outcome.expect("inside the device");
        match plan.write {
            Some(_) => model[start..end].copy_from_slice(&bytes[plan.skew..]),
            None => assert!(model[start..end] == bytes[plan.skew..], "read at block {}", plan.block),
        }
    }
}

fn matches_model(device: &dyn Device, seed: u64, rounds: u32) {
    let mut rng = Rng::new(seed);
    device.grow(BLOCKS * BLOCK as u64, Fill::Written).expect("grown");
    let mut model = vec![0; BLOCKS as usize * BLOCK];
    for _ in 0..rounds {
        let plans = plan_batch(&mut rng);
        perform(device, &plans, &mut rng, &mut model);
    }
    let mut all = AlignedBuf::zeroed(model.len());
    device.read(0, &mut all).expect("all can be read");
    assert!(all[..] == model[..], "{} differs from the model, seed {seed}", device.info().name);
}

#[test]
fn on_files_with_and_without_io_uring_and_direct_io() {
    let directory = tempfile::tempdir().expect("the temporary directory is writable");
    for (case, (io_uring, direct)) in
        [(true, true), (true, false), (false, true), (false, false)].into_iter().enumerate()
    {
        let options = FileOptions { io_uring, direct, ..FileOptions::default() };
        let device = FileDevice::create(&directory.path().join(case.to_string()), &options).expect("created");
        if io_uring && !device.uses_io_uring() {
            eprintln!("skipped: this system forbids io_uring");
            continue;
        }
        matches_model(&device, 40 + case as u64, 25);
    }
}

#[test]
fn on_tmpfs() {
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
        eprintln!("skipped: /dev/shm is not usable here");
        return;
    };
    let device = FileDevice::create(&directory.path().join("f"), &FileOptions::default()).expect("created");
    assert!(!device.info().direct, "tmpfs is the page cache");
    matches_model(&device, 50, 40);
}

#[test]
fn in_memory() {
    matches_model(&MemoryDevice::new("memory"), 60, 100);
}

#[test]
fn from_many_threads_at_once() {
    let directory = tempfile::tempdir().expect("the temporary directory is writable");
    let device = FileDevice::create(&directory.path().join("f"), &FileOptions::default()).expect("created");
    // More threads than there may be rings, each on its own part.
    const THREADS: u64 = 24;
    const PART: usize = 16 * 4096;
    device.grow(THREADS * PART as u64, Fill::Reserved).expect("grown");
    let device = Arc::new(device);
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let device = device.clone();
            std::thread::spawn(move || {
                for round in 0..10u8 {
                    let mut data = AlignedBuf::zeroed(PART);
                    data.fill(round ^ thread as u8);
                    let mut back = AlignedBuf::zeroed(PART);
                    let start = thread * PART as u64;
                    let mut writes: Vec<Io<'_>> = data
                        .chunks(4096)
                        .enumerate()
                        .map(|(i, part)| Io {
                            offset: start + i as u64 * 4096,
                            op: IoOp::Write(part, Durability::Later),
                            outcome: Ok(()),
                        })
                        .collect();
                    device.submit(&mut writes);
                    assert!(writes.iter().all(|io| io.outcome.is_ok()));
                    let mut reads: Vec<Io<'_>> = back
                        .chunks_mut(4096)
                        .enumerate()
                        .map(|(i, part)| Io {
                            offset: start + i as u64 * 4096,
                            op: IoOp::Read(part),
                            outcome: Ok(()),
                        })
                        .collect();
                    device.submit(&mut reads);
                    assert!(reads.iter().all(|io| io.outcome.is_ok()));
                    assert!(data[..] == back[..]);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no thread panicked");
    }
}
