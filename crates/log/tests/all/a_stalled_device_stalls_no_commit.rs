//! While one device hangs, for however long, committers are acknowledged: its requests are issued
//! again elsewhere, and it is given no more until it has returned.

use crate::support;
use crate::support::{Model, before_writes, device_with, gated, scan, stream_blocks, stream_of};
use firndb_base::{Epoch, Lsn};
use firndb_device::Device;
use firndb_log::testing::{identity, options};
use firndb_log::{Hiding, Kind, Log, LogClass, LogOptions, MemberId, OutlierOptions, Record};
use firndb_log_comparators::{Comparator, Hedging};
use firndb_testkit::bytes::contents;
use firndb_testkit::gate::{Gate, Mode};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const EPOCHS: [(Epoch, Lsn); 1] = [(Epoch(1), Lsn::FIRST)];
const USUAL: Duration = Duration::from_micros(300);
/// Far beyond any stall limit, and far below a hang: busy machines are slow.
const PATIENCE: Duration = Duration::from_secs(5);

struct World {
    plain: Vec<Arc<dyn Device>>,
    log: Arc<Log>,
    model: Mutex<Model>,
}

impl World {
    /// A log on `members` devices of `bytes` bytes; `wrap` replaces each device.
    fn new(
        members: u32,
        bytes: u64,
        options: LogOptions,
        wrap: impl Fn(usize, Arc<dyn Device>) -> Arc<dyn Device>,
    ) -> World {
        let plain: Vec<Arc<dyn Device>> =
            (0..members).map(|i| device_with(&format!("log {i}"), 512, bytes) as Arc<dyn Device>).collect();
        let devices = plain.iter().enumerate().map(|(i, d)| wrap(i, d.clone())).collect();
        let log = Log::create(devices, identity(members), Epoch(1), options).unwrap();
        World { plain, log, model: Mutex::default() }
    }

    /// Appends a record and waits until it is durable. Returns how long that took.
    fn commit(&self, number: u32) -> Duration {
        let body = number.to_le_bytes().repeat(1 + number as usize % 40);
        let start = Instant::now();
        let appended = {
            let mut model = self.model.lock().unwrap();
            let appended =
                self.log.append(LogClass::Normal, Record { kind: Kind(0x20), body: &body }).unwrap();
            model.add(appended, &[(Kind(0x20), body)]);
            appended
        };
        self.log.flush(appended.end).unwrap();
        assert!(self.log.durable() >= appended.end);
        start.elapsed()
    }

    /// Closes the log and finds everything again, each stream in LSN order.
    fn check(&self) {
        self.log.close().unwrap();
        self.check_streams();
        let found = scan(&self.plain, &EPOCHS, Lsn::FIRST).unwrap();
        assert_eq!(found.end(), self.log.end());
        self.model.lock().unwrap().check(&found, Lsn::FIRST);
    }

    fn check_streams(&self) {
        for device in &self.plain {
            let bytes = contents(&**device);
            for stream in [0, 1] {
                let lsns: Vec<Lsn> = stream_blocks(&bytes, stream).into_iter().map(|b| b.1).collect();
                assert!(lsns.is_sorted(), "stream {stream} of {device:?}");
            }
        }
    }

    fn area_blocks(&self) -> usize {
        self.plain.iter().map(|device| stream_blocks(&contents(&**device), 1).len()).sum()
    }
}

fn hiding(hedging: Hedging, workers: bool) -> LogOptions {
    let outliers = OutlierOptions { direct_below: Duration::ZERO, ..OutlierOptions::default() };
    let comparator = Comparator { hedging, ..Comparator::default() };
    comparator.within(LogOptions { outliers, workers, ..options() })
}

/// Cause: the hiding policy was fixed when the log was opened. Effect: a log opened on one device
/// hid nothing until it was opened again, however many devices joined it.
#[test]
fn a_stall_is_hidden_once_a_second_device_has_joined() {
    let gate = Gate::default();
    let world = {
        let gate = gate.clone();
        World::new(1, 4 << 20, hiding(Hedging::Adaptive, true), move |_, device| gated(device, USUAL, &gate))
    };
    let _opening = gate.opening();
    (0..20).for_each(|number| {
        world.commit(number);
    });
    assert_eq!(world.log.statistics().hiding.policy, Hiding::Off);
    let second = device_with("second", 512, 4 << 20) as Arc<dyn Device>;
    let member = world.log.prepare_member(second, MemberId(7)).unwrap();
    world.log.use_member(member).unwrap();
    assert_eq!(world.log.statistics().hiding.policy, Hiding::Adaptive);
    (20..40).for_each(|number| {
        world.commit(number);
    });
    gate.set(Mode::Shut);
    for number in 40..60 {
        let took = world.commit(number);
        assert!(took < PATIENCE, "commit {number} took {took:?}");
    }
    assert!(
        gate.held() == 1 && world.log.statistics().hiding.reissued > 0,
        "{:?}",
        world.log.statistics().hiding
    );
    gate.set(Mode::Open);
    world.log.close().unwrap();
}

#[test]
fn commits_go_on_while_a_device_is_blocked_for_ever() {
    for (policy, clients) in [(Hedging::Adaptive, 1), (Hedging::TwoStream, 1), (Hedging::Adaptive, 6)] {
        let gate = Gate::default();
        let _opening = gate.opening();
        let world = World::new(3, 4 << 20, hiding(policy, true), |i, device| match i {
            0 => gated(device, USUAL, &gate),
            _ => gated(device, USUAL, &Gate::default()),
        });
        (0..60).for_each(|i| _ = world.commit(i));
        gate.set(Mode::Shut);
        std::thread::scope(|scope| {
            for client in 0..clients {
                let world = &world;
                scope.spawn(move || {
                    for i in 0..60 {
                        let took = world.commit(client * 1000 + i);
                        assert!(took < PATIENCE, "{policy:?}: {took:?}");
                    }
                });
            }
        });
        assert_eq!(gate.held(), 1, "the stalled device is given nothing more");
        let hiding = world.log.statistics().hiding;
        assert!(hiding.reissued >= 1 && hiding.detected >= 1, "{hiding:?}");
        assert!(world.area_blocks() > 0);
        // The device returns: the overdue write changes nothing, and the device works again.
        gate.set(Mode::Open);
        let opened = Instant::now();
        (0..30).for_each(|i| _ = world.commit(9000 + i));
        // Its thread may wait for a core.
        for i in 30.. {
            let after = world.log.statistics().hiding;
            if after.gained > Duration::ZERO {
                break;
            }
            assert!(opened.elapsed() < PATIENCE, "{after:?}");
            world.commit(9000 + i);
        }
        world.check();
    }
}

#[test]
fn without_workers_the_other_clients_go_on() {
    let gate = Gate::default();
    let opening = gate.opening();
    let world = World::new(3, 4 << 20, hiding(Hedging::TwoStream, false), |i, device| match i {
        0 => gated(device, USUAL, &gate),
        _ => gated(device, USUAL, &Gate::default()),
    });
    (0..60).for_each(|i| _ = world.commit(i));
    gate.set(Mode::Shut);
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for client in 0..4 {
            let (world, done) = (&world, &done);
            scope.spawn(move || {
                for i in 0..50 {
                    world.commit(client * 1000 + i);
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let start = Instant::now();
        while done.load(Ordering::SeqCst) < 150 {
            assert!(start.elapsed() < 4 * PATIENCE, "only one client may be stuck with the device");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(gate.held() <= 1);
        drop(opening);
    });
    world.check();
}

#[test]
fn a_reissue_that_stalls_is_issued_again_elsewhere() {
    let gate = Gate::default();
    let _opening = gate.opening();
    let armed = Arc::new(AtomicBool::new(false));
    // The first device stalls, and so does the first one that writes a block of an area.
    let world = World::new(4, 4 << 20, hiding(Hedging::TwoStream, true), |i, device| {
        let (gate, armed) = (gate.clone(), armed.clone());
        before_writes(device, move |_, data| {
            if stream_of(data).is_some() {
                std::thread::sleep(USUAL);
            }
            if i == 0 || (stream_of(data) == Some(1) && armed.swap(false, Ordering::SeqCst)) {
                gate.wait();
            }
            Ok(())
        })
    });
    (0..60).for_each(|i| _ = world.commit(i));
    armed.store(true, Ordering::SeqCst);
    gate.set(Mode::Shut);
    for i in 0..20 {
        let took = world.commit(1000 + i);
        assert!(took < PATIENCE, "{took:?}");
    }
    assert_eq!(gate.held(), 2, "both are still inside their devices");
    assert!(world.log.statistics().hiding.reissued >= 2);
    gate.set(Mode::Open);
    world.check();
}

/// Options under which every write that takes over 3 ms is issued again.
fn eager(policy: Hedging) -> LogOptions {
    let outliers = OutlierOptions {
        expected: vec![[512, 1 << 20].map(|bytes| (bytes, Duration::from_micros(1500))).to_vec()],
        learn: false,
        stall_after: Duration::from_secs(60),
        direct_below: Duration::ZERO,
        ..OutlierOptions::default()
    };
    LogOptions { outliers, ..hiding(policy, true) }
}

/// A device of which every write takes 8 ms.
fn slow(device: Arc<dyn Device>) -> Arc<dyn Device> {
    gated(device, Duration::from_millis(8), &Gate::default())
}

#[test]
fn a_full_area_hides_nothing_and_fails_nothing() {
    let world =
        World::new(
            2,
            64 << 10,
            eager(Hedging::TwoStream),
            |i, device| if i == 0 { slow(device) } else { device },
        );
    let mut number = 0;
    let mut rounds = || {
        let mut before = u64::MAX;
        while world.log.statistics().hiding.reissued != before {
            before = world.log.statistics().hiding.reissued;
            (0..12).for_each(|_| {
                number += 1;
                // Until the slow device has returned, the other takes all requests.
                std::thread::sleep(Duration::from_millis(9));
                world.commit(number % 3);
            });
        }
        before
    };
    let first = rounds();
    assert!((1..60).contains(&first), "{first}");
    let blocks = world.area_blocks();
    assert!(blocks > 0);
    // A later stall still finds the space that is kept for it; an outlier does not. Truncation
    // frees the area.
    world.log.truncate(world.log.durable());
    let second = rounds();
    assert!(second > first, "{first} {second}");
    world.check_streams_after_laps();
    world.log.close().unwrap();
}

impl World {
    /// As `check_streams`, where a stream may have wrapped around once: its LSNs ascend but for one
    /// place.
    fn check_streams_after_laps(&self) {
        for device in &self.plain {
            let bytes = contents(&**device);
            for stream in [0, 1] {
                let lsns: Vec<Lsn> = stream_blocks(&bytes, stream).into_iter().map(|b| b.1).collect();
                let descents = lsns.windows(2).filter(|pair| pair[0] > pair[1]).count();
                assert!(descents <= 1, "stream {stream} of {device:?}: {lsns:?}");
            }
        }
    }
}

#[test]
fn the_area_goes_round_and_keeps_what_is_needed() {
    let truncated = Arc::new(AtomicU64::new(0));
    let world = World::new(3, 64 << 10, eager(Hedging::TwoStream), |i, device| {
        let (below, truncated) = (device.clone(), truncated.clone());
        let highest = Mutex::new([Lsn::ZERO; 2]);
        let count = AtomicU64::new(0);
        before_writes(device, move |offset, data| {
            let mut old = vec![0; data.len()];
            below.read(offset, &mut old).unwrap();
            let limit = truncated.load(Ordering::SeqCst);
            for (_, lsn, fill, _) in support::log_blocks(&old) {
                assert!(lsn.0 + u64::from(fill) <= limit, "needed log is overwritten");
            }
            if let Some(stream) = stream_of(data) {
                for (_, lsn, ..) in support::log_blocks(data) {
                    let highest = &mut highest.lock().unwrap()[stream as usize];
                    assert!(*highest <= lsn, "LSNs of a stream never decrease");
                    *highest = lsn;
                }
                if stream == 0 && count.fetch_add(1, Ordering::SeqCst) % 3 == i as u64 {
                    std::thread::sleep(Duration::from_millis(6));
                }
            }
            Ok(())
        })
    });
    for round in 0..12u32 {
        std::thread::scope(|scope| {
            for client in 0..4 {
                let world = &world;
                scope.spawn(move || (0..20).for_each(|i| _ = world.commit(client * 7 + i + round)));
            }
        });
        let durable = world.log.durable();
        truncated.store(durable.0, Ordering::SeqCst);
        world.log.truncate(durable);
    }
    let hiding = world.log.statistics().hiding;
    let area_bytes = 2 * 15 * 512 / 8;
    assert!(hiding.reissued_bytes > 4 * area_bytes, "the areas went round: {hiding:?}");
    let from = world.log.durable();
    (0..10).for_each(|i| _ = world.commit(i));
    world.log.close().unwrap();
    let found = scan(&world.plain, &EPOCHS, from).unwrap();
    assert_eq!(found.end(), world.log.end());
    world.model.lock().unwrap().check(&found, from);
}

/// How often each policy finds a place is counted in virtual time (`hiding_pays`); here real
/// threads show that what it wrote again is found, and that no policy writes where it must not.
#[test]
fn requests_are_written_again_as_the_policy_says() {
    for policy in [Hedging::Off, Hedging::Naive, Hedging::TwoStream] {
        let world =
            World::new(2, 4 << 20, eager(policy), |i, device| if i == 0 { slow(device) } else { device });
        let reissued = || world.log.statistics().hiding.reissued;
        let begun = Instant::now();
        loop {
            std::thread::scope(|scope| {
                for client in 0..4 {
                    let world = &world;
                    scope.spawn(move || (0..40).for_each(|i| _ = world.commit(client * 100 + i)));
                }
            });
            // On a busy machine the threads may notice no write as overdue before it returns.
            if policy != Hedging::TwoStream || reissued() > 0 {
                break;
            }
            assert!(begun.elapsed() < 6 * PATIENCE, "no request is written again");
        }
        if policy == Hedging::Off {
            assert_eq!(reissued(), 0);
        }
        if policy != Hedging::TwoStream {
            assert_eq!(world.area_blocks(), 0);
        }
        world.check();
    }
}

#[test]
fn closing_waits_for_a_late_write_of_a_committing_thread() {
    let gate = Gate::default();
    let opening = gate.opening();
    let world = World::new(2, 4 << 20, hiding(Hedging::TwoStream, false), |i, device| match i {
        0 => gated(device, USUAL, &gate),
        _ => gated(device, USUAL, &Gate::default()),
    });
    (0..60).for_each(|i| _ = world.commit(i));
    gate.set(Mode::Shut);
    let (closing, closed) = (AtomicBool::new(false), AtomicBool::new(false));
    let wait_for = |what: &str, so: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !so() {
            assert!(start.elapsed() < 4 * PATIENCE, "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..2)
            .map(|client| {
                let (world, closing, gate) = (&world, &closing, &gate);
                scope.spawn(move || {
                    // One thread is caught in the stalled device; the other continues until that
                    // one's commit is durable.
                    for i in 0..50 {
                        if closing.load(Ordering::SeqCst) || (i > 10 && gate.held() == 1) {
                            return;
                        }
                        world.commit(client * 1000 + i);
                    }
                })
            })
            .collect();
        wait_for("one is caught", &|| gate.held() == 1 && clients.iter().any(|client| client.is_finished()));
        wait_for("all is durable", &|| world.log.durable() == world.log.end());
        closing.store(true, Ordering::SeqCst);
        let (world, closed) = (&world, &closed);
        scope.spawn(move || {
            world.log.close().unwrap();
            closed.store(true, Ordering::SeqCst);
        });
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(gate.held(), 1);
        let too_early = closed.load(Ordering::SeqCst);
        drop(opening);
        wait_for("it is closed", &|| closed.load(Ordering::SeqCst));
        assert!(!too_early, "the late write would have landed in the log of a later life");
    });
    world.check();
}

/// The thread that finished a write used to wake a worker for the overdue request only, and the
/// worker, if it could do nothing for that, woke no other thread: the device was idle although log
/// waited.
#[test]
fn a_late_request_that_cannot_be_written_again_keeps_no_free_device_from_new_log() {
    let gates = [Gate::default(), Gate::default()];
    let _openings = gates.each_ref().map(Gate::opening);
    let writes: [Arc<AtomicU64>; 2] = Default::default();
    // The first device is overdue soon; for the other no thread sets a timer, which would hide the
    // effect to be shown.
    let expected = [Duration::from_millis(100), Duration::from_secs(60)];
    let outliers = OutlierOptions {
        expected: expected.map(|time| vec![(512, time)]).to_vec(),
        learn: false,
        stall_after: Duration::from_secs(60),
        direct_below: Duration::from_secs(1000),
        ..OutlierOptions::default()
    };
    let seal_after = Duration::from_secs(60);
    let options = LogOptions { outliers, seal_after, ..hiding(Hedging::Naive, true) };
    let world = World::new(2, 4 << 20, options, |i, device| {
        let (gate, writes) = (gates[i].clone(), writes[i].clone());
        before_writes(device, move |_, data| {
            if stream_of(data).is_some() {
                gate.wait();
                writes.fetch_add(1, Ordering::SeqCst);
            }
            Ok(())
        })
    });
    // Until the devices are trusted, so that committing threads write themselves.
    let trusted = || world.log.statistics().hiding.devices.iter().all(|device| !device.hands_over);
    (0..4000).take_while(|_| !trusted()).for_each(|i| _ = world.commit(i));
    assert!(trusted());
    let wait_for = |what: &str, so: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !so() {
            assert!(start.elapsed() < 2 * PATIENCE, "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    std::thread::scope(|scope| {
        let _openings = gates.each_ref().map(Gate::opening);
        let commit = |number| {
            let world = &world;
            scope.spawn(move || world.commit(number))
        };
        gates[0].set(Mode::Shut);
        let mut first = commit(1);
        wait_for("one is caught", &|| gates[0].held() == 1 || first.is_finished());
        if gates[0].held() == 0 {
            first = commit(1);
            wait_for("the next one is", &|| gates[0].held() == 1);
        }
        gates[1].set(Mode::Shut);
        commit(2);
        wait_for("and another", &|| gates[1].held() == 1);
        let waits = world.log.statistics().waits;
        commit(3);
        wait_for("the third waits", &|| world.log.statistics().waits > waits);
        // The first is overdue by then, and the third's timer for that has fired.
        std::thread::sleep(Duration::from_millis(500));
        let before = writes[1].load(Ordering::SeqCst);
        gates[1].set(Mode::Open);
        wait_for("the free device takes the third's log", &|| writes[1].load(Ordering::SeqCst) >= before + 2);
        assert!(!first.is_finished() && gates[0].held() == 1);
    });
    world.check();
}
