//! Tables 3.1 and 3.2 of the thesis, and two ratios of chapter 6, beside what was measured.

use super::measuring::{KINDS, Measured, PAGE};

/// The size that chapter 6 compares device A and the disk at.
const CHAPTER_6: usize = 16_384;
/// The disk of the thesis.
const DISK: &str = "myers-disk";

/// Table 3.1: fraction of the disk's performance, by kind as in [`KINDS`]: devices A, B.
const FRACTIONS: [[f64; 2]; 4] = [[0.44, 1.11], [0.33, 0.09], [30.71, 68.89], [0.32, 0.21]];
/// Table 3.2: times of random over those of sequential requests: reads, writes.
const SLOWDOWNS: [(&str, [f64; 2]); 3] =
    [("myers-a", [2.96, 112.01]), ("myers-b", [3.32, 48.12]), (DISK, [205.40, 108.86])];
/// Chapter 6: device A over the disk, random requests of 16 KB, by kind.
const AT_16_KB: [Option<f64>; 4] = [None, None, Some(16.8), Some(0.33)];

/// A table of ratios.
pub struct Table {
    /// As an `[[input]]` of a profile names it.
    pub result: &'static str,
    pub title: String,
    pub ratios: Vec<Ratio>,
}

/// One ratio.
pub struct Ratio {
    pub device: String,
    pub of: &'static str,
    pub measured: f64,
    /// What the thesis prints of this device, if it does.
    pub printed: Option<f64>,
    /// Why the printed value is an input of the profile, if it is.
    pub input: Option<String>,
}

impl Ratio {
    /// Relative deviation from the printed value.
    pub fn off(&self) -> Option<f64> {
        self.printed.map(|printed| self.measured / printed - 1.0)
    }
}

/// The tables of these devices, of which `against` is one.
pub fn tables(devices: &[Measured], against: &str) -> Vec<Table> {
    let mut tables = vec![slowdowns(devices)];
    if let Some(disk) = devices.iter().find(|device| device.name == against) {
        let others = || devices.iter().filter(|device| device.name != against);
        tables.insert(0, fractions(others(), disk));
        tables.extend(chapter_6(others(), disk));
    }
    tables.retain(|table| !table.ratios.is_empty());
    tables
}

fn ratio(
    (device, of, result): (&Measured, &'static str, &str),
    measured: f64,
    printed: Option<f64>,
) -> Ratio {
    let input = printed.and_then(|_| device.profile.input(result));
    Ratio { device: device.name.clone(), of, measured, printed, input: input.map(|input| input.why.clone()) }
}

fn fractions<'a>(devices: impl Iterator<Item = &'a Measured>, disk: &Measured) -> Table {
    let result = "Myers, table 3.1";
    let ratios = devices.flat_map(|device| {
        let column = SLOWDOWNS[..2].iter().position(|&(name, _)| name == device.name && disk.name == DISK);
        KINDS.iter().enumerate().filter_map(move |(kind, &(of, ..))| {
            let measured = device.row(kind, PAGE)?.mb_s / disk.row(kind, PAGE)?.mb_s;
            let printed = column.map(|column| FRACTIONS[kind][column]);
            Some(ratio((device, of, result), measured, printed))
        })
    });
    let title = format!("Table 3.1: fraction of the performance of {}, 4 KB", disk.name);
    Table { result, title, ratios: ratios.collect() }
}

fn slowdowns(devices: &[Measured]) -> Table {
    let result = "Myers, table 3.2";
    let ratios = devices.iter().flat_map(|device| {
        let printed = SLOWDOWNS.iter().find(|(name, _)| *name == device.name);
        [("read", 0, 2), ("write", 1, 3)].into_iter().filter_map(move |(of, sequential, random)| {
            let measured = device.row(random, PAGE)?.mean_ms / device.row(sequential, PAGE)?.mean_ms;
            let printed = printed.map(|(_, ratios)| ratios[sequential]);
            Some(ratio((device, of, result), measured, printed))
        })
    });
    let title = "Table 3.2: times of random requests over those of sequential ones, 4 KB".to_owned();
    Table { result, title, ratios: ratios.collect() }
}

/// What the text says of device A at 16 KB, if it and the disk were measured.
fn chapter_6<'a>(mut devices: impl Iterator<Item = &'a Measured>, disk: &Measured) -> Option<Table> {
    let device = devices.find(|device| device.name == "myers-a" && disk.name == DISK)?;
    let result = "Myers, chapter 6";
    let ratios = AT_16_KB.into_iter().enumerate().filter_map(|(kind, printed)| {
        let printed = printed?;
        let measured = device.row(kind, CHAPTER_6)?.mb_s / disk.row(kind, CHAPTER_6)?.mb_s;
        Some(ratio((device, KINDS[kind].0, result), measured, Some(printed)))
    });
    let title = format!("Chapter 6: fraction of the performance of {}, 16 KB", disk.name);
    Some(Table { result, title, ratios: ratios.collect() })
}
