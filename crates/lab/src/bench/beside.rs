//! TPC-C on an open database, alone or beside other work.

use crate::cost::charged::Charged;
use crate::cost::model::CostModel;
use firndb::{Database, Isolation};
use firndb_adapter::FirnEngine;
use firndb_console::Failure;
use firndb_workloads::DriverOptions;
use firndb_workloads::tpcc::{self, ClientOptions, LoadOptions, Mix, Scale, Terminals};
use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

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
