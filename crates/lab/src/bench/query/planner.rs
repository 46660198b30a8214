//! The figure `planner`: the plan that is chosen, beside every plan that can be forced, each from
//! the same state of DRAM and flash cache.

use super::Bench;
use super::data::{Data, Scale, load};
use super::machine::{CacheOf, MakeQuery, Outcome, Setting, Warm, measure};
use super::targets::{self, WITHIN, WORST};
use super::ways::{Way, every, query};
use crate::bench::cells::{Cellular, Judged, Measured, end_of};
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::sampled::Sampled;
use firndb::Database;
use firndb_console::Failure;
use firndb_profile::{DeviceProfile, VariantName};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

pub const DRIVES: [&str; 10] = [
    "myers-disk-arm",
    "myers-a",
    "myers-b",
    "x25-m",
    "samsung-470",
    "sata-ssd",
    "nvme",
    "microsd",
    "network-volume",
    "disk-7200",
];
const PERCENTS: [f64; 6] = [0.02, 0.1, 0.5, 2.0, 8.0, 30.0];
/// DRAM and flash cache, in per cent of all pages.
const DRAM: [f64; 2] = [5.0, 100.0];
const CACHE: [f64; 2] = [0.0, 20.0];
/// Bytes of a flash cache with groups of the default size, at least.
const CACHE_LEAST: u64 = 3 << 20;
/// The drive of the flash cache.
const CACHE_DRIVE: &str = "samsung-470";
/// Memory of a query, in per cent of all pages.
const MEMORY: f64 = 2.0;
/// What takes less is measured by nothing: seconds.
const LEAST: f64 = 50e-6;

#[derive(Clone, Debug)]
pub struct Cell {
    pub profile: DeviceProfile,
    pub data: Data,
    pub percent: f64,
    pub dram_percent: f64,
    pub cache_percent: f64,
    /// How many times too high the estimates of rows are by which it is chosen.
    pub misjudged: f64,
    /// What the choice is compared with.
    pub ways: &'static [Way],
    pub scale: Scale,
    pub computing: f64,
}

impl Cellular for Cell {
    type Found = Found;

    fn name(&self) -> String {
        let misjudged = match self.misjudged {
            1.0 => String::new(),
            factor => format!(", taken for {factor} times as many"),
        };
        format!(
            "{}, {}, {} % of the rows{misjudged}, DRAM {} %, cache {} %",
            self.profile.name,
            self.data.name(),
            self.percent,
            self.dram_percent,
            self.cache_percent
        )
    }
    fn at_end(&self, end: VariantName) -> Option<Cell> {
        Some(Cell { profile: end_of(&self.profile, end)?, ..self.clone() })
    }
}

/// One plan.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ran {
    pub plan: String,
    pub seconds: f64,
    pub planned_s: f64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Found {
    pub chosen: Ran,
    forced: Vec<Ran>,
}

impl Ran {
    fn of(outcome: Outcome) -> Ran {
        Ran { plan: outcome.plan, seconds: outcome.seconds, planned_s: outcome.planned_seconds }
    }
}

impl Found {
    /// The choice over the best plan.
    pub fn slower(&self) -> f64 {
        let best = self.forced.iter().map(|ran| ran.seconds).fold(self.chosen.seconds, f64::min);
        (self.chosen.seconds + LEAST) / (best + LEAST)
    }
    pub fn best(&self) -> &Ran {
        let all = self.forced.iter().chain([&self.chosen]);
        all.min_by(|a, b| a.seconds.total_cmp(&b.seconds)).unwrap_or(&self.chosen)
    }
}

pub fn found(bench: &Bench, cell: Cell) -> Result<Measured<Found>, Failure> {
    let (all, first) = (bench.loaded.clone(), bench.args.running.seed);
    bench.cells.of(&cell, Judged::No, move |cell, seed| {
        let (data, scale) = (cell.data, cell.scale);
        let loaded = all.get((data, (scale.0 * 1000.0) as u64, first), || load(data, scale, first))?;
        let part = |percent: f64| (loaded.facts.bytes() as f64 * percent / 100.0) as u64;
        let cache = match cell.cache_percent > 0.0 {
            true => Some(CacheOf {
                profile: crate::tpcc::machine::profile(CACHE_DRIVE)?,
                bytes: part(cell.cache_percent).max(CACHE_LEAST),
            }),
            false => None,
        };
        let setting = Setting {
            profile: cell.profile.clone(),
            // What is all in DRAM has space for what is not counted, too.
            dram: (part(cell.dram_percent) * 11 / 10).max(1 << 20),
            cache,
            memory: (part(MEMORY) as usize).max(256 << 10),
            reads_ahead: true,
            computing: cell.computing,
            warm: Warm::Reads,
        };
        let made = query(data, loaded.facts.rows, cell.percent);
        let misjudged = {
            let (made, factor) = (made.clone(), cell.misjudged);
            Arc::new(move |db: &Database| made(db).misjudged(factor))
        };
        let run = |hints: &[_]| measure(&setting, &loaded, seed, (&made, hints));
        let chosen = measure(&setting, &loaded, seed, (&(misjudged as MakeQuery), &[]))?;
        let chosen = chosen.ok_or_else(|| Failure::new("there is a plan without hints"))?;
        let mut found = Found::default();
        for way in cell.ways {
            let Some(outcome) = run(&way.hints())? else { continue };
            assert_eq!(outcome.rows, chosen.rows, "{}: every plan returns the same rows", cell.name());
            found.forced.push(Ran::of(outcome));
        }
        found.chosen = Ran::of(chosen);
        Ok(found)
    })
}

/// The figure `planner`.
pub fn figure(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = targets::figure("planner");
    let title = "The chosen plan over the best one, worst of all selectivities and memories";
    let mut panel = Panel::of_bars("query-planner", title, "drive", "times the best plan");
    panel.digits = 2;
    let (mut all, mut worst_cells) = (Vec::new(), Vec::new());
    for (number, profile) in bench.drives(&DRIVES)?.into_iter().enumerate() {
        for data in [Data::Tuples, Data::Queue, Data::Tree] {
            let mut of_drive = Vec::new();
            for (percent, dram_percent, cache_percent) in settings() {
                let scale = bench.scale(0.2);
                let profile = profile.clone();
                let computing = bench.args.computing();
                let (misjudged, ways) = (1.0, every(data));
                let cell = Cell {
                    profile,
                    data,
                    percent,
                    dram_percent,
                    cache_percent,
                    misjudged,
                    ways,
                    scale,
                    computing,
                };
                let name = cell.name();
                let found = found(bench, cell)?;
                let slower = found.value(Found::slower);
                if slower.median() > 1.1 {
                    let (found, by) = (found.first(), slower.median());
                    let (chosen, best) = (&found.chosen, found.best());
                    worst_cells.push((
                        by,
                        format!(
                            "{name}: {by:.2} times; {} ({:.4} s, planned {:.4}) instead of {} ({:.4} s, planned {:.4})",
                            chosen.plan, chosen.seconds, chosen.planned_s, best.plan, best.seconds, best.planned_s
                        ),
                    ));
                }
                of_drive.push(slower);
            }
            let most = Sampled::most(&of_drive).unwrap_or_default();
            panel.add(data.name(), Point::new(number as f64, &*profile.name, &most));
            all.extend(of_drive);
        }
    }
    let within = all.iter().filter(|slower| slower.median() <= 1.1).count();
    let share = Sampled::once(100.0 * within as f64 / all.len().max(1) as f64);
    WITHIN.judge(&mut figure, &share);
    WORST.judge(&mut figure, &Sampled::most(&all).unwrap_or_default());
    worst_cells.sort_by(|a, b| b.0.total_cmp(&a.0));
    figure.notes.push(format!("{} of {} cells are above 1.1.", worst_cells.len(), all.len()));
    figure.notes.extend(worst_cells.into_iter().take(40).map(|(_, text)| text));
    figure.panels.push(panel);
    Ok(figure)
}

/// Selectivity, DRAM and cache. With all in DRAM there is nothing for a cache.
fn settings() -> impl Iterator<Item = (f64, f64, f64)> {
    PERCENTS.into_iter().flat_map(|percent| {
        let of_dram = move |dram| CACHE.into_iter().map(move |cache| (percent, dram, cache));
        DRAM.into_iter().flat_map(of_dram).filter(|(_, dram, cache)| *dram < 100.0 || *cache == 0.0)
    })
}
