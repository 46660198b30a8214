//! Targets by name and limit before they are measured, in groups of one figure each.

use super::figure::{Better, Figure};
use super::sampled::Sampled;

/// A quantity with its limit.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub name: &'static str,
    limit: f64,
    better: Better,
}

pub const fn at_least(name: &'static str, limit: f64) -> Wanted {
    Wanted { name, limit, better: Better::Higher }
}

pub const fn at_most(name: &'static str, limit: f64) -> Wanted {
    Wanted { name, limit, better: Better::Lower }
}

impl Wanted {
    /// Adds it to the figure, as it was measured.
    pub fn judge(&self, figure: &mut Figure, value: &Sampled) {
        match self.better {
            Better::Higher => figure.at_least(self.name, value, self.limit),
            Better::Lower => figure.at_most(self.name, value, self.limit),
        }
    }

    /// Adds it to the figure without a value.
    pub fn skip(&self, figure: &mut Figure, why: &str) {
        figure.not_measured(self.name, self.limit, self.better, why);
    }
}

/// The targets that one figure measures.
pub struct Group {
    /// The figure's number.
    pub number: &'static str,
    pub title: &'static str,
    pub targets: &'static [Wanted],
    /// Why they have no value where the figure was not measured.
    pub why: &'static str,
}

impl Group {
    /// The figure of this number, with nothing in it.
    pub fn figure_of(groups: &[Group], number: &str) -> Figure {
        let group = groups.iter().find(|group| group.number == number).expect("it is one of the figures");
        Figure::new(group.number, group.title)
    }

    /// All figures without values, and one of this title for what other programs measure: what
    /// stands in a file of results until they are measured.
    pub fn not_measured(groups: &[Group], elsewhere: (&str, &[(Wanted, &str)])) -> Vec<Figure> {
        let mut figures: Vec<Figure> = groups
            .iter()
            .map(|group| {
                let mut figure = Figure::new(group.number, group.title);
                group.targets.iter().for_each(|target| target.skip(&mut figure, group.why));
                figure
            })
            .collect();
        let (title, targets) = elsewhere;
        let mut elsewhere = Figure::new("elsewhere", title);
        targets.iter().for_each(|(target, why)| target.skip(&mut elsewhere, why));
        figures.push(elsewhere);
        figures
    }
}

/// Each of `count` targets stands in the figures once, without a value, and with a reason.
#[cfg(test)]
pub fn assert_each_stands_once(figures: &[Figure], count: usize) {
    let targets: Vec<_> = figures.iter().flat_map(|figure| &figure.targets).collect();
    assert_eq!(targets.len(), count);
    for target in &targets {
        assert!(target.value.is_none() && !target.met && target.reason.is_some(), "{target:?}");
        let same = targets.iter().filter(|other| other.name == target.name).count();
        assert_eq!(same, 1, "{}", target.name);
    }
}
