//! Tables 3 and 4 and figure 4: policies over the size of the cache.

use super::Bench;
use super::compared::{EXADATA, FIFO, GR, GR_PAPER, GSC, GSC_PAPER, KEEP, LC, SELECT, TAC};
use super::found::Found;
use super::machine::Data;
use crate::bench::cells::{Judged, Measured};
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::sampled::Sampled;
use firndb_cache_comparators::Compared;
use firndb_console::Failure;

/// The sizes of tables 3 and 4: 2, 4, 6, 8 and 10 GB of 50.
const PRINTED_PERCENTS: [f64; 5] = [4.0, 8.0, 12.0, 16.0, 20.0];
const POLICIES: [Compared; 4] = [LC, FIFO, GR, GSC];
/// By policy, then by size.
type Printed = [[f64; 5]; 4];
const HITS: Printed = [
    [72.9, 80.0, 83.7, 87.0, 89.3],
    [65.5, 72.6, 76.4, 78.6, 80.5],
    [65.5, 72.6, 76.2, 78.6, 80.4],
    [69.7, 76.6, 79.8, 82.1, 83.7],
];
const REDUCTIONS: Printed = [
    [51.8, 62.1, 68.8, 74.0, 78.6],
    [46.3, 54.8, 60.1, 62.8, 65.0],
    [46.3, 55.3, 59.7, 62.7, 65.4],
    [50.2, 59.9, 65.9, 70.4, 73.9],
];
const UTILIZATIONS: Printed = [
    [92.6, 96.4, 97.7, 98.2, 98.1],
    [65.6, 73.7, 78.9, 82.7, 84.9],
    [51.6, 62.5, 67.7, 70.0, 69.6],
    [60.9, 68.0, 70.9, 74.7, 75.9],
];
const IOPS: Printed = [
    [4534.0, 4226.0, 3849.0, 3362.0, 3370.0],
    [4973.0, 5870.0, 6479.0, 7019.0, 7415.0],
    [7213.0, 8474.0, 9390.0, 9848.0, 10693.0],
    [11098.0, 12208.0, 13031.0, 13871.0, 14678.0],
];
/// Those that the targets are for: the paper's best, and what goes beyond it.
const OURS: [Compared; 3] = [GSC, SELECT, KEEP];
/// A random read on that flash, microseconds of a channel.
const READ_US: f64 = 280.75;
/// The flash of tables 3 and 4.
pub const MLC: &str = "samsung-470";
pub const SLC: &str = "x25-e";

/// As in the paper.
pub fn title(policy: Compared) -> &'static str {
    match policy {
        LC => "LC",
        FIFO => "FaCE",
        GR => "FaCE+GR",
        GSC => "FaCE+GSC",
        SELECT => "Firn select",
        KEEP => "Firn keep",
        TAC => "TAC",
        EXADATA => "Exadata",
        GR_PAPER => "FaCE+GR as published",
        GSC_PAPER => "FaCE+GSC as published",
        Compared::Other(_) => "LC at a share of dirty pages",
        Compared::Firn(_) | Compared::Paper(_) => "FaCE as published",
    }
}

/// One part of a table: a value by policy and size, beside what is printed.
fn part(
    bench: &Bench,
    figure: &mut Figure,
    name: &str,
    (unit, digits): (&str, usize),
    value: impl Fn(&Found) -> f64,
    printed: &Printed,
) -> Result<(), Failure> {
    let key = format!("face-table-{name}").replace(' ', "");
    let mut panel = Panel::new(&key, &format!("Table {name}"), "cache, % of the database", unit);
    panel.digits = digits;
    for percent in bench.percents() {
        for policy in bench.policies() {
            let found = bench.measure(&bench.cached(policy, MLC, percent)?, Judged::No)?;
            let value = found.value(&value);
            panel.add(title(policy), Point::new(percent, percent.to_string(), &value));
            let row = POLICIES.iter().position(|known| *known == policy);
            let column = PRINTED_PERCENTS.iter().position(|known| *known == percent);
            if let (Some(row), Some(column)) = (row, column) {
                let cell = format!("{name}, {}, {percent} %", title(policy));
                figure.beside(cell, &printed[row][column].to_string(), &value);
            }
        }
    }
    figure.panels.push(panel);
    Ok(())
}

/// A size of the cache, and what a policy and LC do with it.
struct Pair {
    percent: f64,
    ours: Measured<Found>,
    lc: Measured<Found>,
}

impl Pair {
    /// A quantity of ours over LC's.
    fn ratio(&self, of: impl Fn(&Found) -> f64) -> Sampled {
        self.ours.value(&of).over(&self.lc.value(&of))
    }
}

/// Pairs of a policy and LC, by size.
fn pairs(bench: &Bench, policy: Compared, flash: &str) -> Result<Vec<Pair>, Failure> {
    let policies = bench.policies();
    if ![LC, policy].iter().all(|policy| policies.contains(policy)) {
        return Ok(Vec::new());
    }
    let pair = |percent: f64| {
        let measure = |policy| bench.measure(&bench.cached(policy, flash, percent)?, Judged::Yes);
        Ok(Pair { percent, ours: measure(policy)?, lc: measure(LC)? })
    };
    bench.percents().into_iter().map(pair).collect()
}

fn least(values: impl IntoIterator<Item = Sampled>) -> Sampled {
    Sampled::least(&values.into_iter().collect::<Vec<_>>()).unwrap_or_default()
}

fn most(values: impl IntoIterator<Item = Sampled>) -> Sampled {
    Sampled::most(&values.into_iter().collect::<Vec<_>>()).unwrap_or_default()
}

/// Table 3.
pub fn hits(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::table("3", "read hits and write reductions");
    let percent = ("%", 1);
    part(bench, &mut figure, "3 a", percent, |found| found.hit_rate * 100.0, &HITS)?;
    part(bench, &mut figure, "3 b", percent, |found| found.write_reduction * 100.0, &REDUCTIONS)?;
    let mut shares = Panel::new(
        "face-duplicates",
        "Versions that are not the last",
        "cache, % of the database",
        "% of the images in the cache",
    );
    shares.digits = 1;
    for size in bench.percents() {
        for policy in bench.policies() {
            let found = bench.measure(&bench.cached(policy, MLC, size)?, Judged::No)?;
            let value = found.value(|found| found.duplicates * 100.0);
            shares.add(title(policy), Point::new(size, size.to_string(), &value));
        }
    }
    figure.panels.push(shares);
    for policy in OURS {
        let pairs = pairs(bench, policy, MLC)?;
        let Some(last) = pairs.iter().rfind(|pair| pair.percent <= 20.0) else { continue };
        let (name, size) = (title(policy), last.percent);
        let hits = |found: &Found| found.hit_rate * 100.0;
        let behind =
            pairs.iter().map(|pair| pair.lc.value(hits).with(&pair.ours.value(hits), |lc, ours| lc - ours));
        figure.at_most(format!("{name}: hit rate behind LC's, points, most over sizes"), &most(behind), 2.0);
        let reduction = last.ours.value(|found| found.write_reduction * 100.0);
        figure.at_least(format!("{name}: write reduction at {size} % of the database, %"), &reduction, 74.0);
        let sequential =
            least(pairs.iter().map(|pair| pair.ours.value(|found| found.flash.sequential * 100.0)));
        let wanted = format!("{name}: flash writes in sequential requests of 64 KiB and more, % of bytes");
        figure.at_least(wanted, &sequential, 90.0);
    }
    Ok(figure)
}

/// Table 4.
pub fn utilization(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::table("4", "utilization and I/O throughput of the flash");
    part(bench, &mut figure, "4 a", ("%", 1), |found| found.flash.utilization * 100.0, &UTILIZATIONS)?;
    part(bench, &mut figure, "4 b", ("pages a second", 0), |found| found.flash.pages, &IOPS)?;
    for policy in OURS {
        let pairs = pairs(bench, policy, MLC)?;
        let Some(last) = pairs.iter().rfind(|pair| pair.percent <= 20.0) else { continue };
        let (name, size) = (title(policy), last.percent);
        figure.at_least(
            format!("{name}: pages a second over LC's at {size} %"),
            &last.ratio(|found| found.flash.pages),
            4.4,
        );
        let busy = pairs.iter().map(|pair| pair.ratio(|found| found.flash.busy_us));
        figure.at_most(
            format!("{name}: flash time a transaction over LC's, most over sizes"),
            &most(busy),
            0.25,
        );
        let reads = READ_US * last.ours.first().flash.reads / last.lc.first().flash.busy_us;
        figure.notes.push(format!(
            "{name}, {size} %: the reads of its hits alone take {reads:.2} of LC's flash time a transaction"
        ));
    }
    Ok(figure)
}

/// Figure 4.
pub fn throughput(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::new("4", "throughput over the size of the cache");
    let none = bench.measure(&bench.cell(bench.disks()?, None)?, Judged::Yes)?;
    for (flash, letter) in [(MLC, "a"), (SLC, "b")] {
        let profile = bench.profile(flash)?;
        let in_place = bench.measure(&bench.cell(Data::FlashInPlace(profile.clone()), None)?, Judged::Yes)?;
        let in_runs = bench.measure(&bench.cell(Data::Flash(profile), None)?, Judged::No)?;
        let mut panel = Panel::new(
            &format!("face-figure-4{letter}"),
            &format!("Figure 4 ({letter}): {flash}"),
            "cache, % of the database",
            "New-Orders a minute",
        );
        for percent in bench.percents() {
            let point = |found: &Measured<Found>| {
                Point::new(percent, percent.to_string(), &found.value(|found| found.tpm))
            };
            for policy in bench.policies() {
                let found = bench.measure(&bench.cached(policy, flash, percent)?, Judged::No)?;
                panel.add(title(policy), point(&found));
            }
            panel.add("HDD only", point(&none));
            panel.add("SSD only, in place", point(&in_place));
            panel.add("SSD only, Firn's runs", point(&in_runs));
        }
        figure.panels.push(panel);
        for policy in OURS {
            compare(bench, &mut figure, policy, flash, (&none, &in_place))?;
        }
    }
    if bench.policies().contains(&LC) {
        let lc = LC;
        let waits = bench.measure(&bench.cached(lc, MLC, bench.percents()[0])?, Judged::No)?;
        let waits = waits.first().lock_wait_share;
        figure.notes.push(format!(
            "waits for locks take {:.2} % of the clients' time without a cache, {:.2} % with the smallest and LC",
            none.first().lock_wait_share * 100.0,
            waits * 100.0
        ));
    }
    Ok(figure)
}

/// The targets of one policy on one drive.
fn compare(
    bench: &Bench,
    figure: &mut Figure,
    policy: Compared,
    flash: &str,
    (none, in_place): (&Measured<Found>, &Measured<Found>),
) -> Result<(), Failure> {
    let pairs = pairs(bench, policy, flash)?;
    let Some(last) = pairs.last() else { return Ok(()) };
    let (name, size) = (format!("{flash}, {}", title(policy)), last.percent);
    let tpm = |found: &Found| found.tpm;
    let over_lc = least(pairs.iter().map(|pair| pair.ratio(tpm)));
    let (lc_target, ssd_target) = if flash == MLC { (2.0, 3.0) } else { (1.25, 1.0) };
    figure.at_least(format!("{name}: over LC, least over sizes"), &over_lc, lc_target);
    figure.at_least(format!("{name}: over LC at {size} %"), &last.ratio(tpm), lc_target);
    figure.at_least(
        format!("{name}: at {size} % over all on flash, in place"),
        &last.ours.value(tpm).over(&in_place.value(tpm)),
        ssd_target,
    );
    // As busy as they are without a cache, the arms would reach this rate.
    let work = |found: &Found| found.per_second * found.store.busy_us;
    let reached = |pair: &Pair| pair.ours.value(work).over(&none.value(work));
    figure.at_least(
        format!("{name}: over what its disk time a transaction allows, least over sizes"),
        &least(pairs.iter().map(reached)),
        0.9,
    );
    for pair in &pairs {
        let over = pair.ours.value(|found| found.per_second).over(&none.value(|found| found.per_second));
        figure.notes.push(format!(
            "{name}, {} %: {:.1} times no cache; its disk time a transaction allows {:.1} times",
            pair.percent,
            over.median(),
            over.over(&reached(pair)).median()
        ));
    }
    Ok(())
}
