//! Figure 5-1 and table 5.1: customers and orders of TPC-H, joined in three ways (the thesis does
//! not show plain nested loops either).

use super::Bench;
use super::data::{Data, Facts, PAGE, Scale, load};
use super::machine::{Setting, Warm, measure};
use super::targets::{self, JOIN_CROSSOVER, PREDICTED_JOIN};
use super::ways::{crossover, factor, joins, query};
use crate::bench::cells::{Cellular, Judged, Measured, end_of};
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::sampled::Sampled;
use firndb_console::Failure;
use firndb_profile::{DeviceProfile, VariantName};
use serde::{Deserialize, Serialize};

/// Customers, in per cent.
const PERCENTS: [f64; 9] = [0.05, 0.2, 0.45, 0.8, 1.25, 2.5, 7.0, 16.0, 25.0];
/// Of the thesis' 96 MB: pages, and rows of a query.
const DRAM: f64 = (64u64 << 20) as f64;
const MEMORY: f64 = (16u64 << 20) as f64;
const DRIVES: [&str; 3] = ["myers-disk-arm", "myers-a", "myers-b"];
/// Which of the joins ends where, in per cent, as printed: data, drive, first, second.
const PRINTED: [(Data, &str, usize, usize, f64, &str); 5] = [
    (Data::Queue, "myers-a", MERGE, LOOKUPS, 1.0, "index sort-merge to index nested loops"),
    (Data::Queue, "myers-b", MERGE, LOOKUPS, 0.8, "index sort-merge to index nested loops"),
    (Data::Queue, "myers-a", LOOKUPS, HASH, 16.0, "index nested loops to hash"),
    (Data::Tree, "myers-a", MERGE, HASH, 0.65, "index sort-merge to hash"),
    (Data::Tree, "myers-b", MERGE, HASH, 1.25, "index sort-merge to hash"),
];
const MERGE: usize = 0;
const LOOKUPS: usize = 1;
const HASH: usize = 2;

#[derive(Clone, Debug)]
struct Cell {
    profile: DeviceProfile,
    data: Data,
    scale: Scale,
    computing: f64,
}

impl Cellular for Cell {
    type Found = Found;

    fn name(&self) -> String {
        format!("{}, {}", self.profile.name, self.data.name())
    }
    fn at_end(&self, end: VariantName) -> Option<Cell> {
        Some(Cell { profile: end_of(&self.profile, end)?, ..self.clone() })
    }
}

/// Seconds of each join, by selectivity; and as they were planned.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Found {
    seconds: [Vec<f64>; 3],
    planned: [Vec<f64>; 3],
}

impl Found {
    fn at(&self, join: usize, at: usize) -> f64 {
        self.seconds[join].get(at).copied().unwrap_or(f64::NAN)
    }
    fn crossing(of: &[Vec<f64>; 3], first: usize, second: usize) -> f64 {
        let all = of.iter().all(|join| join.len() == PERCENTS.len());
        let found = if all { crossover(&PERCENTS, &of[first], &of[second]) } else { None };
        found.unwrap_or(f64::NAN)
    }
}

fn found(bench: &Bench, profile: DeviceProfile, data: Data) -> Result<Measured<Found>, Failure> {
    let scale = bench.scale(1.0);
    let (all, first) = (bench.loaded.clone(), bench.args.running.seed);
    let cell = Cell { profile, data, scale, computing: bench.args.computing() };
    bench.cells.of(&cell, Judged::Yes, move |cell, seed| {
        let (data, scale) = (cell.data, cell.scale);
        let loaded = all.get((data, (scale.0 * 1000.0) as u64, first), || load(data, scale, first))?;
        let setting = Setting {
            profile: cell.profile.clone(),
            dram: scale.of(DRAM).max(2 << 20),
            cache: None,
            memory: (scale.of(MEMORY) as usize).max(1 << 20),
            reads_ahead: true,
            computing: cell.computing,
            warm: Warm::Nothing,
        };
        let mut found = Found::default();
        for percent in PERCENTS {
            for (number, way) in joins(data).into_iter().enumerate() {
                let made = query(data, loaded.facts.rows, percent);
                let outcome = measure(&setting, &loaded, seed, (&made, &way.hints()))?;
                let outcome = outcome.ok_or_else(|| Failure::new(format!("no plan is {}", way.name)))?;
                found.seconds[number].push(outcome.seconds);
                found.planned[number].push(outcome.planned_seconds);
            }
        }
        Ok(found)
    })
}

/// Figure 5-1.
pub fn figure(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = targets::figure("5-1");
    let (mut printed, mut predicted) = (Vec::new(), Vec::new());
    for data in [Data::Queue, Data::Tree] {
        for profile in bench.drives(&DRIVES)? {
            let name = profile.name.clone();
            let key = format!("query-5-1-{}-{name}", data.name());
            let title = format!("Customers and orders, {}: {name}", data.name());
            let mut panel = Panel::new(&key, &title, "% of the customers", "seconds");
            (panel.log_x, panel.log_y, panel.digits) = (true, true, 3);
            let found = found(bench, profile, data)?;
            for (number, way) in joins(data).into_iter().enumerate() {
                for (at, percent) in PERCENTS.into_iter().enumerate() {
                    let seconds = found.value(|it| it.at(number, at));
                    panel.add(way.name, Point::new(percent, percent.to_string(), &seconds));
                }
            }
            figure.panels.push(panel);
            for (first, second) in [(MERGE, LOOKUPS), (MERGE, HASH), (LOOKUPS, HASH)] {
                let measured = found.value(|it| Found::crossing(&it.seconds, first, second));
                let planned = found.value(|it| Found::crossing(&it.planned, first, second));
                predicted.push(measured.with(&planned, factor));
                let [one, two] = [first, second].map(|join| joins(data)[join].name);
                figure.beside(
                    format!("{name}, {}: {one} to {two}, %: as planned; measured", data.name()),
                    &format!("({:.2})", planned.median()),
                    &measured,
                );
            }
            for (_, _, first, second, percent, what) in
                PRINTED.iter().filter(|one| one.0 == data && one.1 == name)
            {
                let at = found.value(|it| Found::crossing(&it.seconds, *first, *second));
                figure.beside(format!("{name}, {}: {what}, %", data.name()), &percent.to_string(), &at);
                if data == Data::Queue && *first == MERGE {
                    printed.push(at.map(|at| factor(at, *percent)));
                }
            }
        }
    }
    JOIN_CROSSOVER.judge(&mut figure, &Sampled::most(&printed).unwrap_or_default());
    PREDICTED_JOIN.judge(&mut figure, &Sampled::most(&predicted).unwrap_or_default());
    Ok(figure)
}

/// Loads the data only, for table 5.1.
#[derive(Clone, Debug)]
struct Sizes {
    data: Data,
    scale: Scale,
}

impl Cellular for Sizes {
    type Found = Pages;

    fn name(&self) -> String {
        format!("sizes of {}", self.data.name())
    }
    fn at_end(&self, _: VariantName) -> Option<Sizes> {
        None
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Pages {
    orders: u64,
    orders_index: u64,
    customers: u64,
    customers_index: u64,
}

/// Table 5.1: megabytes of the data sets.
pub fn sizes(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::table("5.1", "sizes of tables and indexes");
    let printed = [(Data::Queue, ["405", "62", "66", "5.9"]), (Data::Tree, ["453", "62", "74", "0"])];
    for (data, printed) in printed {
        let (scale, first) = (bench.scale(1.0), bench.args.running.seed);
        let all = bench.loaded.clone();
        let found = bench.cells.of(&Sizes { data, scale }, Judged::No, move |cell, _| {
            let Sizes { data, scale } = *cell;
            let loaded = all.get((data, (scale.0 * 1000.0) as u64, first), || load(data, scale, first))?;
            let pages = |name: &str| pages_of(&loaded.facts, name);
            Ok(Pages {
                orders: pages("orders"),
                orders_index: pages("o_by_custkey"),
                customers: pages("customer"),
                customers_index: pages("c_by_custkey"),
            })
        })?;
        let megabytes = |of: fn(&Pages) -> u64| found.value(|it| (of(it) * PAGE) as f64 / 1e6 / scale.0);
        let all: [(&str, Sampled); 4] = [
            ("orders", megabytes(|it| it.orders)),
            ("orders' index", megabytes(|it| it.orders_index)),
            ("customers", megabytes(|it| it.customers)),
            ("customers' index", megabytes(|it| it.customers_index)),
        ];
        for ((what, ours), paper) in all.iter().zip(printed) {
            figure.beside(format!("{}: {what}, MB at full scale", data.name()), paper, ours);
        }
    }
    Ok(figure)
}

fn pages_of(facts: &Facts, name: &str) -> u64 {
    facts.pages.iter().find(|one| one.0 == name).map_or(0, |one| one.1)
}
