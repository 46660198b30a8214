//! The figure `rates`: four members beside one, and what writes cause on the members.
//!
//! Reads are of single rows at random, by more clients than the members have channels, over a table
//! of ten times DRAM. Writes are rows inserted in ascending order: the store writes the pages that
//! fill, in the batches of the engine's cleaners, and reads none. These wait for one batch at a
//! time, about, so what four members can do is measured by more batches at once ([`batches`]).

use super::batches;
use super::devices::{Layout, Loaded, Machine, PAGE};
use super::measuring::{Bench, DRIVES};
use super::tables::{Size, WRITERS, WRITTEN, insert};
use super::targets::{BYTES, FOUR_READ, FOUR_WRITE, READS_OF_WRITES, figure};
use crate::bench::cells::{Cellular, Judged, Measured, end_of};
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::reads::rows::Rows;
use crate::bench::reads::work::{self, Length};
use crate::bench::sampled::Sampled;
use firndb::Database;
use firndb_base::clock;
use firndb_console::Failure;
use firndb_profile::{DeviceProfile, VariantName};
use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// More than four members serve side by side.
const READERS: u64 = 256;
/// Codes, beside one copy, of which bytes and reads are counted; on the first drive.
const CODES: [(usize, usize); 4] = [(1, 2), (3, 4), (2, 4), (4, 4)];
const LONGEST: Duration = Duration::from_secs(3600);

#[derive(Clone, Debug)]
struct Cell {
    profile: DeviceProfile,
    layout: Layout,
    size: Size,
}

impl Cellular for Cell {
    type Found = Found;

    fn name(&self) -> String {
        format!("rates, {}, {}", self.layout.name(), self.profile.name)
    }

    fn at_end(&self, end: VariantName) -> Option<Cell> {
        Some(Cell { profile: end_of(&self.profile, end)?, ..self.clone() })
    }
}

/// What a layout came to on a drive.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Found {
    /// Rows whose pages had to be read.
    reads_per_second: f64,
    pages_written_per_second: f64,
    written: Written,
}

/// What inserting rows caused.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Written {
    pub pages: u64,
    /// Of metadata, as the store wrote it: the members hold copies.
    metadata_bytes: u64,
    /// Likewise, as it read it.
    metadata_read_bytes: u64,
    member_bytes: u64,
    /// Bytes that the store read, and that were read of members.
    store_read_bytes: u64,
    member_read_bytes: u64,
}

impl Written {
    fn of(db: &Database, machine: &Machine) -> Written {
        let (store, moved) = (db.statistics().store, machine.moved());
        Written {
            pages: store.pages_written + store.delta_pages_written,
            metadata_bytes: store.metadata_bytes_written,
            metadata_read_bytes: store.metadata_bytes_read,
            member_bytes: moved.written_bytes,
            store_read_bytes: db.io_counts().store.reads.bytes,
            member_read_bytes: moved.read_bytes,
        }
    }

    fn since(self, earlier: Written) -> Written {
        Written {
            pages: self.pages - earlier.pages,
            metadata_bytes: self.metadata_bytes - earlier.metadata_bytes,
            metadata_read_bytes: self.metadata_read_bytes - earlier.metadata_read_bytes,
            member_bytes: self.member_bytes - earlier.member_bytes,
            store_read_bytes: self.store_read_bytes - earlier.store_read_bytes,
            member_read_bytes: self.member_read_bytes - earlier.member_read_bytes,
        }
    }

    /// Bytes written to members, metadata included, over those of the pages' fragments.
    fn bytes_over_fragments(&self, layout: Layout) -> f64 {
        self.member_bytes as f64 / (self.pages as f64 * layout.bytes_of_page())
    }

    /// The same without copies of metadata.
    fn page_bytes_over_fragments(&self, layout: Layout) -> f64 {
        let copies = self.metadata_bytes * (layout.code.spare() as u64 + 1);
        self.member_bytes.saturating_sub(copies) as f64 / (self.pages as f64 * layout.bytes_of_page())
    }

    /// Pages' worth of reads of members that no read of the store asked for. The first read of
    /// metadata after an opening compares its copies: no write causes that.
    fn unasked_reads(&self, layout: Layout) -> f64 {
        let pages = self.store_read_bytes.saturating_sub(self.metadata_read_bytes) as f64 / PAGE as f64;
        let copies = self.metadata_read_bytes * (layout.code.spare() as u64 + 1);
        let asked = pages * layout.bytes_of_read() + copies as f64;
        ((self.member_read_bytes as f64 - asked) / layout.bytes_of_read()).max(0.0)
    }
}

fn run(cell: &Cell, loaded: &Loaded<Rows>, seed: u64, stop: &'static AtomicBool) -> Result<Found, Failure> {
    let machine = Machine::new(loaded, &cell.profile, seed)?;
    let db = machine.open(cell.layout.options(cell.size.buffer).recovery_time(Duration::MAX))?;
    let mut found = Found::default();
    let reads = |rows: u64| Length { rows, time: LONGEST, stop };
    // DRAM is full, and the tree's upper levels are in it.
    work::many(&db, loaded.what, 64, seed + 1, reads(2 * cell.size.frames()))?;
    machine.run_free(false);
    let done = work::points(&db, loaded.what, READERS, seed, reads(cell.size.reads))?;
    found.reads_per_second = done.missed_per_second();
    db.create_table(WRITTEN)?;
    let (before, began) = (Written::of(&db, &machine), clock::now());
    insert(&db, cell.size.written_bytes)?;
    let took = began.elapsed().as_secs_f64();
    found.written = Written::of(&db, &machine).since(before);
    found.pages_written_per_second = found.written.pages as f64 / took;
    machine.run_free(true);
    db.close()?;
    Ok(found)
}

/// Batches without an engine.
fn batches(bench: &Bench, drive: &str, layout: Layout) -> Result<Measured<batches::Found>, Failure> {
    let profile = crate::tpcc::machine::profile(drive)?;
    let batches = bench.size().written_bytes / batches::AT_ONCE / batches::BYTES;
    bench.cells.of(&batches::Cell { profile, layout, batches: batches.max(1) }, Judged::Yes, batches::run)
}

fn measure(bench: &Bench, drive: &str, layout: Layout) -> Result<Measured<Found>, Failure> {
    let profile = crate::tpcc::machine::profile(drive)?;
    let size = bench.size();
    bench.over_rows(&Cell { profile, layout, size }, (layout, size), run)
}

/// The figure.
pub fn rates(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = figure("rates");
    let title = "Four members, pages whole on one of them, over one member alone";
    let mut panel = Panel::of_bars("array-rates", title, "drive", "times one member");
    panel.digits = 2;
    let mut raw = Panel::of_bars("array-rates-raw", "Rates", "drive", "a second");
    raw.drawn = false;
    let (one, four) = (Layout::new(1, 1, 1), Layout::new(1, 1, 4));
    let mut least: [Vec<Sampled>; 3] = Default::default();
    for (at, drive) in DRIVES.into_iter().enumerate() {
        let (single, several) = (measure(bench, drive, one)?, measure(bench, drive, four)?);
        let (single_batches, several_batches) = (batches(bench, drive, one)?, batches(bench, drive, four)?);
        let both = |of: fn(&Found) -> f64| (single.value(of), several.value(of));
        let pages = |found: &batches::Found| found.pages_per_second;
        let quantities = [
            ("random reads", both(|found| found.reads_per_second)),
            ("batches", (single_batches.value(pages), several_batches.value(pages))),
            ("inserts", both(|found| found.pages_written_per_second)),
        ];
        for ((name, (of_one, of_four)), least) in quantities.into_iter().zip(&mut least) {
            let times = of_four.over(&of_one);
            panel.add(name, Point::new(at as f64, drive, &times));
            raw.add(&format!("{name}, one"), Point::new(at as f64, drive, &of_one));
            raw.add(&format!("{name}, four"), Point::new(at as f64, drive, &of_four));
            least.push(times);
        }
    }
    figure.panels.extend([panel, raw]);
    causes(bench, &mut figure)?;
    let [reads, writes, inserts] = least.map(|all| Sampled::least(&all).unwrap_or_default());
    FOUR_READ.judge(&mut figure, &reads);
    FOUR_WRITE.judge(&mut figure, &writes);
    figure.notes.push(format!(
        "Least over the drives count. {READERS} clients read single rows at random, of {} MiB of DRAM and a table of \
         {} times that; computing and log take no time. Batches are of 64 pages, {} at once, without an engine. \
         Inserts are pages that the engine writes while {WRITERS} clients insert rows: least {}.",
        bench.size().buffer >> 20,
        bench.size().times,
        batches::AT_ONCE,
        inserts.summary().text(2),
    ));
    Ok(figure)
}

/// Bytes and reads that writes cause on members, by code.
fn causes(bench: &Bench, figure: &mut Figure) -> Result<(), Failure> {
    let title = format!("What writes cause on four members, {}", DRIVES[0]);
    let mut panel = Panel::of_bars("array-causes", &title, "code", "over w fragments a page");
    (panel.digits, panel.drawn) = (4, false);
    let (mut bytes, mut reads) = (Vec::new(), Vec::new());
    let layouts = CODES.map(|(needed, written)| Layout::new(needed, written, 4));
    let layouts = [Layout::new(1, 1, 1), Layout::new(1, 1, 4)].into_iter().chain(layouts);
    for (at, layout) in layouts.enumerate() {
        let found = measure(bench, DRIVES[0], layout)?;
        let over = found.value(|found| found.written.bytes_over_fragments(layout));
        let pages = found.value(|found| found.written.page_bytes_over_fragments(layout));
        let unasked = found.value(|found| found.written.unasked_reads(layout));
        let point = |value| Point::new(at as f64, layout.name(), value);
        panel.add("all bytes", point(&over));
        panel.add("without metadata", point(&pages));
        panel.add("pages read that were not asked for", point(&unasked));
        if layout.members > 1 {
            bytes.push(over);
            reads.push(unasked);
        }
    }
    figure.panels.push(panel);
    BYTES.judge(figure, &Sampled::most(&bytes).unwrap_or_default());
    READS_OF_WRITES.judge(figure, &Sampled::most(&reads).unwrap_or_default());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_set_against_all_fragments_of_pages_and_copies_of_metadata_are_told_apart() {
        let layout = Layout::new(3, 4, 4);
        assert_eq!(layout.bytes_of_page(), 4.0 * 1536.0);
        let written = Written {
            pages: 100,
            metadata_bytes: 4096,
            metadata_read_bytes: 0,
            member_bytes: 100 * 4 * 1536 + 2 * 4096,
            store_read_bytes: 2 * 4096,
            member_read_bytes: 3 * 3 * 1536,
        };
        assert_eq!(written.page_bytes_over_fragments(layout), 1.0);
        assert!((written.bytes_over_fragments(layout) - 1.01333).abs() < 1e-4);
        assert_eq!(written.unasked_reads(layout), 1.0);
        assert_eq!(Written { member_read_bytes: 0, ..written }.unasked_reads(layout), 0.0);
        let of_metadata = Written { metadata_read_bytes: 8192, member_read_bytes: 16_384, ..written };
        assert_eq!(of_metadata.unasked_reads(layout), 0.0, "both copies of two units");
        let later = Written { pages: 300, member_read_bytes: 20_000, ..written }.since(written);
        assert_eq!((later.pages, later.member_read_bytes, later.metadata_bytes), (200, 20_000 - 13_824, 0));
    }
}
