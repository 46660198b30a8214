//! Programs see the emulated device's latencies: not less, and little more.

use crate::support::{Place, end, ms};
use firndb_emulate_fs::{FixedTiming, Mounted};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

fn open(path: &Path, flags: OFlags) -> File {
    File::from(rustix::fs::open(path, flags | OFlags::CREATE, Mode::RUSR | Mode::WUSR).expect("opened"))
}

/// The median time of `count` calls.
fn median(count: usize, mut call: impl FnMut(usize)) -> Duration {
    let mut times: Vec<Duration> = (0..count)
        .map(|number| {
            let begun = Instant::now();
            call(number);
            begun.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[count / 2]
}

fn assert_within(measured: Duration, expected: Duration, what: &str) {
    assert!(measured >= expected, "{what}: {measured:?}, too fast for {expected:?}");
    assert!(measured <= expected.mul_f64(1.2), "{what}: {measured:?}, more than 20 % over {expected:?}");
}

/// Asserts that the median of 15 calls takes `expected`, and little more in one of four rounds at
/// least: other work of the machine can make some slower, and none quicker.
fn assert_each_within(expected: Duration, what: &str, mut call: impl FnMut(usize)) {
    let mut rounds = Vec::new();
    for _ in 0..4 {
        let took = median(15, &mut call);
        assert!(took >= expected, "{what}: {took:?}, too fast for {expected:?}");
        if took <= expected.mul_f64(1.2) {
            return;
        }
        rounds.push(took);
    }
    panic!("{what}: {rounds:?}, more than 20 % over {expected:?}");
}

fn device() -> FixedTiming {
    FixedTiming { read: ms(4), write: ms(3), durable_write: ms(10), sync: ms(20), busy_until: Duration::ZERO }
}

/// A file of 1 MiB with a durable place and length.
fn prepared(place: &Place, mounted: &Mounted) -> std::path::PathBuf {
    let path = mounted.mount_point().join("file");
    std::fs::write(&path, vec![1; 1 << 20]).expect("written");
    File::open(&path).and_then(|file| file.sync_all()).expect("synced");
    assert!(place.backing().join("file").exists());
    path
}

#[test]
fn synchronous_writes_cost_one_durable_write() {
    for (direct, flag) in [
        (false, OFlags::DSYNC),
        (false, OFlags::SYNC),
        (true, OFlags::DSYNC),
        (false, OFlags::DSYNC | OFlags::DIRECT),
    ] {
        let place = Place::new();
        let Some(mounted) = place.mount_as(device(), |options| options.direct = direct) else { return };
        let path = prepared(&place, &mounted);
        let file = open(&path, OFlags::RDWR | flag);
        let data = Aligned([7; 4096]);
        assert_each_within(ms(10), &format!("direct {direct}, {flag:?}"), |number| {
            file.write_all_at(&data.0, number as u64 * 4096).expect("written");
        });
        drop(file);
        end(mounted);
    }
}

#[repr(align(4096))]
struct Aligned([u8; 4096]);

#[test]
fn ordinary_writes_cost_nothing_until_they_are_synced() {
    let place = Place::new();
    let Some(mounted) = place.mount_as(device(), |_| {}) else { return };
    let path = prepared(&place, &mounted);
    let file = open(&path, OFlags::RDWR);
    let written = median(15, |number| {
        file.write_all_at(&[7; 4096], number as u64 * 4096).expect("written");
    });
    assert!(written < ms(3), "into the page cache, not to the device: {written:?}");
    // Fifteen neighbouring pages are one write; the sync adds its time.
    let begun = Instant::now();
    file.sync_data().expect("synced");
    assert_within(begun.elapsed(), ms(23), "the first sync");
    let again = median(15, |_| file.sync_data().expect("synced"));
    assert!(again < ms(3), "nothing is left to make durable: {again:?}");
    drop(file);
    end(mounted);
}

#[test]
fn direct_reads_and_writes_go_to_the_device_each_time() {
    let place = Place::new();
    let Some(mounted) = place.mount_as(device(), |options| options.direct = true) else { return };
    let path = prepared(&place, &mounted);
    let file = open(&path, OFlags::RDWR);
    let mut data = [7; 4096];
    assert_each_within(ms(3), "writes", |_| file.write_all_at(&data, 8192).expect("written"));
    assert_each_within(ms(4), "reads", |_| file.read_exact_at(&mut data, 8192).expect("read"));
    drop(file);
    end(mounted);
}

#[test]
fn the_page_cache_serves_a_second_read() {
    let place = Place::new();
    let Some(mounted) = place.mount_as(device(), |_| {}) else { return };
    let path = prepared(&place, &mounted);
    end(mounted);
    let Some(mounted) = place.mount_as(device(), |_| {}) else { return };
    let first = Instant::now();
    std::fs::read(&path).expect("read");
    assert!(first.elapsed() >= ms(4), "{:?}", first.elapsed());
    let reads = mounted.counts().kinds[0].requests;
    std::fs::read(&path).expect("read");
    assert_eq!(mounted.counts().kinds[0].requests, reads, "opening again keeps what is cached");
    end(mounted);
}

#[test]
fn a_slow_request_delays_no_request_that_needs_no_device() {
    let place = Place::new();
    let slow = FixedTiming { sync: ms(400), ..FixedTiming::default() };
    let Some(mounted) = place.mount_as(slow, |_| {}) else { return };
    let path = mounted.mount_point().join("slow");
    // More syncs in flight than there are threads in the session.
    let threads: Vec<_> = (0..12)
        .map(|number| {
            let path = path.with_extension(number.to_string());
            std::thread::spawn(move || {
                std::fs::write(&path, [1]).expect("written");
                File::open(&path).and_then(|file| file.sync_all()).expect("synced");
            })
        })
        .collect();
    std::thread::sleep(ms(100));
    let begun = Instant::now();
    std::fs::write(mounted.mount_point().join("quick"), [1]).expect("written");
    assert!(begun.elapsed() < ms(200), "{:?}", begun.elapsed());
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    end(mounted);
}
