//! A swarm small enough for every build; `firn sim` runs larger ones.

use firn_sim::{Scenario, run};

#[test]
fn nothing_is_wrong_in_the_first_seeds() {
    let mut commits = 0;
    for seed in 0..20 {
        let verdict = run(&Scenario::new(seed));
        assert!(
            verdict.wrong.is_empty(),
            "firn sim --seed {seed}\n{}\n{}\n{:?}",
            Scenario::new(seed),
            verdict.narrative.join("\n"),
            verdict.wrong
        );
        eprintln!("{seed}: {:?}", verdict.summary);
        commits += verdict.summary.committed;
    }
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
