//! TPC-C beside reads ahead: what its own short scans read for nothing, and what a scan of a table
//! of ten times DRAM does to its hit rates.
//!
//! The scanned table is apart from those of TPC-C, so that pages read tell whose they are: a pass
//! of the scan reads each of its pages once, and all other reads are TPC-C's. Its buffer hit rate
//! is one less its reads a transaction over the pages that a transaction fixes without a scan.

use super::rows::{self, Rows};
use super::targets::{BUFFER_HITS, CACHE_HITS, TPCC_WASTE, figure};
use super::{Bench, seconds};
use crate::bench::cache::compared::DEFAULT;
use crate::bench::cache::found::Found;
use crate::bench::cache::machine::{CORES, CacheCell, Cell, Clients, DRAM_LEAST, Data};
use crate::bench::cache::population::{Population, Populations, Size, options};
use crate::bench::cache::run;
use crate::bench::cache::scan::Scanned;
use crate::bench::cells::{Cellular, Judged, Measured};
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::made::Made;
use crate::bench::simulation::simulate;
use firndb::Devices;
use firndb_base::sync::Arc;
use firndb_console::Failure;
use firndb_profile::VariantName;
use firndb_workloads::tpcc::Scale;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// DRAM and flash cache, in per cent of TPC-C's database.
const DRAM_PERCENT: f64 = 5.0;
const CACHE_PERCENT: f64 = 20.0;
/// The scanned table, in units of DRAM.
const SCANNED_TIMES: u64 = 10;
/// DRAM for pages while it is loaded.
const LOAD_BUFFER: usize = 32 << 20;
const STORE: &str = "sata-ssd";
const FAST: &str = "nvme";

const FULL: Size =
    Size { name: "reads", scale: Scale { warehouses: 40, items: 4096, customers: 130 }, clients: 8 };
const QUICK: Size =
    Size { name: "reads, quick", scale: Scale { warehouses: 20, items: 4096, customers: 130 }, clients: 4 };

/// TPC-C's database with a table beside, and that table.
pub struct WithTable {
    population: Population,
    rows: Rows,
}

/// Made once for each size.
pub type AllScanned = Made<&'static str, WithTable>;

/// Loads the table beside those of TPC-C.
fn with_table(population: Population, seed: u64) -> Result<WithTable, Failure> {
    let (with_table, _) = simulate(seed, CORES, move || {
        let Population { superblock, log, store, cache, bytes, loaded } = population;
        let [superblock, log, store] = [superblock, log, store].map(Arc::new);
        let devices = Devices {
            superblock: superblock.clone(),
            logs: vec![log.clone()],
            store: store.clone(),
            store_others: Vec::new(),
            cache: None,
        };
        let db = options(LOAD_BUFFER).create(false).open_on(devices)?;
        let dram = ((bytes as f64 * DRAM_PERCENT / 100.0) as u64).max(DRAM_LEAST as u64);
        let rows = rows::load(&db, SCANNED_TIMES * dram, |_| true)?;
        db.close()?;
        let [superblock, log, store] = [superblock, log, store].map(|device| device.duplicate());
        Ok(WithTable { population: Population { superblock, log, store, cache, bytes, loaded }, rows })
    })?;
    Ok(with_table)
}

/// A run of TPC-C, perhaps with a scan beside it.
#[derive(Clone, Debug)]
struct BesideCell(Cell);

impl Cellular for BesideCell {
    type Found = BesideFound;

    fn name(&self) -> String {
        self.0.name()
    }

    fn at_end(&self, end: VariantName) -> Option<BesideCell> {
        self.0.at_end(end).map(BesideCell)
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct BesideFound {
    #[serde(flatten)]
    run: Found,
    /// Pages that the scan read in a transaction of TPC-C.
    #[serde(rename = "scanned_pages_per_transaction")]
    scanned_pages: f64,
}

impl BesideFound {
    /// Pages that TPC-C read from cache or store, in a transaction.
    fn reads(&self) -> f64 {
        self.run.tier_reads - self.scanned_pages
    }

    /// Of these, the share that the cache had. The scanned pages, ten times DRAM and read in turn,
    /// are not in it.
    fn cache_hits(&self) -> f64 {
        self.run.hit_rate * self.run.tier_reads / self.reads()
    }
}

/// TPC-C with this number of scanners.
fn measure(bench: &Bench, scanners: usize) -> Result<Measured<BesideFound>, Failure> {
    let profile = crate::tpcc::machine::profile;
    let size = match (bench.args.tiny, bench.args.quick) {
        (true, _) => Size::TINY,
        (false, true) => QUICK,
        (false, false) => FULL,
    };
    let cell = Cell {
        size,
        data: Data::Flash(profile(STORE)?),
        cache: Some(CacheCell { policy: DEFAULT, profile: profile(FAST)?, percent: CACHE_PERCENT }),
        dram_percent: DRAM_PERCENT,
        log: profile(FAST)?,
        clients: Clients::Everywhere,
        scanners,
        scanned: Scanned::Apart(Rows::TABLE),
        default_options: false,
        time: Duration::from_secs_f64(seconds(bench.args)),
    };
    let (populations, all, stop) = (bench.populations.clone(), bench.scanned.clone(), bench.stop);
    let first = bench.args.running.seed;
    bench.cells.of(&BesideCell(cell), Judged::Yes, move |BesideCell(cell), seed| {
        let populations: &Populations = &populations;
        let made = all.get(cell.size.name, || with_table(populations.of(cell.size, CORES)?, first))?;
        let run = run::run(cell, made.population.duplicate(), seed, stop)?;
        let pages_a_row = made.rows.pages as f64 / made.rows.rows as f64;
        Ok(BesideFound { scanned_pages: run.scanned_rows * pages_a_row, run })
    })
}

/// The figure `beside`.
pub fn beside(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = figure("beside");
    let (alone, scanned) = (measure(bench, 0)?, measure(bench, 1)?);
    // The same transactions fix the same pages, whatever runs beside them.
    let fixes = alone.value(|it| it.run.fixes);
    let hits = |of: &Measured<BesideFound>| {
        of.value(BesideFound::reads).with(&fixes, |reads, fixes| 1.0 - reads / fixes)
    };
    let cache_hits = |of: &Measured<BesideFound>| of.value(BesideFound::cache_hits);
    let title = "TPC-C's hit rates, alone and beside a scan of ten times DRAM";
    let mut panel = Panel::of_bars("reads-beside", title, "beside it", "%");
    panel.digits = 2;
    let mut work = Panel::of_bars("reads-beside-work", "What was done", "beside TPC-C", "a second");
    work.drawn = false;
    for (at, (name, found)) in [("nothing", &alone), ("a scan", &scanned)].into_iter().enumerate() {
        let point = |value| Point::new(at as f64, name, &value);
        panel.add("buffer", point(hits(found).map(|rate| 100.0 * rate)));
        panel.add("cache", point(cache_hits(found).map(|rate| 100.0 * rate)));
        work.add("transactions", point(found.value(|it| it.run.per_second)));
        work.add("pages scanned", point(found.value(|it| it.scanned_pages * it.run.per_second)));
    }
    figure.panels.extend([panel, work]);
    BUFFER_HITS.judge(&mut figure, &hits(&scanned).over(&hits(&alone)));
    CACHE_HITS.judge(&mut figure, &cache_hits(&scanned).over(&cache_hits(&alone)));
    figure.notes.push(format!(
        "DRAM is {DRAM_PERCENT} % and the flash cache {CACHE_PERCENT} % of TPC-C's database; pages on {STORE}, \
         cache and log on {FAST}."
    ));
    Ok(figure)
}

/// The part of the figure `waste` that is about TPC-C.
pub fn waste(bench: &Bench, figure: &mut Figure, panel: &mut Panel) -> Result<(), Failure> {
    let found = measure(bench, 0)?;
    let wasted = found.value(|it| it.run.read_ahead.wasted_percent());
    panel.add("never used", Point::new(0.0, "TPC-C", &wasted));
    TPCC_WASTE.judge(figure, &wasted);
    Ok(())
}
