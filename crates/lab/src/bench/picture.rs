//! A panel as an SVG picture.

use super::figure::{Figure, Panel};
use firndb_console::{Failure, say};
use plotters::prelude::*;
use std::path::Path;

/// Colours that colour-blind readers can distinguish (Okabe and Ito).
const COLORS: [RGBColor; 11] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(140, 140, 140),
    RGBColor(120, 94, 240),
    RGBColor(136, 34, 85),
    RGBColor(17, 119, 51),
];
const SIZE: (u32, u32) = (760, 440);

/// Prints the figures, and draws their panels into the directory if there is one.
pub fn show(figures: &[Figure], pictures: Option<&Path>) -> Result<(), Failure> {
    for figure in figures {
        say!("{}", figure.text());
    }
    let Some(dir) = pictures else { return Ok(()) };
    figures
        .iter()
        .flat_map(|figure| &figure.panels)
        .try_for_each(|panel| draw(&dir.join(format!("{}.svg", panel.key)), panel))
}

/// Draws the panel into a file.
fn draw(path: &Path, panel: &Panel) -> Result<(), Failure> {
    drawn(path, panel).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

fn drawn(path: &Path, panel: &Panel) -> Result<(), String> {
    let points = || panel.series.iter().flat_map(|series| &series.points);
    let place = |x: f64| if panel.log_x { x.max(1e-9).log2() } else { x };
    let least = points().map(|point| place(point.x)).fold(f64::MAX, f64::min);
    let most = points().map(|point| place(point.x)).fold(f64::MIN, f64::max);
    if least > most {
        return Ok(());
    }
    let top = points().map(|point| point.range.map_or(point.value, |(_, high)| high.max(point.value)));
    let top = top.fold(0.0, f64::max).max(1e-9) * 1.08;
    let margin = ((most - least) * 0.03).max(0.05);
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE).map_err(text)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(&panel.title, ("sans-serif", 17))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(72)
        .build_cartesian_2d(least - margin..most + margin, 0.0..top)
        .map_err(text)?;
    let label = |x: &f64| {
        let near = points().find(|point| (place(point.x) - x).abs() < 0.02);
        near.map(|point| point.label.clone()).unwrap_or_default()
    };
    let count = points().map(|point| point.label.as_str()).collect::<std::collections::BTreeSet<_>>().len();
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(if panel.log_x { (most - least).round() as usize + 1 } else { count.max(2) })
        .x_label_formatter(&label)
        .x_desc(&panel.x_name)
        .y_desc(&panel.y_name)
        .draw()
        .map_err(text)?;
    for (series, color) in panel.series.iter().zip(COLORS.into_iter().cycle()) {
        let at: Vec<(f64, f64)> = series.points.iter().map(|point| (place(point.x), point.value)).collect();
        for point in &series.points {
            if let Some((low, high)) = point.range {
                let x = place(point.x);
                let bar = PathElement::new(vec![(x, low), (x, high)], color.mix(0.5).stroke_width(4));
                chart.draw_series([bar]).map_err(text)?;
            }
        }
        let legend = move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], color.stroke_width(2));
        // Names on the axis have nothing between them.
        let drawn = if panel.log_x {
            chart.draw_series(LineSeries::new(at, color.stroke_width(2)).point_size(3))
        } else {
            chart.draw_series(at.into_iter().map(|place| Circle::new(place, 5, color.filled())))
        };
        drawn.map_err(text)?.label(&series.name).legend(legend);
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()
        .map_err(text)?;
    root.present().map_err(text)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::super::figure::Point;
    use super::*;

    #[test]
    fn a_picture_holds_its_curves_and_their_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.svg");
        let mut panel = Panel::new("a", "a panel", "clients", "a minute");
        panel.log_x = true;
        for x in [1.0, 2.0, 64.0] {
            let point = Point { x, label: format!("{x}"), value: x * 3.0, range: Some((x, x * 5.0)) };
            panel.add("ours", point.clone());
            panel.add("theirs", Point { range: None, ..point });
        }
        draw(&path, &panel).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        for part in ["a panel", "ours", "theirs", "clients", "a minute", ">\n64"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        draw(&path, &Panel::new("b", "nothing", "x", "y")).unwrap();
    }
}
