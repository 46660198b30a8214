//! A device over simulated flash, in virtual time: chips work side by side, wear ends it in order,
//! and equal runs are equal.

use firndb_base::clock;
use firndb_base::rng::Rng;
use firndb_base::sim::{self, SimOptions};
use firndb_base::sync::{Arc, thread};
use firndb_device::{Device, DeviceErrorKind, Durability, Fill, Io, IoOp, MemoryDevice};
use firndb_emulate::nand::{Geometry, NandConfig, NandDevice, NandReport, Translation};
use std::time::Duration;

const PAGE: usize = 2048;

fn device(translation: Translation, chips: u32, erase_limit: u32) -> NandDevice {
    let geometry = Geometry { chips, pages_per_block: 8, ..Geometry::myers() };
    let mut config = NandConfig::sized_with(geometry, translation, 1 << 18, 0.3).expect("it fits");
    config.erase_limit = erase_limit;
    NandDevice::new(Arc::new(MemoryDevice::new("flash")), config).expect("sound")
}

/// Runs `body` in virtual time.
fn simulated<R: Send + 'static>(body: impl FnOnce() -> R + Send + 'static) -> R {
    let outcome = sim::run(SimOptions { seed: 1, ..SimOptions::default() }, body).expect("nothing hangs");
    outcome.value
}

/// Four threads, each writing its own pages and reading them back.
fn threads(translation: Translation, chips: u32) -> (Duration, NandReport) {
    simulated(move || {
        let device = Arc::new(device(translation, chips, 1_000_000));
        device.grow(1 << 18, Fill::Sparse).expect("the device has space");
        let began = clock::now();
        let workers: Vec<_> = (0..4u64)
            .map(|worker| {
                let device = device.clone();
                let work = move || {
                    let mut rng = Rng::new(worker);
                    let mut last = [0u8; 32];
                    for round in 0..200u8 {
                        let page = rng.below(32);
                        let offset = (worker * 32 + page) * PAGE as u64;
                        device.write(offset, &[round; PAGE], Durability::Durable).expect("whole");
                        last[page as usize] = round;
                        let mut read = [0u8; PAGE];
                        device.read(offset, &mut read).expect("whole");
                        assert_eq!(read, [round; PAGE]);
                    }
                };
                thread::spawn("worker", work).expect("starts")
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
        (began.elapsed(), device.report())
    })
}

#[test]
fn chips_work_side_by_side_and_equal_runs_are_equal() {
    let (one, report) = threads(Translation::Page, 1);
    assert_eq!((report.host.writes, report.host.reads), (800, 800));
    assert!(report.flash.erases > 50, "garbage is collected: {report:?}");
    // One chip does everything in turn: the time it worked is the time that passed.
    assert_eq!(one, Duration::from_nanos(report.flash.work_ns));
    let (four, _) = threads(Translation::Page, 4);
    // Not a fourth: threads meet on a chip by chance, and while one collects garbage others wait
    // for its chips.
    assert!(four < one * 2 / 3, "four chips: {four:?}, one: {one:?}");
    assert_eq!(threads(Translation::Page, 4), threads(Translation::Page, 4));
    assert_eq!(threads(Translation::Block, 2), threads(Translation::Block, 2));
}

#[test]
fn a_batch_begins_at_one_moment_and_ends_with_its_last_transfer() {
    let (batch, single) = simulated(|| {
        let device = device(Translation::Page, 4, 100);
        device.grow(1 << 18, Fill::Sparse).expect("the device has space");
        let data = [1u8; PAGE];
        let write = |page: u64| Io {
            offset: page * PAGE as u64,
            op: IoOp::Write(&data, Durability::Later),
            outcome: Ok(()),
        };
        let began = clock::now();
        let mut batch: Vec<Io<'_>> = (0..4).map(write).collect();
        device.submit(&mut batch);
        assert!(batch.iter().all(|io| io.outcome.is_ok()));
        let together = began.elapsed();
        let began = clock::now();
        device.write(0, &data, Durability::Later).expect("whole");
        (together, began.elapsed())
    });
    assert_eq!((batch, single), (Duration::from_micros(200), Duration::from_micros(200)));
}

#[test]
fn worn_out_flash_refuses_writes_and_is_still_read() {
    simulated(|| {
        let device = device(Translation::Page, 1, 3);
        device.grow(1 << 18, Fill::Written).expect("the device has space");
        let mut written = 0u32;
        let error = loop {
            let data = written.to_le_bytes().repeat(PAGE / 4);
            match device.write(u64::from(written % 8) * PAGE as u64, &data, Durability::Durable) {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
            assert!(written < 100_000, "three erases a block are used up at last");
        };
        assert_eq!(error.kind, DeviceErrorKind::Failed);
        assert!(error.message.contains("flash: the flash is worn out"), "{error}");
        assert!(device.report().read_only);
        let mut read = [0u8; PAGE];
        for last in written - 8..written {
            device.read(u64::from(last % 8) * PAGE as u64, &mut read).expect("reads go on");
            assert_eq!(read[..], last.to_le_bytes().repeat(PAGE / 4)[..], "what was acknowledged is there");
        }
        let mut batch = [
            Io { offset: 0, op: IoOp::Write(&[9; PAGE], Durability::Later), outcome: Ok(()) },
            Io { offset: 2048, op: IoOp::Read(&mut read), outcome: Ok(()) },
        ];
        device.submit(&mut batch);
        assert!(batch[0].outcome.is_err() && batch[1].outcome.is_ok());
        drop(batch);
        device.read(0, &mut read).expect("reads go on");
        assert_ne!(read, [9; PAGE], "what the flash refused did not reach the bytes");
    });
}

#[test]
fn ends_are_checked_and_discarded_pages_need_no_copies() {
    simulated(|| {
        let device = device(Translation::Page, 1, 1000);
        let error = device.grow((1 << 18) + 1, Fill::Sparse).expect_err("larger than its flash");
        assert_eq!(error.kind, DeviceErrorKind::NoSpace);
        device.grow(1 << 17, Fill::Sparse).expect("the device has space");
        let error = device.write(1 << 17, &[0; 512], Durability::Later).expect_err("beyond the end");
        assert_eq!(error.kind, DeviceErrorKind::OutOfRange);
        device.write(0, &vec![1; 1 << 17], Durability::Later).expect("inside");
        device.discard(0, 1 << 17).expect("inside");
        for _ in 0..20 {
            device.write(0, &vec![1; 1 << 17], Durability::Later).expect("inside");
        }
        let report = device.report();
        assert_eq!(report.write_amplification(), Some(1.0), "whole blocks die together: {report:?}");
        assert_eq!(report.host.discard_bytes, 1 << 17);
        device.shrink(1 << 16).expect("inside");
        assert_eq!(device.report().host.discard_bytes, (1 << 17) + (1 << 16));
    });
}
