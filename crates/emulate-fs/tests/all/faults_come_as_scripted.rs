//! Each clause of a fault script does what it says.

use crate::support::{Place, end, ms};
use firndb_emulate_fs::{EmulateError, FixedTiming, MountOptions, Mounted, script};
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::time::Instant;

fn with(faults: &str) -> impl FnOnce(&mut MountOptions) {
    let faults = script::parse(faults).expect("a good script");
    move |options| {
        options.faults = faults;
        options.direct = true;
    }
}

fn is_eio<T: std::fmt::Debug>(result: std::io::Result<T>) -> bool {
    result.is_err_and(|error| error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()))
}

#[test]
fn eio_falls_on_its_range_of_its_file() {
    let place = Place::new();
    let Some(mounted) = place.mount(with("eio reads 8192..12288 of db/bad, eio syncs of db/bad")) else {
        return;
    };
    std::fs::create_dir(mounted.mount_point().join("db")).expect("made");
    for name in ["bad", "good"] {
        let path = mounted.mount_point().join("db").join(name);
        std::fs::write(&path, vec![1; 20_000]).expect("writes are spared");
        let file = OpenOptions::new().read(true).write(true).open(&path).expect("opened");
        let mut page = [0; 4096];
        file.read_exact_at(&mut page, 4096).expect("before the range");
        file.read_exact_at(&mut page, 12_288).expect("behind the range");
        assert_eq!(is_eio(file.read_exact_at(&mut page, 8000)), name == "bad");
        assert_eq!(is_eio(file.sync_all()), name == "bad");
    }
    let ending = end(mounted);
    assert_eq!(ending.counts.kinds.each_ref().map(|kind| kind.failed), [1, 0, 1]);
}

#[test]
fn a_stall_holds_requests_until_it_is_over() {
    let place = Place::new();
    let device = FixedTiming { read: ms(1), ..FixedTiming::default() };
    let Some(mounted) = place.mount_as(device, with("stall 700ms at 300ms")) else { return };
    let path = mounted.mount_point().join("file");
    std::fs::write(&path, vec![1; 4096]).expect("written");
    let mounted_at = Instant::now();
    let (file, mut page) = (File::open(&path).expect("opened"), [0; 4096]);
    let mut longest = ms(0);
    while mounted_at.elapsed() < ms(1300) {
        let begun = Instant::now();
        file.read_exact_at(&mut page, 0).expect("read");
        longest = longest.max(begun.elapsed());
    }
    assert!((ms(650)..ms(900)).contains(&longest), "{longest:?}");
    drop(file);
    end(mounted);
}

#[test]
fn a_full_device_refuses_new_extents_only() {
    let place = Place::new();
    let Some(mounted) = place.mount(with("enospc from 500ms")) else { return };
    let path = mounted.mount_point().join("file");
    let begun = Instant::now();
    std::fs::write(&path, vec![1; 4096]).expect("not full yet");
    std::thread::sleep(ms(600).saturating_sub(begun.elapsed()));
    let file = OpenOptions::new().write(true).open(&path).expect("opened");
    file.write_all_at(&[2; 4096], 8192).expect("within its extent");
    assert_eq!(file.write_all_at(&[2; 4096], 2 << 20).expect_err("full").kind(), ErrorKind::StorageFull);
    assert_eq!(File::create(path.with_extension("new")).expect_err("full").kind(), ErrorKind::StorageFull);
    drop(file);
    end(mounted);
}

#[test]
fn spikes_come_now_and_then() {
    let place = Place::new();
    let Some(mounted) = place.mount(with("spikes 20% of 30ms")) else { return };
    let path = mounted.mount_point().join("file");
    std::fs::write(&path, vec![1; 4096]).expect("written");
    let (file, mut page) = (File::open(&path).expect("opened"), [0; 4096]);
    let late = (0..100)
        .filter(|_| {
            let begun = Instant::now();
            file.read_exact_at(&mut page, 0).expect("read");
            begun.elapsed() >= ms(30)
        })
        .count();
    assert!((8..40).contains(&late), "{late} of 100 were late");
    drop(file);
    end(mounted);
}

#[test]
fn a_scripted_power_cut_fails_everything_after_it() {
    let place = Place::new();
    let Some(mounted) = place.mount(with("power-cut at 300ms")) else { return };
    let path = mounted.mount_point().join("file");
    std::fs::write(&path, vec![1; 4096]).expect("power is on");
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("opened");
    file.sync_all().expect("synced");
    while !mounted.is_cut() {
        std::thread::sleep(ms(10));
    }
    assert!(
        is_eio(file.write_all_at(&[2], 0)) && is_eio(file.read_at(&mut [0], 0)) && is_eio(file.sync_all())
    );
    drop(file);
    let ending = end(mounted);
    assert!(ending.power_cut.is_some_and(|at| at >= ms(300) && at < ms(1000)), "{:?}", ending.power_cut);
    assert_eq!(std::fs::read(place.backing().join("file")).expect("synced"), vec![1; 4096]);
}

#[test]
fn what_cannot_be_mounted_says_why() {
    let place = Place::new();
    let refused = |change: &dyn Fn(&mut MountOptions)| {
        let mut options = place.options();
        change(&mut options);
        let error = Mounted::mount(&options, Box::new(FixedTiming::default())).err().expect("refused");
        (matches!(error, EmulateError::NoFuse { .. }), error.to_string())
    };
    let file = place.dir.path().join("plain");
    std::fs::write(&file, "").expect("written");
    let full = place.dir.path().join("full");
    std::fs::create_dir_all(full.join("below")).expect("made");
    let (missing, cases) =
        (place.dir.path().join("missing"), [("does not exist", 0), ("not a directory", 1), ("not empty", 2)]);
    for (part, which) in cases {
        let path = [&missing, &file, &full][which].clone();
        let (_, message) = refused(&|options| options.mount_point.clone_from(&path));
        assert!(message.contains(part) && message.contains(&*path.to_string_lossy()), "{message}");
    }
    for (part, size) in [("2 MiB to 4 PiB", 1 << 20), ("2 MiB to 4 PiB", u64::MAX)] {
        let (no_fuse, message) = refused(&|options| options.size = size);
        assert!(no_fuse || message.contains(part), "{message}");
    }
    let (no_fuse, message) = refused(&|options| options.backing = Some(options.mount_point.join("inside")));
    assert!(no_fuse || message.contains("lie in each other"), "{message}");
    let Some(mounted) = place.mount(|_| {}) else { return };
    let other = place.dir.path().join("other");
    std::fs::create_dir(&other).expect("made");
    let (_, message) = refused(&|options| options.mount_point.clone_from(&other));
    assert!(message.contains("in use by another"), "{message}");
    std::fs::write(mounted.mount_point().join("file"), vec![0; 8 << 20]).expect("written");
    end(mounted);
    let (_, message) = refused(&|options| options.size = 4 << 20);
    assert!(message.contains("does not fit"), "{message}");
}
