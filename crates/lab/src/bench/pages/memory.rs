//! Figures 9, 1,000 pages in transactions of 1 to 20, and 5, seven splits of the memory.

use super::cell::MODES;
use super::grid::{FAIRNESS, most, over_log};
use super::machine::Memory;
use super::prototypes::{self, PROTOTYPES};
use super::setting::{Bench, LIMITED, pages};
use super::targets::{self, UNLIMITED};
use super::work::{Kind, Work};
use crate::bench::cells::Judged;
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::sampled::Sampled;
use firndb_console::Failure;

/// Pages of a transaction.
const SIZES: [u64; 6] = [1, 2, 3, 5, 10, 20];
/// More than any cell uses.
const PLENTY: usize = 8192;
/// Figure 5: parts of the memory, of the size of Firn's least buffer.
const PARTS: usize = 8;
/// Of the pages, those of one transaction.
const SPLIT_TRANSACTIONS: u64 = 10;

/// Figure 9 A, with the model of the paper's prototypes.
pub fn limited(bench: &Bench) -> Result<Figure, Failure> {
    let (mut figure, _) = over_sizes(bench, "9-a", LIMITED)?;
    for profile in &bench.drives {
        let key = format!("pages-9-a-{}", profile.name);
        for each in SIZES {
            let work = bench.work(Kind::Commit, false, false, each);
            for (name, is_hybrid) in PROTOTYPES {
                let found = prototypes::measure(bench, profile, is_hybrid, work)?;
                let point = Point::new(each as f64, each.to_string(), &found.value(|found| found.seconds));
                let panel = figure.panels.iter_mut().find(|panel| panel.key == key);
                panel.expect("each drive has one").add(&format!("prototype, {name}"), point);
            }
        }
    }
    figure.notes.push("Printed: hybrid is quickly faster beyond one page a transaction.".into());
    Ok(figure)
}

/// Figure 9 B.
pub fn unlimited(bench: &Bench) -> Result<Figure, Failure> {
    let memory = Memory { buffer: PLENTY, private: PLENTY, ..LIMITED };
    let (mut figure, ratios) = over_sizes(bench, "9-b", memory)?;
    UNLIMITED.judge(&mut figure, &most(&ratios));
    figure.notes.push(
        "Printed: ARIES is slightly faster over all. The time ends with the last commit: `log` leaves all pages in \
         frames then, `hybrid` has written them."
            .into(),
    );
    Ok(figure)
}

/// The figure, and what hybrid takes over log at every point.
fn over_sizes(bench: &Bench, number: &str, memory: Memory) -> Result<(Figure, Vec<Sampled>), Failure> {
    let mut figure = targets::figure(number);
    let mut ratios = Vec::new();
    for profile in &bench.drives {
        let key = format!("pages-{number}-{}", profile.name);
        let title = format!("All pages in transactions of several, {}", profile.name);
        let mut panel = Panel::new(&key, &title, "pages a transaction", "seconds");
        panel.digits = 3;
        let title = format!("The same with a checkpoint behind it, {}", profile.name);
        let mut settled = Panel::new(&format!("{key}-settled"), &title, "pages a transaction", "seconds");
        (settled.digits, settled.drawn) = (3, false);
        for each in SIZES {
            let work = bench.work(Kind::Commit, false, false, each);
            let modes = bench.in_all_modes(profile, (memory, work), Judged::Yes)?;
            for ((name, _), found) in MODES.iter().zip(&modes) {
                let add = |panel: &mut Panel, value: &Sampled| {
                    panel.add(name, Point::new(each as f64, each.to_string(), value));
                };
                add(&mut panel, &found.value(|found| found.work.seconds));
                add(&mut settled, &found.value(|found| found.settled_seconds()));
            }
            ratios.push(over_log(&modes, |found| found.work.seconds));
        }
        figure.panels.extend([panel, settled]);
    }
    figure.notes.push(FAIRNESS.into());
    Ok((figure, ratios))
}

/// Figure 5.
pub fn splits(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = targets::figure("5");
    let part = LIMITED.buffer;
    let all_memory = PARTS * part;
    // As many pages a page of memory as in the other figures.
    let pages = pages(bench.args) * all_memory as u64 / (2 * LIMITED.private) as u64;
    let each = pages / SPLIT_TRANSACTIONS;
    let work = Work { pages, operations: pages, ..bench.work(Kind::Commit, false, true, each) };
    for profile in &bench.drives {
        let key = format!("pages-5-{}", profile.name);
        let title =
            format!("Commits in a random order over the buffer's pages of {all_memory}, {}", profile.name);
        let mut panel = Panel::new(&key, &title, "pages of buffer", "seconds");
        panel.digits = 2;
        let mut curves = [const { Vec::new() }; MODES.len()];
        for parts in 1..PARTS {
            let buffer = parts * part;
            let memory = Memory { buffer, private: all_memory - buffer, ..LIMITED };
            let modes = bench.in_all_modes(profile, (memory, work), Judged::No)?;
            for (((name, _), found), curve) in MODES.iter().zip(&modes).zip(&mut curves) {
                let seconds = found.value(|found| found.work.seconds);
                panel.add(name, Point::new(buffer as f64, buffer.to_string(), &seconds));
                curve.push(seconds);
            }
        }
        for ((name, _), curve) in MODES.iter().zip(&curves) {
            let middle = &curve[2..PARTS - 3];
            let spread = most(middle).over(&Sampled::least(middle).unwrap_or_default());
            let cell = format!("{}, {name}: slowest over fastest, three middle splits", profile.name);
            figure.beside(cell, "\"relatively flat\"", &spread);
        }
        figure.panels.push(panel);
    }
    figure.notes.push(format!(
        "Firn's least buffer is {part} pages, so seven splits need {all_memory} pages in all; {pages} pages are written, \
         in {SPLIT_TRANSACTIONS} transactions. Which load the paper's representative one is, is not printed."
    ));
    Ok(figure)
}
