//! The figure `planning`: how long a plan of two tables takes to find, in real time, of one thread
//! with all pages in DRAM. In a release build only.

use super::data::{Data, Loaded, Scale, load, options};
use super::targets::{self, PLANNING};
use super::ways::query;
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::sampled::{Sampled, median};
use firndb::{Database, Devices};
use firndb_base::sync::Arc;
use firndb_console::Failure;
use firndb_device::MemoryDevice;
use firndb_profile::DeviceProfile;
use std::time::Instant;

const PERCENTS: [f64; 3] = [0.02, 2.0, 30.0];
const SCALE: Scale = Scale(0.02);
const DRAM: u64 = 128 << 20;
/// Times that each query is planned.
const PLANNED: usize = 201;

pub const DRIVES: [&str; 3] = ["nvme", "sata-ssd", "disk-7200"];

pub fn figure(drives: &[DeviceProfile], seed: u64) -> Result<Figure, Failure> {
    let mut figure = targets::figure("planning");
    if cfg!(debug_assertions) {
        PLANNING.skip(&mut figure, "only a release build takes its time");
        return Ok(figure);
    }
    let title = "Planning a join of two tables, worst of all selectivities";
    let mut panel = Panel::of_bars("query-planning", title, "drive", "us");
    panel.digits = 0;
    let mut all = Vec::new();
    for data in [Data::Queue, Data::Tree] {
        let loaded = load(data, SCALE, seed)?;
        for (number, profile) in drives.iter().enumerate() {
            let us = Sampled::once(planned_us(&loaded, data, profile)?);
            panel.add(data.name(), Point::new(number as f64, &*profile.name, &us));
            all.push(us);
        }
    }
    PLANNING.judge(&mut figure, &Sampled::most(&all).unwrap_or_default());
    figure.panels.push(panel);
    Ok(figure)
}

/// The median of each query, the most of all.
fn planned_us(loaded: &Loaded, data: Data, profile: &DeviceProfile) -> Result<f64, Failure> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store.toml");
    profile.save(&path).map_err(|error| Failure::new(error.to_string()))?;
    let of = |device: &MemoryDevice| Arc::new(device.duplicate());
    let devices = Devices {
        superblock: of(&loaded.superblock),
        logs: vec![of(&loaded.log)],
        store: of(&loaded.store),
        store_others: Vec::new(),
        cache: None,
    };
    let options = options(DRAM).spill_on(Arc::new(MemoryDevice::new("spill")));
    let db: Database = options.tuning(|tuning| tuning.store_profile(&path)).open_on(devices)?;
    let mut most = 0.0;
    for percent in PERCENTS {
        let query = query(data, loaded.facts.rows, percent)(&db);
        query.count(&mut db.snapshot())?;
        let mut times = Vec::new();
        for _ in 0..PLANNED {
            let began = Instant::now();
            query.explain()?;
            times.push(began.elapsed().as_secs_f64() * 1e6);
        }
        most = f64::max(most, median(&times));
    }
    db.close()?;
    Ok(most)
}
