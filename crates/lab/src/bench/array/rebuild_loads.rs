//! The databases whose members are replaced.

use super::devices::{Layout, Loaded, PAGE, load};
use super::tables::{Size, WRITTEN, insert};
use crate::bench::beside;
use crate::bench::made::Made;
use crate::bench::reads::rows;
use firndb::{Database, Progress};
use firndb_console::Failure;

/// DRAM for pages while TPC-C is loaded.
const LOAD_BUFFER: u64 = 32 << 20;

/// Loaded databases, by layout and bytes.
pub type AllHalfFull = Made<(Layout, u64), Loaded<()>>;
/// TPC-C's, by layout and warehouses, and bytes of its pages.
pub type AllTpcc = Made<(Layout, u32), Loaded<u64>>;

/// A store half of whose pages were given back.
pub fn half_full(layout: Layout, size: Size, seed: u64) -> Result<Loaded<()>, Failure> {
    let bytes = size.buffer * size.times;
    load(layout, layout.options(size.buffer), seed, move |db| {
        rows::load(db, bytes, |_| true)?;
        db.create_table(WRITTEN)?;
        insert(db, bytes)?;
        db.drop_table(WRITTEN)?;
        come_to_rest(db)
    })
}

/// Everything is written, and what was given back is free.
pub fn come_to_rest(db: &Database) -> Result<(), Failure> {
    db.checkpoint()?;
    while db.step()? == Progress::Worked {}
    db.checkpoint()?;
    Ok(())
}

/// TPC-C; returns the bytes of its pages with it.
pub fn load_tpcc(layout: Layout, warehouses: u32, seed: u64) -> Result<Loaded<u64>, Failure> {
    load(layout, layout.options(LOAD_BUFFER), seed, move |db| {
        beside::load(db, warehouses, seed)?;
        Ok(db.statistics().store.pages_allocated * PAGE as u64)
    })
}
