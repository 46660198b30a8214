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
    let panels = || figures.iter().flat_map(|figure| &figure.panels).filter(|panel| panel.drawn);
    let palette = Palette::of(panels());
    let mut drawn = BTreeSet::new();
    for panel in panels() {
        draw(&dir.join(format!("{}.svg", panel.key)), panel, &palette)?;
        drawn.insert(panel.key.clone());
    }
    Ok(drawn)
}

/// The colours of series that occur in several pictures: the same in each, as long as there are
/// colours left.
struct Palette<'a> {
    names: Vec<&'a str>,
}

impl<'a> Palette<'a> {
    /// Names that stand in more pictures come first.
    fn of(panels: impl Iterator<Item = &'a Panel>) -> Palette<'a> {
        let mut uses: Vec<(&str, usize)> = Vec::new();
        for series in panels.flat_map(|panel| &panel.series) {
            match uses.iter_mut().find(|(name, _)| *name == series.name) {
                Some((_, count)) => *count += 1,
                None => uses.push((&series.name, 1)),
            }
        }
        uses.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        Palette { names: uses.into_iter().map(|(name, _)| name).take(chart::COLOR_COUNT).collect() }
    }

    /// A colour for each series of a panel, no two alike while there are as many.
    fn colors(&self, panel: &Panel) -> Vec<usize> {
        let own = |name: &str| self.names.iter().position(|known| *known == name);
        let fixed: Vec<Option<usize>> = panel.series.iter().map(|series| own(&series.name)).collect();
        let mut free = (0..chart::COLOR_COUNT).filter(|color| !fixed.contains(&Some(*color)));
        fixed.iter().enumerate().map(|(at, color)| color.or_else(|| free.next()).unwrap_or(at)).collect()
    }
}

/// Draws the panel into a file.
fn draw(path: &Path, panel: &Panel, palette: &Palette<'_>) -> Result<(), Failure> {
    match panel.shape {
        Shape::Bars => bars(path, panel),
        Shape::Lines => curves(path, panel, palette, Mark::LineAndPoints),
        Shape::Dots => curves(path, panel, palette, Mark::Dots),
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

/// Most places of a linear horizontal axis that are labelled one by one.
const PLACES_MAX: usize = 12;

/// The places of points, ascending; of places too near each other for two labels, the first.
fn labelled(mut places: Vec<f64>, width: f64) -> Vec<f64> {
    places.sort_unstable_by(f64::total_cmp);
    places.dedup();
    let mut kept: Vec<f64> = Vec::with_capacity(places.len());
    for place in places {
        if kept.last().is_none_or(|last| place - last >= width / 25.0) {
            kept.push(place);
        }
    }
    kept
}

/// Series of points over the axis, with whiskers over seeds.
fn curves(path: &Path, panel: &Panel, palette: &Palette<'_>, mark: Mark) -> Result<(), Failure> {
    let points = || panel.series.iter().flat_map(|series| &series.points);
    let place = |x: f64| if panel.log_x { x.max(1e-9).log2() } else { x };
    let (least, most) = chart::ends(points().map(|point| place(point.x)));
    if least > most {
        return Ok(());
    }
    let margin = ((most - least) * 0.03).max(0.05);
    let range = least - margin..most + margin;
    let places = labelled(points().map(|point| place(point.x)).collect(), most - least);
    let places = (panel.log_x || places.len() <= PLACES_MAX).then_some(places);
    let label = |x: &f64| match places {
        Some(_) => {
            points().find(|point| place(point.x) == *x).map(|point| point.label.clone()).unwrap_or_default()
        }
        None => short(*x),
    };
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
    let series = panel.series.iter().zip(palette.colors(panel)).map(|(series, color)| Series {
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
        x: match &places {
            Some(places) => Axis::linear(&panel.x_name, range).labels_at(places.clone(), &label),
            None => Axis::linear(&panel.x_name, range).labels(11, &label),
        },
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
        draw(&path, &panel, &Palette::of([&panel].into_iter())).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        for part in ["a panel", "ours", "theirs", "clients", "a minute", ">\n64"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        draw(&path, &Panel::new("b", "nothing", "x", "y"), &Palette::of([].into_iter())).unwrap();
    }

    #[test]
    fn a_series_has_one_colour_in_all_pictures_and_no_two_share_one() {
        let mut panels = [Panel::new("a", "a", "x", "y"), Panel::new("b", "b", "x", "y")];
        let point = || Point::new(1.0, "1", &Sampled::once(1.0));
        for name in ["lc", "keep", "only here"] {
            panels[0].add(name, point());
        }
        for name in ["keep", "lc"] {
            panels[1].add(name, point());
        }
        let palette = Palette::of(panels.iter());
        let (first, second) = (palette.colors(&panels[0]), palette.colors(&panels[1]));
        assert_eq!(first, [0, 1, 2]);
        assert_eq!(second, [1, 0]);
        for other in 0..20 {
            panels[1].add(&other.to_string(), point());
        }
        let few = Palette::of(panels[..1].iter()).colors(&panels[1]);
        let distinct: BTreeSet<usize> = few[..chart::COLOR_COUNT].iter().copied().collect();
        assert_eq!(distinct.len(), chart::COLOR_COUNT);
        assert_eq!(few[..2], [1, 0]);
    }

    #[test]
    fn labels_stand_where_points_are_unless_they_would_overlap() {
        assert_eq!(labelled(vec![28.0, 4.0, 8.0, 4.0], 24.0), [4.0, 8.0, 28.0]);
        assert_eq!(labelled(vec![1.0, 2.0, 100.0], 99.0), [1.0, 100.0]);
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
        draw(&path, &panel, &Palette::of([&panel].into_iter())).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        for part in ["a panel", "ideal", "two drives", "times the disk", "1,234", "2,468", "slow", "fast"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        assert!(svg.matches("<rect").count() >= 4, "the ground and three bars: {svg}");
        draw(&path, &Panel::of_bars("b", "nothing", "x", "y"), &Palette::of([].into_iter())).unwrap();
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
