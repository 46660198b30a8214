//! Table 1 and figure 4: what one commit writes and waits for, step by step; and figure 10, what is
//! dirty meanwhile.

use super::cell::{Cell, Found, Io, MODES, Step};
use super::grid::FAIRNESS;
use super::setting::{Bench, LIMITED, pages};
use super::targets;
use super::work::{Kind, Work};
use crate::bench::cells::{Judged, Measured};
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::sampled::Sampled;
use firndb_console::Failure;

/// Pages of a commit; the last with all of the file in place of the paper's 1,000.
const SIZES: [u64; 2] = [1, 100];

/// Pages of figure 10: some turns of its zig-zag.
const DRAWN: u64 = 400;

type OfStep = fn(&Found) -> Step;

/// What happens one after the other.
const STEPS: [(&str, OfStep); 3] = [
    ("before the commit", |found| found.before_end()),
    ("the commit", |found| found.last_end),
    ("a checkpoint", |found| found.checkpoint),
];

type Count = (&'static str, fn(Step) -> f64);

const COUNTS: [Count; 6] = [
    ("log, KiB", |step| step.log.write_bytes as f64 / 1024.0),
    ("log, writes", |step| step.log.writes as f64),
    ("log, flushes", |step| step.log.flushes() as f64),
    ("pages, KiB", |step| step.store.write_bytes as f64 / 1024.0),
    ("pages, writes", |step| step.store.writes as f64),
    ("pages, flushes", |step| step.store.flushes() as f64),
];

/// Table 1.
pub fn table(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = targets::figure("table-1");
    let profile = &bench.drives[0];
    let title = format!("One commit of whole pages, {}", profile.name);
    let mut panel = Panel::of_bars("pages-table-1", &title, "pages, mode, step", "bytes and requests");
    (panel.digits, panel.drawn) = (0, false);
    let all = pages(bench.args);
    let mut place = 0.0;
    for size in SIZES.into_iter().chain([all]) {
        let work = Work { operations: size, ..bench.work(Kind::Commit, false, false, size) };
        for ((mode, _), found) in
            MODES.into_iter().zip(bench.in_all_modes(profile, (LIMITED, work), Judged::No)?)
        {
            for (step, of) in STEPS {
                let label = format!("{size}, {mode}: {step}");
                for (name, count) in COUNTS {
                    panel.add(name, Point::new(place, &*label, &found.value(|found| count(of(found)))));
                }
                place += 1.0;
            }
            if size == all && mode != "shadow" {
                beside(&mut figure, mode, &found, size);
            }
        }
    }
    figure.panels.push(panel);
    figure.notes.push(FAIRNESS.into());
    figure.notes.push(
        "Before the commit is what the transaction wrote early, for lack of memory for private images, and what the \
         cleaner wrote of them. A flush is a sync, or a write that is durable by itself."
            .into(),
    );
    Ok(figure)
}

/// Bytes a page, beside those of the paper's section 2.3.
fn beside(figure: &mut Figure, mode: &str, found: &Measured<Found>, size: u64) {
    let a_page = |of: fn(Step) -> Io| {
        found.value(|found| {
            let bytes = of(found.work).write_bytes + of(found.checkpoint).write_bytes;
            bytes as f64 / 1024.0 / size as f64
        })
    };
    let printed = if mode == "log" { ("about 8", "4") } else { ("\"negligible\"", "4") };
    figure.beside(format!("{mode}: KiB of log a page"), printed.0, &a_page(|step| step.log));
    figure.beside(format!("{mode}: KiB of pages a page"), printed.1, &a_page(|step| step.store));
}

/// Figure 10.
pub fn dirty(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = targets::figure("10");
    let operations = pages(bench.args).min(DRAWN);
    let work = Work { operations, ..bench.work(Kind::Commit, false, false, operations) };
    for profile in bench.drives.iter().take(2) {
        let key = format!("pages-10-{}", profile.name);
        let title = format!("Pages newer than the drive's, one transaction, {}", profile.name);
        let mut panel = Panel::new(&key, &title, "pages written", "pages");
        panel.tabled = false;
        for (mode, recovery) in MODES.into_iter().filter(|(mode, _)| *mode != "shadow") {
            let (profile, memory) = (profile.clone(), LIMITED);
            let cell = Cell { profile, recovery, memory, work, curve: true };
            let found = bench.of(&cell, Judged::No)?;
            for moment in &found.first().curve {
                let at = moment.operations as f64;
                let mut add = |what: &str, value: f64| {
                    let label = moment.operations.to_string();
                    panel.add(&format!("{mode}, {what}"), Point::new(at, label, &Sampled::once(value)));
                };
                add("dirty frames", moment.dirty_frames as f64);
                add("private images", moment.private_pages);
            }
            let (printed, share) = match mode {
                "log" => ("full, and stays", found.value(dirty_share)),
                _ => ("zig-zag", found.value(dirty_share)),
            };
            let cell = format!("{}, {mode}: dirty frames of all, mean of the second half", cell.profile.name);
            figure.beside(cell, printed, &share);
        }
        figure.panels.push(panel);
    }
    figure.notes.push(
        "What the paper's memory log holds is private images here, of both modes. Written early, they become \
         frames in `log` mode, which a cleaner writes, and pages on the drive in `hybrid` mode."
            .into(),
    );
    Ok(figure)
}

/// Of the frames, those that are dirty, on average over the second half of the work.
fn dirty_share(found: &Found) -> f64 {
    let late = &found.curve[found.curve.len() / 2..];
    let dirty: u64 = late.iter().map(|moment| moment.dirty_frames).sum();
    dirty as f64 / late.len() as f64 / found.frames as f64
}

#[cfg(test)]
mod tests {
    use super::super::cell::Moment;
    use super::*;

    #[test]
    fn the_dirty_share_is_of_the_second_half() {
        let moment = |dirty_frames| Moment { dirty_frames, ..Moment::default() };
        let curve = [50, 50, 10, 20].map(moment).to_vec();
        let found = Found { curve, frames: 60, ..Found::default() };
        assert!((dirty_share(&found) - 0.25).abs() < 1e-9);
        assert!(dirty_share(&Found::default()).is_nan(), "of nothing");
    }
}
