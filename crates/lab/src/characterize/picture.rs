//! Figures 3-1 and 3-2 of the thesis, as SVG.

use super::measuring::{KINDS, Measured, PAGE};
use super::report::kilobytes;
use firndb_console::Failure;
use firndb_console::chart::{self, Axis, Bars, Chart, Corner, Legend, Mark, Series};
use std::path::{Path, PathBuf};

/// A dark and a light colour of the palette for each device: sequential, random.
const COLORS: [[usize; 2]; 4] = [[0, 5], [1, 4], [2, 3], [6, 7]];

/// Draws the figures into the directory, which is made; returns their files.
pub fn draw(dir: &Path, devices: &[Measured]) -> Result<Vec<PathBuf>, Failure> {
    std::fs::create_dir_all(dir).map_err(|error| Failure::new(format!("{}: {error}", dir.display())))?;
    let paths = ["reads-by-size", "writes-by-size", "4-kb"].map(|name| dir.join(format!("myers-{name}.svg")));
    by_size(&paths[0], "Reads by size of request, one at a time", devices, [0, 2])?;
    by_size(&paths[1], "Synchronous writes by size of request, one at a time", devices, [1, 3])?;
    at_page(&paths[2], devices)?;
    Ok(paths.into())
}

/// Figure 3-1: two of the four kinds.
fn by_size(path: &Path, title: &str, devices: &[Measured], kinds: [usize; 2]) -> Result<(), Failure> {
    let mut curves = Vec::new();
    for (device, colors) in devices.iter().zip(COLORS.iter().cycle()) {
        for (kind, &color) in kinds.into_iter().zip(colors) {
            let rows = device.rows.iter().filter(|row| row.kind == kind);
            let points: Vec<(f64, f64)> = rows.map(|row| ((row.bytes as f64).log2(), row.mb_s)).collect();
            curves.push((format!("{}, {}", device.name, KINDS[kind].0), color, points));
        }
    }
    let rates = curves.iter().flat_map(|(.., points)| points).map(|point| point.1);
    let (least, most) = chart::ends(rates);
    let bytes = |power: &f64| kilobytes(1 << power.round() as u32);
    let rate = |value: &f64| format!("{value}");
    let chart = Chart {
        title,
        x: Axis::linear("size of a request", 9.7..20.3).labels(11, &bytes),
        y: Axis::log("MB/s", [least, most].into_iter()).labels(6, &rate),
        legend: Legend::Inside(Corner::LowerRight),
        series: curves
            .iter()
            .map(|(name, color, points)| Series {
                name: Some(name),
                color: *color,
                mark: Mark::LineAndPoints,
                points: points.clone(),
                bars: Vec::new(),
            })
            .collect(),
    };
    chart.draw(path)
}

/// Figure 3-2.
fn at_page(path: &Path, devices: &[Measured]) -> Result<(), Failure> {
    let bars = devices.iter().map(|device| {
        let rows = (0..KINDS.len()).map(|kind| device.row(kind, PAGE).map(|row| (row.mb_s, None)));
        (device.name.as_str(), rows.collect())
    });
    let text = |value: f64| match value {
        value if value >= 10.0 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    };
    let chart = Bars {
        title: "Requests of 4 KB, one at a time",
        value_name: "MB/s",
        log: true,
        names: KINDS.iter().map(|(name, ..)| *name).collect(),
        series: bars.collect(),
        text: &text,
    };
    chart.draw(path)
}
