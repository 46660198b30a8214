//! The figure `front`: page writes over page reads, sweeping what a second read may cost; and the
//! figure `bound`: page writes beside the least that is possible.

use super::cell::{Found, Way};
use super::targets::{self, MINIMUM};
use super::{Bench, JUDGED_BUFFER, PAGE_SIZES, READ_COST, READ_COSTS};
use crate::bench::cells::{Judged, Measured};
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::sampled::Sampled;
use firndb_console::Failure;
use firndb_page_comparators::bound::cycle_cost;

const OTHERS: [Way; 6] = [
    Way::DoubleWrite,
    Way::AppendPack,
    Way::AppendPackTight,
    Way::Naive,
    Way::Incremental,
    Way::InPageLogging,
];

/// The figure `front`.
pub fn front(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = targets::figure("front");
    for page_size in PAGE_SIZES {
        let kib = page_size >> 10;
        let title =
            format!("Page writes over page reads, both over ORIG's; pages of {kib} KiB, write buffer 8 MB");
        let mut panel = Panel::new(&format!("delta-front-{kib}k"), &title, "page reads", "page writes");
        (panel.shape, panel.tabled) = (crate::bench::figure::Shape::Dots, false);
        let title = format!("The same, pages of {kib} KiB");
        let mut table = Panel::of_bars(&format!("delta-front-table-{kib}k"), &title, "method", "over ORIG");
        (table.drawn, table.digits) = (false, 3);
        let orig = bench.measure(page_size, Way::InPlace, 0, Judged::Yes)?;
        let mut add = |name: String, title: &str, found: &Measured<Found>, at: usize| {
            let over = |of: fn(&Found) -> f64| found.value(of).over(&orig.value(of));
            let (written, read) = (over(|found| found.written.all()), over(|found| found.read.all()));
            panel.add(title, Point::new(read.median(), format!("{:.3}", read.median()), &written));
            table.add("page writes", Point::new(at as f64, name.as_str(), &written));
            table.add("page reads", Point::new(at as f64, name.as_str(), &read));
            (written.median(), read.median())
        };
        let mut firn = Vec::new();
        for (at, read_cost) in READ_COSTS.into_iter().enumerate() {
            let found = bench.measure(page_size, Way::Firn { read_cost }, JUDGED_BUFFER, Judged::Yes)?;
            firn.push(add(format!("firn (model), reads at {read_cost}"), "firn (model)", &found, at));
        }
        let mut better = Vec::new();
        for (at, way) in OTHERS.into_iter().enumerate() {
            let plain = matches!(way, Way::DoubleWrite | Way::AppendPack | Way::AppendPackTight);
            let buffer = if plain { 0 } else { JUDGED_BUFFER };
            let found = bench.measure(page_size, way, buffer, Judged::Yes)?;
            let (written, read) = add(way.title().into(), way.title(), &found, READ_COSTS.len() + at);
            if firn.iter().any(|&(w, r)| written < w && read < r) {
                better.push(way.title());
            }
        }
        figure.panels.extend([panel, table]);
        figure.notes.push(match better.as_slice() {
            [] => format!(
                "Pages of {kib} KiB: no comparator has both fewer writes and fewer reads than any of Firn's."
            ),
            _ => format!(
                "Pages of {kib} KiB: fewer writes and fewer reads than one of Firn's have: {}.",
                better.join(", ")
            ),
        });
    }
    figure.notes.push(format!("Figure 5 has Firn's model with reads at {READ_COST}."));
    Ok(figure)
}

/// The figure `bound`.
pub fn bound(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = targets::figure("bound");
    let title = "Page writes for a dirty page given down, without write buffer, reads free";
    let mut panel = Panel::of_bars("delta-bound", title, "pages", "page writes");
    panel.digits = 4;
    let mut ratios = Vec::new();
    for (at, page_size) in PAGE_SIZES.into_iter().enumerate() {
        let firn = bench.measure_quietly(page_size, Way::FirnFromStart)?;
        let least = bench.measure_quietly(page_size, Way::Bound)?;
        let label = format!("{} KiB", page_size >> 10);
        let mut add =
            |series: &str, value: &Sampled| panel.add(series, Point::new(at as f64, &*label, value));
        let each = firn.value(|found| found.written_each);
        let minimum = least.value(|found| found.written_each);
        add("firn (model)", &each);
        add("the same, delta pages full", &firn.value(|found| found.packed_each));
        add("least in hindsight", &minimum);
        let by_formula = |found: &Found| {
            let best = (1..64).map(|n| cycle_cost(page_size, found.growth, n)).fold(f64::INFINITY, f64::min);
            best.max(0.0)
        };
        add("W(n) at the mean growth", &least.value(by_formula));
        add("mean growth, bytes", &least.value(|found| found.growth));
        ratios.push(each.over(&minimum));
    }
    MINIMUM.judge(&mut figure, &Sampled::most(&ratios).unwrap_or_default());
    figure.notes.push(
        "The least: for each page the best division of its writes into images and deltas, knowing all of them. \
         Without checkpoints, over the whole stream, from pages without deltas; delta pages as they are filled, by \
         one batch of the buffer each; W(n) at the mean growth lies above the least, since pages do not grow alike."
            .into(),
    );
    figure.panels.push(panel);
    Ok(figure)
}
