//! Methods of others over a recorded stream of pages, their writes on simulated flash.
//!
//! Only writes reach the flash: reads wear nothing. A method's tables are in DRAM and are never
//! written, as in the papers; the engine's page map is on its drive.

use super::cell::{Cell, Found, PAGE, Windows, Written, flash};
use super::worlds::{Recorded, Worlds, drive_bytes};
use firndb_console::Failure;
use firndb_emulate::nand::{Nand, NandError};
use firndb_page_comparators::medium::{Direction, Request, Watch, region};
use firndb_page_comparators::stream::StreamReader;
use firndb_page_comparators::{AppendPack, InPlace, Medium, Method, Part, Start, replay};
use std::fs::File;
use std::io::BufReader;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Of the double-write area, at the end of the drive.
const COPIES_BYTES: u64 = 128 * PAGE;
/// Segments that append and pack has beyond those of its pages, and one of them in part.
const SPARE_SEGMENTS: u64 = 5;
const SEGMENT: u64 = 64;
/// Requests between two looks at the flash.
const LOOK: u64 = 256;

/// Flash that a medium's writes go to.
struct OnFlash {
    nand: Nand,
    began: Written,
    windows: Windows,
    requests: u64,
    /// The first failure.
    outcome: Result<(), NandError>,
}

impl OnFlash {
    /// Flash whose first bytes are written, and the double-write area.
    fn new(bytes: u64, used: u64) -> Result<OnFlash, Failure> {
        let failed = |error: NandError| Failure::new(error.to_string());
        let mut nand = Nand::new(flash(bytes)?).map_err(failed)?;
        nand.fill(used).map_err(failed)?;
        let began = Written::default();
        Ok(OnFlash { nand, began, windows: Windows::new(bytes, began), requests: 0, outcome: Ok(()) })
    }

    fn written(&self) -> Written {
        Written::of(&self.nand.report())
    }
}

impl Watch for OnFlash {
    fn request(&mut self, request: Request) {
        if request.direction == Direction::Read || self.outcome.is_err() {
            return;
        }
        let offset = match request.offset.checked_sub(region::COPIES) {
            Some(within) => self.nand.len() - COPIES_BYTES + within,
            None => request.offset - region::IMAGES,
        };
        self.outcome = self.nand.write(offset, request.bytes, 0).map(drop);
        self.requests += 1;
        if self.requests.is_multiple_of(LOOK) {
            let now = self.written();
            self.windows.note(now);
        }
    }

    fn restart(&mut self) {
        self.began = self.written();
        self.windows = Windows::new(self.nand.len(), self.began);
    }
}

struct Drive {
    recorded: Arc<Recorded>,
    start: Start,
    bytes: u64,
}

fn drive(cell: &Cell, worlds: &Worlds, seed: u64, stop: &'static AtomicBool) -> Result<Drive, Failure> {
    let recorded = worlds.recorded(cell.load, seed, stop)?;
    let bytes = drive_bytes(u64::midpoint(recorded.live.0, recorded.live.1), cell.percent)?;
    let start = Start { page_size: PAGE, pages: worlds.loaded(cell.load, u64::MAX)?.pages };
    Ok(Drive { recorded, start, bytes })
}

pub fn in_place(
    cell: &Cell,
    double_write: bool,
    worlds: &Worlds,
    seed: u64,
    stop: &'static AtomicBool,
) -> Result<Found, Failure> {
    let drive = drive(cell, worlds, seed, stop)?;
    replayed(&drive, &mut InPlace::new(double_write))
}

/// On all places of the drive.
pub fn append_pack(
    cell: &Cell,
    worlds: &Worlds,
    seed: u64,
    stop: &'static AtomicBool,
) -> Result<Found, Failure> {
    let drive = drive(cell, worlds, seed, stop)?;
    let places = drive.bytes / PAGE - SPARE_SEGMENTS * SEGMENT;
    let over_pages = places as f64 / drive.recorded.live.1 as f64;
    replayed(&drive, &mut AppendPack::new(drive.start, over_pages))
}

fn replayed(drive: &Drive, method: &mut dyn Method) -> Result<Found, Failure> {
    let Drive { recorded, start, bytes } = drive;
    let failed =
        |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", recorded.path.display()));
    let mut flash = OnFlash::new(*bytes, start.pages * PAGE)?;
    let mut medium = Medium::watched(PAGE, &mut flash);
    let file = BufReader::new(File::open(&recorded.path).map_err(|error| failed(&error))?);
    let mut stream = StreamReader::new(file).map_err(|error| failed(&error))?;
    let replayed =
        replay(&mut stream, method, &mut medium, Part::Measured).map_err(|error| failed(&error))?;
    flash.outcome.as_ref().map_err(|error| failed(error))?;
    let (host, programmed) = flash.written().since(flash.began).pages();
    let full = |live: u64| (live * PAGE) as f64 / *bytes as f64;
    Ok(Found {
        transactions: replayed.commits,
        given: replayed.writes,
        host,
        programmed,
        moved: replayed.counts.moved / PAGE,
        metadata: 0.0,
        windows: flash.windows.found,
        full: (full(recorded.live.0), full(recorded.live.1)),
        full_places: 0.0,
        drive_bytes: *bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_page_comparators::medium::Content;

    #[test]
    fn copies_are_at_the_end_of_the_drive_and_reads_wear_nothing() {
        let bytes = 16 << 20;
        let mut flash = OnFlash::new(bytes, 8 << 20).unwrap();
        let mut medium = Medium::watched(PAGE, &mut flash);
        medium.read(Content::Image, 0, PAGE);
        medium.write(Content::Copy, region::COPIES + COPIES_BYTES - PAGE, PAGE);
        medium.restart();
        medium.write(Content::Image, bytes - PAGE, PAGE);
        assert!(flash.outcome.is_ok());
        assert_eq!(flash.written().since(flash.began).pages(), (1.0, 1.0));
        Medium::watched(PAGE, &mut flash).write(Content::Image, bytes, PAGE);
        assert!(matches!(flash.outcome, Err(NandError::OutOfRange { .. })));
    }
}
