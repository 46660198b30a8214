//! Properties of every model, whatever its profile.

use firndb_base::rng::Rng;
use firndb_emulate::{Load, Model, Request, profiles};
use firndb_profile::{Blocks, DeviceProfile, Op, Outliers, Pattern, ServiceTable, WriteCache};
use std::time::Duration;

const US: Duration = Duration::from_micros(1);

/// Requests of all kinds at moments that mostly go forward, and sometimes back a little.
fn mixed(seed: u64, count: usize, capacity: u64) -> Vec<(Duration, Request)> {
    let mut rng = Rng::new(seed);
    let mut now = Duration::ZERO;
    (0..count)
        .map(|_| {
            now += US * rng.below(400) as u32;
            let bytes = 512 << rng.below(8);
            let offset = rng.below(capacity / bytes) * bytes;
            let request = match rng.below(8) {
                0 => Request::sync(),
                1..4 => Request::read(offset, bytes),
                4..6 => Request::write(offset, bytes),
                _ => Request::durable_write(offset, bytes),
            };
            let at = if rng.one_in(5) { now.saturating_sub(US * 300) } else { now };
            (at, request)
        })
        .collect()
}

fn completions(profile: &DeviceProfile, seed: u64, requests: &[(Duration, Request)]) -> Vec<Duration> {
    let mut model = Model::new(profile, seed).unwrap();
    requests.iter().map(|(now, request)| model.submit(*now, request)).collect()
}

/// A plain flash device of one channel: reads 100 µs, writes 200 µs, random ones 1000 µs, 4 KiB or
/// less.
fn plain() -> DeviceProfile {
    let mut profile = profiles::get("flash-a").unwrap();
    let model = &mut profile.model;
    model.band.clear();
    model.outliers.clear();
    model.read_sequential = ServiceTable::new([(4096, 100.0), (8192, 200.0)]);
    model.read_random = model.read_sequential.clone();
    model.write_sequential = ServiceTable::new([(4096, 200.0), (8192, 400.0)]);
    model.write_random = ServiceTable::new([(4096, 1000.0), (8192, 2000.0)]);
    model.write_overlapping = ServiceTable::new([(4096, 3000.0), (8192, 6000.0)]);
    profile
}

#[test]
fn nothing_completes_before_it_is_submitted_and_equal_seeds_agree() {
    for profile in profiles::all() {
        let requests = mixed(11, 3000, profile.capacity_bytes);
        let first = completions(&profile, 5, &requests);
        assert!(first == completions(&profile, 5, &requests), "{} does not replay", profile.name);
        let mut latest = Duration::ZERO;
        for ((now, request), done) in requests.iter().zip(&first) {
            latest = latest.max(*now);
            assert!(*done >= latest, "{}: {request:?}", profile.name);
        }
    }
}

#[test]
fn another_seed_draws_other_outliers() {
    for profile in profiles::all().into_iter().filter(|profile| !profile.model.outliers.is_empty()) {
        let slow = |seed: u64| {
            let mut model = Model::new(&profile, seed).unwrap();
            let load =
                Load { op: Op::Write, pattern: Pattern::Sequential, bytes: 4096, durable: true, depth: 1 };
            let latencies = load.run(&mut model, profile.capacity_bytes, 6000, 7).latencies_us;
            let limit = 1.5 * profile.model.write_sequential.us(4096);
            latencies.iter().enumerate().filter(|(_, us)| **us > limit).map(|(i, _)| i).collect::<Vec<_>>()
        };
        assert!(!slow(5).is_empty(), "{} has outliers, but none was met", profile.name);
        assert!(slow(5) == slow(5) && slow(5) != slow(6), "{}", profile.name);
    }
}

#[test]
fn more_channels_never_complete_a_request_later() {
    for mut profile in profiles::all().into_iter().filter(|profile| profile.model.mechanics.is_none()) {
        profile.model.band.clear();
        // Requests wait for space in a cache, and delay its draining: that order is not one of
        // channels.
        profile.model.write_cache = None;
        // A request that is striped over more channels may hold up one that had another's before.
        profile.model.striped = false;
        let requests = mixed(12, 3000, profile.capacity_bytes);
        let few = completions(&profile, 5, &requests);
        profile.model.channels *= 2;
        let many = completions(&profile, 5, &requests);
        let later = few.iter().zip(&many).position(|(few, many)| many > few);
        assert_eq!(later, None, "{}", profile.name);
    }
}

#[test]
fn requests_wait_for_a_free_channel_in_order_of_arrival() {
    let mut profile = plain();
    let read = |i: u64| (Duration::ZERO, Request::read(i * 4096, 4096));
    let reads: Vec<_> = (0..4).map(read).collect();
    let us = |profile: &DeviceProfile| {
        completions(profile, 0, &reads).iter().map(Duration::as_micros).collect::<Vec<_>>()
    };
    assert_eq!(us(&profile), [100, 200, 300, 400]);
    profile.model.channels = 2;
    assert_eq!(us(&profile), [100, 100, 200, 200]);
    profile.model.read_mb_s = Some(4.096);
    assert_eq!(us(&profile), [1000, 2000, 3000, 4000], "4096 bytes take 1 ms on the link");
    profile.model.read_mb_s = None;
    profile.model.max_iops = Some(2000.0);
    assert_eq!(us(&profile), [100, 600, 1100, 1600]);
}

#[test]
fn a_write_costs_by_how_it_lies_to_the_last_ones() {
    let mut model = Model::new(&plain(), 0).unwrap();
    let mut now = Duration::ZERO;
    let mut cost = |offset: u64, bytes: u64| {
        let done = model.submit(now, &Request::durable_write(offset, bytes));
        let cost = (done - now).as_micros();
        now = done;
        cost
    };
    assert_eq!(cost(0, 4096), 1000, "the first is random");
    assert_eq!(cost(4096, 512), 200, "goes on");
    assert_eq!(cost(4096, 1024), 3000, "the block last written again");
    assert_eq!(cost(5120, 512), 200, "goes on behind it");
    assert_eq!(cost(1 << 30, 4096), 1000);
    assert_eq!(cost(5632, 512), 200, "the second stream has not closed the first");
    assert_eq!(cost(1 << 29, 4096), 1000);
    assert_eq!(cost(2 << 29, 4096), 1000, "two streams, and this is the fourth place");
}

#[test]
fn an_outlier_holds_up_what_its_rule_says() {
    let at = |blocks: Blocks| {
        let mut profile = plain();
        profile.model.channels = 2;
        profile.model.outliers = vec![Outliers {
            op: Op::Write,
            min_bytes: 0,
            max_bytes: None,
            share: 1.0,
            from_us: 50_000.0,
            to_us: 50_000.0,
            spacing: None,
            blocks,
        }];
        let mut model = Model::new(&profile, 0).unwrap();
        let mut submit = |request: Request| model.submit(Duration::ZERO, &request).as_micros();
        let outlier = submit(Request::durable_write(0, 4096));
        let reads = (0..3).map(|i| submit(Request::read(i << 20, 4096))).collect::<Vec<_>>();
        assert_eq!(model.statistics().outliers, 1);
        (outlier, reads)
    };
    assert_eq!(
        at(Blocks::Request),
        (50_000, vec![100, 200, 300]),
        "its channel is free after the normal 1000 µs"
    );
    assert_eq!(at(Blocks::Channel), (50_000, vec![100, 200, 300]));
    assert_eq!(at(Blocks::Device), (50_000, vec![50_100, 50_100, 50_200]));
}

#[test]
fn spikes_take_their_share_and_let_others_pass() {
    let mut model = Model::new(&profiles::get("network-volume").unwrap(), 1).unwrap();
    model.spikes(0.01, Duration::from_millis(100));
    let load = Load { op: Op::Write, pattern: Pattern::Random, bytes: 4096, durable: true, depth: 1 };
    let latencies = load.run(&mut model, 1 << 30, 30_000, 7).latencies_us;
    let (slow, fast): (Vec<f64>, Vec<f64>) = latencies.iter().partition(|&&us| us > 50_000.0);
    let share = slow.len() as f64 / latencies.len() as f64;
    assert!((0.008..0.012).contains(&share), "{share}");
    assert!(slow.iter().all(|us| (100_000.0..101_000.0).contains(us)), "{slow:?}");
    assert!(fast.iter().all(|us| *us < 1000.0));
}

#[test]
fn a_frozen_device_does_nothing_and_then_goes_on_where_it_was() {
    let mut model = Model::new(&plain(), 0).unwrap();
    let at = Duration::from_micros;
    let promised = model.submit(at(0), &Request::durable_write(0, 4096));
    model.freeze(at(500), at(5_000_500));
    assert_eq!(promised, at(1000), "it was promised before");
    assert_eq!(
        model.submit(at(100), &Request::read(0, 4096)),
        at(5_001_100),
        "100 µs behind the write, after the freeze"
    );
    assert_eq!(model.submit(at(2_000_000), &Request::read(0, 4096)), at(5_001_200));
    assert_eq!(model.submit(at(6_000_000), &Request::read(0, 4096)), at(6_000_100));
}

#[test]
fn a_volatile_cache_returns_writes_at_once_and_makes_a_sync_wait() {
    let mut profile = plain();
    profile.model.sync_us = 50.0;
    for (survives_power_cut, durable, sync) in [(false, 1000, 4096 + 50), (true, 10, 50)] {
        profile.model.write_cache = Some(WriteCache {
            bytes: 1 << 20,
            survives_power_cut,
            acknowledges_durable: false,
            accept_us: 10.0,
            drain_mb_s: 4.0,
            drain_random_us: 0.0,
        });
        let mut model = Model::new(&profile, 0).unwrap();
        let mut cost = |at: u64, request: Request| {
            let now = Duration::from_secs(at);
            (model.submit(now, &request) - now).as_micros()
        };
        assert_eq!(cost(0, Request::durable_write(0, 4096)), durable);
        for i in 1..=4 {
            assert_eq!(cost(1, Request::write(4096 * i, 4096)), 10);
        }
        assert_eq!(cost(1, Request::sync()), sync);
        assert_eq!(cost(9, Request::sync()), 50, "it has been emptied meanwhile");
    }
}

#[test]
fn a_request_of_no_bytes_and_one_beyond_the_end_are_served_somehow() {
    for profile in profiles::all() {
        let mut model = Model::new(&profile, 1).unwrap();
        for request in [
            Request::read(0, 0),
            Request::write(0, 0),
            Request::durable_write(profile.capacity_bytes * 2, 4096),
        ] {
            assert!(model.submit(US, &request) >= US, "{}", profile.name);
        }
    }
}

#[test]
fn statistics_add_up() {
    let mut model = Model::new(&plain(), 0).unwrap();
    for i in 0..4 {
        model.submit(Duration::ZERO, &Request::read(i * 4096, 4096));
    }
    model.submit(Duration::from_secs(1), &Request::sync());
    let statistics = model.statistics();
    assert_eq!(
        (statistics.reads.requests, statistics.reads.bytes, statistics.syncs.requests),
        (4, 16_384, 1)
    );
    assert_eq!(statistics.reads.latency, US * 1000, "100 + 200 + 300 + 400");
    assert_eq!(statistics.reads.latency_max, US * 400);
    assert_eq!((statistics.busy, statistics.queued), (US * 400, US * 600));
}
