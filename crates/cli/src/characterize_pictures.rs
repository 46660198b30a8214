//! Pictures of what was measured, as SVG: throughput over request size, and the distribution of
//! latencies.

use crate::characterize_report::KINDS;
use firndb_characterize::{Measured, Measurements, Op, PAGE, Pattern, Purpose};
use firndb_console::chart::{self, Axis, Chart, Corner, Legend, Mark, Series};
use firndb_console::{Failure, size};
use firndb_profile::DeviceProfile;
use std::path::{Path, PathBuf};

/// Colours of the palette: those of sequential and random requests of a kind are alike.
const COLORS: [usize; 6] = [0, 5, 1, 4, 2, 3];
/// Shares of requests are drawn as nines: 1 is 90 %, 2 is 99 %.
const NINES_MOST: f64 = 5.0;

/// A curve: what it shows, and its points.
type Curve = (String, Vec<(f64, f64)>);

/// Draws all pictures into a directory that exists; returns their files.
pub fn draw(dir: &Path, profile: &DeviceProfile, measured: &Measurements) -> Result<Vec<PathBuf>, Failure> {
    let throughput = dir.join(format!("{}-throughput.svg", profile.name));
    let latency = dir.join(format!("{}-latency.svg", profile.name));
    let title = &profile.title;
    throughput_over_size(&throughput, title, &sizes(measured))?;
    latency_distribution(&latency, title, &distributions(measured))?;
    Ok(vec![throughput, latency])
}

fn sizes(measured: &Measurements) -> Vec<Curve> {
    let curve = |(name, op, pattern): (&str, Op, Pattern)| {
        let cells = measured.of(Purpose::BySize, op, pattern);
        let points =
            cells.into_iter().map(|one| ((one.cell.bytes as f64).log2(), one.mb_per_second().max(1e-3)));
        (name.to_owned(), points.collect::<Vec<_>>())
    };
    KINDS.into_iter().map(curve).filter(|(_, points)| !points.is_empty()).collect()
}

fn distributions(measured: &Measurements) -> Vec<Curve> {
    let curve = |name: String, one: &Measured| {
        let nines = |(us, share): (f64, f64)| {
            // The longest of n requests stands half a request below 100 %.
            let beyond = if share < 1.0 { 1.0 - share } else { 0.5 / one.tally.latency.count() as f64 };
            let nines = -beyond.log10();
            (us.max(0.1), nines.clamp(0.0, NINES_MOST))
        };
        (name, one.tally.latency.cumulative().into_iter().map(nines).collect::<Vec<_>>())
    };
    let mut curves = Vec::new();
    for (name, op, pattern) in KINDS.into_iter().take(4) {
        let cells = measured.of(Purpose::BySize, op, pattern);
        if let Some(one) = cells.into_iter().find(|one| one.cell.bytes == PAGE) {
            curves.push(curve(format!("{name}, 4 KiB"), one));
        }
    }
    let long = measured.about(Purpose::Outliers);
    curves.extend(long.first().map(|one| curve("durable write, sequential, the long run".to_owned(), one)));
    curves.retain(|(_, points)| !points.is_empty());
    curves
}

fn throughput_over_size(path: &Path, title: &str, curves: &[Curve]) -> Result<(), Failure> {
    let points = || curves.iter().flat_map(|(_, points)| points);
    // Sizes are powers of two: the axis is linear in their logarithm.
    let (least, most) = chart::ends(points().map(|point| point.0));
    let range = if least > most { 9.0..21.0 } else { least - 0.3..most + 0.3 };
    let bytes = |power: &f64| size::show(1 << power.round() as u32).replace(".0", "");
    let chart = Chart {
        title,
        x: Axis::linear("size of a request, one at a time", range).labels(13, &bytes),
        y: Axis::log("MB/s", points().map(|point| point.1)),
        legend: Legend::Inside(Corner::LowerRight),
        series: series(curves, Mark::LineAndPoints),
    };
    chart.draw(path)
}

fn latency_distribution(path: &Path, title: &str, curves: &[Curve]) -> Result<(), Failure> {
    let share = |nines: &f64| match nines.round() as i32 {
        0 => "0 %".to_owned(),
        1 => "90 %".to_owned(),
        nines => format!("99.{} %", "9".repeat((nines - 2).max(0) as usize)).replace("99. ", "99 "),
    };
    let latencies = curves.iter().flat_map(|(_, points)| points).map(|point| point.0);
    let chart = Chart {
        title,
        x: Axis::log("latency, microseconds", latencies),
        y: Axis::linear("share of requests that took at most so long", 0.0..NINES_MOST).labels(6, &share),
        legend: Legend::Inside(Corner::UpperLeft),
        series: series(curves, Mark::Line),
    };
    chart.draw(path)
}

fn series(curves: &[Curve], mark: Mark) -> Vec<Series<'_>> {
    let colored = curves.iter().zip(COLORS).map(|((name, points), color)| {
        let points = points.clone();
        Series { name: Some(name), color, mark, points, bars: Vec::new() }
    });
    colored.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_holds_every_curve_and_nothing_is_drawn_of_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let curves: Vec<Curve> = vec![
            ("reads of a test".to_owned(), vec![(9.0, 5.0), (12.0, 40.0), (20.0, 900.0)]),
            ("writes of a test".to_owned(), vec![(9.0, 1.0), (20.0, 90.0)]),
        ];
        let path = dir.path().join("a.svg");
        throughput_over_size(&path, "a device", &curves).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for part in ["a device", "reads of a test", "writes of a test", "4 KiB", "MB/s"] {
            assert!(svg.contains(part), "{part}");
        }
        assert!(svg.matches("<polyline").count() >= 2);
        let nines: Vec<Curve> =
            vec![("long run".to_owned(), vec![(80.0, 0.3), (100.0, 2.0), (9000.0, NINES_MOST)])];
        latency_distribution(&path, "a device", &nines).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        assert!(svg.contains("99.9 %") && svg.contains(">\n99 %") && svg.contains("long run"), "{svg}");
        throughput_over_size(&path, "nothing", &[]).unwrap();
        latency_distribution(&path, "nothing", &[]).unwrap();
    }
}
