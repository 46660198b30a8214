//! The figure `waf`: flash bytes programmed for each page that the buffer gives down, on simulated
//! flash of which live pages take 50, 75 and 90 %.
//!
//! Firn is the engine itself, whose store lies on the flash ([`engine`]); the ways of others are
//! counted over a stream of pages recorded from the same work ([`models`]). The drive's size
//! follows from the live pages in the middle of the measurement ([`worlds`]): a store whose file is
//! as long as the drive is not for that reason full. What the log writes is in no figure.

mod cell;
mod engine;
mod models;
mod work;
mod worlds;

use super::targets;
use crate::bench::cells::{Cells, Judged, Measured};
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::sampled::Sampled;
use cell::{Cell, Found, Way};
use firndb_console::Failure;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
pub use work::Extent;
use work::Load;
pub use worlds::Worlds;

/// Live pages over what the host can use.
const PERCENTS: [u64; 3] = [50, 75, 90];
/// The one that targets name.
const FULL: u64 = 90;
const ORIG: Way = Way::InPlace { double_write: true };
/// The engine as it is without a profile.
const DEFAULT: Way = Way::Firn { segments: false, deltas: false };

/// What the cells of the figure need.
pub struct Waf<'a> {
    pub cells: &'a Cells<'a>,
    pub worlds: Arc<Worlds>,
    pub extent: Extent,
    pub stop: &'static AtomicBool,
}

type Shown = (&'static str, &'static str, &'static str, fn(&Found) -> f64);

/// Panels of each load: key, title, unit, value.
const SHOWN: [Shown; 4] = [
    ("flash", "flash programmed", "pages programmed for one given down", Found::flash_each),
    ("host", "writes of the host", "pages written for one given down", Found::host_each),
    ("device", "write amplification of the device", "pages programmed for one written", Found::amplification),
    ("transaction", "flash programmed", "pages a transaction", Found::flash_a_transaction),
];

impl Waf<'_> {
    fn measure(&self, load: Load, way: Way, percent: u64) -> Result<Measured<Found>, Failure> {
        let is_named = load == Load::Tpcc && percent == FULL && way != Way::InPlace { double_write: false };
        let judged = if is_named { Judged::Yes } else { Judged::No };
        let cell = Cell { extent: self.extent, load, way, percent };
        let (worlds, stop) = (self.worlds.clone(), self.stop);
        self.cells.of(&cell, judged, move |cell, seed| cell::run(cell, &worlds, seed, stop))
    }

    /// See the head of the file.
    pub fn figure(&self) -> Result<Figure, Failure> {
        let mut figure = targets::figure("waf");
        let mut of_segments: Vec<Sampled> = Vec::new();
        let mut conditions = Panel::of_bars("waf-full", "Conditions", "load, way, asked for", "shares");
        (conditions.drawn, conditions.digits) = (false, 2);
        for load in Load::ALL {
            let mut panels = SHOWN.map(|(key, title, unit, _)| {
                let title = format!("{}: {title}", load.title());
                let mut panel = Panel::of_bars(&format!("waf-{}-{key}", load.key()), &title, "way", unit);
                (panel.digits, panel.drawn) = (2, key == "flash");
                panel
            });
            for (at, way) in Way::ALL.into_iter().enumerate() {
                for percent in PERCENTS {
                    let found = self.measure(load, way, percent)?;
                    for (panel, (_, _, _, of)) in panels.iter_mut().zip(SHOWN) {
                        let point = Point::new(at as f64, way.title(), &found.value(of));
                        panel.add(&format!("{percent} % full"), point);
                    }
                    if way == (Way::Firn { segments: true, deltas: false }) {
                        of_segments.push(found.value(Found::amplification));
                    }
                    let label = format!("{}, {}, {percent} %", load.title(), way.title());
                    show_conditions(&mut conditions, &label, &found);
                }
            }
            figure.panels.extend(panels);
        }
        figure.panels.push(conditions);
        self.judge_flash(&mut figure)?;
        targets::DEVICE.judge(&mut figure, &Sampled::most(&of_segments).unwrap_or_default());
        figure.notes.extend(NOTES.map(str::to_owned));
        Ok(figure)
    }

    /// The target is that of the best of Firn's ways; the default stands beside it.
    fn judge_flash(&self, figure: &mut Figure) -> Result<(), Failure> {
        let of =
            |way| Ok::<_, Failure>(self.measure(Load::Tpcc, way, FULL)?.value(Found::flash_a_transaction));
        let orig = of(ORIG)?;
        let ways = Way::ALL.into_iter().filter(|way| matches!(way, Way::Firn { .. }));
        let ways = ways.map(of).collect::<Result<Vec<_>, _>>()?;
        let best = Sampled::least(&ways).unwrap_or_default();
        targets::FLASH.judge(figure, &best.over(&orig));
        let default = of(DEFAULT)?.over(&orig).summary().text(2);
        figure
            .notes
            .push(format!("The target of flash bytes is by transactions; the default way has {default}."));
        Ok(())
    }
}

/// A column of the panel of conditions.
type Condition = (&'static str, fn(&Found) -> f64);

fn show_conditions(panel: &mut Panel, label: &str, found: &Measured<Found>) {
    let at = panel.labels().len() as f64;
    let shown: [Condition; 6] = [
        ("live over the drive", Found::full_mean),
        ("live over places", |found| found.full_places),
        ("moved for one given down", Found::moved_each),
        ("metadata for one given down", |found| found.metadata / found.given as f64),
        ("drives written", |found| found.host * cell::PAGE as f64 / found.drive_bytes as f64),
        ("unsteady", Found::unsteady),
    ];
    for (name, of) in shown {
        panel.add(name, Point::new(at, label, &found.value(of)));
    }
}

const NOTES: [&str; 3] = [
    "The target of flash bytes is of the best of Firn's ways; that of the device of its greatest value over all \
     loads and drives, without deltas.",
    "\"Unsteady\" is how far the device's write amplification is apart from one quarter of the drive written to the \
     next, over its mean; \"drives written\" is how often the host wrote the whole drive while it was measured. \
     Before that it wrote twice as much.",
    "In place and append and pack have their tables in DRAM and write no metadata; the engine's page map is on its \
     drive. The log is in no figure.",
];
