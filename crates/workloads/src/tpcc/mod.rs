//! TPC-C, by revision 5.11 of its specification; "clause" in this module means a clause of it.
//!
//! [`load()`] makes a population, [`run`] drives the five transactions against it, [`check`] tests
//! the consistency conditions. What differs from the specification, and why, is in
//! `docs/lab/tools/tpcc.md`.

mod client;
mod consistency;

mod customer;
mod delivery;
mod draw;
mod input;
pub mod keys;
mod load;
mod new_order;
mod order_status;
mod payment;
mod populate;
pub mod rows;
mod scale;
mod stock_level;
pub mod tables;

pub use client::{ClientOptions, KINDS, Mix, Terminals, TpccClient};
pub use consistency::{Condition, When, check};

pub use draw::RunConstants;
pub use load::{LoadOptions, LoadProgress, load};
pub use scale::{DISTRICTS, Population, Scale};
pub use tables::schema;

use crate::driver::{DriverOptions, LiveRate, drive};
use crate::engine::{Engine, EngineError, Outcome};
use crate::report::RunReport;
use std::sync::atomic::AtomicBool;

/// Runs clients against a loaded population until the driver's time is over or `stop` is set.
pub fn run<E: Engine>(
    engine: &E,
    driver: &DriverOptions,
    clients: &ClientOptions,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(LiveRate),
) -> Outcome<RunReport> {
    let Some(population) = Population::of(engine)? else {
        return Err(EngineError::Fatal("there is no whole population to run against: load one first".into()));
    };
    drive(driver, &KINDS, stop, |number| TpccClient::new(engine, population, clients, number), progress)
}
