//! The figure `placement`: what Firn writes and moves, and its I/O time, if new versions go only to
//! whole empty segments, beside runs in free places and beside append and pack.

use super::cell::{Found, Way};
use super::targets;
use super::times::{DRIVES, Drive};
use super::{Bench, JUDGED_BUFFER, PAGE_SIZES, READ_COST};
use crate::bench::cells::{Judged, Measured};
use crate::bench::figure::{Figure, Panel, Point};
use firndb_console::Failure;
use firndb_page_comparators::{Finds, SegmentOptions};

const fn segments(kib: u64, classes: usize, deltas_apart: bool, finds: Finds) -> SegmentOptions {
    SegmentOptions { bytes: kib << 10, classes, deltas_apart, finds }
}

/// What is varied, from the one in the middle.
fn varied(page_size: u64, memory: u64) -> Vec<(String, SegmentOptions)> {
    let least = (page_size * 64) >> 10;
    // Pages take ten times the memory: a hundred segments at least.
    let fits = |kib: &u64| *kib >= least && kib * 10 <= memory >> 10;
    let sizes = [256, 512, 1024, 2048, 4096, 8192].into_iter().filter(fits);
    let mut varied = Vec::new();
    for kib in sizes {
        varied.push((format!("{kib} KiB"), segments(kib, 1, false, Finds::ByPlace)));
    }
    let mut more = |what: &str, classes, apart, finds| {
        varied.push((format!("{least} KiB, {what}"), segments(least, classes, apart, finds)));
    };
    more("3 classes", 3, false, Finds::ByPlace);
    more("deltas apart", 1, true, Finds::ByPlace);
    more("map walked", 1, false, Finds::ByPage { share: 1.0 / 16.0 });
    varied
}

/// See the head of the file.
pub fn placement(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = targets::figure("placement");
    for page_size in PAGE_SIZES {
        one_size(bench, page_size, &mut figure)?;
    }
    Ok(figure)
}

type Part = (&'static str, fn(&Found) -> f64);

const PARTS: [Part; 8] = [
    ("images", |found| found.written.images),
    ("delta pages", |found| found.written.deltas),
    ("map pages", |found| found.written.map),
    ("moved", |found| found.moved),
    ("written", |found| found.written.all()),
    ("read", |found| found.read.all()),
    ("pages in a write", |found| found.run),
    ("of the writes in sequence", |found| {
        let count = |sequential: bool| -> f64 {
            let writes = found.requests.iter().filter(|kind| kind.0 && (kind.1 || !sequential));
            writes.map(|kind| kind.3 as f64).sum()
        };
        count(true) / count(false).max(1.0)
    }),
];

fn one_size(bench: &Bench, page_size: u64, figure: &mut Figure) -> Result<(), Failure> {
    let kib = page_size >> 10;
    let panel = |key: &str, title: &str, y: &str| {
        let mut panel = Panel::of_bars(&format!("delta-{key}-{kib}k"), title, "method", y);
        (panel.drawn, panel.digits) = (false, 3);
        panel
    };
    let title = format!("Pages of {kib} KiB, write buffer {JUDGED_BUFFER} MB: pages a transaction");
    let mut pages = panel("placement", &title, "pages a transaction");
    let title = format!("The same: I/O time over ORIG, by unit costs, pages of {kib} KiB");
    let mut times = panel("placement-time", &title, "of ORIG");
    let drives = DRIVES.map(|(name, _)| Drive::new(name, page_size));
    let drives: Vec<Drive> = drives.into_iter().collect::<Result<_, _>>()?;
    let orig = bench.measure(page_size, Way::InPlace, 0, Judged::Yes)?;
    let mut at = 0.0;
    let mut add = |name: &str, found: &Measured<Found>| {
        PARTS.iter().for_each(|(part, of)| pages.add(part, Point::new(at, name, &found.value(of))));
        for ((drive, _), costs) in DRIVES.iter().zip(&drives) {
            times.add(drive, Point::new(at, name, &costs.by_units(found).over(&costs.by_units(&orig))));
        }
        at += 1.0;
    };
    add(Way::InPlace.title(), &orig);
    for way in [Way::AppendPack, Way::AppendPackTight, Way::Off] {
        add(way.title(), &bench.measure(page_size, way, 0, Judged::Yes)?);
    }
    let varied = varied(page_size, bench.extent().memory);
    for (name, options) in &varied {
        let way = Way::Segments { read_cost: None, options: *options };
        add(&format!("deltas off, {name}"), &bench.measure(page_size, way, 0, Judged::Yes)?);
    }
    for read_cost in [0.1, READ_COST] {
        let way = Way::Firn { read_cost };
        let name = format!("deltas, reads at {read_cost}, runs");
        add(&name, &bench.measure(page_size, way, JUDGED_BUFFER, Judged::Yes)?);
        for (name, options) in &varied {
            let way = Way::Segments { read_cost: Some(read_cost), options: *options };
            let name = format!("deltas, reads at {read_cost}, {name}");
            add(&name, &bench.measure(page_size, way, JUDGED_BUFFER, Judged::Yes)?);
        }
    }
    figure.panels.extend([pages, times]);
    Ok(())
}
