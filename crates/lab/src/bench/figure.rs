//! A figure: curves over one axis, beside what the paper prints and targets.

use firndb_console::table;
use firndb_workloads::results::Target;
use serde_json::{Value, json};

#[derive(Clone, Debug)]
pub struct Point {
    /// Where it is drawn.
    pub x: f64,
    /// What `x` is called in tables.
    pub label: String,
    /// With the profile as it stands.
    pub value: f64,
    /// Over the profile's bands, where they were swept.
    pub range: Option<(f64, f64)>,
}

#[derive(Clone, Debug)]
pub struct Series {
    pub name: String,
    pub points: Vec<Point>,
}

/// Curves that share both axes: one picture and one table.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Names the picture's file.
    pub key: String,
    pub title: String,
    pub x_name: String,
    pub y_name: String,
    pub log_x: bool,
    pub series: Vec<Series>,
    /// Digits after the point in the table.
    pub digits: usize,
}

/// A value that the paper prints, and ours.
#[derive(Clone, Debug)]
pub struct Beside {
    pub cell: String,
    /// As printed: a number, or a range.
    pub paper: String,
    pub ours: f64,
    pub range: Option<(f64, f64)>,
}

/// All that one figure of the paper became.
#[derive(Clone, Debug, Default)]
pub struct Figure {
    /// `Figure` or `Table`.
    pub kind: &'static str,
    /// As in the paper; or what it is about.
    pub number: String,
    pub title: String,
    pub panels: Vec<Panel>,
    pub beside: Vec<Beside>,
    pub targets: Vec<Target>,
    pub rows: Vec<Value>,
    /// Sentences that belong to the figure.
    pub notes: Vec<String>,
}

/// Rounds to five significant digits: results are compared as text.
pub fn round(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10f64.powi(4 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

impl Figure {
    pub fn new(number: &str, title: &str) -> Figure {
        Figure { kind: "Figure", number: number.into(), title: title.into(), ..Figure::default() }
    }

    pub fn table(number: &str, title: &str) -> Figure {
        Figure { kind: "Table", ..Figure::new(number, title) }
    }

    /// Adds a target: at least this value.
    pub fn at_least(&mut self, name: impl Into<String>, value: f64, target: f64) {
        let met = value >= target;
        let value = Some(round(value));
        self.targets.push(Target { name: name.into(), value, target, better: "higher", met, reason: None });
    }

    /// Adds a target: at most this value.
    pub fn at_most(&mut self, name: impl Into<String>, value: f64, target: f64) {
        let met = value <= target;
        let value = Some(round(value));
        self.targets.push(Target { name: name.into(), value, target, better: "lower", met, reason: None });
    }

    /// Adds a target that was not measured: of which direction, and why not.
    pub fn not_measured(&mut self, name: impl Into<String>, target: f64, better: &'static str, why: &str) {
        let (value, reason) = (None, Some(why.to_owned()));
        self.targets.push(Target { name: name.into(), value, target, better, met: false, reason });
    }

    /// Adds a comparison with a printed value.
    pub fn beside(&mut self, cell: impl Into<String>, paper: &str, ours: f64) {
        self.beside.push(Beside { cell: cell.into(), paper: paper.into(), ours, range: None });
    }

    /// The comparisons as `results.md` has them.
    pub fn paper(&self) -> impl Iterator<Item = Value> {
        self.beside.iter().map(|beside| {
            let range = beside.range.map(|(low, high)| [round(low), round(high)]);
            let paper =
                beside.paper.parse::<f64>().map_or_else(|_| json!(beside.paper), |value| json!(value));
            json!({
                "figure": self.number, "cell": beside.cell, "paper": paper, "ours": round(beside.ours),
                "range": range,
            })
        })
    }

    pub fn text(&self) -> String {
        let mut text = format!("{} {}: {}\n", self.kind, self.number, self.title);
        for panel in &self.panels {
            text += &format!("\n{}, {}\n{}\n", panel.title, panel.y_name, panel.table());
        }
        if !self.beside.is_empty() {
            let mut rows = table::new(&["printed in the paper", "paper", "ours"]);
            for beside in &self.beside {
                let range = beside.range.map(|(low, high)| format!(" ({low:.2} to {high:.2})"));
                let ours = format!("{:.3}{}", beside.ours, range.unwrap_or_default());
                rows.add_row(vec![beside.cell.clone(), beside.paper.clone(), ours]);
            }
            text += &format!("\n{}\n", table::text(rows, 1));
        }
        for target in &self.targets {
            text += &line(target);
        }
        for note in &self.notes {
            text += &format!("{note}\n");
        }
        text
    }
}

/// A target as a sentence.
pub fn line(target: &Target) -> String {
    let bound = if target.better == "lower" { "at most" } else { "at least" };
    match target.value {
        Some(value) => {
            let verdict = if target.met {
                "met".to_owned()
            } else {
                format!("missed by {:.1} %", 100.0 * (value / target.target - 1.0).abs())
            };
            format!("{}: {value}, {bound} {} wanted: {verdict}\n", target.name, target.target)
        }
        None => {
            let reason = target.reason.as_deref().unwrap_or("no reason given");
            format!("{}: {bound} {} wanted: not measured ({reason})\n", target.name, target.target)
        }
    }
}

impl Panel {
    pub fn new(key: &str, title: &str, x_name: &str, y_name: &str) -> Panel {
        Panel {
            key: key.into(),
            title: title.into(),
            x_name: x_name.into(),
            y_name: y_name.into(),
            log_x: false,
            series: Vec::new(),
            digits: 0,
        }
    }

    /// Adds a point to the series of this name, which is made if it is not there.
    pub fn add(&mut self, series: &str, point: Point) {
        match self.series.iter_mut().find(|found| found.name == series) {
            Some(found) => found.points.push(point),
            None => self.series.push(Series { name: series.to_owned(), points: vec![point] }),
        }
    }

    fn table(&self) -> String {
        let mut labels: Vec<(f64, &str)> = Vec::new();
        for point in self.series.iter().flat_map(|series| &series.points) {
            if !labels.iter().any(|(_, label)| *label == point.label) {
                labels.push((point.x, &point.label));
            }
        }
        labels.sort_by(|a, b| a.0.total_cmp(&b.0));
        let headers: Vec<&str> =
            std::iter::once(&*self.x_name).chain(self.series.iter().map(|series| &*series.name)).collect();
        let mut rows = table::new(&headers);
        let digits = self.digits;
        for (_, label) in labels {
            let cells = self.series.iter().map(|series| {
                let point = series.points.iter().find(|point| point.label == label)?;
                let range = point.range.map(|(low, high)| format!(" ({low:.digits$}..{high:.digits$})"));
                Some(format!("{:.digits$}{}", point.value, range.unwrap_or_default()))
            });
            let cells = cells.map(|cell| cell.unwrap_or_default());
            rows.add_row(std::iter::once(label.to_owned()).chain(cells));
        }
        table::text(rows, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_rounded_to_five_digits() {
        assert_eq!(round(123_456.7), 123_460.0);
        assert_eq!(round(0.012_345_678), 0.012_346);
        assert_eq!(round(0.0), 0.0);
    }

    #[test]
    fn a_missed_target_says_by_how_much() {
        let mut figure = Figure::new("1", "a figure");
        figure.at_least("more", 0.98, 0.99);
        figure.at_most("less", 1.0, 1.5);
        assert!(!figure.targets[0].met && figure.targets[1].met);
        let text = figure.text();
        assert!(text.contains("more: 0.98, at least 0.99 wanted: missed by 1.0 %"), "{text}");
        assert!(text.contains("less: 1, at most 1.5 wanted: met"), "{text}");
    }

    #[test]
    fn a_table_has_a_line_for_each_place_on_the_axis_in_order() {
        let mut panel = Panel::new("k", "t", "clients", "a minute");
        let point = |x: f64, value| Point { x, label: format!("{x}"), value, range: None };
        panel.add("a", point(8.0, 80.0));
        panel.add("a", point(1.0, 10.0));
        panel.add("b", Point { range: Some((1.0, 3.0)), ..point(1.0, 2.0) });
        let lines: Vec<String> = panel.table().lines().map(|l| l.trim().to_owned()).collect();
        assert!(lines[2].starts_with('1') && lines[2].contains("2 (1..3)"), "{lines:?}");
        assert!(lines[3].starts_with('8'), "{lines:?}");
    }
}
