//! Charts as SVG pictures: a title, two axes, and series of points with their names in a legend;
//! or bars beside names.

use crate::failure::Failure;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, DefaultFormatting, KeyPointHint, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::error::Error;
use std::ops::Range;
use std::path::Path;

pub use plotters::chart::SeriesLabelPosition as Corner;

/// Colours of the palette.
pub const COLOR_COUNT: usize = 11;
/// Colours that colour-blind readers can distinguish (Okabe and Ito).
const COLORS: [u32; COLOR_COUNT] = [
    0x0072b2, 0xd55e00, 0x009e73, 0xcc79a7, 0xe69f00, 0x56b4e9, 0x000000, 0x8c8c8c, 0x785ef0, 0x882255,
    0x117733,
];
const SIZE: (u32, u32) = (760, 440);
/// Height of a line of the legend, and width of a letter, of the size that it has there.
const LINE: i32 = 19;
const LETTER: f64 = 6.6;

/// The text at a place of an axis.
type Labels<'a> = dyn Fn(&f64) -> String + 'a;

/// What an axis shows, and over which range.
pub struct Axis<'a> {
    name: &'a str,
    range: Range<f64>,
    log: bool,
    labels: Option<(usize, &'a Labels<'a>)>,
    /// The places that are labelled, if not whole steps of the range.
    places: Vec<f64>,
}

impl<'a> Axis<'a> {
    /// A linear axis.
    pub fn linear(name: &'a str, range: Range<f64>) -> Axis<'a> {
        Axis { name, range, log: false, labels: None, places: Vec::new() }
    }

    /// A logarithmic axis over the values, a little widened.
    pub fn log(name: &'a str, values: impl Iterator<Item = f64>) -> Axis<'a> {
        let (least, most) = ends(values);
        let range = if least > most { 1.0..10.0 } else { least * 0.8..most * 1.25 };
        Axis { name, range, log: true, labels: None, places: Vec::new() }
    }

    /// About `count` places are labelled, with these texts. A horizontal axis with such labels has
    /// no grid lines.
    pub fn labels(self, count: usize, text: &'a Labels<'a>) -> Axis<'a> {
        Axis { labels: Some((count, text)), ..self }
    }

    /// These places are labelled, in ascending order, with these texts. For a linear horizontal
    /// axis.
    pub fn labels_at(self, places: Vec<f64>, text: &'a Labels<'a>) -> Axis<'a> {
        assert!(!self.log, "places are chosen on linear axes");
        Axis { labels: Some((places.len(), text)), places, ..self }
    }
}

/// A linear axis with labels at chosen places.
struct Chosen {
    range: RangedCoordf64,
    places: Vec<f64>,
}

impl Chosen {
    fn new(range: Range<f64>, places: Vec<f64>) -> Chosen {
        Chosen { range: range.into(), places }
    }
}

impl Ranged for Chosen {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;
    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.range.map(value, limit)
    }
    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.places.clone()
    }
    fn range(&self) -> Range<f64> {
        self.range.range()
    }
}

/// The least and the most of the values; of none, a least that is more than the most.
pub fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(value), most.max(value)))
}

/// Where the names of series stand.
pub enum Legend {
    /// In a corner of the chart, where nothing is drawn.
    Inside(Corner),
    /// To the right of the chart.
    Right,
}

/// How the points of a series are drawn.
#[derive(Clone, Copy)]
pub enum Mark {
    /// A line through all of them.
    Line,
    /// A line with a small dot at each.
    LineAndPoints,
    /// A dot at each.
    Points,
    /// A small dot at each of many.
    Dots,
}

/// Points of one colour.
pub struct Series<'a> {
    /// A series without a name is not in the legend.
    pub name: Option<&'a str>,
    /// A number of the palette, which begins anew after its last colour.
    pub color: usize,
    /// How they are drawn.
    pub mark: Mark,
    /// x and y, in the order in which a line joins them.
    pub points: Vec<(f64, f64)>,
    /// Ranges around points: x, and the least and most y.
    pub bars: Vec<(f64, (f64, f64))>,
}

/// A picture.
pub struct Chart<'a> {
    /// Stands above the chart.
    pub title: &'a str,
    /// The horizontal axis.
    pub x: Axis<'a>,
    /// The vertical axis.
    pub y: Axis<'a>,
    /// Where the legend stands.
    pub legend: Legend,
    /// Later ones are drawn over earlier ones.
    pub series: Vec<Series<'a>>,
}

impl Chart<'_> {
    /// Draws the chart into a file.
    pub fn draw(&self, path: &Path) -> Result<(), Failure> {
        let (x, y) = (self.x.range.clone(), self.y.range.clone());
        let places = self.x.places.clone();
        let drawn = match (self.x.log, self.y.log) {
            (false, false) if !places.is_empty() => self.draw_over(path, Chosen::new(x, places), y),
            (false, true) if !places.is_empty() => {
                self.draw_over(path, Chosen::new(x, places), y.log_scale())
            }
            (false, false) => self.draw_over(path, x, y),
            (false, true) => self.draw_over(path, x, y.log_scale()),
            (true, false) => self.draw_over(path, x.log_scale(), y),
            (true, true) => self.draw_over(path, x.log_scale(), y.log_scale()),
        };
        drawn.map_err(|error| Failure::new(format!("{}: {error}", path.display())))
    }

    fn draw_over<X, Y>(&self, path: &Path, x: X, y: Y) -> Result<(), Box<dyn Error>>
    where
        X: AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64>>,
        Y: AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64>>,
    {
        let names: Vec<(&str, RGBColor)> =
            self.series.iter().filter_map(|series| Some((series.name?, color(series.color)))).collect();
        let beside = if matches!(self.legend, Legend::Right) { legend_width(&names) } else { 0 };
        let root = SVGBackend::new(path, (SIZE.0 + beside, SIZE.1)).into_drawing_area();
        root.fill(&WHITE)?;
        let below = root.titled(self.title, ("sans-serif", title_size(self.title, SIZE.0 + beside)))?;
        let (left, right) = below.split_horizontally(SIZE.0);
        let mut chart = ChartBuilder::on(&left)
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(72)
            .build_cartesian_2d(x, y)?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(self.x.name).y_desc(self.y.name);
        if let Some((count, text)) = self.x.labels {
            mesh.disable_x_mesh().x_labels(count).x_label_formatter(text);
        }
        if let Some((count, text)) = self.y.labels {
            mesh.y_labels(count).y_label_formatter(text);
        }
        mesh.draw()?;
        for series in &self.series {
            let color = color(series.color);
            for &(x, (low, high)) in &series.bars {
                let bar = PathElement::new([(x, low), (x, high)], color.mix(0.5).stroke_width(4));
                chart.draw_series([bar])?;
            }
            let points = series.points.iter().copied();
            let line = LineSeries::new(points.clone(), color.stroke_width(2));
            let drawn = match series.mark {
                Mark::Line => chart.draw_series(line)?,
                Mark::LineAndPoints => chart.draw_series(line.point_size(3))?,
                Mark::Points => chart.draw_series(points.map(|at| Circle::new(at, 5, color.filled())))?,
                Mark::Dots => chart.draw_series(points.map(|at| Circle::new(at, 2, color.filled())))?,
            };
            if let Some(name) = series.name {
                let sample = move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2));
                drawn.label(name).legend(sample);
            }
        }
        match &self.legend {
            Legend::Inside(corner) => chart
                .configure_series_labels()
                .position(corner.clone())
                .background_style(WHITE.mix(0.8))
                .border_style(BLACK.mix(0.3))
                .draw()?,
            Legend::Right => draw_legend(&right, &names)?,
        }
        Ok(root.present()?)
    }
}

fn color(number: usize) -> RGBColor {
    let [_, red, green, blue] = COLORS[number % COLORS.len()].to_be_bytes();
    RGBColor(red, green, blue)
}

/// Pixels that a text takes in the legend and beside bars, about.
fn text_width(text: &str) -> u32 {
    (text.chars().count() as f64 * LETTER) as u32
}

/// The size of letters in which the whole title stands above a picture of this width.
fn title_size(title: &str, width: u32) -> f64 {
    (f64::from(width) / (0.56 * title.chars().count().max(1) as f64)).min(17.0)
}

fn legend_width(names: &[(&str, RGBColor)]) -> u32 {
    names.iter().map(|(name, _)| text_width(name) + 44).max().unwrap_or(0)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws the names, one below the other, each after a sample of its colour.
fn draw_legend(area: &Area, names: &[(&str, RGBColor)]) -> Result<(), Box<dyn Error>> {
    for (at, (name, color)) in names.iter().enumerate() {
        let y = 24 + LINE * at as i32;
        area.draw(&PathElement::new([(6, y), (26, y)], color.stroke_width(4)))?;
        area.draw(&Text::new((*name).to_owned(), (32, y - 6), ("sans-serif", 13)))?;
    }
    Ok(())
}

/// A value of one bar, and its least and most where it has several.
pub type Bar = (f64, Option<(f64, f64)>);

/// A picture of bars beside names.
pub struct Bars<'a> {
    /// Stands above the bars.
    pub title: &'a str,
    /// What the length of a bar means.
    pub value_name: &'a str,
    /// Whether lengths are those of logarithms, if the bars span a decade.
    pub log: bool,
    /// What the groups of bars are of, from the top.
    pub names: Vec<&'a str>,
    /// A name, and a bar for each of the groups, or none.
    pub series: Vec<(&'a str, Vec<Option<Bar>>)>,
    /// A value as the axis and the bars show it.
    pub text: &'a dyn Fn(f64) -> String,
}

impl Bars<'_> {
    /// Draws the bars into a file.
    pub fn draw(&self, path: &Path) -> Result<(), Failure> {
        let all = || self.series.iter().flat_map(|(_, bars)| bars.iter().flatten());
        let values = all().flat_map(|(value, range)| {
            let (low, high) = range.unwrap_or((*value, *value));
            [*value, low, high]
        });
        // Nothing has no logarithm: it has no bar.
        let shown = |value: &f64| value.is_finite() && (*value > 0.0 || !self.log);
        let (least, most) = ends(values.filter(shown));
        // To the right of the longest bar there is its value.
        // Within a decade a logarithmic axis has no label.
        let drawn = match self.log && most >= 10.0 * least {
            _ if least > most => return Ok(()),
            true => {
                let from = least.max(1e-9) / 1.6;
                self.draw_over(path, from, (from..most * (most / from).powf(0.16)).log_scale())
            }
            false => self.draw_over(path, 0.0, 0.0..most.max(1e-9) * 1.16),
        };
        drawn.map_err(|error| Failure::new(format!("{}: {error}", path.display())))
    }

    fn draw_over<X>(&self, path: &Path, from: f64, x: X) -> Result<(), Box<dyn Error>>
    where
        X: AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64>>,
    {
        let legend: Vec<(&str, RGBColor)> = match &self.series[..] {
            [_] => Vec::new(),
            several => several.iter().enumerate().map(|(at, (name, _))| (*name, color(at))).collect(),
        };
        let group = 14 * self.series.len() as u32 + 10;
        let left = self.names.iter().map(|name| text_width(name)).max().unwrap_or(0) + 16;
        let width = left + 560;
        let size = (width + legend_width(&legend), 96 + group * self.names.len() as u32);
        let root = SVGBackend::new(path, size).into_drawing_area();
        root.fill(&WHITE)?;
        let below = root.titled(self.title, ("sans-serif", title_size(self.title, size.0)))?;
        let (bars, right) = below.split_horizontally(width);
        let mut chart = ChartBuilder::on(&bars)
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(left)
            .build_cartesian_2d(x, 0.0..self.names.len() as f64)?;
        let text = |value: &f64| (self.text)(*value);
        chart
            .configure_mesh()
            .x_desc(self.value_name)
            .x_labels(8)
            .x_label_formatter(&text)
            .disable_y_mesh()
            .y_labels(0)
            .draw()?;
        let high = 14.0 / f64::from(group);
        for (at, name) in self.names.iter().enumerate() {
            let top = (self.names.len() - at) as f64 - 5.0 / f64::from(group);
            for (number, (_, values)) in self.series.iter().enumerate() {
                let Some((value, range)) = values.get(at).copied().flatten() else { continue };
                let (above, below) = (top - high * number as f64, top - high * (number as f64 + 0.86));
                let long = value.max(from);
                let bar = Rectangle::new([(from, above), (long, below)], color(number).filled());
                chart.draw_series([bar])?;
                let middle = f64::midpoint(above, below);
                let end = range.map_or(long, |(_, high)| high.max(long));
                if let Some((low, high)) = range {
                    chart.draw_series([PathElement::new(
                        [(low, middle), (high, middle)],
                        BLACK.stroke_width(2),
                    )])?;
                }
                let label = Text::new((self.text)(value), (5, -6), ("sans-serif", 12));
                chart.draw_series([EmptyElement::at((end, middle)) + label])?;
            }
            let (x, y) = chart.backend_coord(&(from, (self.names.len() - at) as f64 - 0.5));
            let style = ("sans-serif", 13).into_text_style(&root).pos(Pos::new(HPos::Right, VPos::Center));
            root.draw(&Text::new((*name).to_owned(), (x - 8, y), style))?;
        }
        draw_legend(&right, &legend)?;
        Ok(root.present()?)
    }
}
