//! Tables 3 and 4 and figure 4: policies over the size of the cache, for clients that keep to
//! warehouses of their own and for clients everywhere.

use super::Bench;
use super::compared::{DEFAULT, FIFO, GR, GSC, LC, TAC, title};
use super::found::Found;
use super::machine::{Clients, Data};
use crate::bench::cells::{Judged, Measured};
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::sampled::Sampled;
use firndb_cache_comparators::Compared;
use firndb_console::Failure;

/// The sizes of tables 3 and 4: 2, 4, 6, 8 and 10 GB of 50.
const PRINTED_PERCENTS: [f64; 5] = [4.0, 8.0, 12.0, 16.0, 20.0];
const PRINTED: [Compared; 4] = [LC, FIFO, GR, GSC];
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
/// Those that targets are for: the paper's best, and what Firn does by default.
pub const OURS: [Compared; 2] = [GSC, DEFAULT];
/// In pictures: as many as can be told apart.
const DRAWN: [Compared; 6] = [LC, FIFO, GR, GSC, DEFAULT, TAC];
/// The flash of tables 3 and 4.
pub const MLC: &str = "samsung-470";
pub const SLC: &str = "x25-e";
pub const SIZE: &str = "size of the flash cache, % of the database";

/// A cell that targets name is one of a policy of [`OURS`], or of LC.
pub fn judged(policy: Compared) -> Judged {
    if OURS.contains(&policy) || policy == LC { Judged::Yes } else { Judged::No }
}

/// One part of a table.
struct Part<'p> {
    /// `3a`.
    key: &'static str,
    title: &'static str,
    unit: &'static str,
    digits: usize,
    value: fn(&Found) -> f64,
    /// What the paper prints, for clients in warehouses of their own.
    printed: Option<(&'p str, &'p Printed)>,
    is_drawn: bool,
}

impl Part<'_> {
    /// The part for one kind of clients, its values by policy and size.
    fn add(&self, bench: &Bench, figure: &mut Figure, clients: Clients) -> Result<(), Failure> {
        let key = format!("face-table-{}-{}", self.key, clients.name());
        let mut panel = Panel::new(&key, &format!("{}: {}", self.title, clients.title()), SIZE, self.unit);
        panel.digits = self.digits;
        for percent in bench.percents() {
            for policy in bench.policies() {
                let cell = bench.cached(policy, MLC, percent, clients)?;
                let value = bench.measure(&cell, judged(policy))?.value(self.value);
                panel.add(title(policy), Point::new(percent, format!("{percent}"), &value));
                let row = PRINTED.iter().position(|known| *known == policy);
                let column = PRINTED_PERCENTS.iter().position(|known| *known == percent);
                let printed = self.printed.filter(|_| clients == Clients::Pinned);
                if let (Some(row), Some(column), Some((name, printed))) = (row, column, printed) {
                    let cell = format!("{name}, {}, {percent} %", title(policy));
                    figure.beside(cell, &printed[row][column].to_string(), &value);
                }
            }
        }
        add_panel(figure, panel, self.is_drawn, &DRAWN.map(title));
        Ok(())
    }
}

/// Adds the panel: a table of all series, and a picture of those that are named.
fn add_panel(figure: &mut Figure, panel: Panel, is_drawn: bool, names: &[&str]) {
    if is_drawn {
        let mut drawn = Panel { tabled: false, ..panel.clone() };
        drawn.series.retain(|series| names.contains(&&*series.name));
        figure.panels.push(drawn);
    }
    figure.panels.push(Panel { drawn: false, ..panel });
}

/// A size with what is measured of a policy and of LC.
struct Pair {
    percent: f64,
    ours: Measured<Found>,
    lc: Measured<Found>,
}

impl Pair {
    /// A quantity of ours over LC's.
    fn over_lc(&self, of: fn(&Found) -> f64) -> Sampled {
        self.ours.value(of).over(&self.lc.value(of))
    }
}

/// Pairs of a policy and LC, by size; none if one of them is not measured.
fn pairs(bench: &Bench, policy: Compared, flash: &str, clients: Clients) -> Result<Vec<Pair>, Failure> {
    let policies = bench.policies();
    if ![LC, policy].iter().all(|policy| policies.contains(policy)) {
        return Ok(Vec::new());
    }
    let pair = |percent: f64| {
        let measure = |policy| bench.measure(&bench.cached(policy, flash, percent, clients)?, Judged::Yes);
        Ok(Pair { percent, ours: measure(policy)?, lc: measure(LC)? })
    };
    bench.percents().into_iter().map(pair).collect()
}

/// How a target's name begins.
fn name(policy: Compared, clients: Clients) -> String {
    format!("clients {}, {}", clients.name(), title(policy))
}

/// Table 3.
pub fn hits(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure =
        Figure::table("3", "reads found in the flash cache and writes that the disks are spared");
    let parts = [
        Part {
            key: "3a",
            title: "Reads that the flash cache served",
            unit: "% of the pages that DRAM missed",
            digits: 1,
            value: |found| found.hit_rate * 100.0,
            printed: Some(("3 a", &HITS)),
            is_drawn: true,
        },
        Part {
            key: "3b",
            title: "Page writes that the disks were spared",
            unit: "% of the dirty pages that left DRAM",
            digits: 1,
            value: |found| found.write_reduction * 100.0,
            printed: Some(("3 b", &REDUCTIONS)),
            is_drawn: true,
        },
        Part {
            key: "3-old",
            title: "Versions in the cache that are not the last",
            unit: "% of the pages in the cache",
            digits: 1,
            value: |found| found.duplicates * 100.0,
            printed: None,
            is_drawn: false,
        },
    ];
    for clients in bench.clients() {
        parts.iter().try_for_each(|part| part.add(bench, &mut figure, clients))?;
        for policy in OURS {
            let pairs = pairs(bench, policy, MLC, clients)?;
            let behind = pairs.iter().map(|pair| {
                let hits = |found: &Found| found.hit_rate * 100.0;
                pair.lc.value(hits).with(&pair.ours.value(hits), |lc, ours| lc - ours)
            });
            let name = name(policy, clients);
            if let Some(behind) = Sampled::most(&behind.collect::<Vec<_>>()) {
                figure.at_most(
                    format!("{name}: hit rate behind LC's, points, most over sizes"),
                    &behind,
                    2.0,
                );
            }
            // What the paper's engine spared, with clients of this kind.
            if let (Some(pair), Clients::Pinned) = (pairs.iter().find(|pair| pair.percent == 20.0), clients) {
                let reduction = pair.ours.value(|found| found.write_reduction * 100.0);
                figure.at_least(
                    format!("{name}: write reduction at 20 % of the database, %"),
                    &reduction,
                    74.0,
                );
            }
        }
    }
    Ok(figure)
}

/// Table 4.
pub fn utilization(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::table("4", "what the flash drive does");
    let parts = [
        Part {
            key: "4a",
            title: "Time with a request under way at the flash drive",
            unit: "% of the time",
            digits: 1,
            value: |found| found.flash.utilization * 100.0,
            printed: Some(("4 a", &UTILIZATIONS)),
            is_drawn: false,
        },
        Part {
            key: "4b",
            title: "Pages that the flash drive read and wrote",
            unit: "pages a second",
            digits: 0,
            value: |found| found.flash.pages,
            printed: Some(("4 b", &IOPS)),
            is_drawn: false,
        },
        Part {
            key: "4-reads",
            title: "Reading at the flash drive",
            unit: "microseconds of the whole drive a transaction",
            digits: 0,
            value: |found| found.flash.alone.reads_us,
            printed: None,
            is_drawn: false,
        },
        Part {
            key: "4-writes",
            title: "Writing at the flash drive",
            unit: "microseconds of the whole drive a transaction",
            digits: 0,
            value: |found| found.flash.alone.writes_us,
            printed: None,
            is_drawn: true,
        },
    ];
    for clients in bench.clients() {
        parts.iter().try_for_each(|part| part.add(bench, &mut figure, clients))?;
        for policy in OURS {
            let pairs = pairs(bench, policy, MLC, clients)?;
            let over: Vec<_> =
                pairs.iter().map(|pair| pair.over_lc(|found| found.flash.alone.writes_us)).collect();
            let Some(most) = Sampled::most(&over) else { continue };
            let name = name(policy, clients);
            figure.at_most(
                format!("{name}: flash write time a transaction over LC's, most over sizes"),
                &most,
                0.25,
            );
        }
    }
    let (random, sequential) = bench.page_writes(MLC)?;
    figure.notes.push(format!(
        "Time of the whole drive: the number of requests of each kind over the rate of that kind alone. A page written \
         at random takes {random:.0} us of it, in a group {sequential:.0} us. An engine that wrote as many pages as LC, \
         all in groups, would have {:.3} of its write time: the bound of that target.",
        sequential / random
    ));
    Ok(figure)
}

/// What a figure compares a cache with.
struct Alone {
    /// Disks alone.
    none: Measured<Found>,
    /// All pages on the flash drive, written in place.
    in_place: Measured<Found>,
    /// And as Firn writes them.
    in_runs: Measured<Found>,
}

/// Figure 4.
pub fn throughput(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::new("4", "throughput over the size of the cache");
    for clients in bench.clients() {
        let none = bench.measure(&bench.cell(bench.disks()?, None, clients)?, Judged::Yes)?;
        for (flash, letter) in [(MLC, "a"), (SLC, "b")] {
            let profile = bench.profile(flash)?;
            let on_flash = |data: Data, judged| bench.measure(&bench.cell(data, None, clients)?, judged);
            let alone = Alone {
                none: none.clone(),
                in_place: on_flash(Data::FlashInPlace(profile.clone()), Judged::Yes)?,
                in_runs: on_flash(Data::Flash(profile), Judged::No)?,
            };
            curves(bench, &mut figure, (flash, letter), clients, &alone)?;
            bounds(bench, &mut figure, (flash, letter), clients, &alone)?;
            for policy in OURS {
                compare(bench, &mut figure, policy, flash, clients, &alone)?;
            }
        }
        let percent = bench.percents()[0];
        if bench.policies().contains(&LC) {
            let lc = bench.measure(&bench.cached(LC, MLC, percent, clients)?, Judged::Yes)?;
            figure.notes.push(format!(
                "Clients {}: waits for locks take {:.2} % of the clients' time without a cache, {:.2} % with LC and \
                 {percent} %.",
                clients.name(),
                none.first().lock_wait_share * 100.0,
                lc.first().lock_wait_share * 100.0
            ));
        }
    }
    figure.notes.push(
        "Disks allow: the arms' time a second without a cache, over their time a transaction with it. Flash allows: one \
         over the sum, over the kinds of a transaction's requests, of their number over the drive's rate with requests \
         of that kind alone."
            .into(),
    );
    Ok(figure)
}

const IN_PLACE: &str = "all on flash, in place";
const IN_RUNS: &str = "all on flash, Firn's runs";
const DISKS: &str = "disks only";

/// Throughput of every policy over the size of the cache.
fn curves(
    bench: &Bench,
    figure: &mut Figure,
    (flash, letter): (&str, &str),
    clients: Clients,
    alone: &Alone,
) -> Result<(), Failure> {
    let key = format!("face-figure-4{letter}-{}", clients.name());
    let title_of = format!("Throughput with a cache on {flash}: {}", clients.title());
    let mut panel = Panel::new(&key, &title_of, SIZE, "New-Orders a minute");
    let tpm = |found: &Found| found.tpm;
    for percent in bench.percents() {
        let label = format!("{percent}");
        for policy in bench.policies() {
            let found = bench.measure(&bench.cached(policy, flash, percent, clients)?, judged(policy))?;
            panel.add(title(policy), Point::new(percent, &label, &found.value(tpm)));
        }
        let others = [(DISKS, &alone.none), (IN_PLACE, &alone.in_place), (IN_RUNS, &alone.in_runs)];
        for (name, found) in others {
            panel.add(name, Point::new(percent, &label, &found.value(tpm)));
        }
    }
    let drawn: Vec<&str> = DRAWN.map(title).into_iter().chain([DISKS, IN_PLACE]).collect();
    add_panel(figure, panel, true, &drawn);
    Ok(())
}

/// Transactions a second that the disks and the flash drive allow.
fn bounds_of(ours: &Measured<Found>, alone: &Alone) -> [Sampled; 2] {
    let arms = alone.none.value(|found| found.per_second * found.store.busy_us);
    let disks = arms.over(&ours.value(|found| found.store.busy_us));
    [disks, ours.value(|found| found.flash.alone.bound())]
}

/// Throughput over the lesser of the two bounds.
fn reached(ours: &Measured<Found>, alone: &Alone) -> Sampled {
    let [disks, flash] = bounds_of(ours, alone);
    ours.value(|found| found.per_second).over(&disks.with(&flash, f64::min))
}

/// A table of both bounds.
fn bounds(
    bench: &Bench,
    figure: &mut Figure,
    (flash, letter): (&str, &str),
    clients: Clients,
    alone: &Alone,
) -> Result<(), Failure> {
    let key = format!("face-bounds-4{letter}-{}", clients.name());
    let title_of = format!("What disks and {flash} allow: {}", clients.title());
    let mut panel = Panel::new(&key, &title_of, SIZE, "transactions a second");
    panel.drawn = false;
    for policy in OURS.into_iter().filter(|policy| bench.policies().contains(policy)) {
        for percent in bench.percents() {
            let found = bench.measure(&bench.cached(policy, flash, percent, clients)?, Judged::Yes)?;
            let [disks, drive] = bounds_of(&found, alone);
            let name = title(policy);
            let mut add = |what: &str, value: &Sampled| {
                panel.add(&format!("{name}: {what}"), Point::new(percent, format!("{percent}"), value));
            };
            add("disks", &disks);
            add("flash", &drive);
            add("measured", &found.value(|found| found.per_second));
        }
    }
    figure.panels.push(panel);
    Ok(())
}

/// The targets of one policy on one drive.
fn compare(
    bench: &Bench,
    figure: &mut Figure,
    policy: Compared,
    flash: &str,
    clients: Clients,
    alone: &Alone,
) -> Result<(), Failure> {
    let pairs = pairs(bench, policy, flash, clients)?;
    let name = format!("{flash}, {}", name(policy, clients));
    let in_place = alone.in_place.value(|found| found.tpm);
    let over_lc = |pair: &Pair| pair.over_lc(|found| found.tpm);
    let over_flash = |pair: &Pair| pair.ours.value(|found| found.tpm).over(&in_place);
    let least = |of: &dyn Fn(&Pair) -> Sampled, from: f64, to: f64| {
        let at = pairs.iter().filter(|pair| (from..=to).contains(&pair.percent));
        Sampled::least(&at.map(of).collect::<Vec<_>>())
    };
    let mut wanted = |what: &str, value: Option<Sampled>, limit: f64| {
        if let Some(value) = value {
            figure.at_least(format!("{name}: {what}"), &value, limit);
        }
    };
    if flash == MLC {
        wanted("over LC at 8 %", least(&over_lc, 8.0, 8.0), 1.3);
        wanted("over LC, least from 12 % on", least(&over_lc, 12.0, 100.0), 1.5);
        wanted("over all on flash in place at 8 %", least(&over_flash, 8.0, 8.0), 1.3);
        wanted("over all on flash in place, least from 12 % on", least(&over_flash, 12.0, 100.0), 1.5);
    } else {
        wanted("over LC, least over sizes", least(&over_lc, 0.0, 100.0), 1.25);
        wanted("over all on flash in place, least from 8 % on", least(&over_flash, 8.0, 100.0), 1.25);
    }
    let reached = least(&|pair: &Pair| reached(&pair.ours, alone), 0.0, 100.0);
    wanted("over the lesser of what disks and flash allow, least over sizes", reached, 0.9);
    Ok(())
}
