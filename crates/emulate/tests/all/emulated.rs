//! The device that keeps a profile's time: in virtual time to the nanosecond, in real time never
//! early.

use firndb_base::clock;
use firndb_base::sim::{self, SimOptions};
use firndb_base::sync::{Arc, thread};
use firndb_device::{AlignedBuf, Device, Durability, InFlight, Io, IoOp, MemoryDevice, OwnedRead};
use firndb_emulate::{Emulated, profiles};
use firndb_profile::{DeviceProfile, ServiceTable};
use std::time::Duration;

/// Reads 2 ms, durable sequential writes 3 ms, random ones 5 ms; two channels; blocks of 4096
/// bytes.
fn slow() -> DeviceProfile {
    let mut profile = profiles::get("flash-a").unwrap();
    profile.logical_block = 4096;
    let model = &mut profile.model;
    model.band.clear();
    model.outliers.clear();
    model.channels = 2;
    for (table, us) in [
        (&mut model.read_sequential, 2000.0),
        (&mut model.read_random, 2000.0),
        (&mut model.write_sequential, 3000.0),
        (&mut model.write_random, 5000.0),
        (&mut model.write_overlapping, 9000.0),
    ] {
        *table = ServiceTable::new([(512, us), (1 << 20, us)]);
    }
    model.sync_us = 1000.0;
    profile
}

fn device(profile: &DeviceProfile) -> Arc<Emulated> {
    let memory = Arc::new(memory());
    Arc::new(Emulated::new(memory, profile, 1).unwrap())
}

fn memory() -> MemoryDevice {
    let memory = MemoryDevice::new("memory");
    memory.grow(1 << 20, firndb_device::Fill::Reserved).unwrap();
    memory
}

fn timed(call: impl FnOnce()) -> Duration {
    let start = clock::now();
    call();
    start.elapsed()
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn bytes_pass_through_and_the_larger_block_holds() {
    let device = device(&slow());
    assert_eq!(device.info().logical_block, 4096);
    assert!(device.info().name.contains("flash-a"));
    device.write(8192, &[7; 4096], Durability::Durable).unwrap();
    let mut bytes = [0; 4096];
    device.read(8192, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 4096]);
    device.grow((1 << 20) + 1, firndb_device::Fill::Reserved).unwrap();
    assert_eq!(device.len(), (1 << 20) + 4096);
    assert!(device.read(1 << 30, &mut bytes).is_err(), "the error of the device below");
}

#[test]
fn virtual_time_is_exact() {
    let outcome = sim::run(SimOptions::seeded(3), || {
        let device = device(&slow());
        let mut bytes = [0; 4096];
        assert_eq!(timed(|| device.read(0, &mut bytes).unwrap()), 2 * MS);
        assert_eq!(timed(|| device.write(0, &bytes, Durability::Durable).unwrap()), 5 * MS);
        assert_eq!(timed(|| device.write(4096, &bytes, Durability::Later).unwrap()), 3 * MS);
        assert_eq!(timed(|| device.sync().unwrap()), MS);
    });
    assert_eq!(outcome.unwrap().virtual_time, 11 * MS);
}

#[test]
fn a_batch_ends_with_its_latest_transfer() {
    for (reads, rounds) in [(1, 1), (2, 1), (3, 2), (4, 2), (64, 32)] {
        let (time, requests) = batch_of(reads);
        assert_eq!(time, 2 * rounds * MS, "{reads} reads on two channels");
        assert_eq!(requests, reads as u64);
    }
}

/// The time of one batch of `reads` page reads, and the requests counted.
fn batch_of(reads: usize) -> (Duration, u64) {
    let outcome = sim::run(SimOptions::seeded(3), move || {
        let device = device(&slow());
        let mut buffers = vec![[0u8; 4096]; reads];
        let mut batch: Vec<Io<'_>> = buffers
            .iter_mut()
            .enumerate()
            .map(|(i, buffer)| Io { offset: i as u64 * 4096, op: IoOp::Read(buffer), outcome: Ok(()) })
            .collect();
        let time = timed(|| device.submit(&mut batch));
        assert!(batch.iter().all(|io| io.outcome.is_ok()));
        (time, device.statistics().reads.requests)
    });
    outcome.unwrap().value
}

/// A disk's arm goes over reads that are begun together once, as over a batch that is waited for as
/// a whole; begun one by one, they are served in the order in which they came.
#[test]
fn reads_begun_together_are_served_in_one_sweep() {
    let (batch, together, one_by_one) = sim::run(SimOptions::seeded(3), || {
        let profile = profiles::get("disk-7200").unwrap();
        let device = || {
            let memory = MemoryDevice::new("memory");
            memory.grow(1 << 30, firndb_device::Fill::Reserved).unwrap();
            Emulated::new(Arc::new(memory), &profile, 1).unwrap()
        };
        let offset = |number: u64| (number * 37 % 32) * (32 << 20);
        let read = |number| OwnedRead {
            offset: offset(number),
            len: 4096,
            buf: AlignedBuf::zeroed(4096),
            tag: number,
        };
        let finish = |device: &Emulated, in_flight: &mut InFlight| {
            let count = std::iter::from_fn(|| device.next_read(in_flight, None)).count();
            assert_eq!(count, 32);
        };
        let batch = device();
        let mut buffers = vec![[0u8; 4096]; 32];
        let mut ios: Vec<Io<'_>> = (0..)
            .zip(&mut buffers)
            .map(|(number, buf)| Io { offset: offset(number), op: IoOp::Read(buf), outcome: Ok(()) })
            .collect();
        let batch = timed(|| batch.submit(&mut ios));
        let (disk, mut in_flight) = (device(), InFlight::default());
        let together = timed(|| {
            disk.begin_reads(&mut in_flight, &mut (0..32).map(read));
            finish(&disk, &mut in_flight);
        });
        let (disk, mut in_flight) = (device(), InFlight::default());
        let one_by_one = timed(|| {
            (0..32).for_each(|number| disk.begin_read(&mut in_flight, read(number)));
            finish(&disk, &mut in_flight);
        });
        (batch, together, one_by_one)
    })
    .unwrap()
    .value;
    assert_eq!(together, batch);
    assert!(2 * together < one_by_one, "{together:?} {one_by_one:?}");
}

#[test]
fn threads_share_the_channels_and_a_freeze_holds_them_all() {
    let outcome = sim::run(SimOptions::measuring(3, 4), || {
        let device = device(&slow());
        device.freeze(Duration::from_micros(500), Duration::from_micros(5_000_500));
        let readers: Vec<_> = (0..4)
            .map(|i| {
                let device = Arc::clone(&device);
                thread::spawn(&format!("reader {i}"), move || device.read(0, &mut [0; 4096]).unwrap())
                    .unwrap()
            })
            .collect();
        for reader in readers {
            reader.join().unwrap();
        }
        device.statistics()
    });
    let outcome = outcome.unwrap();
    assert_eq!(outcome.value.reads.requests, 4);
    let passed = outcome.virtual_time.saturating_sub(Duration::from_secs(5));
    assert!((4 * MS..5 * MS).contains(&passed), "{passed:?}: two rounds of 2 ms and the freeze");
}

#[test]
fn equal_seeds_replay_to_the_nanosecond() {
    let run = || {
        sim::run(SimOptions::seeded(8), || {
            let device = device(&profiles::get("network-volume-spiky").unwrap());
            let writers: Vec<_> = (0..3u64)
                .map(|i| {
                    let device = Arc::clone(&device);
                    let body = move || {
                        for at in 0..200 {
                            device.write((i * 64 + at % 64) * 4096, &[1; 4096], Durability::Durable).unwrap();
                        }
                    };
                    thread::spawn(&format!("writer {i}"), body).unwrap()
                })
                .collect();
            for writer in writers {
                writer.join().unwrap();
            }
            device.statistics()
        })
        .unwrap()
    };
    let (first, second) = (run(), run());
    assert!(first.value.outliers > 0);
    assert_eq!((first.value, first.trace_hash), (second.value, second.trace_hash));
}

#[test]
fn real_time_is_never_early_and_mostly_late_by_little() {
    let device = device(&slow());
    let mut late: Vec<Duration> = (0..40)
        .map(|_| {
            let time = timed(|| device.read(0, &mut [0; 4096]).unwrap());
            assert!(time >= 2 * MS, "{time:?} is early");
            time - 2 * MS
        })
        .collect();
    late.sort();
    // The fastest tenth: on a busy machine the others measure the machine.
    assert!(late[4] < Duration::from_micros(200), "{late:?}");
}
