//! The 24 cells of the paper's table 4, which give its figures 7 and 8; and aborts without undo in
//! memory.

use super::cell::{Found, MODES};
use super::machine::Memory;
use super::setting::{Bench, LIMITED, pages};
use super::targets::{self, ABORT_DISK, ABORT_FLASH, ABORT_REQUESTS, ADAPTIVE, BYTES, HYBRID, ONE_PAGE};
use super::work::{Kind, Work};
use crate::bench::cells::{Judged, Measured};
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::sampled::Sampled;
use firndb_console::Failure;

/// What is said beside every ratio over `log`.
pub const FAIRNESS: &str = "Ratios are over Firn's `log` mode. It stands for the paper's ARIES, but has a cleaner, group commit, undo in \
     memory and a page map, and logs no before-images of pages, since a put takes another page: it is better than \
     the paper's.";
const DISK: &str = "barracuda-7200-7";
const FLASH: &str = "ocz-core";

/// In all modes, in the order of [`MODES`].
type InModes = [Measured<Found>; MODES.len()];

fn seconds(measured: &Measured<Found>) -> Sampled {
    measured.value(|found| found.work.seconds)
}

/// What the mode at this place of [`MODES`] gains over `log`.
pub fn speed_up(modes: &InModes, mode: usize) -> Sampled {
    seconds(&modes[0]).over(&seconds(&modes[mode]))
}

/// Hybrid over log, of what `of` takes.
pub fn over_log(modes: &InModes, of: impl Fn(&Found) -> f64 + Copy) -> Sampled {
    modes[2].value(of).over(&modes[0].value(of))
}

/// Hybrid over the better one of log and shadow, and adaptive over the best of the three.
fn over_best(modes: &InModes) -> [Sampled; 2] {
    let [log, shadow, hybrid, adaptive] = [0, 1, 2, 3].map(|mode| seconds(&modes[mode]));
    let best = log.with(&shadow, f64::min);
    [hybrid.over(&best), adaptive.over(&best.with(&hybrid, f64::min))]
}

pub fn most(all: &[Sampled]) -> Sampled {
    Sampled::most(all).unwrap_or_default()
}

fn least(all: &[Sampled]) -> Sampled {
    Sampled::least(all).unwrap_or_default()
}

/// The cells in the order of figures 7 and 8.
pub fn workloads(bench: &Bench) -> Vec<Work> {
    let mut all = Vec::new();
    for kind in [Kind::Commit, Kind::Abort, Kind::Read] {
        for part in [false, true] {
            for random in [false, true] {
                for each in [pages(bench.args), 1] {
                    all.push(bench.work(kind, part, random, each));
                }
            }
        }
    }
    all
}

fn is_full_write(work: &Work) -> bool {
    work.kind != Kind::Read && !work.part
}

/// What was measured of one workload on one drive.
struct Row<'a> {
    drive: &'a str,
    work: Work,
    modes: InModes,
}

/// The 24 cells.
pub fn cells(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = targets::figure("cells");
    let mut rows = Vec::new();
    for profile in &bench.drives {
        for work in workloads(bench) {
            let modes = bench.in_all_modes(profile, (LIMITED, work), Judged::Yes)?;
            rows.push(Row { drive: &profile.name, work, modes });
        }
    }
    for profile in &bench.drives {
        figure.panels.push(times(&rows, &profile.name));
    }
    figure.panels.push(speed_ups(&rows, "pages-7", "Figure 7: what hybrid gains, parts and reads", |work| {
        !is_full_write(work)
    }));
    figure.panels.push(speed_ups(
        &rows,
        "pages-8",
        "Figure 8: what hybrid gains, whole pages",
        is_full_write,
    ));
    figure.panels.extend([bytes(&rows), requests(&rows)]);
    besides(&mut figure, |drive| gains(&rows, drive));
    let [mut hybrid, mut adaptive] = [Vec::new(), Vec::new()];
    for row in &rows {
        let [of_hybrid, of_adaptive] = over_best(&row.modes);
        hybrid.push(of_hybrid);
        adaptive.push(of_adaptive);
    }
    HYBRID.judge(&mut figure, &most(&hybrid));
    ADAPTIVE.judge(&mut figure, &most(&adaptive));
    let committed = |each: u64| {
        move |row: &&Row| {
            let Work { kind, part, random, .. } = row.work;
            (kind, part, random, row.work.each) == (Kind::Commit, false, false, each)
        }
    };
    let one_page = rows.iter().filter(committed(1)).map(|row| over_log(&row.modes, |it| it.work.seconds));
    ONE_PAGE.judge(&mut figure, &most(&one_page.collect::<Vec<_>>()));
    let at_once = rows.iter().filter(committed(pages(bench.args)));
    let at_once = at_once.map(|row| over_log(&row.modes, Found::bytes_written));
    BYTES.judge(&mut figure, &most(&at_once.collect::<Vec<_>>()));
    figure.notes.push(FAIRNESS.into());
    let frames = rows.first().map_or(0, |row| row.modes[0].first().frames);
    figure.notes.push(format!(
        "Firn's least buffer has 64 pages, of which {frames} are frames, the map's memory apart; private images have 60. \
         The paper's memory is 30 and 30 pages: half as many pools are filled here as there. In figure 7 both modes do \
         the same: both have the map whose overhead the paper measured. N is the number of pages; \
         a part is 100 bytes at a drawn offset; both are not printed. A part that is read is a whole page."
    ));
    figure.notes.push(
        "Time ends with the last transaction; bytes and requests are with a checkpoint behind it, which writes what \
         is dirty. Figure 6, the processor's time, is not measured: computing is free."
            .into(),
    );
    Ok(figure)
}

fn times(rows: &[Row], drive: &str) -> Panel {
    let title = format!("Seconds of each cell, {drive}");
    let mut panel = Panel::of_bars(&format!("pages-cells-{drive}"), &title, "cell", "seconds");
    (panel.digits, panel.log_y, panel.drawn) = (3, true, false);
    for (at, row) in rows.iter().filter(|row| row.drive == drive).enumerate() {
        let mut add = |series: &str, value: &Sampled| {
            panel.add(series, Point::new(at as f64, row.work.name(), value));
        };
        for ((name, _), measured) in MODES.iter().zip(&row.modes) {
            add(name, &seconds(measured));
        }
        add("log over shadow", &speed_up(&row.modes, 1));
        add("log over hybrid", &speed_up(&row.modes, 2));
        add("log over adaptive", &speed_up(&row.modes, 3));
    }
    panel
}

fn over_rows(
    rows: &[Row],
    (key, title, unit): (&str, &str, &str),
    wanted: impl Fn(&Work) -> bool,
    value: impl Fn(&InModes) -> Sampled,
) -> Panel {
    let mut panel = Panel::of_bars(key, title, "cell", unit);
    panel.digits = 2;
    let mut places: Vec<Work> = Vec::new();
    for row in rows.iter().filter(|row| wanted(&row.work)) {
        let place = places.iter().position(|work| *work == row.work).unwrap_or_else(|| {
            places.push(row.work);
            places.len() - 1
        });
        panel.add(row.drive, Point::new(place as f64, row.work.name(), &value(&row.modes)));
    }
    panel
}

fn speed_ups(rows: &[Row], key: &str, title: &str, wanted: impl Fn(&Work) -> bool) -> Panel {
    let mut panel =
        over_rows(rows, (key, title, "time, log over hybrid"), wanted, |modes| speed_up(modes, 2));
    panel.log_y = true;
    panel
}

fn bytes(rows: &[Row]) -> Panel {
    let title = "Bytes written, hybrid over log";
    over_rows(rows, ("pages-bytes", title, "hybrid over log"), is_full_write, |modes| {
        over_log(modes, Found::bytes_written)
    })
}

fn requests(rows: &[Row]) -> Panel {
    let title = "Requests, hybrid over log";
    over_rows(rows, ("pages-requests", title, "hybrid over log"), is_full_write, |modes| {
        over_log(modes, Found::requests)
    })
}

/// What hybrid gains in each cell of one drive.
pub type Gains = Vec<(Work, Sampled)>;

fn gains(rows: &[Row], drive: &str) -> Gains {
    let rows = rows.iter().filter(|row| row.drive == drive);
    rows.map(|row| (row.work, speed_up(&row.modes, 2))).collect()
}

/// What the paper's text prints of figures 7 and 8, beside what was gained on its two drives.
pub fn besides(figure: &mut Figure, gains_on: impl Fn(&str) -> Gains) {
    for (name, drive, printed) in [("disk", DISK, "3 to 8"), ("flash", FLASH, "13 to 33")] {
        let gains = gains_on(drive);
        if gains.is_empty() {
            continue;
        }
        let of = |wanted: &dyn Fn(&Work) -> bool| -> Vec<Sampled> {
            let gains = gains.iter().filter(|(work, _)| wanted(work));
            gains.map(|(_, gain)| gain.clone()).collect()
        };
        let mut add = |what: &str, printed: &str, value: &Sampled| {
            figure.beside(format!("{name}: {what}"), printed, value);
        };
        let aborts = of(&|work| is_full_write(work) && work.kind == Kind::Abort);
        add("figure 8, aborts, least speed-up", printed, &least(&aborts));
        add("figure 8, aborts, most", printed, &most(&aborts));
        let others = of(&|work| !is_full_write(work));
        let printed = "\"negligible overhead\"";
        add("figure 7, parts and reads, least", printed, &least(&others));
        add("figure 7, parts and reads, most", printed, &most(&others));
        for (order, random) in [("sequential", false), ("random", true)] {
            let commits = of(&|work| {
                is_full_write(work) && work.kind == Kind::Commit && work.random == random && work.each == 1
            });
            let what = format!("figure 8, commits of one page, {order}");
            add(&what, "below 1 in \"a few\" cells", &least(&commits));
        }
        let full = gains.iter().filter(|(work, _)| is_full_write(work));
        let full: Vec<(Work, f64)> = full.map(|(work, gain)| (*work, gain.median())).collect();
        let pairs = Sampled::once(affinity(&full, drive == DISK));
        add("figure 8, pairs of 4 with the printed affinity", "4", &pairs);
        let pairs = Sampled::once(larger_gain_more(&full));
        add("figure 8, pairs of 4 where 1 transaction gains more", "4", &pairs);
    }
}

/// Pairs of cells, the first one with `by` and the other without, alike in all that `same` looks
/// at, in which `holds` is true of what both gain.
fn pairs(
    gains: &[(Work, f64)],
    by: impl Fn(&Work) -> bool,
    same: impl Fn(&Work, &Work) -> bool,
    holds: impl Fn(f64, f64) -> bool,
) -> f64 {
    let mut count = 0;
    for (one, gain) in gains.iter().filter(|(work, _)| by(work)) {
        let others = gains.iter().filter(|(other, _)| !by(other) && same(one, other));
        count += others.filter(|(_, other)| holds(*gain, *other)).count();
    }
    count as f64
}

/// Disks gain more where the work is random, flash where it is sequential: by 1 % at least, or
/// noise would decide.
fn affinity(gains: &[(Work, f64)], is_disk: bool) -> f64 {
    let same = |one: &Work, other: &Work| (one.kind, one.each) == (other.kind, other.each);
    let holds = |random: f64, sequential: f64| match is_disk {
        true => random > 1.01 * sequential,
        false => sequential > 1.01 * random,
    };
    pairs(gains, |work| work.random, same, holds)
}

fn larger_gain_more(gains: &[(Work, f64)]) -> f64 {
    let same = |one: &Work, other: &Work| (one.kind, one.random) == (other.kind, other.random);
    pairs(gains, |work| work.each > 1, same, |one, many| one > 1.01 * many)
}

/// Aborts of all pages in one transaction whose before-images all go to undo pages.
pub fn abort(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = targets::figure("abort");
    let memory = Memory { version_bytes: 0, ..LIMITED };
    let mut rows = Vec::new();
    for profile in &bench.drives {
        for random in [false, true] {
            let work = bench.work(Kind::Abort, false, random, pages(bench.args));
            let modes = bench.in_all_modes(profile, (memory, work), Judged::Yes)?;
            rows.push(Row { drive: &profile.name, work, modes });
        }
    }
    for profile in &bench.drives {
        let mut panel = times(&rows, &profile.name);
        panel.key = format!("pages-abort-{}", profile.name);
        figure.panels.push(panel);
    }
    figure.panels.push(counted(&rows));
    let fewer = rows.iter().map(|row| over_log(&row.modes, Found::requests).map(|ratio| 1.0 / ratio));
    ABORT_REQUESTS.judge(&mut figure, &least(&fewer.collect::<Vec<_>>()));
    for (target, drive) in [(ABORT_FLASH, FLASH), (ABORT_DISK, DISK)] {
        let gains = rows.iter().filter(|row| row.drive == drive).map(|row| speed_up(&row.modes, 2));
        match &gains.collect::<Vec<_>>()[..] {
            [] => target.skip(&mut figure, "not among the drives"),
            gains => target.judge(&mut figure, &least(gains)),
        }
    }
    figure.notes.push(FAIRNESS.into());
    Ok(figure)
}

/// Requests and bytes of each mode.
fn counted(rows: &[Row]) -> Panel {
    let title = "Requests and megabytes written of an abort";
    let mut panel = Panel::of_bars("pages-abort-counts", title, "drive, cell", "");
    (panel.digits, panel.drawn) = (2, false);
    for (at, row) in rows.iter().enumerate() {
        let label = format!("{}, {}", row.drive, row.work.name());
        let mut add = |series: String, value: &Sampled| {
            panel.add(&series, Point::new(at as f64, label.clone(), value));
        };
        for ((name, _), measured) in MODES.iter().zip(&row.modes) {
            add(format!("requests, {name}"), &measured.value(Found::requests));
            add(format!("MB, {name}"), &measured.value(|found| found.bytes_written() / 1e6));
        }
    }
    panel
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_counted_where_what_is_printed_holds_by_more_than_noise() {
        let work =
            |kind, random, each| (Work { kind, part: false, random, pages: 9, operations: 9, each }, 1.0);
        let mut gains = Vec::new();
        for kind in [Kind::Commit, Kind::Abort] {
            for random in [false, true] {
                gains.extend([work(kind, random, 9), work(kind, random, 1)]);
            }
        }
        assert_eq!((affinity(&gains, true), affinity(&gains, false)), (0.0, 0.0));
        // The random commit in one transaction gains twice as much as all others.
        let place = gains.iter().position(|(work, _)| work.random && work.each == 9).unwrap();
        gains[place].1 = 2.0;
        assert_eq!((affinity(&gains, true), affinity(&gains, false)), (1.0, 0.0));
        assert_eq!(larger_gain_more(&gains), 1.0);
        gains[place].1 = 1.005;
        assert_eq!(affinity(&gains, true) + larger_gain_more(&gains), 0.0, "as good as equal");
    }
}
