//! Firn's policies beside each other, over loads, drives and sizes: what the default is chosen by.

use super::Bench;
use super::compared::{PRODUCT, title};
use super::machine::{Cell, Clients};
use crate::bench::cells::Judged;
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::sampled::Sampled;
use firndb_cache_comparators::Compared;
use firndb_console::Failure;

const DRIVES: [&str; 5] = ["samsung-470", "x25-e", "sata-ssd", "nvme", "network-volume"];
const PERCENTS: [f64; 3] = [4.0, 12.0, 28.0];
/// How far a default may be behind the best policy of any cell, %.
const BEHIND_MAX: f64 = 5.0;

/// What the clients do.
#[derive(Clone, Copy, Debug)]
struct Load {
    key: &'static str,
    title: &'static str,
    clients: Clients,
    scanners: usize,
}

const LOADS: [Load; 3] = [
    Load {
        key: "pinned",
        title: "each client has a warehouse of its own",
        clients: Clients::Pinned,
        scanners: 0,
    },
    Load {
        key: "everywhere",
        title: "clients work on all warehouses",
        clients: Clients::Everywhere,
        scanners: 0,
    },
    Load {
        key: "scans",
        title: "pinned clients, and two that scan STOCK",
        clients: Clients::Pinned,
        scanners: 2,
    },
];

/// One load on one drive and size of the cache.
struct Contest {
    /// For people.
    place: String,
    percent: f64,
    /// New-Orders a minute of each policy.
    rates: Vec<Sampled>,
}

impl Contest {
    /// By how many per cent each policy is behind the best of its seed.
    fn behind(&self) -> Vec<Sampled> {
        let best = Sampled::most(&self.rates).expect("there is a policy");
        self.rates.iter().map(|rate| rate.over(&best).map(|share| (1.0 - share) * 100.0)).collect()
    }
}

/// For each load and drive, throughput and distance to the best; and what that says of a default.
pub fn loads(bench: &Bench) -> Result<Vec<Figure>, Failure> {
    let given = &bench.args.flash;
    let drives = if given.is_empty() { DRIVES.map(str::to_owned).to_vec() } else { given.clone() };
    let all = bench.policies();
    let policies: Vec<Compared> = PRODUCT.into_iter().filter(|policy| all.contains(policy)).collect();
    if policies.is_empty() {
        return Err(Failure::bad_argument("--figure policy compares fifo, gr, gsc, select and keep"));
    }
    let (mut figures, mut contests) = (Vec::new(), Vec::new());
    for load in LOADS {
        let number = format!("policy, {}", load.key);
        let mut figure = Figure::new(&number, &format!("Firn's policies: {}", load.title));
        for drive in &drives {
            let here = contests_of(bench, &policies, load, drive)?;
            figure.panels.extend(panels(load, drive, &policies, &here));
            contests.extend(here);
        }
        figures.push(figure);
    }
    if let Some(last) = figures.last_mut() {
        conclude(last, &policies, &contests);
    }
    Ok(figures)
}

fn contests_of(
    bench: &Bench,
    policies: &[Compared],
    load: Load,
    drive: &str,
) -> Result<Vec<Contest>, Failure> {
    let given = &bench.args.percent;
    let percents = if given.is_empty() { PERCENTS.to_vec() } else { given.clone() };
    let contest = |percent: f64| {
        let rate = |policy: &Compared| {
            let cell = bench.cached(*policy, drive, percent, load.clients)?;
            let cell = Cell { scanners: load.scanners, ..cell };
            Ok(bench.measure(&cell, Judged::No)?.value(|found| found.tpm))
        };
        let rates = policies.iter().map(rate).collect::<Result<Vec<_>, Failure>>()?;
        Ok(Contest { place: format!("{}, {drive}, {percent} %", load.key), percent, rates })
    };
    percents.into_iter().map(contest).collect()
}

fn panels(load: Load, drive: &str, policies: &[Compared], contests: &[Contest]) -> [Panel; 2] {
    let panel = |what: &str, unit: &str| {
        let key = format!("face-policy-{}-{drive}{what}", load.key);
        Panel::new(&key, &format!("{drive}: {}", load.title), "cache, % of the database", unit)
    };
    let mut throughput = panel("", "New-Orders a minute");
    let mut distance = panel("-behind", "% behind the best");
    distance.digits = 1;
    for contest in contests {
        let point = |value: &Sampled| Point::new(contest.percent, contest.percent.to_string(), value);
        for ((policy, rate), behind) in policies.iter().zip(&contest.rates).zip(&contest.behind()) {
            throughput.add(title(*policy), point(rate));
            distance.add(title(*policy), point(behind));
        }
    }
    [throughput, distance]
}

/// How far behind each policy is where it is furthest behind.
fn conclude(figure: &mut Figure, policies: &[Compared], contests: &[Contest]) {
    for (index, policy) in policies.iter().enumerate() {
        let behind: Vec<(Sampled, &str)> =
            contests.iter().map(|contest| (contest.behind().swap_remove(index), &*contest.place)).collect();
        let name = format!("{}: behind the best policy, %, most over all cells", title(*policy));
        if let Some(most) = Sampled::most(behind.iter().map(|(value, _)| value)) {
            figure.at_most(name, &most, BEHIND_MAX);
        }
        let furthest = behind.iter().max_by(|(a, _), (b, _)| a.median().total_cmp(&b.median()));
        if let Some((_, place)) = furthest.filter(|(value, _)| value.median() > 0.0) {
            figure.notes.push(format!("{}: furthest behind at {place}", title(*policy)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::cache::compared::{GSC, KEEP};

    #[test]
    fn the_best_is_behind_none_and_the_furthest_cell_is_named() {
        let contest = |place: &str, rates: [f64; 2]| Contest {
            place: place.into(),
            percent: 4.0,
            rates: rates.map(Sampled::once).to_vec(),
        };
        let contests =
            [contest("pinned, nvme, 4 %", [96.0, 100.0]), contest("scans, nvme, 4 %", [50.0, 47.0])];
        let behind = contests[1].behind();
        assert_eq!((behind[0].median(), behind[1].median().round()), (0.0, 6.0));
        let mut figure = Figure::new("policy", "test");
        conclude(&mut figure, &[GSC, KEEP], &contests);
        let sentences: Vec<String> = figure.targets.iter().map(|target| target.sentence()).collect();
        assert!(!sentences[0].contains("missed") && sentences[1].contains("missed"), "{sentences:?}");
        assert_eq!(
            figure.notes,
            [
                "FaCE+GSC: furthest behind at pinned, nvme, 4 %",
                "Firn keep: furthest behind at scans, nvme, 4 %"
            ]
        );
    }
}
