//! Figure 5: page writes and reads over the size of the write buffer.

use super::cell::{Found, Way};
use super::targets::{self, DELTAS_READ, READS_4K, READS_8K, WRITES_4K, WRITES_8K};
use super::{BUFFERS, Bench, JUDGED_BUFFER, PAGE_SIZES, READ_COST};
use crate::bench::cells::{Judged, Measured};
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::sampled::Sampled;
use firndb_console::Failure;

/// Those without a write buffer, and those with one.
const PLAIN: [Way; 6] =
    [Way::InPlace, Way::DoubleWrite, Way::AppendPack, Way::AppendPackTight, Way::Off, Way::Store];
/// Where the model without deltas stands; the store is next.
const OFF: usize = 4;
const BUFFERED: [Way; 5] = [
    Way::Naive,
    Way::Incremental,
    Way::InPageLogging,
    Way::Firn { read_cost: READ_COST },
    Way::StoreDeltas { drive: None },
];

fn writes(found: &Measured<Found>) -> Sampled {
    found.value(|found| found.written.all())
}

fn reads(found: &Measured<Found>) -> Sampled {
    found.value(|found| found.read.all())
}

/// Figure 5.
pub fn over_buffers(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = targets::figure("5");
    let mut most = Vec::new();
    for page_size in PAGE_SIZES {
        one_size(bench, page_size, &mut figure, &mut most)?;
    }
    let most = Sampled::most(&most).unwrap_or_default();
    DELTAS_READ.judge(&mut figure, &most);
    figure.notes.push(format!(
        "The column `firn (model)` is a model over the stream, `firn (store)` the store in a run of its own, whose \
         clients it holds up: both take a second read to cost {READ_COST} of a page write. All memory is {} MB; at one size of the write buffer every method but those without one sees the same \
         stream, with the page map and the write buffer taken off the frames.",
        bench.extent().memory >> 20
    ));
    figure.notes.push(
        "Page writes are images, delta or log pages, map pages and first copies, in pages; the log is counted nowhere. \
         ICL, naive logs and append and pack keep their tables in DRAM only, as their papers do: no write is counted \
         for them, and no crash survived."
            .into(),
    );
    Ok(figure)
}

fn one_size(
    bench: &Bench,
    page_size: u64,
    figure: &mut Figure,
    most: &mut Vec<Sampled>,
) -> Result<(), Failure> {
    let kib = page_size >> 10;
    let panel = |key: &str, what: &str| {
        let title = format!("Pages of {kib} KiB: {what}");
        let mut panel =
            Panel::new(&format!("delta-{key}-{kib}k"), &title, "write buffer, MB", "pages a transaction");
        (panel.digits, panel.log_x) = (3, true);
        panel
    };
    let (mut written, mut read) = (panel("writes", "page writes"), panel("reads", "page reads"));
    let parts = |key: &str, way: Way| {
        let mut parts = panel(key, &format!("what {} writes, and is given", way.title()));
        (parts.drawn, parts.log_x) = (false, false);
        parts
    };
    let mut parts = [parts("parts", BUFFERED[3]), parts("store-parts", BUFFERED[4])];
    let plain = PLAIN.map(|way| bench.measure(page_size, way, 0, Judged::Yes));
    let plain: Vec<Measured<Found>> = plain.into_iter().collect::<Result<_, _>>()?;
    let orig = &plain[0];
    for buffer in BUFFERS {
        let point = |value: &Sampled| Point::new(buffer as f64, buffer.to_string(), value);
        for (way, found) in PLAIN.iter().zip(&plain) {
            written.add(way.title(), point(&writes(found)));
            read.add(way.title(), point(&reads(found)));
        }
        for way in BUFFERED {
            let found = bench.measure(page_size, way, buffer, Judged::Yes)?;
            written.add(way.title(), point(&writes(&found)));
            read.add(way.title(), point(&reads(&found)));
            let over = |of: fn(&Measured<Found>) -> Sampled| of(&found).over(&of(orig));
            if way == Way::Incremental {
                let cell = |what: &str| format!("{what} of WOL over ORIG, {kib} KiB, buffer {buffer} MB");
                figure.beside(cell("page writes"), "about 0.5 (a factor of two)", &over(writes));
                figure.beside(cell("page reads"), "below 2", &over(reads));
            }
            if let Way::StoreDeltas { .. } = way {
                // What changed in a page is seen in a stream, not by the store's counters.
                let seen = PARTS.iter().filter(|(name, _)| *name != CHANGED);
                add_parts(&mut parts[1], &point, &found, seen);
            }
            if let Way::Firn { .. } = way {
                most.push(found.value(|found| found.deltas_read_most as f64));
                add_parts(&mut parts[0], &point, &found, PARTS.iter());
                if buffer == JUDGED_BUFFER {
                    let (w, r) =
                        if page_size == 8192 { (WRITES_8K, READS_8K) } else { (WRITES_4K, READS_4K) };
                    w.judge(figure, &over(writes));
                    r.judge(figure, &over(reads));
                }
            }
        }
    }
    let runs = |at: usize| plain[at].value(|found| found.run).median();
    figure.notes.push(format!(
        "Pages of {kib} KiB: without deltas a write of the model carries {:.2} pages, one of the store {:.2}.",
        runs(OFF),
        runs(OFF + 1)
    ));
    figure.panels.extend([written, read]);
    figure.panels.extend(parts);
    Ok(())
}

fn add_parts<'a>(
    panel: &mut Panel,
    point: &dyn Fn(&Sampled) -> Point,
    found: &Measured<Found>,
    parts: impl Iterator<Item = &'a Part>,
) {
    parts.for_each(|(name, of)| panel.add(name, point(&found.value(of))));
}

type Part = (&'static str, fn(&Found) -> f64);

const CHANGED: &str = "bytes changed in each";
const PARTS: [Part; 9] = [
    ("images", |found| found.written.images),
    ("delta pages", |found| found.written.deltas),
    ("map pages", |found| found.written.map),
    ("dirty pages given down", |found| found.given),
    ("pages asked for", |found| found.asked),
    ("delta pages read", |found| found.read.deltas),
    (CHANGED, |found| found.changed_bytes),
    ("pages in a write", |found| found.run),
    ("frames", |found| found.frames as f64),
];
