use super::*;

const MIB: u64 = 1 << 20;

#[test]
fn a_checkpoint_is_due_when_reading_the_log_would_take_the_goal() {
    let usual = Situation {
        to_read: 0,
        since_last: 0,
        grown: 0,
        settling: 0,
        has_freed: true,
        budget: 40 * MIB,
        limit: u64::MAX,
        least: LEAST_BYTES,
    };
    let cases = [
        ("little to read", Situation { to_read: 39 * MIB, since_last: 20 * MIB, ..usual }, false),
        ("enough to read", Situation { to_read: 40 * MIB, since_last: 20 * MIB, ..usual }, true),
        (
            "what comes while it runs counts",
            Situation { to_read: 35 * MIB, since_last: 20 * MIB, grown: 5 * MIB, ..usual },
            true,
        ),
        ("the last one has just begun", Situation { to_read: 90 * MIB, since_last: MIB - 1, ..usual }, false),
        (
            "the last one took long, for its pages",
            Situation { to_read: 90 * MIB, since_last: 15 * MIB, grown: 15 * MIB, ..usual },
            true,
        ),
        (
            "the last one took long, for what follows them",
            Situation { to_read: 90 * MIB, since_last: 19 * MIB, settling: 10 * MIB, ..usual },
            false,
        ),
        (
            "the last one freed nothing",
            Situation { to_read: 90 * MIB, since_last: 19 * MIB, has_freed: false, ..usual },
            false,
        ),
        (
            "it freed nothing long ago",
            Situation { to_read: 90 * MIB, since_last: 20 * MIB, has_freed: false, ..usual },
            true,
        ),
        ("a tiny goal", Situation { to_read: 2 * MIB, since_last: MIB, budget: 1, ..usual }, true),
        ("a tiny goal, too early", Situation { to_read: 2 * MIB, budget: 1, ..usual }, false),
        ("over the limit, too early", Situation { to_read: 61 * MIB, limit: 60 * MIB, ..usual }, true),
        (
            "over the limit, and the last one freed nothing",
            Situation { to_read: 61 * MIB, limit: 60 * MIB, has_freed: false, ..usual },
            false,
        ),
        ("no goal", Situation { to_read: 1 << 40, since_last: 1 << 40, budget: u64::MAX, ..usual }, false),
    ];
    for (what, situation, due) in cases {
        assert_eq!(situation.is_due(), due, "{what}: {situation:?}");
    }
}

#[test]
fn what_limits_is_the_goal_the_log_bytes_or_what_checkpoints_cost() {
    let none = Situation {
        to_read: 0,
        since_last: 0,
        grown: 0,
        settling: 0,
        has_freed: true,
        budget: 0,
        limit: u64::MAX,
        least: MIB,
    };
    let of = |budget, grown| Situation { grown, budget, ..none };
    assert_eq!(of(200 * MIB, 0).limit(32 * MIB, false), CheckpointLimit::LogBytes);
    assert_eq!(of(40 * MIB, 0).limit(32 * MIB, false), CheckpointLimit::RecoveryTime);
    assert_eq!(of(40 * MIB, 0).limit(32 * MIB, true), CheckpointLimit::LogBytes);
    assert_eq!(of(MIB, 0).limit(32 * MIB, false), CheckpointLimit::LeastDistance);
    assert_eq!(of(20 * MIB, 20 * MIB).limit(32 * MIB, false), CheckpointLimit::LeastDistance);
    assert_eq!(of(MIB, 0).limit(MIB / 2, false), CheckpointLimit::LogBytes, "a small log");
    let slow = Situation { settling: 20 * MIB, ..of(10 * MIB, 0) };
    assert_eq!(slow.limit(32 * MIB, false), CheckpointLimit::LogBytes, "durable writes take long");
}

/// Cause: a checkpoint wrote what was dirty at the one before, and as much was appended while it
/// ran as the goal allows. Effect: a restart read three times the log that came in that time.
#[test]
fn steps_follow_each_other_where_pages_are_written_slowly() {
    let opened = Opened { profiled: Some(80e6), ..Opened::default() };
    let time = RecoveryTime::new(Duration::from_millis(500), 1 << 30, &opened);
    let (budget, mut now, mut redo_start) = (40_000_000, 0, 0);
    let mut most = 0;
    for _ in 0..200 {
        // All of the log is the pages' own: LSNs and bytes are the same.
        while !time.is_due((Lsn(now), now)) {
            now += 100_000;
        }
        let before = time.step((Lsn(now), now)).expect("due").0;
        assert!(before.abs_diff(redo_start + budget / STEPS) < 10, "{before} from {redo_start}");
        time.begun((Lsn(now), now));
        // What was dirty takes nearly as long as as much log.
        now += (before - redo_start) * 9 / 10;
        time.pages_written((Lsn(now), now));
        now += 100_000;
        redo_start = before;
        time.ended((Lsn(now), now), Lsn(redo_start));
        most = most.max(now - redo_start);
    }
    assert!(most < budget + budget / 4, "{most} of {budget}");
    // Something else than pages retains the log: what is dirty later is to be written, too.
    time.begun((Lsn(now), now));
    time.ended((Lsn(now), now), Lsn(redo_start));
    now += budget;
    assert!(time.is_due((Lsn(now), now)));
    assert_eq!(time.step((Lsn(now), now)), None);
}

#[test]
fn a_step_is_placed_between_the_begins_of_checkpoints() {
    let opened = Opened { previous_end: Lsn(500), start: Lsn(1000), ..Opened::default() };
    let time = RecoveryTime::new(Duration::from_secs(1), 1 << 30, &opened);
    time.begun((Lsn(2000), 4000));
    time.ended((Lsn(2000), 4000), Lsn(1000));
    time.begun((Lsn(4000), 5000));
    time.ended((Lsn(4000), 5000), Lsn(1000));
    let (exposed, now) = (time.exposed.lock(), (Lsn(6000), 9000));
    for lsn in [1000, 1500, 2000, 3000, 4000, 5000, 6000] {
        let bytes = exposed.written_before(Lsn(lsn), now);
        assert_eq!(exposed.lsn_after(bytes, now), Lsn(lsn), "{bytes}");
    }
    assert_eq!(exposed.lsn_after(1e9, now), now.0, "never after the log's end");
    assert_eq!(exposed.lsn_after(-1e9, now), Lsn(0));
}

#[test]
fn no_measured_rate_makes_checkpoints_follow_each_other_or_fail_to_come() {
    let usual = Opened { redo_start: Lsn(1000), start: Lsn(1000), ..Opened::default() };
    // A machine that slept for an hour while it recovered; a profile of zero.
    let slept = Opened { log_bytes: 8 * MIB, read: (8 * MIB, Duration::from_secs(3600)), ..usual };
    let nothing = Opened { profiled: Some(0.0), ..usual };
    let of = |opened: &Opened| RecoveryTime::new(Duration::from_millis(500), 1 << 30, opened);
    let slow = |time: &RecoveryTime| {
        let estimate = time.estimate((Lsn(1000), 0), 1 << 30, true);
        assert_eq!(estimate.bytes_per_second, RATE_MIN as u64);
        // Two MB of log are read within the goal at this rate: half as much is too early.
        assert!(!time.is_due((Lsn(1000), MIB)) && time.is_due((Lsn(1000 + MIB), 2 * MIB)));
    };
    slow(&of(&slept));
    slow(&of(&nothing));
    let timed = of(&usual);
    for (measured, taken) in [(1.0, RATE_MIN), (1e300, RATE_MAX), (f64::INFINITY, RATE_MAX)] {
        timed.timed(measured);
        let estimate = timed.estimate((Lsn(1000), 0), 1, false);
        assert_eq!((estimate.bytes_per_second, estimate.rate_from), (taken as u64, ReadRateOrigin::Timed));
    }
    // A small log: not a mebibyte lies between two checkpoints.
    let small = RecoveryTime::new(Duration::from_millis(1), 256 << 10, &usual);
    let after = |bytes: u64| (Lsn(1000 + bytes), bytes);
    assert!(!small.is_due(after((64 << 10) - 1)) && small.is_due(after(64 << 10)));
    let before = timed.estimate((Lsn(1000), 0), 1, false);
    for failed in [0.0, -1.0, f64::NAN] {
        timed.timed(failed);
        assert_eq!(timed.estimate((Lsn(1000), 0), 1, false), before);
    }
}

#[test]
fn what_a_restart_reads_follows_the_redo_start() {
    let opened = Opened {
        redo_start: Lsn(1000),
        previous_end: Lsn(2000),
        start: Lsn(10_000),
        read: (3000, Duration::from_secs(1)),
        log_bytes: 1000,
        profiled: Some(1e6),
    };
    let time = RecoveryTime::new(Duration::from_secs(1), 1 << 30, &opened);
    let to_read = |now| time.estimate(now, 1 << 30, false).log_bytes;
    assert_eq!(time.estimate((Lsn(10_000), 0), 1, false).rate_from, ReadRateOrigin::Profile, "too little");
    assert_eq!(to_read((Lsn(10_000), 0)), 3000, "what recovery has read");
    assert_eq!(to_read((Lsn(11_000), 5000)), 8000);
    time.begun((Lsn(11_000), 5000));
    time.ended((Lsn(11_100), 5400), Lsn(1500));
    assert_eq!(to_read((Lsn(11_100), 5400)), 1500 + 5400);
    time.begun((Lsn(12_000), 7000));
    time.ended((Lsn(12_000), 7000), Lsn(11_500));
    assert_eq!(to_read((Lsn(12_000), 7000)), 1000, "half of what came between the two");
    for more in 1..100 {
        time.begun((Lsn(12_000 + more), 7000 + 2 * more));
    }
    time.ended((Lsn(12_100), 7200), Lsn(12_099));
    assert_eq!(to_read((Lsn(12_200), 7400)), 202);
    // What recovery took tells the rate once there was enough of it.
    let opened = Opened { log_bytes: 8 << 20, read: (10_000_000, Duration::from_millis(100)), ..opened };
    let estimate =
        RecoveryTime::new(Duration::from_secs(1), 1 << 30, &opened).estimate((Lsn(10_000), 0), 1, false);
    assert_eq!((estimate.rate_from, estimate.bytes_per_second), (ReadRateOrigin::Recovery, 100_000_000));
    assert_eq!((estimate.log_bytes, estimate.time.as_micros()), (1192, 11), "a fifth is padding");
}
