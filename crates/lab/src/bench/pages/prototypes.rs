//! The paper's prototypes over the 24 cells: what its figures come to without Firn.

use super::grid::{Gains, besides, workloads};
use super::machine::PAGE;
use super::prototype::{Prototype, Requests};
use super::setting::{Bench, LIMITED, PRIVATE_PAGES};
use super::targets;
use super::work::Work;
use crate::bench::cells::{Cellular, Judged, Measured, end_of};
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::sampled::Sampled;
use crate::bench::simulation::{emulated, simulate};
use firndb::PageRecovery;
use firndb_base::clock;
use firndb_console::Failure;
use firndb_device::DeviceError;
use firndb_profile::{DeviceProfile, VariantName};
use serde::{Deserialize, Serialize};

/// Both, ARIES first.
pub const PROTOTYPES: [(&str, bool); 2] = [("ARIES", false), ("hybrid", true)];

#[derive(Clone, Debug)]
struct Cell {
    profile: DeviceProfile,
    is_hybrid: bool,
    work: Work,
    /// Pages of the buffer, and of the log in memory.
    memory: usize,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Found {
    pub seconds: f64,
    pub requests: Requests,
}

impl Cellular for Cell {
    type Found = Found;

    fn name(&self) -> String {
        let which = if self.is_hybrid { "hybrid" } else { "ARIES" };
        let pages = self.memory;
        format!("{}, prototype of {which}, {}, {pages}+{pages} pages", self.profile.name, self.work.name())
    }

    fn at_end(&self, end: VariantName) -> Option<Cell> {
        Some(Cell { profile: end_of(&self.profile, end)?, ..self.clone() })
    }
}

fn run(cell: &Cell, seed: u64) -> Result<Found, Failure> {
    let Cell { profile, is_hybrid, work, memory } = cell.clone();
    let body = move || {
        let failed = |error: DeviceError| Failure::new(error.to_string());
        let drive = emulated(Prototype::memory().map_err(failed)?, &profile, seed)?;
        let mut prototype = Prototype::new(drive, is_hybrid, work.pages, memory);
        let operations = work.operations(seed);
        let began = clock::now();
        prototype.perform(work, &operations).map_err(failed)?;
        Ok(Found { seconds: began.elapsed().as_secs_f64(), requests: prototype.requests })
    };
    Ok(simulate(seed, 1, body)?.0)
}

/// What a prototype does, with the memory that Firn's cells have.
pub fn measure(
    bench: &Bench,
    profile: &DeviceProfile,
    is_hybrid: bool,
    work: Work,
) -> Result<Measured<Found>, Failure> {
    let cell = Cell { profile: profile.clone(), is_hybrid, work, memory: PRIVATE_PAGES };
    bench.cells.of(&cell, Judged::Yes, run)
}

/// The figure `prototypes`.
pub fn figure(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = targets::figure("prototypes");
    let mut gains: Vec<(&str, Gains)> = Vec::new();
    for profile in &bench.drives {
        let key = format!("pages-prototypes-{}", profile.name);
        let mut panel = Panel::of_bars(&key, &format!("The prototypes, {}", profile.name), "cell", "");
        (panel.digits, panel.drawn) = (3, false);
        let mut here = Vec::new();
        for (at, work) in workloads(bench).into_iter().enumerate() {
            let mut add = |series: &str, value: &Sampled| {
                panel.add(series, Point::new(at as f64, work.name(), value));
            };
            let [aries, hybrid] = [false, true].map(|is_hybrid| measure(bench, profile, is_hybrid, work));
            let (aries, hybrid) = (aries?, hybrid?);
            for ((name, _), found) in PROTOTYPES.iter().zip([&aries, &hybrid]) {
                add(&format!("{name}, seconds"), &found.value(|found| found.seconds));
                add(&format!("{name}, requests"), &found.value(|found| found.requests.all() as f64));
                let megabytes = found.value(|found| found.requests.write_bytes as f64 / 1e6);
                add(&format!("{name}, MB written"), &megabytes);
            }
            let times = [&aries, &hybrid].map(|found| found.value(|found| found.seconds));
            let gain = times[0].over(&times[1]);
            add("ARIES over hybrid", &gain);
            let firn = bench.measure(profile, PageRecovery::Hybrid, (LIMITED, work), Judged::Yes)?;
            add("ARIES over Firn's hybrid", &times[0].over(&firn.value(|found| found.work.seconds)));
            let requests = aries.value(|found| found.requests.all() as f64);
            add(
                "the same, requests",
                &requests.over(&firn.value(|found| found.work.all().requests() as f64)),
            );
            let bytes = aries.value(|found| found.requests.write_bytes as f64);
            add("the same, bytes", &bytes.over(&firn.value(super::cell::Found::bytes_written)));
            here.push((work, gain));
        }
        figure.panels.push(panel);
        gains.push((&profile.name, here));
    }
    besides(&mut figure, |drive| {
        let here = gains.iter().find(|(name, _)| *name == drive);
        here.map(|(_, gains)| gains.clone()).unwrap_or_default()
    });
    figure.notes.push(format!(
        "A model of what the paper's text describes, {PRIVATE_PAGES} pages of {PAGE} bytes of buffer and as much log in \
         memory, as the cells of Firn have: no cleaner, no group commit, before-images in the log, pages in place."
    ));
    Ok(figure)
}
