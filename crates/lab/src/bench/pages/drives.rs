//! Figures 1 and 2: reads of 1,000 pages, in order and at random, from the drives alone.

use super::machine::PAGE;
use super::setting::{Bench, PAGES};
use super::targets;
use crate::bench::cells::{Cellular, Judged, end_of};
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::sampled::Sampled;
use crate::bench::simulation::{emulated, simulate};
use firndb_base::clock;
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_console::Failure;
use firndb_device::{Device, Fill, MemoryDevice};
use firndb_profile::{DeviceProfile, VariantName};
use serde::{Deserialize, Serialize};

/// Pages between two points of a curve.
const POINT: u64 = 50;
/// Pages of the larger file.
const LARGER: u64 = 16_000;

#[derive(Clone, Debug)]
struct Cell {
    profile: DeviceProfile,
    /// Of the file that the pages are drawn from, each at most once; `None`: in order.
    random_of: Option<u64>,
}

/// Seconds after each fiftieth page.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Found {
    seconds: Vec<f64>,
}

impl Found {
    fn all(&self) -> f64 {
        self.seconds.last().copied().unwrap_or(f64::NAN)
    }
}

impl Cellular for Cell {
    type Found = Found;

    fn name(&self) -> String {
        match self.random_of {
            Some(pages) => format!("{}, reads of a file of {pages} pages at random", self.profile.name),
            None => format!("{}, reads in order", self.profile.name),
        }
    }

    fn at_end(&self, end: VariantName) -> Option<Cell> {
        Some(Cell { profile: end_of(&self.profile, end)?, ..self.clone() })
    }
}

fn run(cell: &Cell, seed: u64) -> Result<Found, Failure> {
    let cell = cell.clone();
    let body = move || {
        let file = cell.random_of.unwrap_or(PAGES);
        let memory = Arc::new(MemoryDevice::new("drive"));
        memory.grow(file * PAGE as u64, Fill::Sparse).map_err(|error| Failure::new(error.to_string()))?;
        let drive = emulated(memory, &cell.profile, seed)?;
        let (mut rng, mut pages): (_, Vec<u64>) = (Rng::new(seed), (0..file).collect());
        if cell.random_of.is_some() {
            (1..pages.len()).rev().for_each(|at| pages.swap(at, rng.below(at as u64 + 1) as usize));
        }
        let (began, mut image, mut seconds) = (clock::now(), vec![0; PAGE], Vec::new());
        for (at, page) in pages.into_iter().take(PAGES as usize).enumerate() {
            let read = drive.read(page * PAGE as u64, &mut image);
            read.map_err(|error| Failure::new(error.to_string()))?;
            if (at as u64 + 1).is_multiple_of(POINT) {
                seconds.push(began.elapsed().as_secs_f64());
            }
        }
        Ok(Found { seconds })
    };
    Ok(simulate(seed, 1, body)?.0)
}

/// Figures 1 and 2.
pub fn reads(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = targets::figure("1-2").of_inputs();
    let title = "Figure 1: 1,000 pages read one by one";
    let mut one = Panel::of_bars("pages-1", title, "order", "seconds");
    (one.digits, one.log_y) = (3, true);
    let title = "Figure 2: 1,000 pages read at random";
    let mut two = Panel::new("pages-2", title, "pages read", "seconds");
    (two.tabled, two.log_y) = (false, true);
    for profile in &bench.drives {
        let mut measure = |place: f64, label: &str, random_of: Option<u64>| {
            let cell = Cell { profile: profile.clone(), random_of };
            let found = bench.cells.of(&cell, Judged::No, run)?;
            one.add(&profile.name, Point::new(place, label, &found.value(Found::all)));
            if random_of == Some(PAGES) {
                for (at, seconds) in found.first().seconds.iter().enumerate() {
                    let pages = (at as u64 + 1) * POINT;
                    let point = Point::new(pages as f64, pages.to_string(), &Sampled::once(*seconds));
                    two.add(&profile.name, point);
                }
            }
            Ok::<_, Failure>(found.value(Found::all))
        };
        let in_order = measure(0.0, "in order", None)?;
        let random = measure(1.0, "at random, a file of 1,000", Some(PAGES))?;
        measure(2.0, "at random, a file of 16,000", Some(LARGER))?;
        let cell = format!("{}: at random over in order", profile.name);
        figure.beside(cell, "a picture: disk far more than flash", &random.over(&in_order));
    }
    figure.panels.extend([one, two]);
    figure.notes.push(
        "The drives alone, without a file system's cache and without the drive's own of what was read before: the \
         curves do not flatten, as the paper's do once its caches are warm."
            .into(),
    );
    Ok(figure)
}
