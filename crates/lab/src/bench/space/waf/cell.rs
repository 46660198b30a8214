//! One measurement: a way to write pages, under a load, on flash that is as full as is asked for.

use super::work::{Extent, Load};
use super::worlds::Worlds;
use super::{engine, models};
use crate::bench::cells::Cellular;
use firndb_console::Failure;
use firndb_emulate::nand::{NandConfig, NandReport, Translation};
use firndb_profile::VariantName;
use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicBool;

pub const PAGE: u64 = 4096;
/// Flash that the host cannot use, over what it can.
const OVER_PROVISIONING: f64 = 0.07;
/// The device's write amplification is taken anew each time that the host has written as much as
/// this part of the drive.
const WINDOWS: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Every page over its older version: counted over a recorded stream.
    InPlace { double_write: bool },
    /// Append and pack, likewise.
    AppendPack,
    /// The engine.
    Firn { segments: bool, deltas: bool },
}

impl Way {
    pub const ALL: [Way; 7] = [
        Way::InPlace { double_write: true },
        Way::InPlace { double_write: false },
        Way::AppendPack,
        Way::Firn { segments: false, deltas: false },
        Way::Firn { segments: true, deltas: false },
        Way::Firn { segments: false, deltas: true },
        Way::Firn { segments: true, deltas: true },
    ];

    pub fn title(self) -> &'static str {
        match self {
            Way::InPlace { double_write: true } => "in place, double write",
            Way::InPlace { double_write: false } => "in place, no copies",
            Way::AppendPack => "append and pack",
            Way::Firn { segments: false, deltas: false } => "Firn, threaded",
            Way::Firn { segments: true, deltas: false } => "Firn, segments",
            Way::Firn { segments: false, deltas: true } => "Firn, threaded, deltas",
            Way::Firn { segments: true, deltas: true } => "Firn, segments, deltas",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Cell {
    pub extent: Extent,
    pub load: Load,
    pub way: Way,
    /// Live pages over what the host can use of the drive, in the middle of the measurement.
    pub percent: u64,
}

impl Cellular for Cell {
    type Found = Found;

    fn name(&self) -> String {
        format!("waf, {}, {}, {} % full", self.load.title(), self.way.title(), self.percent)
    }

    fn at_end(&self, _: VariantName) -> Option<Cell> {
        None
    }
}

/// What was counted while it was measured; pages are of 4 KiB.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Found {
    pub transactions: u64,
    /// Changed pages that the buffer gave down.
    pub given: u64,
    /// Pages that the drive was given, metadata and copies included.
    pub host: f64,
    /// Pages that the flash programmed.
    pub programmed: f64,
    /// Of the host's, pages that cleaning moved, and pages of metadata.
    pub moved: u64,
    pub metadata: f64,
    /// The device's write amplification, one part of the measurement after the other.
    pub windows: Vec<f64>,
    /// Live pages over those of the drive: at the beginning and at the end.
    pub full: (f64, f64),
    /// Live pages over places that have space, at the end; 0 if that means nothing.
    pub full_places: f64,
    pub drive_bytes: u64,
}

impl Found {
    /// Of the device.
    pub fn amplification(&self) -> f64 {
        self.programmed / self.host
    }
    /// Host writes over pages given down.
    pub fn host_each(&self) -> f64 {
        self.host / self.given as f64
    }
    /// Pages programmed over pages given down.
    pub fn flash_each(&self) -> f64 {
        self.programmed / self.given as f64
    }
    pub fn flash_a_transaction(&self) -> f64 {
        self.programmed / self.transactions as f64
    }
    pub fn moved_each(&self) -> f64 {
        self.moved as f64 / self.given as f64
    }
    /// How far the windows are apart, over their mean.
    pub fn unsteady(&self) -> f64 {
        let bounds = |of: fn(f64, f64) -> f64| self.windows.iter().copied().reduce(of).unwrap_or(f64::NAN);
        let mean = self.windows.iter().sum::<f64>() / self.windows.len() as f64;
        (bounds(f64::max) - bounds(f64::min)) / mean
    }
    pub fn full_mean(&self) -> f64 {
        f64::midpoint(self.full.0, self.full.1)
    }
}

/// The flash: the chips of the thesis's simulator under a page map.
pub fn flash(bytes: u64) -> Result<NandConfig, Failure> {
    let config = NandConfig::sized(Translation::Page, bytes, OVER_PROVISIONING);
    config.map_err(|error| Failure::new(error.to_string()))
}

/// Bytes that the host wrote and that the flash programmed, since counting began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Written {
    pub host: u64,
    pub programmed: u64,
}

impl Written {
    pub fn of(report: &NandReport) -> Written {
        let programmed = report.flash.programs * u64::from(report.page_bytes);
        Written { host: report.host.write_bytes, programmed }
    }
    pub fn since(self, earlier: Written) -> Written {
        Written { host: self.host - earlier.host, programmed: self.programmed - earlier.programmed }
    }
    pub fn pages(self) -> (f64, f64) {
        (self.host as f64 / PAGE as f64, self.programmed as f64 / PAGE as f64)
    }
}

/// The device's write amplification over time.
#[derive(Debug)]
pub struct Windows {
    bytes: u64,
    last: Written,
    pub found: Vec<f64>,
}

impl Windows {
    pub fn new(drive_bytes: u64, begun: Written) -> Windows {
        Windows { bytes: drive_bytes / WINDOWS, last: begun, found: Vec::new() }
    }

    pub fn note(&mut self, now: Written) {
        let since = now.since(self.last);
        if since.host >= self.bytes {
            self.found.push(since.programmed as f64 / since.host as f64);
            self.last = now;
        }
    }
}

pub fn run(cell: &Cell, worlds: &Worlds, seed: u64, stop: &'static AtomicBool) -> Result<Found, Failure> {
    match cell.way {
        Way::Firn { segments, deltas } => engine::run(cell, (segments, deltas), worlds, seed, stop),
        Way::InPlace { double_write } => models::in_place(cell, double_write, worlds, seed, stop),
        Way::AppendPack => models::append_pack(cell, worlds, seed, stop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_end_when_the_host_has_written_a_quarter_of_the_drive() {
        let mut windows = Windows::new(4000, Written { host: 500, programmed: 1000 });
        windows.note(Written { host: 1499, programmed: 9000 });
        assert!(windows.found.is_empty());
        windows.note(Written { host: 1500, programmed: 3000 });
        windows.note(Written { host: 3500, programmed: 11_000 });
        assert_eq!(windows.found, [2.0, 4.0]);
    }

    #[test]
    fn what_was_written_is_told_by_page_and_by_transaction() {
        let found = Found {
            transactions: 10,
            given: 50,
            host: 100.0,
            programmed: 300.0,
            moved: 25,
            windows: vec![2.0, 4.0, 3.0],
            full: (0.8, 0.9),
            ..Found::default()
        };
        assert_eq!((found.amplification(), found.host_each(), found.flash_each()), (3.0, 2.0, 6.0));
        assert_eq!((found.flash_a_transaction(), found.moved_each()), (30.0, 0.5));
        assert!((found.unsteady() - 2.0 / 3.0).abs() < 1e-9 && (found.full_mean() - 0.85).abs() < 1e-9);
    }
}
