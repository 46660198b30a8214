//! Figure 6: how long single writes take that follow one another on one drive.

use super::figure::{Figure, Panel, Point};
use super::machine::simulate;
use super::measuring::Bench;
use super::stream::memories;
use super::tpcc_figures::DRIVES;
use crate::bench::cells::{Cellular, Judged, end_of};
use crate::bench::figure::Shape;
use crate::bench::sampled::{Sampled, median};
use crate::bench::simulation::emulated;
use firndb_base::clock;
use firndb_console::{Failure, size};
use firndb_device::{AlignedBuf, Device, Durability};
use firndb_profile::{DeviceProfile, VariantName};
use serde::{Deserialize, Serialize};

/// As many writes as in the paper.
const WRITES: usize = 5000;
/// The picture shows each usual write whose number this divides: they lie on each other.
const DRAWN: usize = 25;
/// A write that takes this multiple of the median is long.
const LONG: f64 = 2.0;

/// Durable sequential writes of one size to one drive, one after the other.
#[derive(Clone, Debug)]
struct Writes {
    profile: DeviceProfile,
    bytes: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct WritesFound {
    median_us: f64,
    longest_us: f64,
    /// Of all writes, those that took more than twice the median.
    long_share: f64,
    /// The number of a write and its microseconds: all long ones, and some of the others.
    drawn: Vec<(usize, f64)>,
}

impl Cellular for Writes {
    type Found = WritesFound;

    fn name(&self) -> String {
        format!("{WRITES} writes of {} B on {}", self.bytes, self.profile.name)
    }

    fn at_end(&self, end: VariantName) -> Option<Writes> {
        end_of(&self.profile, end).map(|profile| Writes { profile, ..self.clone() })
    }
}

fn run(cell: &Writes, seed: u64) -> Result<WritesFound, Failure> {
    let cell = cell.clone();
    let (times, _) = simulate(seed, move || {
        let device = emulated(memories(1, 64 << 20)?.remove(0), &cell.profile, seed)?;
        let data = AlignedBuf::zeroed(cell.bytes as usize);
        let time = |at: usize| -> Result<f64, Failure> {
            let began = clock::now();
            let written = device.write(at as u64 * cell.bytes, &data, Durability::Durable);
            written.map_err(|error| Failure::new(error.to_string()))?;
            Ok(began.elapsed().as_secs_f64() * 1e6)
        };
        (0..WRITES).map(time).collect::<Result<Vec<f64>, Failure>>()
    })?;
    let median_us = median(&times);
    let is_long = |time: f64| time > LONG * median_us;
    let drawn = |&(at, time): &(usize, f64)| is_long(time) || at % DRAWN == 0;
    Ok(WritesFound {
        median_us,
        longest_us: times.iter().copied().fold(0.0, f64::max),
        long_share: times.iter().filter(|time| is_long(**time)).count() as f64 / WRITES as f64,
        drawn: times.iter().copied().enumerate().filter(drawn).collect(),
    })
}

/// Figure 6.
pub fn of_single_writes(bench: &Bench) -> Result<Figure, Failure> {
    let title = "latencies of 5,000 writes one after the other on one drive";
    let mut figure = Figure::new("6", title).of_inputs();
    let mut table = Panel::of_bars(
        "flashlogging-figure-6",
        "Latencies of 5,000 writes one after the other",
        "drive and size",
        "microseconds; % of the writes that take more than twice the median",
    );
    (table.drawn, table.digits) = (false, 1);
    let mut at = 0.0;
    for bytes in [512, 4096] {
        let size = size::show(bytes).replace(".0", "");
        let title = format!("Latency of each of 5,000 writes of {size}, one after the other, on one drive");
        let key = format!("flashlogging-figure-6-{bytes}");
        let mut panel = Panel::new(&key, &title, "number of the write", "microseconds");
        (panel.shape, panel.log_y, panel.tabled) = (Shape::Dots, true, false);
        for (drive, _) in DRIVES {
            let found = bench.cells.of(&Writes { profile: bench.profile(drive)?, bytes }, Judged::No, run)?;
            for &(number, us) in &found.first().drawn {
                panel.add(drive, Point::new(number as f64, number.to_string(), &Sampled::once(us)));
            }
            let label = format!("{drive}, {size}");
            for (name, value) in [
                ("median", found.value(|it| it.median_us)),
                ("longest", found.value(|it| it.longest_us)),
                ("% longer than twice the median", found.value(|it| 100.0 * it.long_share)),
            ] {
                table.add(name, Point::new(at, &*label, &value));
            }
            at += 1.0;
        }
        figure.panels.push(panel);
    }
    figure.panels.push(table);
    figure.notes.push(format!("Of the usual writes one in {DRAWN} is drawn, of the long ones every one."));
    Ok(figure)
}
