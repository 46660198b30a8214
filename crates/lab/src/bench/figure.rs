//! A figure: curves over one axis, beside what the paper prints and targets.

use super::sampled::{Range, Sampled, Summary};
use firndb_console::table;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    /// Where it is drawn.
    pub x: f64,
    /// What `x` is called in tables.
    pub label: String,
    #[serde(flatten)]
    pub y: Summary,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    pub name: String,
    pub points: Vec<Point>,
}

/// How a panel is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// A line joins the points of a series.
    Lines,
    /// A bar for each point: places on the axis are names, and have nothing between them.
    Bars,
    /// A dot for each point.
    Dots,
}

/// Curves that share both axes: one picture and one table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Panel {
    /// Names the picture's file.
    pub key: String,
    pub title: String,
    pub x_name: String,
    pub y_name: String,
    pub shape: Shape,
    pub log_x: bool,
    pub log_y: bool,
    /// Whether there is a table of it.
    pub tabled: bool,
    /// Whether there is a picture of it.
    pub drawn: bool,
    pub series: Vec<Series>,
    /// Digits after the point in the table.
    pub digits: usize,
}

/// A value that the paper prints, and ours.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Beside {
    pub figure: String,
    pub cell: String,
    /// As printed: a number, or a text.
    pub paper: Value,
    pub ours: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<Range>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub band: Option<Range>,
}

/// A value that is required, judged by its median.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Target {
    /// Its name, which never changes without a line in the change log.
    pub name: String,
    /// The median; `None` if it could not be measured.
    pub value: Option<f64>,
    /// Over seeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<Range>,
    /// Over the bands of estimated parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub band: Option<Range>,
    pub target: f64,
    pub better: Better,
    pub met: bool,
    /// Why there is no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// On which side of its limit a target is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    Lower,
    Higher,
}

/// All that one figure of the paper became.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Figure {
    /// `Figure` or `Table`.
    pub kind: String,
    /// As in the paper; or what it is about.
    pub number: String,
    pub title: String,
    /// What it shows are inputs: the profiles hold the paper's values of the same quantity.
    pub is_input: bool,
    pub panels: Vec<Panel>,
    pub beside: Vec<Beside>,
    pub targets: Vec<Target>,
    /// Sentences that belong to the figure.
    pub notes: Vec<String>,
    /// Raw measurements in real time; those in virtual time are rows of the result file.
    #[serde(skip)]
    pub rows: Vec<Value>,
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
        Figure { kind: "Figure".into(), number: number.into(), title: title.into(), ..Figure::default() }
    }

    pub fn table(number: &str, title: &str) -> Figure {
        Figure { kind: "Table".into(), ..Figure::new(number, title) }
    }

    /// The same, marked as showing inputs.
    pub fn of_inputs(self) -> Figure {
        Figure { is_input: true, ..self }
    }

    fn target(&mut self, name: String, value: &Sampled, target: f64, better: Better) {
        let Summary { value, range, band } = value.summary().map(round);
        let met = match better {
            Better::Higher => value >= target,
            Better::Lower => value <= target,
        };
        let value = value.is_finite().then_some(value);
        let reason = value.is_none().then(|| "it came to no number".to_owned());
        self.targets.push(Target { name, value, range, band, target, better, met, reason });
    }

    /// Adds a target: at least this value.
    pub fn at_least(&mut self, name: impl Into<String>, value: &Sampled, target: f64) {
        self.target(name.into(), value, target, Better::Higher);
    }

    /// Adds a target: at most this value.
    pub fn at_most(&mut self, name: impl Into<String>, value: &Sampled, target: f64) {
        self.target(name.into(), value, target, Better::Lower);
    }

    /// Adds a target that was not measured: of which direction, and why not.
    pub fn not_measured(&mut self, name: impl Into<String>, target: f64, better: Better, why: &str) {
        let (name, reason) = (name.into(), Some(why.to_owned()));
        let (value, range, band) = (None, None, None);
        self.targets.push(Target { name, value, range, band, target, better, met: false, reason });
    }

    /// Adds a comparison with a printed value.
    pub fn beside(&mut self, cell: impl Into<String>, paper: &str, ours: &Sampled) {
        let Summary { value, range, band } = ours.summary().map(round);
        let paper = paper.parse::<f64>().map_or_else(|_| Value::from(paper), Value::from);
        let (figure, cell) = (self.number.clone(), cell.into());
        let ours = value.is_finite().then_some(value);
        self.beside.push(Beside { figure, cell, paper, ours, range, band });
    }

    /// `Figure 11`, `Table 3`.
    pub fn name(&self) -> String {
        format!("{} {}", self.kind, self.number)
    }

    pub fn text(&self) -> String {
        let input = if self.is_input { " (input: the profiles hold these values)" } else { "" };
        let mut text = format!("{}: {}{input}\n", self.name(), self.title);
        for panel in self.panels.iter().filter(|panel| panel.tabled) {
            let (headers, rows) = panel.rows();
            let headers: Vec<&str> = headers.iter().map(|header| &**header).collect();
            let mut table = table::new(&headers);
            table.add_rows(rows);
            text += &format!("\n{}, {}\n{}\n", panel.title, panel.y_name, table::text(table, 1));
        }
        if !self.beside.is_empty() {
            let mut rows = table::new(&["printed in the paper", "paper", "ours"]);
            for beside in &self.beside {
                rows.add_row(beside.cells());
            }
            text += &format!("\n{}\n", table::text(rows, 1));
        }
        for target in &self.targets {
            text += &format!("{}\n", target.sentence());
        }
        for note in &self.notes {
            text += &format!("{note}\n");
        }
        text
    }
}

impl Beside {
    /// What is compared, the paper's value and ours, as in a table.
    pub fn cells(&self) -> [String; 3] {
        let paper = self.paper.as_str().map_or_else(|| self.paper.to_string(), str::to_owned);
        let ours = Summary { value: self.ours.unwrap_or(f64::NAN), range: self.range, band: self.band };
        let digits = if ours.value.abs() >= 100.0 { 1 } else { 3 };
        [self.cell.clone(), paper, ours.text(digits)]
    }
}

impl Target {
    /// Whether the limit lies within the values of the seeds: one of them would be judged
    /// otherwise.
    fn crosses(&self, range: Option<Range>) -> bool {
        range.is_some_and(|(low, high)| match self.better {
            Better::Higher => low < self.target && high >= self.target,
            Better::Lower => low <= self.target && high > self.target,
        })
    }

    /// The limit with its direction.
    pub fn limit(&self) -> String {
        let bound = if self.better == Better::Lower { "at most" } else { "at least" };
        format!("{bound} {}", self.target)
    }

    /// The median with its ranges.
    pub fn values(&self) -> String {
        let Some(value) = self.value else { return "–".into() };
        let ends = |(low, high): Range| format!("{low}..{high}");
        let range = self.range.map(|range| format!(" ({})", ends(range))).unwrap_or_default();
        let band = self.band.map(|band| format!(" [{}]", ends(band))).unwrap_or_default();
        format!("{value}{range}{band}")
    }

    /// Met, or missed by how much; or why it was not measured.
    pub fn verdict(&self) -> String {
        let Some(value) = self.value else {
            return format!("not measured ({})", self.reason.as_deref().unwrap_or("no reason given"));
        };
        let (verdict, some_seeds, some_band) = if self.met {
            ("met".to_owned(), "not in every seed", "not over the whole band")
        } else {
            let by = 100.0 * (value / self.target - 1.0).abs();
            (format!("missed by {by:.1} %"), "met in some seeds", "met in a part of the band")
        };
        let seeds = if self.crosses(self.range) { format!("; {some_seeds}") } else { String::new() };
        let band = if self.crosses(self.band) { format!("; {some_band}") } else { String::new() };
        verdict + &seeds + &band
    }

    /// A target as a sentence.
    pub fn sentence(&self) -> String {
        match self.value {
            Some(_) => {
                format!("{}: {}, {} wanted: {}", self.name, self.values(), self.limit(), self.verdict())
            }
            None => format!("{}: {} wanted: {}", self.name, self.limit(), self.verdict()),
        }
    }
}

impl Point {
    pub fn new(x: f64, label: impl Into<String>, y: &Sampled) -> Point {
        Point { x, label: label.into(), y: y.summary().map(round) }
    }
}

impl Panel {
    pub fn new(key: &str, title: &str, x_name: &str, y_name: &str) -> Panel {
        Panel {
            key: key.into(),
            title: title.into(),
            x_name: x_name.into(),
            y_name: y_name.into(),
            shape: Shape::Lines,
            log_x: false,
            log_y: false,
            tabled: true,
            drawn: true,
            series: Vec::new(),
            digits: 0,
        }
    }

    /// A panel whose places on the axis are names.
    pub fn of_bars(key: &str, title: &str, x_name: &str, y_name: &str) -> Panel {
        Panel { shape: Shape::Bars, ..Panel::new(key, title, x_name, y_name) }
    }

    /// Adds a point to the series of this name, which is made if it is not there.
    pub fn add(&mut self, series: &str, point: Point) {
        match self.series.iter_mut().find(|found| found.name == series) {
            Some(found) => found.points.push(point),
            None => self.series.push(Series { name: series.to_owned(), points: vec![point] }),
        }
    }

    /// The places on the axis, in order.
    pub fn labels(&self) -> Vec<(f64, &str)> {
        let mut labels: Vec<(f64, &str)> = Vec::new();
        for point in self.series.iter().flat_map(|series| &series.points) {
            if !labels.iter().any(|(_, label)| *label == point.label) {
                labels.push((point.x, &point.label));
            }
        }
        labels.sort_by(|a, b| a.0.total_cmp(&b.0));
        labels
    }

    /// Its table: the headers, and a row for each place on the axis.
    pub fn rows(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let headers = std::iter::once(&self.x_name).chain(self.series.iter().map(|series| &series.name));
        let row = |(_, label): (f64, &str)| {
            let cells = self.series.iter().map(|series| {
                let point = series.points.iter().find(|point| point.label == label);
                point.map(|point| point.y.text(self.digits)).unwrap_or_default()
            });
            std::iter::once(label.to_owned()).chain(cells).collect()
        };
        (headers.cloned().collect(), self.labels().into_iter().map(row).collect())
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
        figure.at_least("more", &Sampled::once(0.98), 0.99);
        figure.at_most("less", &Sampled::once(1.0), 1.5);
        figure.at_least("nothing", &Sampled::default(), 1.0);
        assert!(!figure.targets[0].met && figure.targets[1].met);
        let text = figure.text();
        assert!(text.contains("more: 0.98, at least 0.99 wanted: missed by 1.0 %\n"), "{text}");
        assert!(text.contains("less: 1, at most 1.5 wanted: met\n"), "{text}");
        assert!(text.contains("nothing: at least 1 wanted: not measured (it came to no number)\n"), "{text}");
    }

    #[test]
    fn a_target_is_judged_by_its_median_and_tells_of_seeds_beyond_the_limit() {
        let mut figure = Figure::new("1", "a figure");
        figure.at_least("met", &Sampled::new(vec![0.9, 1.1, 1.2], Some(1.3), Some(1.2)), 1.0);
        figure.at_most("missed", &Sampled::new(vec![0.9, 1.1, 1.2], Some(0.8), None), 1.0);
        let text = figure.text();
        let said = "met: 1.1 (0.9..1.2) [1.1..1.3], at least 1 wanted: met; not in every seed\n";
        assert!(text.contains(said), "{text}");
        let said = "missed by 10.0 %; met in some seeds; met in a part of the band\n";
        assert!(text.contains(said), "{text}");
    }

    #[test]
    fn a_table_has_a_line_for_each_place_on_the_axis_in_order() {
        let mut panel = Panel::new("k", "t", "clients", "a minute");
        panel.add("a", Point::new(8.0, "8", &Sampled::once(80.0)));
        panel.add("a", Point::new(1.0, "1", &Sampled::once(10.0)));
        panel.add("b", Point::new(1.0, "1", &Sampled::new(vec![2.0, 1.0, 3.0], None, None)));
        let (headers, rows) = panel.rows();
        assert_eq!(headers, ["clients", "a", "b"]);
        assert_eq!(rows, [["1", "10", "2 (1..3)"], ["8", "80", ""]]);
    }

    #[test]
    fn a_figure_is_read_back_as_it_was_written() {
        let mut figure = Figure::new("1", "a figure").of_inputs();
        figure.at_least("more", &Sampled::new(vec![0.9, 1.1], None, Some(0.5)), 0.99);
        figure.beside("a cell", "1.2 to 1.4", &Sampled::once(1.3));
        figure.beside("another", "1.5", &Sampled::once(f64::NAN));
        let mut panel = Panel::of_bars("k", "t", "log", "a minute");
        panel.add("a", Point::new(0.0, "one", &Sampled::new(vec![1.0, 2.0, 4.0], Some(3.0), None)));
        figure.panels.push(panel);
        let json = serde_json::to_string(&figure).unwrap();
        let again: Figure = serde_json::from_str(&json).unwrap();
        assert_eq!(again.text(), figure.text());
        assert_eq!(serde_json::to_string(&again).unwrap(), json);
    }
}
