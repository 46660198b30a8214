//! Pictures of what was measured, as SVG: throughput over request size, and the distribution of
//! latencies.

use firndb_characterize::{Measured, Measurements, Op, PAGE, Pattern, Purpose};
use firndb_console::Failure;
use firndb_profile::DeviceProfile;
use plotters::prelude::*;
use std::path::{Path, PathBuf};

/// Colours that colour-blind readers can distinguish (Okabe and Ito).
const COLORS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
];
const SIZE: (u32, u32) = (860, 520);
/// Shares of requests are drawn as nines: 1 is 90 %, 2 is 99 %.
const NINES_MOST: f64 = 5.0;

/// A curve: what it shows, and its points.
type Curve = (String, Vec<(f64, f64)>);

/// Draws all pictures into a directory that exists; returns their files.
pub fn draw(dir: &Path, profile: &DeviceProfile, measured: &Measurements) -> Result<Vec<PathBuf>, Failure> {
    let throughput = dir.join(format!("{}-throughput.svg", profile.name));
    let latency = dir.join(format!("{}-latency.svg", profile.name));
    let title = &profile.title;
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |error: String| Failure::new(format!("{path}: {error}"))
    };
    throughput_over_size(&throughput, title, &sizes(measured)).map_err(failed(&throughput))?;
    latency_distribution(&latency, title, &distributions(measured)).map_err(failed(&latency))?;
    Ok(vec![throughput, latency])
}

fn kinds() -> [(&'static str, Op, Pattern); 6] {
    [
        ("read, sequential", Op::Read, Pattern::Sequential),
        ("read, random", Op::Read, Pattern::Random),
        ("durable write, sequential", Op::WriteDurable, Pattern::Sequential),
        ("durable write, random", Op::WriteDurable, Pattern::Random),
        ("write, sequential", Op::WriteLater, Pattern::Sequential),
        ("write, random", Op::WriteLater, Pattern::Random),
    ]
}

fn sizes(measured: &Measurements) -> Vec<Curve> {
    let curve = |(name, op, pattern): (&str, Op, Pattern)| {
        let cells = measured.of(Purpose::BySize, op, pattern);
        let points =
            cells.into_iter().map(|one| ((one.cell.bytes as f64).log2(), one.mb_per_second().max(1e-3)));
        (name.to_owned(), points.collect::<Vec<_>>())
    };
    kinds().into_iter().map(curve).filter(|(_, points)| !points.is_empty()).collect()
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
    for (name, op, pattern) in kinds().into_iter().take(4) {
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

/// The range of values, a little widened; of nothing, one that can be drawn.
fn range(values: impl Iterator<Item = f64>) -> std::ops::Range<f64> {
    let (least, most) =
        values.fold((f64::MAX, 0.0f64), |(least, most), value| (least.min(value), most.max(value)));
    if least > most { 1.0..10.0 } else { least * 0.8..most * 1.25 }
}

fn throughput_over_size(path: &Path, title: &str, curves: &[Curve]) -> Result<(), String> {
    let points = || curves.iter().flat_map(|(_, points)| points);
    // Sizes are powers of two: the axis is linear in their logarithm.
    let ends =
        points().fold((f64::MAX, 0.0f64), |(least, most), point| (least.min(point.0), most.max(point.0)));
    let x = if ends.0 > ends.1 { 9.0..21.0 } else { ends.0 - 0.3..ends.1 + 0.3 };
    let y = range(points().map(|point| point.1));
    let bytes = |power: &f64| firndb_console::size::show(1 << power.round() as u32).replace(".0", "");
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE).map_err(text)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(x, y.log_scale())
        .map_err(text)?;
    let mut mesh = chart.configure_mesh();
    mesh.x_desc("size of a request, one at a time")
        .y_desc("MB/s")
        .x_labels(13)
        .x_label_formatter(&bytes)
        .draw()
        .map_err(text)?;
    for ((name, points), color) in curves.iter().zip(COLORS) {
        let line = LineSeries::new(points.iter().copied(), color.stroke_width(2)).point_size(3);
        chart.draw_series(line).map_err(text)?.label(name).legend(move |(x, y)| sample(x, y, color));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .draw()
        .map_err(text)?;
    root.present().map_err(text)
}

fn latency_distribution(path: &Path, title: &str, curves: &[Curve]) -> Result<(), String> {
    let x = range(curves.iter().flat_map(|(_, points)| points).map(|point| point.0));
    let share = |nines: &f64| match nines.round() as i32 {
        0 => "0 %".to_owned(),
        1 => "90 %".to_owned(),
        nines => format!("99.{} %", "9".repeat((nines - 2).max(0) as usize)).replace("99. ", "99 "),
    };
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE).map_err(text)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(x.log_scale(), 0.0..NINES_MOST)
        .map_err(text)?;
    chart
        .configure_mesh()
        .x_desc("latency, microseconds")
        .y_desc("share of requests that took at most so long")
        .y_labels(6)
        .y_label_formatter(&share)
        .draw()
        .map_err(text)?;
    for ((name, points), color) in curves.iter().zip(COLORS) {
        let line = LineSeries::new(points.iter().copied(), color.stroke_width(2));
        chart.draw_series(line).map_err(text)?.label(name).legend(move |(x, y)| sample(x, y, color));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .draw()
        .map_err(text)?;
    root.present().map_err(text)
}

/// A piece of a curve, for the legend.
fn sample(x: i32, y: i32, color: RGBColor) -> PathElement<(i32, i32)> {
    PathElement::new(vec![(x, y), (x + 18, y)], color.stroke_width(2))
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
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
