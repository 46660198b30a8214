//! A swarm small enough for every build; `firn lab sim` runs larger ones.

use firndb_sim::swarm::swarm;
use firndb_sim::{Canary, Scenario, run};
use firndb_testkit::seeds::number_from;
use std::time::Duration;

#[test]
fn nothing_is_wrong_in_the_first_seeds() {
    let (mut commits, mut bases) = (0, 0);
    for seed in 0..20 {
        let verdict = run(&Scenario::new(seed));
        assert!(
            verdict.wrong.is_empty(),
            "firn lab sim --seed {seed}\n{}\n{}\n{:?}",
            Scenario::new(seed),
            verdict.narrative.join("\n"),
            verdict.wrong
        );
        eprintln!("{seed}: {:?}", verdict.summary);
        commits += verdict.summary.committed;
        bases += verdict.summary.bases_judged;
    }
    assert!(bases > 1000, "only {bases} pages were compared with their base and changes");
    assert!(commits > 200, "only {commits} commits came through");
}

#[test]
fn equal_seeds_run_equally() {
    for seed in [3, 17] {
        let (one, two) = (run(&Scenario::new(seed)), run(&Scenario::new(seed)));
        assert_eq!(one.summary, two.summary, "seed {seed}");
        assert_eq!(one.narrative, two.narrative, "seed {seed}");
    }
    assert_ne!(run(&Scenario::new(3)).summary.trace, run(&Scenario::new(4)).summary.trace);
}

#[test]
fn a_broken_write_ahead_rule_is_noticed() {
    let noticed = (0..60).find(|&seed| !run(&Scenario::new(seed).with_canary()).wrong.is_empty());
    assert!(noticed.is_some(), "the simulator does not see failure");
}

/// What only a flash cache has, forgotten at an opening; what it had, made anew from too little
/// log. Nearly every seed notices each, by rows or by errors; one in thirty does by a page that is
/// read.
#[test]
fn a_flash_cache_that_comes_back_wrong_is_noticed() {
    for canary in [Canary::CacheRestore, Canary::CacheRebuild] {
        let found = |seed| run(&Scenario::new(seed).with_broken_cache(canary)).wrong.join("; ");
        let noticed = (0..300).map(found).find(|wrong| wrong.contains("redo has missed it"));
        assert!(noticed.is_some(), "{canary:?}: no stale page was seen");
    }
}

/// A page that a durable commit made reachable, and of which the content is nowhere.
#[test]
fn a_commit_record_before_its_shadows_is_noticed() {
    let found = |seed| run(&Scenario::new(seed).with_late_shadows()).wrong.join("; ");
    let noticed = (0..20).map(found).find(|wrong| wrong.contains("lost its content"));
    assert!(noticed.is_some(), "no row without its page was seen");
}

/// As many seeds as `FIRN_SIM_SECONDS` hold, or 15 seconds, on all processors; from `FIRN_SEED` on,
/// or 2000.
#[test]
fn nothing_is_wrong_in_as_many_seeds_as_there_is_time_for() {
    let number = |name: &str, default| number_from(name).unwrap_or(default);
    let limit = Duration::from_secs(number("FIRN_SIM_SECONDS", 15));
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let first = number("FIRN_SEED", 2000);
    let report =
        swarm(first..u64::MAX, Some(limit), workers, Scenario::new, |_, verdict| verdict.wrong.is_empty());
    eprintln!("{} seeds, {} commits, {} power cuts", report.seeds, report.total.committed, report.total.cuts);
    let (seed, wrong) = report.failures.first().cloned().unwrap_or_default();
    assert!(report.failures.is_empty(), "firn lab sim --seed {seed}\n{}", wrong.join("\n"));
    assert!(report.total.cuts > 0 && report.total.committed > 0, "the swarm did nothing");
}

fn nothing_is_wrong_in(seed: u64) {
    let verdict = run(&Scenario::new(seed));
    assert!(verdict.wrong.is_empty(), "{:?}", verdict.wrong);
}

/// A log that fails by a write for which no client waits (here a background one) ends the waits for
/// rows of prepared transactions, which cannot be finished any more.
#[test]
fn seed_1182_ends() {
    nothing_is_wrong_in(1182);
}

/// A log device lost a write, and the archive, which has it, was refused as if the files were an
/// older copy. That may be said where damage was done, and not otherwise.
#[test]
fn seed_40195_speaks_of_lost_log_only_where_a_write_was_lost() {
    nothing_is_wrong_in(40195);
}

/// Removing a log device took one checkpoint after the other while an archive that was gone held
/// the log, until not even an opening found space for one.
#[test]
fn seed_20209_leaves_space_for_checkpoints() {
    nothing_is_wrong_in(20209);
}

/// The power fails between the word that the archive may have more than the devices and its first
/// write of an epoch.
#[test]
fn seed_62423_ends() {
    nothing_is_wrong_in(62423);
}

/// Hours of virtual time over the smallest flash caches, in each policy: `FIRN_HOURS` (1) a seed,
/// `FIRN_COUNT` (8) seeds from `FIRN_SEED` (0) on. Commands and results:
/// `docs/lab/tools/simulated-databases.md`.
#[test]
#[ignore = "minutes"]
fn nothing_is_wrong_in_hours_over_the_smallest_caches() {
    let number = |name: &str, default| number_from(name).unwrap_or(default);
    let (hours, first) = (number("FIRN_HOURS", 1), number("FIRN_SEED", 0));
    let seeds = first..first + number("FIRN_COUNT", 8);
    let scenario = |seed| Scenario::of_hours(seed, hours);
    let report = swarm(seeds, None, 2, scenario, |seed, verdict| {
        let policy = scenario(seed).cache.map(|cache| cache.policy);
        eprintln!("{seed} {policy:?}: {:?} {:?}", verdict.summary, verdict.wrong);
        true
    });
    eprintln!("{} seeds: {:?}", report.seeds, report.total);
    assert!(report.failures.is_empty(), "firn lab sim --hours {hours}: {:?}", report.failures);
    let virtual_hours = report.total.time.as_secs() / 3600;
    assert!(virtual_hours >= hours * report.seeds / 2, "{virtual_hours} hours only");
}

/// Log kept for a flash cache, and a device that is to leave the log: checkpoints that freed
/// nothing filled the log, and the database could not be opened any more.
#[test]
fn seed_95109_is_not_filled_by_its_checkpoints() {
    nothing_is_wrong_in(95109);
}

/// A log worker woke a client, and the client could take no log, again and again, while a device
/// that had failed was settled.
#[test]
fn seed_140020_wakes_no_client_in_vain() {
    nothing_is_wrong_in(140_020);
}

/// A page that was written into the flash cache again while pages were gathered for the store was
/// gathered twice, and the map did not fit its second record.
#[test]
fn seed_122288_writes_a_page_back_once() {
    nothing_is_wrong_in(122_288);
}

/// An archive that stays full and holds the log: housekeeping and checkpoints that freed nothing
/// used up the space in which a transaction was to be rolled back, and the database refused work.
#[test]
fn seed_71159_can_undo() {
    nothing_is_wrong_in(71159);
}

/// A backup taken while clients work, and states restored to commits, to just before one, to
/// moments by a clock that is set back, and to the end: each must be exactly what was there.
#[test]
fn any_commit_since_a_backup_can_be_restored() {
    let mut restored = 0;
    for seed in 0..10 {
        let verdict = run(&Scenario::new(seed).restoring());
        assert!(verdict.wrong.is_empty(), "firn lab sim --restoring --seed {seed}: {:?}", verdict.wrong);
        restored += verdict.summary.restored;
    }
    assert!(restored >= 5, "only {restored} states were restored");
}

/// The smallest of logs, for minutes of virtual time: it goes round, falls idle, is sealed, and is
/// cut off.
#[test]
fn a_small_log_goes_round_and_round() {
    let (mut laps, mut cuts) = (0.0, 0);
    for seed in 0..3 {
        let mut scenario = Scenario::new(seed).going_round();
        // The whole of it is for the command: docs/lab/tools/simulated-databases.md.
        scenario.rounds.truncate(2);
        scenario.clients = scenario.clients.min(2);
        let verdict = run(&scenario);
        assert!(verdict.wrong.is_empty(), "seed {seed}: {:?}", verdict.wrong);
        laps += verdict.summary.laps;
        cuts += verdict.summary.cuts;
    }
    assert!(laps > 3.0 && cuts > 0, "{laps} times round the log, {cuts} power cuts");
}
