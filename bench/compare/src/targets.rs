//! The ratios that Firn must reach, from medians.

use crate::command::median;
use crate::job::Peer;
use firndb_workloads::results::Target;
use std::collections::BTreeMap;

/// Figures by engine, one a round.
pub type Figures = BTreeMap<Peer, Vec<f64>>;

/// The four that Firn is compared with; RocksDB is not built in everywhere.
const FOUR: [&str; 4] = ["sqlite", "redb", "lmdb", "rocksdb"];

fn of(figures: &Figures, name: &str) -> Result<f64, String> {
    let found = figures.iter().find(|(peer, values)| peer.name() == name && !values.is_empty());
    let value = found.map(|(_, values)| median(values.clone()));
    value.filter(|value| *value > 0.0).ok_or_else(|| format!("{name} was not measured"))
}

/// One engine's median over another's.
pub fn ratio(figures: &Figures, name: &str, other: &str) -> Result<f64, String> {
    Ok(of(figures, name)? / of(figures, other)?)
}

/// Firn's median over another engine's.
pub fn over(figures: &Figures, name: &str) -> Result<f64, String> {
    ratio(figures, "firn", name)
}

/// Firn's median over the best of the four others'; all must have been measured.
pub fn over_best(figures: &Figures) -> Result<f64, String> {
    let others: Result<Vec<f64>, String> = FOUR.iter().map(|name| of(figures, name)).collect();
    let best = others?.into_iter().fold(0.0, f64::max);
    Ok(of(figures, "firn")? / best)
}

/// A target of at least `target`.
pub fn at_least(name: impl Into<String>, value: Result<f64, String>, target: f64) -> Target {
    let met = value.as_ref().is_ok_and(|value| *value >= target);
    judged(name.into(), value, target, "higher", met)
}

/// A target of at most `target`.
pub fn at_most(name: impl Into<String>, value: Result<f64, String>, target: f64) -> Target {
    let met = value.as_ref().is_ok_and(|value| *value <= target);
    judged(name.into(), value, target, "lower", met)
}

fn judged(name: String, value: Result<f64, String>, target: f64, better: &'static str, met: bool) -> Target {
    let (value, reason) = match value {
        Ok(value) => (Some(value), None),
        Err(reason) => (None, Some(reason)),
    };
    Target { name, value, target, better, met, reason }
}

/// Shows targets.
pub fn show(targets: &[Target]) {
    for target in targets {
        let verdict = if target.met { "met" } else { "missed" };
        match (target.value, &target.reason) {
            (Some(value), _) => {
                let bound = if target.better == "lower" { "at most" } else { "at least" };
                println!("{}: {value:.2}, {bound} {} wanted: {verdict}", target.name, target.target)
            }
            (None, reason) => println!("{}: not measured ({})", target.name, reason.as_deref().unwrap_or("")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_about_medians_and_needs_everybody_it_names() {
        let mut figures = Figures::new();
        figures.insert(Peer::Firn, vec![30.0, 10.0, 20.0]);
        figures.insert(Peer::Sqlite, vec![4.0, 5.0, 100.0]);
        assert_eq!(over(&figures, "sqlite"), Ok(4.0));
        assert_eq!(over(&figures, "redb"), Err("redb was not measured".to_owned()));
        assert_eq!(over_best(&figures), Err("redb was not measured".to_owned()));
        let missing = at_least("t", over(&figures, "redb"), 1.0);
        assert_eq!((missing.value, missing.met), (None, false));
        assert!(at_least("t", over(&figures, "sqlite"), 4.0).met);
        assert!(!at_most("t", over(&figures, "sqlite"), 3.9).met);
    }
}
