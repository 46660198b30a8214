//! Every I/O call of every script goes wrong once, or for ever from there on: what the database
//! returns is a clean error, and when the devices work again everything is there that was
//! acknowledged, nothing that was refused, and no damage.
//!
//! A script runs once without faults, which counts its calls; then once for each call, fault and
//! way. The usual run takes a sample of the calls of each script, `every_call` all of them.

use crate::support::bed::Bed;
use crate::support::caches::CACHES;
use crate::support::model::{History, verify, verify_and_go_on};
use crate::support::scripts::{self, Script};
use crate::support::session::{Effects, Session};
use firndb::device::{Calls, DeviceErrorKind, Fault, FaultPlan, FaultRule, When};
use firndb::{ErrorKind, Options, PageRecovery};
use firndb_testkit::cases::{Failures, caught};
use firndb_testkit::seeds::number_from;
use firndb_testkit::watchdog::Watchdog;

use std::collections::BTreeMap;

/// A way in which the i-th call goes wrong.
struct Way {
    name: &'static str,
    calls: Calls,
    fault: Fault,
    for_ever: bool,
}

const FAILED: Fault = Fault::Fail(DeviceErrorKind::Failed);
const NO_SPACE: Fault = Fault::Fail(DeviceErrorKind::NoSpace);

const WAYS: [Way; 9] = [
    Way { name: "fails once", calls: Calls::Any, fault: FAILED, for_ever: false },
    Way { name: "fails for ever", calls: Calls::Any, fault: FAILED, for_ever: true },
    Way {
        name: "is done and fails",
        calls: Calls::Any,
        fault: Fault::FailLate(DeviceErrorKind::Failed),
        for_ever: false,
    },
    Way { name: "(a write) fails for ever", calls: Calls::Writes, fault: FAILED, for_ever: true },
    Way {
        name: "(a write) is torn and fails",
        calls: Calls::Writes,
        fault: Fault::Torn { blocks: 1, error: Some(DeviceErrorKind::Failed) },
        for_ever: false,
    },
    Way { name: "(a write) finds no space once", calls: Calls::Writes, fault: NO_SPACE, for_ever: false },
    Way { name: "(a write) finds no space for ever", calls: Calls::Writes, fault: NO_SPACE, for_ever: true },
    Way { name: "(a growth) finds no space once", calls: Calls::Grows, fault: NO_SPACE, for_ever: false },
    Way { name: "(a growth) finds no space for ever", calls: Calls::Grows, fault: NO_SPACE, for_ever: true },
];

/// What every run of a script starts from.
struct Start {
    bed: Bed,
    options: Options,
    history: History,
    prepared: BTreeMap<Vec<u8>, Effects>,
}

impl Start {
    fn of(script: &Script) -> Start {
        let session = script.prepare();
        let (history, prepared) = (session.history.clone(), session.prepared());
        Start { bed: session.into_bed(), options: script.options_for(), history, prepared }
    }

    fn run(&self, script: &Script, plan: &FaultPlan) -> Session {
        let bed = self.bed.duplicate();
        let mut session = Session::faulty(bed, plan.clone(), self.options.clone(), self.history.clone())
            .with_prepared(self.prepared.clone());
        session.open();
        (script.run)(&mut session);
        session.close();
        session
    }
}

/// The i-th calls to try: all of them, or about `sample`, the first and the last included.
fn chosen(calls: u64, sample: Option<u64>) -> Vec<u64> {
    match sample {
        Some(sample) if calls > sample => (0..sample).map(|i| i * (calls - 1) / (sample - 1)).collect(),
        _ => (0..calls).collect(),
    }
}

/// Runs with the i-th call going wrong; returns what must not be.
fn run_one(script: &Script, start: &Start, way: &Way, call: u64) -> Result<(), String> {
    let plan = FaultPlan::new(call);
    let when = if way.for_ever { When::From(call) } else { When::Nth(call) };
    plan.add(FaultRule { calls: way.calls, device: None, when, fault: way.fault });
    let session = start.run(script, &plan);
    plan.heal();
    let mut broken = session.broken.clone();
    let session_errors = session.errors.clone();
    if plan.fired() == 0 && !session_errors.is_empty() && script.store_limit == u64::MAX {
        broken.push(format!("no fault, and yet {:?}", session_errors[0]));
    }
    let history = session.history.clone();
    let bed = session.into_bed();
    let verified = match call % 4 {
        0 => verify_and_go_on(&bed, &start.options, history.allowed()),
        _ => verify(&bed, &start.options, history.allowed()),
    };
    if let Err(sentence) = verified {
        broken.push(format!("healed, it {sentence}"));
    }
    if broken.is_empty() {
        return Ok(());
    }
    broken.truncate(3);
    Err(format!("{}; met before: {:?}", broken.join("; "), &session_errors[..session_errors.len().min(4)]))
}

fn run_script(name: &str, script: &Script, sample: Option<u64>, dog: &Watchdog) -> (u64, Failures) {
    // Each run of a large script takes a while.
    let sample = if script.large { sample.map(|sample| (sample / 3).max(2)) } else { sample };
    let mut failures = Failures::default();
    let start = Start::of(script);
    let plan = FaultPlan::new(0);
    let session = start.run(script, &plan);
    assert!(session.broken.is_empty(), "{name}: without faults: {:?}", session.broken);
    let only_full = session.errors.iter().all(|(kind, _)| *kind == ErrorKind::Full);
    assert!(only_full, "{name}: without faults: {:?}", session.errors);
    let mut runs = 0;
    for way in &WAYS {
        for call in chosen(plan.calls_of(way.calls), sample) {
            let place = format!("{name}: call {call} {}", way.name);
            dog.case(&*place);
            runs += 1;
            let outcome = caught(|| run_one(script, &start, way, call)).and_then(|outcome| outcome);
            if let Err(sentence) = outcome {
                failures.add(format!("{place}: {sentence}"));
            }
        }
    }
    eprintln!("{name}: {} calls, {runs} runs, {} failures", plan.calls(), failures.count());
    (runs, failures)
}

/// Runs scripts, those that `FIRN_SCRIPT` names if it is set; each with how it is called among
/// others.
fn run_all(scripts: impl IntoIterator<Item = (String, Script)>, sample: Option<u64>) {
    let only = std::env::var("FIRN_SCRIPT").ok();
    let dog = Watchdog::start();
    let (mut runs, mut failures) = (0, Failures::default());
    let is_chosen = |(_, script): &(String, Script)| only.as_ref().is_none_or(|only| script.name == only);
    for (name, script) in scripts.into_iter().filter(is_chosen) {
        let (of_script, found) = run_script(&name, &script, sample, &dog);
        runs += of_script;
        failures.join(found);
    }
    eprintln!("{runs} runs");
    failures.assert_none("failing calls");
}

fn all() -> impl Iterator<Item = (String, Script)> {
    scripts::all().into_iter().map(|script| (script.name.to_owned(), script))
}

#[test]
fn a_sample_of_calls() {
    run_all(all(), Some(3));
}

/// Scripts in which the cache has something to do.
const CACHED: [&str; 7] = [
    "updates of more than fits into DRAM",
    "scans of more than fits into DRAM",
    "merges",
    "space given back",
    "before-images spill, rollback",
    "tables are dropped",
    "recovery of more than fits into DRAM",
];

fn cached() -> impl Iterator<Item = (String, Script)> {
    CACHES.into_iter().flat_map(|(what, cache)| {
        CACHED.iter().map(move |name| {
            (format!("{name}, over a cache that is {what}"), scripts::named(name).over_cache(cache))
        })
    })
}

/// Each script over every third cache.
#[test]
fn a_sample_of_calls_over_flash_caches() {
    let every_third =
        cached().enumerate().filter(|(n, _)| (n / CACHED.len() + n % CACHED.len()).is_multiple_of(3));
    run_all(every_third.map(|(_, case)| case), Some(2));
}

/// Scripts in which pages are written again, come back, and are needed by recovery; their deltas
/// wait in a write buffer, or do not.
fn with_deltas() -> impl Iterator<Item = (String, Script)> {
    [0, 6 << 10].into_iter().flat_map(|bytes| {
        CACHED.iter().map(move |name| {
            (format!("{name}, {bytes} bytes of deltas wait"), scripts::named(name).with_deltas(bytes))
        })
    })
}

/// The same in whole segments, with the one in which the cleaner works.
fn in_segments() -> impl Iterator<Item = (String, Script)> {
    ["space given back", "recovery of more than fits into DRAM", "a store that is nearly full"]
        .into_iter()
        .map(|name| (format!("{name}, in segments"), scripts::named(name).in_segments().with_deltas(6 << 10)))
}

#[test]
fn a_sample_of_calls_with_deltas() {
    run_all(with_deltas().chain(in_segments()), Some(2));
}

/// Page files and large values whose pages are shadows, private until the commit or written early.
fn with_shadows() -> impl Iterator<Item = (String, Script)> {
    [64 << 10, 3 << 10].into_iter().flat_map(|bytes| {
        scripts::of_whole_pages().into_iter().map(move |script| {
            let name = format!("{}, shadows, {bytes} bytes private", script.name);
            (name, script.recovering(PageRecovery::Shadow, bytes))
        })
    })
}

#[test]
fn a_sample_of_calls_with_shadows() {
    run_all(with_shadows(), Some(3));
}

/// Minutes. As [`many_calls_over_flash_caches`].
#[test]
#[ignore = "takes minutes"]
fn many_calls_with_shadows() {
    run_all(with_shadows(), Some(number_from("FIRN_CALLS").unwrap_or(40)));
}

/// Minutes. As [`many_calls_over_flash_caches`].
#[test]
#[ignore = "takes minutes"]
fn many_calls_with_deltas() {
    run_all(with_deltas().chain(in_segments()), Some(number_from("FIRN_CALLS").unwrap_or(40)));
}

/// Minutes. `FIRN_CALLS` says how many calls of each script and way, `FIRN_SCRIPT` one script.
#[test]
#[ignore = "takes minutes"]
fn many_calls_over_flash_caches() {
    run_all(cached(), Some(number_from("FIRN_CALLS").unwrap_or(40)));
}

/// An hour. `FIRN_CALLS` restricts it to that many calls of each script and way, `FIRN_SCRIPT` to
/// one script.
#[test]
#[ignore = "takes an hour"]
fn every_call() {
    run_all(all(), number_from("FIRN_CALLS"));
}

/// A creation that fails leaves devices that are not taken for a database that holds something.
#[test]
fn creation_fails_cleanly() {
    let options = || scripts::named("inserts").options_for();
    let plan = FaultPlan::new(0);
    drop(options().create_on(Bed::new(1).faulty(&plan, &Default::default())).expect("creates"));
    for call in 0..plan.calls() {
        for for_ever in [false, true] {
            let (plan, bed) = (FaultPlan::new(0), Bed::new(1));
            let when = if for_ever { When::From(call) } else { When::Nth(call) };
            plan.add(FaultRule { calls: Calls::Any, device: None, when, fault: FAILED });
            let created = options().create_on(bed.faulty(&plan, &Default::default()));
            let acknowledged = created.is_ok();
            drop(created);
            match options().open_on(bed.plain()) {
                Ok(db) => assert_eq!(db.table_names(), Vec::<String>::new()),
                Err(error) => assert!(!acknowledged, "call {call}: {error}"),
            }
        }
    }
}
