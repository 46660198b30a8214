//! A correction of computed times by observed ones.

/// How many times longer a device takes than was computed, learned while it is used: one for the
/// reads of a device and one for its writes. A device without a profile, or one that others use as
/// well, so comes to be known.
///
/// The mean of the logarithms of observed over computed time, with the last 32 observations
/// prevailing: an outlier of a hundred times the normal time moves the factor by 15 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearnedFactor {
    logarithm: f64,
    observations: u64,
}

/// The factor stays between this and its inverse.
const MOST: f64 = 1000.0;
/// Observations that prevail.
const WINDOW: f64 = 32.0;

impl Default for LearnedFactor {
    fn default() -> LearnedFactor {
        LearnedFactor { logarithm: 0.0, observations: 0 }
    }
}

impl LearnedFactor {
    /// Counts work that took `observed_us` where `computed_us` had been computed. What is not a
    /// positive finite time is left out.
    pub fn observe(&mut self, computed_us: f64, observed_us: f64) {
        let ratio = observed_us / computed_us;
        if !(ratio.is_finite() && ratio > 0.0 && computed_us > 0.0) {
            return;
        }
        self.observations = self.observations.saturating_add(1);
        let weight = 1.0 / (self.observations as f64).min(WINDOW);
        let logarithm = ratio.clamp(1.0 / MOST, MOST).ln();
        self.logarithm += weight * (logarithm - self.logarithm);
    }

    /// What computed times are multiplied by; 1 before anything was observed.
    #[must_use]
    pub fn factor(&self) -> f64 {
        self.logarithm.exp()
    }

    /// Observations so far.
    #[must_use]
    pub fn observations(&self) -> u64 {
        self.observations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_of_a_third_of_the_speed_is_learned_and_a_change_is_followed() {
        let mut learned = LearnedFactor::default();
        assert_eq!((learned.factor(), learned.observations()), (1.0, 0));
        learned.observe(100.0, 300.0);
        assert!((learned.factor() - 3.0).abs() < 1e-9, "the first observation counts whole");
        (0..200).for_each(|_| learned.observe(50.0, 150.0));
        assert!((learned.factor() - 3.0).abs() < 1e-9);
        (0..200).for_each(|_| learned.observe(50.0, 25.0));
        assert!((learned.factor() - 0.5).abs() < 0.01, "{}", learned.factor());
    }

    #[test]
    fn one_outlier_moves_it_little_and_nonsense_not_at_all() {
        let mut learned = LearnedFactor::default();
        (0..100).for_each(|_| learned.observe(100.0, 100.0));
        learned.observe(100.0, 10_000.0);
        assert!((1.1..1.2).contains(&learned.factor()), "{}", learned.factor());
        let before = learned;
        for (computed, observed) in
            [(0.0, 1.0), (1.0, 0.0), (-1.0, -1.0), (f64::NAN, 1.0), (1.0, f64::INFINITY), (0.0, 0.0)]
        {
            learned.observe(computed, observed);
            assert_eq!(learned, before, "{computed} {observed}");
        }
    }
}
