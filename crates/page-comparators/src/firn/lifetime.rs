//! Classes of pages by how long an image is expected to live: by how many places were written
//! between the last two, beside quantiles that follow what is seen.

/// By so much a quantile moves at each image.
const STEP: f64 = 0.002;

/// See the head of the file.
#[derive(Debug)]
pub(super) struct Lifetimes {
    /// Upper bounds of all classes but the last, ascending.
    bounds: Vec<f64>,
}

impl Lifetimes {
    /// For pages of which so many are written, about, before one of them is again.
    pub fn new(classes: usize, pages: u64) -> Lifetimes {
        let bound = |class: usize| pages as f64 * (class + 1) as f64 / classes as f64;
        Lifetimes { bounds: (0..classes - 1).map(bound).collect() }
    }

    /// The class of a page whose image lived so long; each class has as many pages in the end.
    pub fn class(&mut self, lived: Option<u64>) -> usize {
        let classes = self.bounds.len() + 1;
        let Some(lived) = lived else { return classes / 2 };
        let lived = lived as f64;
        for (class, bound) in self.bounds.iter_mut().enumerate() {
            let below = (class + 1) as f64 / classes as f64;
            *bound *= if lived < *bound { 1.0 - STEP * (1.0 - below) } else { 1.0 + STEP * below };
            *bound = bound.max(1.0);
        }
        self.bounds.iter().filter(|bound| lived >= **bound).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::rng::Rng;

    #[test]
    fn classes_get_as_many_pages_each_whatever_the_scale() {
        for scale in [10, 1000, 100_000] {
            let (mut lifetimes, mut rng) = (Lifetimes::new(3, 5000), Rng::new(scale));
            let mut counts = [0; 3];
            for step in 0..60_000 {
                let class = lifetimes.class(Some(rng.below(scale * 3)));
                if step >= 20_000 {
                    counts[class] += 1;
                }
            }
            assert!(counts.iter().all(|count| (11_000..16_000).contains(count)), "{scale}: {counts:?}");
        }
        assert_eq!(Lifetimes::new(1, 5).class(Some(3)), 0);
        assert_eq!(Lifetimes::new(2, 5).class(None), 1, "what was never written is taken to live long");
    }
}
