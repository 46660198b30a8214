//! Figure 4-2: an index that lies otherwise than the table, beside a scan of the table.

use super::Bench;
use super::data::{Data, Scale, load};
use super::machine::{Setting, Warm, measure};
use super::targets::{self, CROSSOVER, PREDICTED_ONE, SPEEDUP};
use super::ways::{INDEX_FETCH, INDEX_SCAN, SCAN, crossover, factor, query};
use crate::bench::cells::{Cellular, Judged, Measured, end_of};
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::sampled::Sampled;
use firndb_console::Failure;
use firndb_profile::{DeviceProfile, VariantName};
use serde::{Deserialize, Serialize};

/// Rows, in per cent.
const PERCENTS: [f64; 11] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0];
/// Of the thesis' 96 MB: the index is in it, and as much again.
const DRAM: f64 = (96u64 << 20) as f64;
const MEMORY: usize = 16 << 20;
const DRIVES: [&str; 4] = ["myers-disk-arm", "myers-disk", "myers-a", "myers-b"];
/// What the thesis prints: crossover in per cent; seconds of a scan, and of the index at 0.05 %.
const PRINTED: [(&str, f64, Option<f64>, Option<f64>); 4] = [
    ("myers-disk-arm", 0.05, None, Some(7.8)),
    ("myers-disk", 0.05, None, Some(7.8)),
    ("myers-a", 2.25, Some(16.0), Some(0.46)),
    ("myers-b", 3.4, Some(8.0), Some(0.24)),
];

/// How pages are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// One at a time, rows in the order of the index: as the thesis.
    OneByOne,
    /// Ahead, and together.
    Firn,
}

impl How {
    const ALL: [(How, &'static str); 2] = [(How::OneByOne, "one page at a time"), (How::Firn, "Firn")];
}

#[derive(Clone, Debug)]
struct Cell {
    profile: DeviceProfile,
    how: How,
    scale: Scale,
    computing: f64,
}

impl Cellular for Cell {
    type Found = Found;

    fn name(&self) -> String {
        let (_, how) = How::ALL[self.how as usize];
        format!("{}, tuples, {how}", self.profile.name)
    }
    fn at_end(&self, end: VariantName) -> Option<Cell> {
        Some(Cell { profile: end_of(&self.profile, end)?, ..self.clone() })
    }
}

/// Seconds, by selectivity; the scan's at the first only.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Found {
    scan_s: f64,
    scan_planned_s: f64,
    index_s: Vec<f64>,
    index_planned_s: Vec<f64>,
}

impl Found {
    fn index_at(&self, percent: f64) -> f64 {
        let at = PERCENTS.iter().position(|one| *one == percent);
        at.and_then(|at| self.index_s.get(at)).copied().unwrap_or(f64::NAN)
    }
    fn crossover(&self) -> f64 {
        cross(&self.index_s, self.scan_s)
    }
    fn planned_crossover(&self) -> f64 {
        cross(&self.index_planned_s, self.scan_planned_s)
    }
}

fn cross(index: &[f64], scan: f64) -> f64 {
    let found = (index.len() == PERCENTS.len())
        .then(|| crossover(&PERCENTS, index, &[scan; PERCENTS.len()]))
        .flatten();
    found.unwrap_or(f64::NAN)
}

fn found(bench: &Bench, profile: DeviceProfile, how: How) -> Result<Measured<Found>, Failure> {
    let scale = bench.scale(1.0);
    let (all, first) = (bench.loaded.clone(), bench.args.running.seed);
    let cell = Cell { profile, how, scale, computing: bench.args.computing() };
    bench.cells.of(&cell, Judged::Yes, move |cell, seed| {
        let scale = cell.scale;
        let key = (Data::Tuples, (scale.0 * 1000.0) as u64, first);
        let loaded = all.get(key, || load(Data::Tuples, scale, first))?;
        let setting = Setting {
            profile: cell.profile.clone(),
            dram: scale.of(DRAM).max(2 << 20),
            cache: None,
            memory: (scale.of(MEMORY as f64) as usize).max(1 << 20),
            reads_ahead: cell.how == How::Firn,
            computing: cell.computing,
            warm: Warm::Index,
        };
        let rows = loaded.facts.rows;
        let run = |way: super::ways::Way, percent: f64| {
            let made = query(Data::Tuples, rows, percent);
            let found = measure(&setting, &loaded, seed, (&made, &way.hints()))?;
            found.ok_or_else(|| Failure::new("a table can be scanned, and read by its index"))
        };
        let index = if cell.how == How::Firn { INDEX_FETCH } else { INDEX_SCAN };
        let scan = run(SCAN, 0.05)?;
        let mut found =
            Found { scan_s: scan.seconds, scan_planned_s: scan.planned_seconds, ..Found::default() };
        for percent in PERCENTS {
            let outcome = run(index, percent)?;
            found.index_s.push(outcome.seconds);
            found.index_planned_s.push(outcome.planned_seconds);
        }
        Ok(found)
    })
}

/// Figure 4-2.
pub fn figure(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = targets::figure("4-2");
    let (mut crossed, mut faster, mut predicted) = (Vec::new(), Vec::new(), Vec::new());
    let mut crossings = Panel::of_bars(
        "query-4-2-crossover",
        "Rows at which a scan becomes cheaper than the index",
        "drive",
        "% of the rows",
    );
    crossings.digits = 3;
    for (how, how_name) in How::ALL {
        let mut panel = Panel::new(
            if how == How::Firn { "query-4-2-firn" } else { "query-4-2" },
            &format!("2,000,000 tuples: {how_name}"),
            "% of the rows",
            "seconds",
        );
        (panel.log_x, panel.log_y, panel.digits) = (true, true, 3);
        for (number, profile) in bench.drives(&DRIVES)?.into_iter().enumerate() {
            let name = profile.name.clone();
            let found = found(bench, profile, how)?;
            for percent in PERCENTS {
                let at = found.value(|it| it.index_at(percent));
                panel.add(&format!("{name}, index"), Point::new(percent, percent.to_string(), &at));
                let scan = found.value(|it| it.scan_s);
                panel.add(&format!("{name}, scan"), Point::new(percent, percent.to_string(), &scan));
            }
            let at = found.value(Found::crossover);
            let planned = found.value(Found::planned_crossover);
            crossings.add(how_name, Point::new(number as f64, &*name, &at));
            crossings.add(&format!("{how_name}, planned"), Point::new(number as f64, &*name, &planned));
            predicted.push(at.with(&planned, factor));
            if how == How::Firn {
                continue;
            }
            let Some((_, percent, scan, index)) = PRINTED.iter().find(|one| one.0 == name) else { continue };
            figure.beside(format!("{name}: crossover, %"), &percent.to_string(), &at);
            if name != "myers-disk" {
                crossed.push(at.map(|at| factor(at, *percent)));
            }
            let index_s = found.value(|it| it.index_at(0.05));
            if let Some(scan) = scan {
                figure.beside(format!("{name}: scan, s"), &scan.to_string(), &found.value(|it| it.scan_s));
                faster.push(found.value(|it| it.scan_s / it.index_at(0.05)));
            }
            if let Some(index) = index {
                figure.beside(format!("{name}: index at 0.05 %, s"), &index.to_string(), &index_s);
            }
        }
        figure.panels.push(panel);
    }
    figure.panels.push(crossings);
    CROSSOVER.judge(&mut figure, &Sampled::most(&crossed).unwrap_or_default());
    SPEEDUP.judge(&mut figure, &Sampled::least(&faster).unwrap_or_default());
    PREDICTED_ONE.judge(&mut figure, &Sampled::most(&predicted).unwrap_or_default());
    Ok(figure)
}
