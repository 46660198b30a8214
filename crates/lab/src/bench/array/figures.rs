//! The thesis' four figures, over all nine pairs of base times; and all cells.

use super::cell::{CODES, Found, codes};
use super::measuring::Bench;
use super::relations::{Outcome, RELATIONS, one_copy, stripe, two_copies};
use super::simulator::{Kind, Workload};
use super::targets::{self, ONE_COPY, STRIPE, TWO_COPIES};
use super::workloads::{self, CASES, Case, IN_TURN};
use crate::bench::cells::Measured;
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::sampled::Sampled;
use firndb_console::Failure;

/// The codes that figures 8-3 and 8-4 compare with the best.
fn usual() -> [(&'static str, usize); 3] {
    [("stripe (4 of 4)", stripe()), ("one copy", one_copy()), ("two copies", two_copies())]
}

/// Figure 8-1.
pub fn replication(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = targets::figure("8-1");
    let title = "Fragments written over needed, best code, by base times in us; 5 writers";
    let panel = of_best(bench, "array-8-1", title, "copies' worth of space", |code| {
        let code = codes()[code];
        code.written() as f64 / code.needed() as f64
    })?;
    figure.panels.push(panel);
    figure.notes.push(best_notes());
    Ok(figure)
}

/// Figure 8-2.
pub fn fragments(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = targets::figure("8-2");
    let title = "Fragments that the best code needs, by base times in us; 5 writers";
    let panel = of_best(bench, "array-8-2", title, "fragments", |code| codes()[code].needed() as f64)?;
    figure.panels.push(panel);
    figure.notes.push(best_notes());
    Ok(figure)
}

fn best_notes() -> String {
    "The best code is that with most operations a second, by however little. Printed: writes prevail (5 readers), \
     all fragments needed, no redundancy; reads prevail (50 readers), whole copies; disks, one copy always. Which \
     base times the three cases have the text leaves open."
        .into()
}

fn of_best(
    bench: &Bench,
    key: &str,
    title: &str,
    unit: &str,
    of: impl Fn(usize) -> f64 + Copy,
) -> Result<Panel, Failure> {
    let mut panel = Panel::of_bars(key, title, "base times, us", unit);
    panel.digits = 2;
    for kind in Kind::ALL {
        for case in CASES {
            for (at, workload) in case.cells().enumerate() {
                let value = bench.measure(kind, workload)?.value(|found| of(found.best()));
                let series = format!("{}, {}", kind.name(), case.name);
                panel.add(&series, Point::new(at as f64, workload.pair_name(), &value));
            }
        }
    }
    Ok(panel)
}

/// Figure 8-3.
pub fn on_flash(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = targets::figure("8-3");
    usual_codes(bench, &mut figure, Kind::Flash)?;
    let judged = bench.measure(Kind::Flash, IN_TURN[0])?;
    STRIPE.judge(&mut figure, &judged.value(|found| found.share(stripe())));
    let over_stripe = |found: &Found| found.operations(two_copies()) / found.operations(stripe());
    TWO_COPIES.judge(&mut figure, &judged.value(over_stripe));
    for (case, code, printed) in [
        (CASES[0], 0, "1"),
        (CASES[0], 2, "about 0.5"),
        (CASES[1], 0, "1, almost"),
        (CASES[2], 0, "0.8"),
        (CASES[2], 1, "below 1"),
        (CASES[2], 2, "1"),
    ] {
        beside(bench, &mut figure, Kind::Flash, case, usual()[code], printed)?;
    }
    Ok(figure)
}

/// Figure 8-4.
pub fn on_disks(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = targets::figure("8-4");
    usual_codes(bench, &mut figure, Kind::Disk)?;
    let mut shares = Vec::new();
    for workload in CASES.into_iter().flat_map(Case::cells) {
        shares.push(bench.measure(Kind::Disk, workload)?.value(|found| found.share(one_copy())));
    }
    ONE_COPY.judge(&mut figure, &Sampled::least(&shares).expect("27 cells"));
    for case in CASES {
        beside(bench, &mut figure, Kind::Disk, case, usual()[1], "1")?;
    }
    for case in CASES {
        for workload in named(case) {
            let flash = bench.measure(Kind::Flash, workload)?.value(Found::most);
            let over = flash.over(&bench.measure(Kind::Disk, workload)?.value(Found::most));
            figure.beside(
                format!("flash over disks, best codes: {}", workload.name()),
                "100 to 1,000",
                &over,
            );
        }
    }
    Ok(figure)
}

/// The cells of a case with the writers' base time by which the text names it.
fn named(case: Case) -> impl Iterator<Item = Workload> {
    case.cells().filter(move |workload| workload.write_sleep_us == case.write_sleep_us)
}

fn beside(
    bench: &Bench,
    figure: &mut Figure,
    kind: Kind,
    case: Case,
    (name, code): (&str, usize),
    printed: &str,
) -> Result<(), Failure> {
    for workload in named(case) {
        let share = bench.measure(kind, workload)?.value(|found| found.share(code));
        let cell = format!("{}, {name} over the best: {}", case.prevails, workload.name());
        figure.beside(cell, printed, &share);
    }
    Ok(())
}

/// A panel for each case: the usual codes over the best, by base times.
fn usual_codes(bench: &Bench, figure: &mut Figure, kind: Kind) -> Result<(), Failure> {
    for case in CASES {
        let key = format!("array-{}-{}-readers", figure.number, case.readers);
        let title = format!(
            "Operations over the best code's, {}, by base times in us: 5 writers, {}",
            kind.name(),
            case.name
        );
        let mut panel = Panel::of_bars(&key, &title, "base times, us", "over the best");
        panel.digits = 3;
        for (at, workload) in case.cells().enumerate() {
            let measured = bench.measure(kind, workload)?;
            for (name, code) in usual() {
                let share = measured.value(|found| found.share(code));
                panel.add(name, Point::new(at as f64, workload.pair_name(), &share));
            }
        }
        figure.panels.push(panel);
    }
    Ok(())
}

/// The figure `cells`.
pub fn all_cells(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = targets::figure("cells");
    let mut outcomes = Vec::new();
    let mut unsettled = 0;
    for kind in Kind::ALL {
        let title = format!("All cells, {}: the best code, and others over it", kind.name());
        let mut panel = untabled_picture(&format!("array-cells-{}", kind.name()), &title, "medians");
        panel.digits = 3;
        for (at, workload) in workloads::all().into_iter().enumerate() {
            let measured = bench.measure(kind, workload)?;
            unsettled += measured.value(|found| found.unsettled as f64).median() as usize;
            let shares = shares(&measured);
            let mut add = |series: &str, value: f64| {
                panel.add(series, Point::new(at as f64, workload.name(), &Sampled::once(value)));
            };
            let best = codes()[best_of(&shares)];
            add("operations a second", measured.value(Found::most).median());
            add("needs", best.needed() as f64);
            add("writes", best.written() as f64);
            for (name, code) in usual() {
                add(name, shares[code]);
            }
            add("worst", shares.iter().copied().fold(f64::INFINITY, f64::min));
        }
        figure.panels.push(panel);
    }
    for workload in workloads::all() {
        let (flash, disks) = (bench.measure(Kind::Flash, workload)?, bench.measure(Kind::Disk, workload)?);
        let over = flash.value(Found::most).over(&disks.value(Found::most)).median();
        let (flash, disks) = (shares(&flash), shares(&disks));
        outcomes.push(Outcome { workload, flash, disks, flash_over_disks: over });
    }
    figure.panels.extend(relations(&outcomes));
    figure.notes.push(format!("Runs whose rates had not settled after 80 epochs: {unsettled}."));
    Ok(figure)
}

fn untabled_picture(key: &str, title: &str, unit: &str) -> Panel {
    Panel { drawn: false, ..Panel::of_bars(key, title, "cell", unit) }
}

/// Medians of operations under each code over those under the best.
fn shares(measured: &Measured<Found>) -> Vec<f64> {
    (0..CODES).map(|code| measured.value(|found| found.share(code)).median()).collect()
}

fn best_of(shares: &[f64]) -> usize {
    (0..CODES).rev().max_by(|&a, &b| shares[a].total_cmp(&shares[b])).expect("ten codes")
}

/// In how many cells what is printed holds; and in which.
fn relations(outcomes: &[Outcome]) -> [Panel; 2] {
    let mut counts = untabled_picture("array-relations", "Cells in which what is printed holds", "cells");
    counts.x_name = "printed".into();
    let mut each = untabled_picture("array-relations-cells", "Where it holds (1), by its number", "holds");
    for (at, relation) in RELATIONS.iter().enumerate() {
        let text = format!("{}: {}", at + 1, relation.text);
        let mut add = |series: &str, count: usize| {
            counts.add(series, Point::new(at as f64, text.as_str(), &Sampled::once(count as f64)));
        };
        let count = |of: &dyn Fn(&Outcome) -> bool| outcomes.iter().filter(|outcome| of(outcome)).count();
        add(
            "of the cells it may be printed of",
            count(&|outcome| relation.is_printed_of(&outcome.workload) && relation.holds(outcome)),
        );
        add("which are", count(&|outcome| relation.is_printed_of(&outcome.workload)));
        add("of all 108", count(&|outcome| relation.holds(outcome)));
        for (at, outcome) in outcomes.iter().enumerate() {
            let held = Sampled::once(f64::from(u8::from(relation.holds(outcome))));
            each.add(&text[..1], Point::new(at as f64, outcome.workload.name(), &held));
        }
    }
    [counts, each]
}
