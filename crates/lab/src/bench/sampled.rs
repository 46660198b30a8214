//! One quantity as it was measured: once with each seed, and at the ends of what a device's profile
//! estimates.

use serde::{Deserialize, Serialize};

/// Values of one quantity. Results show their median; the least and the most stand beside it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampled {
    /// By seed, with the profiles as they stand.
    seeds: Vec<f64>,
    /// With the first seed, all estimated parameters at the faster end of their bands.
    fast: Option<f64>,
    /// Likewise, at the slower end.
    slow: Option<f64>,
}

/// The least and the most of some values.
pub type Range = (f64, f64);

/// A quantity as results show it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The median over seeds.
    pub value: f64,
    /// Over seeds, where there were several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<Range>,
    /// Between the ends of estimated parameters, where they were measured; the median is within.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub band: Option<Range>,
}

/// The least and the most of the values; of none, a least that is more than the most.
pub fn bounds(values: impl IntoIterator<Item = f64>) -> Range {
    values
        .into_iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
}

/// The middle value, or the mean of the two middle ones; of none, not a number.
pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    match (values.len(), values.len() / 2) {
        (0, _) => f64::NAN,
        (len, middle) if len % 2 == 1 => values[middle],
        (_, middle) => f64::midpoint(values[middle - 1], values[middle]),
    }
}

impl Sampled {
    /// By seed, and at the ends of bands.
    pub fn new(seeds: Vec<f64>, fast: Option<f64>, slow: Option<f64>) -> Sampled {
        Sampled { seeds, fast, slow }
    }

    /// A value of one run.
    pub fn once(value: f64) -> Sampled {
        Sampled { seeds: vec![value], fast: None, slow: None }
    }

    /// The same, with values of the first seed at the ends of bands.
    pub fn between(self, fast: f64, slow: f64) -> Sampled {
        Sampled { fast: Some(fast), slow: Some(slow), ..self }
    }

    pub fn median(&self) -> f64 {
        median(&self.seeds)
    }

    /// The least that any seed came to, in place of the seeds: for what holds in every one.
    pub fn least_of_seeds(self) -> Sampled {
        let least = self.seeds.iter().copied().reduce(f64::min);
        Sampled { seeds: least.into_iter().collect(), ..self }
    }

    pub fn summary(&self) -> Summary {
        let value = self.median();
        let range = (self.seeds.len() > 1).then(|| bounds(self.seeds.iter().copied()));
        let ends = [self.fast, self.slow].into_iter().flatten();
        let band = (self.fast.or(self.slow).is_some()).then(|| bounds(ends.chain([value])));
        Summary { value, range, band }
    }

    /// A quantity that follows from this one.
    pub fn map(&self, of: impl Fn(f64) -> f64) -> Sampled {
        Sampled {
            seeds: self.seeds.iter().map(|&value| of(value)).collect(),
            fast: self.fast.map(&of),
            slow: self.slow.map(&of),
        }
    }

    /// A quantity that follows from two, seed by seed and end by end. Seeds that only one has are
    /// dropped; what has no bands is at their ends what it is with the first seed.
    pub fn with(&self, other: &Sampled, of: impl Fn(f64, f64) -> f64) -> Sampled {
        let at = |one: Option<f64>, two: Option<f64>| {
            one.or(two)?;
            Some(of(one.or(self.seeds.first().copied())?, two.or(other.seeds.first().copied())?))
        };
        Sampled {
            seeds: self.seeds.iter().zip(&other.seeds).map(|(&one, &two)| of(one, two)).collect(),
            fast: at(self.fast, other.fast),
            slow: at(self.slow, other.slow),
        }
    }

    /// The ratio of the two.
    pub fn over(&self, other: &Sampled) -> Sampled {
        self.with(other, |one, two| one / two)
    }

    /// The least of several in each seed and at each end; `None` of none.
    pub fn least<'a>(all: impl IntoIterator<Item = &'a Sampled>) -> Option<Sampled> {
        all.into_iter().cloned().reduce(|one, two| one.with(&two, f64::min))
    }

    /// The most, likewise.
    pub fn most<'a>(all: impl IntoIterator<Item = &'a Sampled>) -> Option<Sampled> {
        all.into_iter().cloned().reduce(|one, two| one.with(&two, f64::max))
    }
}

impl Summary {
    /// All values that are shown.
    pub fn values(&self) -> impl Iterator<Item = f64> {
        let ends = |(low, high)| [low, high];
        let (range, band) = (self.range.map(ends), self.band.map(ends));
        [self.value].into_iter().chain(range.into_iter().flatten()).chain(band.into_iter().flatten())
    }

    /// With each of its values changed.
    pub fn map(&self, of: impl Fn(f64) -> f64) -> Summary {
        let both = |(low, high)| (of(low), of(high));
        Summary { value: of(self.value), range: self.range.map(both), band: self.band.map(both) }
    }

    /// As in a table: the value, (its least to its most over seeds), [the same over bands].
    pub fn text(&self, digits: usize) -> String {
        let ends = |(low, high): Range| format!("{}..{}", grouped(low, digits), grouped(high, digits));
        let range = self.range.map(|range| format!(" ({})", ends(range))).unwrap_or_default();
        let band = self.band.map(|band| format!(" [{}]", ends(band))).unwrap_or_default();
        format!("{}{range}{band}", grouped(self.value, digits))
    }
}

/// A number with `digits` digits after the point, its thousands apart.
pub fn grouped(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    if !value.is_finite() {
        return "–".into();
    }
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |whole| ("-", whole));
    let mut parts: Vec<&str> = Vec::new();
    let mut left = whole;
    while left.len() > 3 {
        let (front, back) = left.split_at(left.len() - 3);
        parts.insert(0, back);
        left = front;
    }
    parts.insert(0, left);
    format!("{sign}{}{rest}", parts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_stands_between_the_least_and_the_most() {
        let summary = Sampled::new(vec![3.0, 1.0, 2.0], Some(4.0), Some(0.5)).summary();
        assert_eq!(summary, Summary { value: 2.0, range: Some((1.0, 3.0)), band: Some((0.5, 4.0)) });
        assert_eq!(summary.text(1), "2.0 (1.0..3.0) [0.5..4.0]");
        assert_eq!(Sampled::once(7.0).summary(), Summary { value: 7.0, range: None, band: None });
        let every = Sampled::new(vec![3.0, 1.0, 2.0], None, Some(0.5)).least_of_seeds();
        assert_eq!(every, Sampled::new(vec![1.0], None, Some(0.5)));
        assert_eq!(median(&[1.0, 4.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn ratios_are_taken_seed_by_seed_and_end_by_end() {
        let one = Sampled::new(vec![2.0, 9.0, 5.0], Some(8.0), None);
        let two = Sampled::new(vec![1.0, 3.0], Some(2.0), Some(4.0));
        // The slow end of `one` is not known to differ: its first seed stands for it.
        assert_eq!(one.over(&two), Sampled::new(vec![2.0, 3.0], Some(4.0), Some(0.5)));
        assert_eq!(one.over(&Sampled::once(2.0)), Sampled::new(vec![1.0], Some(4.0), None));
        let least = Sampled::least([&one, &two]).unwrap();
        assert_eq!(least, Sampled::new(vec![1.0, 3.0], Some(2.0), Some(2.0)));
        assert_eq!(Sampled::most(std::iter::empty()), None);
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(grouped(1_234_567.4, 0), "1,234,567");
        assert_eq!(grouped(-1234.5, 1), "-1,234.5");
        assert_eq!(grouped(999.0, 0), "999");
        assert_eq!(grouped(f64::NAN, 0), "–");
    }
}
