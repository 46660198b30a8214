//! TPC-C on an open database, alone and beside other work.

use crate::bench::cells::{Cellular, Measured, end_of};
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::sampled::Sampled;
use crate::cost::charged::Charged;
use crate::cost::model::CostModel;
use firndb::{Database, Isolation};
use firndb_adapter::FirnEngine;
use firndb_console::Failure;
use firndb_profile::{DeviceProfile, VariantName};
use firndb_workloads::DriverOptions;
use firndb_workloads::tpcc::{self, ClientOptions, LoadOptions, Mix, Scale, Terminals};
use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Drives of the figures that compare.
const DRIVES: [&str; 3] = ["nvme", "sata-ssd", "network-volume"];
const CLIENTS: usize = 8;
/// How often the other work is looked after.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What clients came to.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Rate {
    /// Transactions of all kinds.
    pub per_second: f64,
    /// Of New-Orders, milliseconds.
    pub p50_ms: f64,
    pub p99_ms: f64,
}

/// Creates the tables and loads warehouses of a twenty-third of the standard's rows.
pub fn load(db: &Database, warehouses: u32, seed: u64) -> Result<(), Failure> {
    let engine = FirnEngine::new(db.clone(), tpcc::schema(), Isolation::Snapshot)?;
    let scale = Scale { warehouses, items: 4096, customers: 130 };
    tpcc::load(&engine, &LoadOptions::new(scale, seed), &|_| ())?;
    Ok(())
}

/// Runs clients for `time` after a warm-up of a quarter of it. `beside` is called every 20 ms from
/// the end of the warm-up on; its error ends the run when the time is over.
pub fn run(
    db: &Database,
    time: Duration,
    seed: u64,
    beside: &mut dyn FnMut() -> Result<(), Failure>,
) -> Result<Rate, Failure> {
    let engine = FirnEngine::new(db.clone(), tpcc::schema(), Isolation::Snapshot)?;
    let engine = Charged::new(engine, CostModel::FIRN);
    let mut driver = DriverOptions::new(CLIENTS, time);
    (driver.warm_up, driver.report_every) = (time / 4, LOOK_EVERY);
    let clients = ClientOptions { mix: Mix::default(), terminals: Terminals::Drawn, seed };
    let mut outcome = Ok(());
    let report = tpcc::run(&engine, &driver, &clients, &AtomicBool::new(false), &mut |live| {
        if !live.warming_up && outcome.is_ok() {
            outcome = beside();
        }
    })?;
    outcome?;
    Ok(Rate {
        per_second: report.per_second(report.commits()),
        p50_ms: report.kinds[0].latency.p50 / 1000.0,
        p99_ms: report.kinds[0].latency.p99 / 1000.0,
    })
}

/// TPC-C with a large table in the same store, with which something else is done or not.
#[derive(Clone, Debug)]
pub struct Cell {
    pub profile: DeviceProfile,
    pub size: Size,
    /// What the other work is called.
    pub work: &'static str,
    /// Whether it is done.
    pub is_beside: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size {
    pub warehouses: u32,
    /// Of the large table.
    pub bytes: u64,
    pub time: Duration,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Found {
    #[serde(flatten)]
    pub tpcc: Rate,
    /// Pages that the other work wrote elsewhere, megabytes of them.
    pub moved_mb: f64,
    /// Share of the run in which it did.
    pub moving: f64,
}

impl Cellular for Cell {
    type Found = Found;

    fn name(&self) -> String {
        let beside = if self.is_beside { format!("beside {}", self.work) } else { "alone".to_owned() };
        format!("TPC-C {beside}, {}", self.profile.name)
    }

    fn at_end(&self, end: VariantName) -> Option<Cell> {
        Some(Cell { profile: end_of(&self.profile, end)?, ..self.clone() })
    }
}

/// Adds panels of TPC-C alone and beside `work` on each drive; returns the least that is left of
/// its rate. Drives on which nothing was moved say nothing.
pub fn compare(
    figure: &mut Figure,
    (key, work): (&str, &'static str),
    size: Size,
    measure: impl Fn(Cell) -> Result<Measured<Found>, Failure>,
) -> Result<Option<Sampled>, Failure> {
    let title = format!("TPC-C beside {work} over TPC-C alone");
    let mut panel = Panel::of_bars(key, &title, "drive", "transactions a second over alone");
    panel.digits = 3;
    let title = format!("TPC-C alone and beside {work}");
    let mut raw = Panel::of_bars(&format!("{key}-raw"), &title, "drive", "");
    (raw.drawn, raw.digits) = (false, 2);
    let mut ratios = Vec::new();
    for (at, drive) in DRIVES.into_iter().enumerate() {
        let profile = crate::tpcc::machine::profile(drive)?;
        let alone = Cell { profile, size, work, is_beside: false };
        let beside = measure(Cell { is_beside: true, ..alone.clone() })?;
        let alone = measure(alone)?;
        let rate = |found: &Measured<Found>| found.value(|it| it.tpcc.per_second);
        let ratio = rate(&beside).over(&rate(&alone));
        panel.add("", Point::new(at as f64, drive, &ratio));
        if beside.first().moved_mb > 0.0 {
            ratios.push(ratio);
        }
        let mut add = |series: &str, value: Sampled| raw.add(series, Point::new(at as f64, drive, &value));
        add("alone, a second", rate(&alone));
        add("beside", rate(&beside));
        add("alone, p99 ms", alone.value(|it| it.tpcc.p99_ms));
        add("beside, p99", beside.value(|it| it.tpcc.p99_ms));
        add("MB moved", beside.value(|it| it.moved_mb));
        add("share of the run that moves", beside.value(|it| it.moving));
    }
    figure.panels.extend([panel, raw]);
    figure.notes.push("The worst of the drives counts. Latencies are of New-Orders.".into());
    Ok(Sampled::least(&ratios))
}
