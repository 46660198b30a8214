//! A panel as an SVG picture.

use super::figure::{Figure, Panel};
use firndb_console::chart::{self, Axis, Chart, Corner, Mark, Series};
use firndb_console::{Failure, say};
use std::collections::BTreeSet;
use std::path::Path;

/// Makes the directory, if there is to be one.
pub fn prepare(pictures: Option<&Path>) -> Result<(), Failure> {
    let Some(dir) = pictures else { return Ok(()) };
    std::fs::create_dir_all(dir).map_err(|error| Failure::new(format!("{}: {error}", dir.display())))
}

/// Prints the figures, and draws their panels into the directory if there is one.
pub fn show(figures: &[Figure], pictures: Option<&Path>) -> Result<(), Failure> {
    for figure in figures {
        say!("{}", figure.text());
    }
    pictures.map_or(Ok(()), |dir| draw_all(figures, dir).map(drop))
}

/// Draws the panels into the directory; returns the keys of those drawn.
pub fn draw_all(figures: &[Figure], dir: &Path) -> Result<BTreeSet<String>, Failure> {
    let mut drawn = BTreeSet::new();
    for panel in figures.iter().flat_map(|figure| &figure.panels).filter(|panel| panel.drawn) {
        draw(&dir.join(format!("{}.svg", panel.key)), panel)?;
        drawn.insert(panel.key.clone());
    }
    Ok(drawn)
}

/// Draws the panel into a file.
fn draw(path: &Path, panel: &Panel) -> Result<(), Failure> {
    let points = || panel.series.iter().flat_map(|series| &series.points);
    let place = |x: f64| if panel.log_x { x.max(1e-9).log2() } else { x };
    let (least, most) = chart::ends(points().map(|point| place(point.x)));
    if least > most {
        return Ok(());
    }
    let top = points().flat_map(|point| point.y.values()).fold(0.0, f64::max).max(1e-9) * 1.08;
    let margin = ((most - least) * 0.03).max(0.05);
    let label = |x: &f64| {
        let near = points().find(|point| (place(point.x) - x).abs() < 0.02);
        near.map(|point| point.label.clone()).unwrap_or_default()
    };
    let names = || points().map(|point| point.label.as_str()).collect::<BTreeSet<_>>().len().max(2);
    let count = if panel.log_x { (most - least).round() as usize + 1 } else { names() };
    let series = panel.series.iter().enumerate().map(|(color, series)| Series {
        name: Some(&series.name),
        color,
        // Names on the axis have nothing between them.
        mark: if panel.log_x { Mark::LineAndPoints } else { Mark::Points },
        points: series.points.iter().map(|point| (place(point.x), point.y.value)).collect(),
        bars: series.points.iter().filter_map(|it| it.y.range.map(|range| (place(it.x), range))).collect(),
    });
    let chart = Chart {
        title: &panel.title,
        x: Axis::linear(&panel.x_name, least - margin..most + margin).labels(count, &label),
        y: Axis::linear(&panel.y_name, 0.0..top),
        legend: Corner::UpperLeft,
        series: series.collect(),
    };
    chart.draw(path)
}

#[cfg(test)]
mod tests {
    use super::super::figure::Point;
    use super::super::sampled::Sampled;
    use super::*;

    #[test]
    fn a_picture_holds_its_curves_and_their_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.svg");
        let mut panel = Panel::new("a", "a panel", "clients", "a minute");
        panel.log_x = true;
        for x in [1.0, 2.0, 64.0] {
            let label = format!("{x}");
            panel.add("ours", Point::new(x, &*label, &Sampled::new(vec![x, x * 3.0, x * 5.0], None, None)));
            panel.add("theirs", Point::new(x, &*label, &Sampled::once(x * 3.0)));
        }
        draw(&path, &panel).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        for part in ["a panel", "ours", "theirs", "clients", "a minute", ">\n64"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        draw(&path, &Panel::new("b", "nothing", "x", "y")).unwrap();
    }
}
