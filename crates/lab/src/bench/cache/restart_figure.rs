//! Table 6 and figure 6 of restarts at equal work ([`super::restart`]).

use super::Bench;
use super::compared::{DEFAULT, GSC, title};
use super::machine::{Cell, Clients};
use super::population::Size;
use super::restart::{Restart, RestartCell, RestartFound};
use super::sizes::MLC;
use crate::bench::cells::{Judged, Measured};
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::sampled::{Sampled, grouped};
use firndb_cache_comparators::Compared;
use firndb_console::Failure;

/// Transactions from the checkpoint to the kill. The paper's engine with the cache did 5,000 to
/// 15,000 in half its intervals of 60 to 180 seconds.
const WORK: [u64; 3] = [5_000, 15_000, 50_000];
/// The same with `--quick`.
const WORK_QUICK: [u64; 2] = [1_000, 4_000];
/// DRAM in per cent of the database: 50,000 frames, as the paper has, of a database 20 times as
/// large.
const DRAM_PERCENT: f64 = 5.0;
/// 4 GB of the paper's 50.
const PERCENT: f64 = 8.0;
/// What the paper prints for intervals of 60, 120 and 180 seconds, FaCE+GSC over disks only.
const PRINTED: &str = "0.154, 0.150, 0.228";
const ALONE: &str = "disks only";
/// Figure 6 shows this much after the opening began.
const COURSE_SECONDS: f64 = 60.0;

/// The same kills of an engine with a cache and of one without.
struct Beside<'w> {
    work: &'w [u64],
    /// How the engine with the cache is called.
    name: &'static str,
    cached: Measured<RestartFound>,
    alone: Measured<RestartFound>,
}

/// A quantity of one kill; not a number where there is none yet.
fn at(found: &Measured<RestartFound>, kill: usize, of: impl Fn(&Restart) -> f64) -> Sampled {
    found.value(|found| found.restarts.get(kill).map_or(f64::NAN, &of))
}

fn first_commit(restart: &Restart) -> f64 {
    restart.first_commit_seconds
}

fn eager(restart: &Restart) -> f64 {
    restart.eager_first_commit_seconds
}

fn all_redone(restart: &Restart) -> f64 {
    restart.all_redone_seconds.unwrap_or(f64::NAN)
}

impl<'w> Beside<'w> {
    fn measure(
        bench: &Bench,
        policy: Compared,
        work: &'w [u64],
        default_options: bool,
    ) -> Result<Beside<'w>, Failure> {
        let of = |cell: Cell| {
            let cell = Cell { size: size(bench), dram_percent: DRAM_PERCENT, default_options, ..cell };
            bench.restart(&RestartCell { cell, work: work.to_vec() }, Judged::Yes)
        };
        Ok(Beside {
            work,
            name: title(policy),
            cached: of(bench.cached(policy, MLC, PERCENT, Clients::Pinned)?)?,
            alone: of(bench.cell(bench.disks()?, None, Clients::Pinned)?)?,
        })
    }

    /// A panel of one quantity, by kill.
    fn panel(&self, key: &str, panel_title: &str, of: fn(&Restart) -> f64) -> Panel {
        let x = "transactions from the checkpoint to the kill";
        let mut panel = Panel::new(key, panel_title, x, "seconds from the beginning of the opening");
        panel.digits = 2;
        panel.log_x = true;
        for (kill, &work) in self.work.iter().enumerate() {
            for (name, found) in [(self.name, &self.cached), (ALONE, &self.alone)] {
                let label = grouped(work as f64, 0);
                panel.add(name, Point::new(work as f64, label, &at(found, kill, of)));
            }
        }
        panel
    }

    /// The quantity with the cache, by kill.
    fn cached(&self, of: fn(&Restart) -> f64) -> Vec<Sampled> {
        (0..self.work.len()).map(|kill| at(&self.cached, kill, of)).collect()
    }

    /// The same over that without, the most over kills.
    fn over_alone(&self, of: fn(&Restart) -> f64) -> Sampled {
        let alone = (0..self.work.len()).map(|kill| at(&self.alone, kill, of));
        let over: Vec<Sampled> =
            self.cached(of).iter().zip(alone).map(|(cached, alone)| cached.over(&alone)).collect();
        Sampled::most(&over).unwrap_or_default()
    }

    /// What the tables do not show.
    fn notes(&self, figure: &mut Figure, what: &str) {
        for (kill, work) in self.work.iter().enumerate() {
            for (name, found) in [(self.name, &self.cached), (ALONE, &self.alone)] {
                let Some(restart) = found.first().restarts.get(kill) else { continue };
                figure.notes.push(format!("{what}, {work} transactions, {name}: {}", note(restart)));
            }
        }
    }
}

fn note(restart: &Restart) -> String {
    format!(
        "{:.0} transactions a second before the kill; {:.1} MiB of log read; opening: {}. {} page changes redone, pages \
         from flash {}, from disks {}, current in flash {}.",
        restart.before_per_second,
        restart.log_bytes as f64 / f64::from(1 << 20),
        restart.parts(),
        restart.page_changes_redone,
        restart.pages_from_flash,
        restart.pages_from_disks,
        restart.pages_current_in_flash
    )
}

/// The database: a large one, unless a small one is asked for.
fn size(bench: &Bench) -> Size {
    let size = bench.size();
    if size == Size::FULL { Size::RESTART } else { size }
}

/// Table 6, and figure 6 from its last kill.
pub fn restarts(bench: &Bench) -> Result<[Figure; 2], Failure> {
    let work: &[u64] = if bench.is_quick() { &WORK_QUICK } else { &WORK };
    let equal = Beside::measure(bench, GSC, work, false)?;
    let usual = Beside::measure(bench, DEFAULT, work, true)?;
    let mut table = Figure::table("6", "time from a kill to the first commit");
    table.panels = vec![
        equal.panel("face-table-6-eager", "First commit after a kill, everything redone before it", eager),
        equal.panel("face-table-6", "First commit after a kill, pages redone on demand", first_commit),
        equal.panel("face-table-6-all", "Until everything is redone, beside transactions", all_redone),
        usual.panel("face-table-6-default", "First commit after a kill, default options", first_commit),
    ];
    table.beside(
        "FaCE+GSC over disks only, the same time since the checkpoint; ours: the same work, most",
        PRINTED,
        &equal.over_alone(eager),
    );
    targets(&mut table, &equal, &usual);
    sizes(&mut table, &equal);
    equal.notes(&mut table, "Equal work");
    usual.notes(&mut table, "Default options");
    Ok([table, course(&equal)])
}

fn targets(table: &mut Figure, equal: &Beside, usual: &Beside) {
    let over = |what: &str| format!("equal work, {what}: with the cache over without, most over kills");
    let eagerly = equal.over_alone(eager);
    table.at_most(over("first commit, everything redone before it"), &eagerly, 0.5);
    table.at_most(over("the same, the further goal"), &eagerly, 0.25);
    table.at_most(over("first commit, redo on demand"), &equal.over_alone(first_commit), 0.5);
    table.at_most(over("until everything is redone"), &equal.over_alone(all_redone), 0.5);
    let most = Sampled::most(&usual.cached(first_commit)).unwrap_or_default();
    table.at_most("default options: seconds to the first commit, most over kills", &most, 1.0);
    let mut least = |what: &str, of: fn(&Restart) -> f64, limit: f64| {
        let least = Sampled::least(&equal.cached(of)).unwrap_or_default();
        table.at_least(format!("{what}, %, least over kills"), &least, limit);
    };
    least("pages that the log names found in flash", Restart::found_in_flash, 98.0);
    least("pages redone that came from flash", Restart::read_from_flash, 98.0);
    least(
        "mean hit rate within 10 s of the first commit over that before the kill",
        Restart::hits_after,
        95.0,
    );
}

/// Says how large it all is.
fn sizes(table: &mut Figure, equal: &Beside) {
    let Some(restart) = equal.cached.first().restarts.first() else { return };
    table.notes.push(format!(
        "A database of {:.2} GB, {} frames of DRAM, a cache of {PERCENT} %.",
        restart.database_bytes as f64 / 1e9,
        restart.frames
    ));
}

/// Throughput after the kill with the most work before it.
fn course(equal: &Beside) -> Figure {
    let mut figure = Figure::new("6", "throughput after a restart");
    let mut panel = Panel::new(
        "face-figure-6",
        "Throughput after a kill, pages redone on demand",
        "seconds since the opening began",
        "transactions a second",
    );
    for (name, found) in [(equal.name, &equal.cached), (ALONE, &equal.alone)] {
        let last = found.first().restarts.last();
        let course = last.iter().flat_map(|restart| &restart.course);
        for second in course.take_while(|second| second.at <= COURSE_SECONDS) {
            let rate = Sampled::once(second.transactions_per_second);
            panel.add(name, Point::new(second.at, format!("{:.0}", second.at), &rate));
        }
    }
    figure.panels.push(panel);
    figure
}
