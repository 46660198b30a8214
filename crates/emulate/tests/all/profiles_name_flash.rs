//! An emulated device of a profile with `[nand]` takes the time of the chips, too, and counts wear.

use firndb_base::clock;
use firndb_base::rng::Rng;
use firndb_base::sim::{self, SimOptions};
use firndb_base::sync::Arc;
use firndb_device::{Device, DeviceErrorKind, Durability, Fill, MemoryDevice};
use firndb_emulate::{Emulated, profiles};
use firndb_profile::{DeviceProfile, ProfileError};

const PAGE: usize = 2048;
/// Capacity in pages.
const PAGES: u64 = 4096;

fn profile() -> DeviceProfile {
    let mut profile = profiles::get("myers-nand").expect("shipped");
    profile.capacity_bytes = PAGES * PAGE as u64;
    profile
}

/// Runs `body` on a device of the profile, in virtual time.
fn on<R: Send + 'static>(profile: DeviceProfile, body: impl FnOnce(&Emulated) -> R + Send + 'static) -> R {
    let outcome = sim::run(SimOptions::seeded(1), move || {
        let device = Emulated::new(Arc::new(MemoryDevice::new("store")), &profile, 1).expect("sound");
        device.run_free(true);
        device.grow(profile.capacity_bytes, Fill::Sparse).expect("the device has space");
        body(&device)
    });
    outcome.expect("nothing hangs").value
}

/// Mean microseconds of `count` durable writes at random places.
fn mean_write_us(device: &Emulated, count: u64) -> f64 {
    let begun = clock::now();
    let mut rng = Rng::new(7);
    for _ in 0..count {
        let offset = rng.below(PAGES) * PAGE as u64;
        device.write(offset, &[1; PAGE], Durability::Durable).expect("whole");
    }
    begun.elapsed().as_secs_f64() * 1e6 / count as f64
}

#[test]
fn a_full_device_takes_longer_than_its_model_by_what_garbage_collection_takes() {
    let (filled, report) = on(profile(), |device| {
        let unmeasured = mean_write_us(device, 2 * PAGES);
        assert!(unmeasured < 2.0, "the preparation takes none of the device's time: {unmeasured} µs");
        device.run_free(false);
        let mean_us = mean_write_us(device, PAGES);
        // What follows is not measured, and not counted.
        let report = device.flash().expect("flash");
        device.run_free(true);
        mean_write_us(device, PAGES);
        assert_eq!(device.flash(), Some(report.clone()));
        (mean_us, report)
    });
    assert_eq!(report.host.write_bytes, PAGES * PAGE as u64);
    assert!(report.flash.erases > 0 && report.write_amplification().expect("written") > 1.0, "{report:?}");
    assert!(report.wear.total > report.flash.erases, "wear is not reset");
    let mut without = profile();
    without.nand = None;
    let model = on(without, |device| {
        device.run_free(false);
        assert_eq!(device.flash(), None);
        mean_write_us(device, PAGES)
    });
    assert!((model / 200.0 - 1.0).abs() < 0.01, "{model}");
    assert!(filled > 1.2 * model, "{filled} µs on flash, {model} without");
}

#[test]
fn the_flash_ends_the_device_and_a_profile_without_sense_is_refused() {
    on(profile(), |device| {
        let refused = device.grow((PAGES + 1) * PAGE as u64, Fill::Sparse).expect_err("too long");
        assert_eq!(refused.kind, DeviceErrorKind::NoSpace);
    });
    for (key, change) in [
        ("nand.page_bytes", (|it| it.page_bytes = 1000) as fn(&mut firndb_profile::NandSection)),
        ("nand.chips", |it| it.chips = 0),
        ("nand.filled", |it| it.filled = 1.5),
        ("nand.erase_us", |it| it.erase_us = f64::NAN),
        ("nand.wear_spread", |it| it.wear_spread = Some(0)),
        ("nand", |it| it.over_provisioning = 100.0),
    ] {
        let mut wrong = profile();
        wrong.capacity_bytes = if key == "nand" { 1 << 40 } else { PAGES * PAGE as u64 };
        change(wrong.nand.as_mut().expect("flash"));
        match wrong.check() {
            Err(ProfileError::Invalid { key: found, .. }) => assert_eq!(found, key),
            other => panic!("{key}: {other:?}"),
        }
    }
}
