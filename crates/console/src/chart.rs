//! Charts as SVG pictures: a title, two axes, and series of points with their names in a legend.

use crate::failure::Failure;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use std::error::Error;
use std::ops::Range;
use std::path::Path;

pub use plotters::chart::SeriesLabelPosition as Corner;

/// Colours that colour-blind readers can distinguish (Okabe and Ito).
const COLORS: [u32; 11] = [
    0x0072b2, 0xd55e00, 0x009e73, 0xcc79a7, 0xe69f00, 0x56b4e9, 0x000000, 0x8c8c8c, 0x785ef0, 0x882255,
    0x117733,
];
const SIZE: (u32, u32) = (760, 440);

/// The text at a place of an axis.
type Labels<'a> = dyn Fn(&f64) -> String + 'a;

/// What an axis shows, and over which range.
pub struct Axis<'a> {
    name: &'a str,
    range: Range<f64>,
    log: bool,
    labels: Option<(usize, &'a Labels<'a>)>,
}

impl<'a> Axis<'a> {
    /// A linear axis.
    pub fn linear(name: &'a str, range: Range<f64>) -> Axis<'a> {
        Axis { name, range, log: false, labels: None }
    }

    /// A logarithmic axis over the values, a little widened.
    pub fn log(name: &'a str, values: impl Iterator<Item = f64>) -> Axis<'a> {
        let (least, most) = ends(values);
        let range = if least > most { 1.0..10.0 } else { least * 0.8..most * 1.25 };
        Axis { name, range, log: true, labels: None }
    }

    /// About `count` places are labelled, with these texts. A horizontal axis with such labels has
    /// no grid lines.
    pub fn labels(self, count: usize, text: &'a Labels<'a>) -> Axis<'a> {
        Axis { labels: Some((count, text)), ..self }
    }
}

/// The least and the most of the values; of none, a least that is more than the most.
pub fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(value), most.max(value)))
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
    pub legend: Corner,
    /// Later ones are drawn over earlier ones.
    pub series: Vec<Series<'a>>,
}

impl Chart<'_> {
    /// Draws the chart into a file.
    pub fn draw(&self, path: &Path) -> Result<(), Failure> {
        let (x, y) = (self.x.range.clone(), self.y.range.clone());
        let drawn = match (self.x.log, self.y.log) {
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
        let root = SVGBackend::new(path, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(self.title, ("sans-serif", 17))
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
            let [_, red, green, blue] = COLORS[series.color % COLORS.len()].to_be_bytes();
            let color = RGBColor(red, green, blue);
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
            };
            if let Some(name) = series.name {
                let sample = move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2));
                drawn.label(name).legend(sample);
            }
        }
        chart
            .configure_series_labels()
            .position(self.legend.clone())
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        Ok(root.present()?)
    }
}
