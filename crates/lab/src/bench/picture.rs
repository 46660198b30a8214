//! A panel as an SVG picture.

use super::figure::{Figure, Panel, Shape};
use super::sampled::grouped;
use firndb_console::chart::{self, Axis, Bars, Chart, Legend, Mark, Series};
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
    match panel.shape {
        Shape::Bars => bars(path, panel),
        Shape::Lines => curves(path, panel, Mark::LineAndPoints),
        Shape::Dots => curves(path, panel, Mark::Dots),
    }
}

/// A value with as many digits as matter, its thousands apart.
fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if size >= 100.0 => grouped(value, 0),
        size if size >= 1.0 => trimmed(grouped(value, 1)),
        _ => trimmed(grouped(value, 3)),
    }
}

/// Without zeros at the end of its digits after the point.
fn trimmed(text: String) -> String {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Series of bars beside the names on the axis.
fn bars(path: &Path, panel: &Panel) -> Result<(), Failure> {
    let labels = panel.labels();
    let series = panel.series.iter().map(|series| {
        let bar = |(_, label): &(f64, &str)| {
            let point = series.points.iter().find(|point| point.label == *label)?;
            point.y.value.is_finite().then_some((point.y.value, point.y.range.or(point.y.band)))
        };
        (&*series.name, labels.iter().map(bar).collect())
    });
    let chart = Bars {
        title: &panel.title,
        value_name: &panel.y_name,
        log: panel.log_y,
        names: labels.iter().map(|(_, label)| *label).collect(),
        series: series.collect(),
        text: &short,
    };
    chart.draw(path)
}

/// Values up to this multiple of the least have an axis with a label at each doubling; powers of
/// ten would be too few.
const DOUBLINGS_UP_TO: f64 = 300.0;

/// Where values stand on the vertical axis.
#[derive(Clone, Copy)]
enum Scale {
    Linear,
    /// Labelled at powers of ten.
    Decades,
    /// Labelled at this value times powers of two.
    Doublings(f64),
}

impl Scale {
    /// From the power of ten below the least value on.
    fn doublings(least: f64) -> Scale {
        Scale::Doublings(10f64.powf(least.log10().floor()))
    }

    fn height(self, value: f64) -> f64 {
        match self {
            Scale::Linear | Scale::Decades => value,
            Scale::Doublings(unit) => (value / unit).max(1e-9).log2(),
        }
    }

    fn text(self, height: f64) -> String {
        match self {
            Scale::Linear | Scale::Decades => short(height),
            Scale::Doublings(_) if (height - height.round()).abs() > 1e-6 => String::new(),
            Scale::Doublings(unit) => short(unit * height.exp2()),
        }
    }
}

/// Series of points over the axis, with whiskers over seeds.
fn curves(path: &Path, panel: &Panel, mark: Mark) -> Result<(), Failure> {
    let points = || panel.series.iter().flat_map(|series| &series.points);
    let place = |x: f64| if panel.log_x { x.max(1e-9).log2() } else { x };
    let (least, most) = chart::ends(points().map(|point| place(point.x)));
    if least > most {
        return Ok(());
    }
    let margin = ((most - least) * 0.03).max(0.05);
    let range = least - margin..most + margin;
    // Powers of two are labelled with the points there.
    let label = |x: &f64| {
        if !panel.log_x {
            return short(*x);
        }
        let near = points().find(|point| (place(point.x) - x).abs() < 0.02);
        near.map(|point| point.label.clone()).unwrap_or_default()
    };
    let count = if panel.log_x { (most - least).round() as usize + 1 } else { 11 };
    let values = || points().flat_map(|point| point.y.values()).filter(|value| value.is_finite());
    let (low, high) = chart::ends(values().filter(|value| *value > 0.0 || !panel.log_y));
    let scale = match panel.log_y {
        true if low <= high && high / low < DOUBLINGS_UP_TO => Scale::doublings(low),
        true => Scale::Decades,
        false => Scale::Linear,
    };
    let value = |y: &f64| scale.text(*y);
    let height = |y: f64| scale.height(y);
    let y = match scale {
        Scale::Linear => Axis::linear(&panel.y_name, 0.0..high.max(1e-9) * 1.08).labels(8, &value),
        Scale::Decades => Axis::log(&panel.y_name, values().filter(|value| *value > 0.0)).labels(8, &value),
        Scale::Doublings(_) => {
            let range = height(low) - 0.2..height(high) + 0.2;
            let count = (range.end - range.start) as usize + 1;
            Axis::linear(&panel.y_name, range).labels(count, &value)
        }
    };
    let series = panel.series.iter().enumerate().map(|(color, series)| Series {
        name: Some(&series.name),
        color,
        mark,
        points: series.points.iter().map(|point| (place(point.x), height(point.y.value))).collect(),
        bars: series
            .points
            .iter()
            .filter_map(|it| it.y.range.map(|(low, high)| (place(it.x), (height(low), height(high)))))
            .collect(),
    });
    let chart = Chart {
        title: &panel.title,
        x: Axis::linear(&panel.x_name, range).labels(count, &label),
        y,
        legend: Legend::Right,
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

    #[test]
    fn bars_stand_beside_their_names_with_their_values() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.svg");
        let mut panel = Panel::of_bars("a", "a panel", "log", "times the disk");
        panel.log_y = true;
        for (at, name) in ["ideal", "two drives"].into_iter().enumerate() {
            let value = Sampled::once(1234.0 * (at + 1) as f64);
            panel.add("slow", Point::new(at as f64, name, &value));
        }
        panel.add("fast", Point::new(1.0, "two drives", &Sampled::new(vec![4.0, 5.0, 6.0], None, None)));
        draw(&path, &panel).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        for part in ["a panel", "ideal", "two drives", "times the disk", "1,234", "2,468", "slow", "fast"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        assert!(svg.matches("<rect").count() >= 4, "the ground and three bars: {svg}");
        draw(&path, &Panel::of_bars("b", "nothing", "x", "y")).unwrap();
    }

    #[test]
    fn a_logarithmic_axis_of_few_decades_is_labelled_at_doublings() {
        let scale = Scale::doublings(0.27);
        assert_eq!([0.0, 1.0, 4.0, 0.5].map(|height| scale.text(height)), ["0.1", "0.2", "1.6", ""]);
        assert!((scale.height(1.6) - 4.0).abs() < 1e-9);
        assert_eq!(Scale::doublings(3200.0).text(5.0), "32,000");
    }

    #[test]
    fn values_have_the_digits_that_matter() {
        let all = [0.0, 0.0125, 1.5, 2.0, 99.96, 12_345.6].map(short);
        assert_eq!(all, ["0", "0.013", "1.5", "2", "100", "12,346"]);
    }
}
