//! Synchronous writes on the file system take the time that the profile's tables say.

use crate::support::{Place, end, mounted_or_skipped};
use firndb_base::rng::Rng;
use firndb_emulate_fs::{Mounted, timing_of};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Instant;

/// The median of `count` calls, in microseconds: outliers, which the profile has too, are ignored
/// here.
fn median_us(count: u64, mut call: impl FnMut(u64)) -> f64 {
    let mut times: Vec<f64> = (0..count)
        .map(|number| {
            let begun = Instant::now();
            call(number);
            begun.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}

#[test]
fn synchronous_writes_take_a_slow_flash_drives_time() {
    let profile = firndb_emulate::profiles::get("flash-a").expect("it ships");
    let place = Place::new();
    let timing = timing_of(&profile, 1).expect("a good profile");
    let Some(mounted) = mounted_or_skipped(Mounted::mount(&place.options(), timing)) else { return };
    let path = mounted.mount_point().join("log");
    let flags = OFlags::RDWR | OFlags::CREATE;
    let file = |more: OFlags| {
        File::from(rustix::fs::open(&path, flags | more, Mode::RUSR | Mode::WUSR).expect("opened"))
    };
    // Allocated and durable before the measurement.
    file(OFlags::empty()).write_all_at(&[0; 8 << 20], 0).expect("written");
    file(OFlags::empty()).sync_all().expect("synced");
    let (log, mut rng) = (file(OFlags::DSYNC), Rng::new(7));
    let model = &profile.model;
    let write = |offset: u64| log.write_all_at(&[1; 4096], offset).expect("written");
    let random = median_us(15, |_| write(rng.below(2048) * 4096));
    let overlapping = median_us(31, |_| write(4096));
    for (what, measured, stated) in [
        ("random", random, model.write_random.us(4096)),
        ("overlapping", overlapping, model.write_overlapping.us(4096)),
    ] {
        assert!(
            measured >= stated * 0.99 && measured <= stated * 1.2,
            "{what}: {measured:.0} us, {stated:.0} us stated"
        );
    }
    drop(log);
    end(mounted);
}
