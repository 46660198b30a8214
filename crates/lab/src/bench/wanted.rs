//! A target by its name and limit, before it is measured.

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
