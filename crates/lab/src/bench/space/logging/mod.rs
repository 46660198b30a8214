//! Figure 6-1 of the thesis: operations of 16 KB on device A, on a file that was written in a
//! random order, through a log-structured file system and through a conventional one.
//!
//! In Firn's place stands a page file whose pages are operations: pages of 16 KiB. Each write is a
//! transaction with a commit that is durable when it returns, so Firn does more than a file system:
//! its log lies on the same drive. The conventional file has one place, no log, and no copies.

mod cell;

use super::targets;
use crate::bench::cells::{Cells, Judged, Measured};
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::sampled::Sampled;
pub use cell::AllLoaded;
use cell::{Cell, Found, Kind, State, Way};
use firndb_console::Failure;
use firndb_emulate::profiles;
use firndb_profile::DeviceProfile;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

const DRIVE: &str = "myers-a";
/// Writes of one commit where there are several.
const SEVERAL: u64 = 8;
/// What `Placement::Auto` chooses by the profile of this drive.
const AUTO: Way = Way::Firn { segments: true };
const WAYS: [(Way, &str); 2] =
    [(Way::Firn { segments: false }, "Firn, threaded"), (AUTO, "Firn, segments (auto)")];

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Extent {
    /// Of 16 KiB.
    pub pages: u64,
    pub seconds: f64,
}

impl Extent {
    /// Full, quick, tiny.
    pub const SIZES: [Extent; 3] = [Extent::FULL, Extent::QUICK, Extent::TINY];
    const FULL: Extent = Extent { pages: 65_536, seconds: 30.0 };
    const QUICK: Extent = Extent { pages: 16_384, seconds: 7.5 };
    const TINY: Extent = Extent { pages: 600, seconds: 0.5 };
}

/// What the cells of the figure need.
pub struct Logging<'a> {
    pub cells: &'a Cells<'a>,
    pub loaded: Arc<AllLoaded>,
    pub extent: Extent,
    pub stop: &'static AtomicBool,
}

/// An operation, and what the thesis prints of it over in place.
struct Operation {
    title: &'static str,
    kind: Kind,
    random: bool,
    printed: &'static str,
}

const OPERATIONS: [Operation; 4] = [
    Operation { title: "random write", kind: Kind::Write, random: true, printed: "8.2" },
    Operation {
        title: "sequential write",
        kind: Kind::Write,
        random: false,
        printed: "slightly less than 1",
    },
    Operation { title: "random read", kind: Kind::Read, random: true, printed: "1/3.7" },
    Operation { title: "sequential read", kind: Kind::Read, random: false, printed: "1/2.9" },
];

impl Logging<'_> {
    fn measure(
        &self,
        profile: &DeviceProfile,
        operation: &Operation,
        (way, state, each): (Way, State, u64),
    ) -> Result<Measured<Found>, Failure> {
        let Operation { kind, random, .. } = *operation;
        let Extent { pages, seconds } = self.extent;
        let cell = Cell { profile: profile.clone(), way, kind, random, state, each, pages, seconds };
        let is_named = way == Way::InPlace || way == AUTO && each == 1 && state != State::Worn;
        let judged = if is_named { Judged::Yes } else { Judged::No };
        let (loaded, stop) = (self.loaded.clone(), self.stop);
        self.cells.of(&cell, judged, move |cell, seed| cell::run(cell, &loaded, seed, stop))
    }

    /// See the head of the file.
    pub fn figure(&self) -> Result<Figure, Failure> {
        let mut figure = targets::figure("6-1");
        let profile = profiles::find(DRIVE).map_err(|error| Failure::new(error.to_string()))?;
        let mut rates = Panel::of_bars("space-6-1", "Operations of 16 KB", "operation", "a second");
        rates.log_y = true;
        let mut over =
            Panel::of_bars("space-6-1-over", "The same over in place", "operation", "over in place");
        (over.digits, over.drawn) = (3, false);
        let mut moved = Panel::of_bars("space-6-1-moved", "Pages moved", "operation", "for one written");
        (moved.digits, moved.drawn) = (2, false);
        for (at, operation) in OPERATIONS.iter().enumerate() {
            let in_place = self.measure(&profile, operation, (Way::InPlace, State::Made, 1))?;
            let base = in_place.value(Found::rate);
            let mut show = |series: &str, found: &Measured<Found>| {
                let (at, rate) = (at as f64, found.value(Found::rate));
                rates.add(series, Point::new(at, operation.title, &rate));
                over.add(series, Point::new(at, operation.title, &rate.over(&base)));
                let each = found.value(|found| found.moved as f64 / found.operations as f64);
                moved.add(series, Point::new(at, operation.title, &each));
                rate.over(&base)
            };
            show("in place", &in_place);
            for (way, name) in WAYS {
                let found = self.measure(&profile, operation, (way, State::Made, 1))?;
                let made = show(name, &found);
                let worn = self.measure(&profile, operation, (way, State::Worn, 1))?;
                show(&format!("{name}, worn"), &worn);
                let compacted = if operation.kind == Kind::Read {
                    let found = self.measure(&profile, operation, (way, State::Compacted, 1))?;
                    Some(show(&format!("{name}, compacted"), &found))
                } else {
                    let found = self.measure(&profile, operation, (way, State::Made, SEVERAL))?;
                    show(&format!("{name}, 8 a commit"), &found);
                    None
                };
                if way == AUTO {
                    figure.beside(operation.title, operation.printed, &made);
                    judge(&mut figure, operation, &made, compacted.as_ref());
                }
            }
        }
        figure.panels.extend([rates, over, moved]);
        figure.notes.extend(NOTES.map(str::to_owned));
        Ok(figure)
    }
}

fn judge(figure: &mut Figure, operation: &Operation, made: &Sampled, compacted: Option<&Sampled>) {
    match (operation.kind, operation.random) {
        (Kind::Write, true) => targets::RANDOM_WRITE.judge(figure, made),
        (Kind::Write, false) => targets::SEQUENTIAL_WRITE.judge(figure, made),
        (Kind::Read, true) => targets::RANDOM_READ.judge(figure, made),
        (Kind::Read, false) => {
            targets::READ_BEFORE.judge(figure, made);
            targets::READ_AFTER.judge(figure, compacted.unwrap_or(&Sampled::default()));
        }
    }
}

const NOTES: [&str; 2] = [
    "Targets and the column beside the thesis's are of the placement that the profile of the drive chooses \
     (segments), on the file as the thesis makes it; \"worn\" was written over twice more at random.",
    "Each write of Firn is a durable transaction, with its log on the same drive, and a checkpoint at the end is in \
     its time; in place has neither log nor copies and would be torn by a crash.",
];
