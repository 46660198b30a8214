//! Outliers among the latencies of one kind of request: how many, how long, how far apart.
//!
//! The rule is FlashLogging's (section 3.4): a request that takes longer than twice the average is
//! an outlier. The average is that of the other requests; otherwise a few very long requests would
//! hide the many that are merely long. To find it, start at the median and take the mean of the
//! requests that are not outliers until nothing changes.

/// The paper's factor.
pub const FACTOR: f64 = 2.0;

/// The latency of normal requests, and the properties of the others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outliers {
    /// Mean latency of the other requests, in microseconds.
    pub normal_us: f64,
    /// Share of outliers among all requests, 0 to 1.
    pub share: f64,
    /// Median latency of outliers in microseconds; 0 if there are none.
    pub typical_us: f64,
    /// The longest latency in microseconds.
    pub max_us: f64,
    /// Requests from one outlier to the next: 5th, 50th and 95th percentile. `None` for fewer than
    /// three outliers.
    pub spacing: Option<[f64; 3]>,
    /// The spacings' standard deviation over their mean: 0 for clockwork, about 1 for chance.
    pub spacing_variation: f64,
    /// Outliers by length, in classes that differ by a power of ten.
    pub classes: Vec<OutlierClass>,
}

/// Outliers of about one length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutlierClass {
    /// Share of this class among all requests.
    pub share: f64,
    /// Least latency of a uniform distribution with their mean.
    pub from_us: f64,
    /// Greatest latency of that distribution.
    pub to_us: f64,
    /// The least and most requests between two, if they come at regular intervals.
    pub regular: Option<(u32, u32)>,
}

/// Limits between classes, in normal latencies.
const CLASSES: [f64; 4] = [FACTOR, 10.0, 100.0, f64::INFINITY];
/// If the spacings' variation is below this, the outliers come at regular intervals.
const REGULAR: f64 = 0.25;
/// Spacings needed to detect regular intervals.
const REGULAR_LEAST: usize = 8;
const ITERATIONS: usize = 32;

/// Finds the outliers among latencies in the order in which requests were made, in nanoseconds.
#[must_use]
pub fn outliers(ordered_ns: &[u64]) -> Outliers {
    outliers_of_runs(ordered_ns, &[])
}

/// As [`outliers`], of several runs one behind the other: `seams` are the indices at which a run
/// begins. The distance between outliers on two sides of a seam is no spacing.
#[must_use]
pub fn outliers_of_runs(ordered_ns: &[u64], seams: &[usize]) -> Outliers {
    if ordered_ns.is_empty() {
        return Outliers::default();
    }
    let normal = normal_ns(ordered_ns);
    let limit = FACTOR * normal;
    let mut all = picked(ordered_ns, |ns| ns > limit);
    let spacings = spacings(&all, seams);
    let mut lengths: Vec<f64> = all.drain(..).map(|(_, ns)| ns).collect();
    lengths.sort_by(f64::total_cmp);
    let classes = CLASSES.windows(2).filter_map(|limits| {
        let members = picked(ordered_ns, |ns| ns > limits[0] * normal && ns <= limits[1] * normal);
        class(&members, seams, ordered_ns.len())
    });
    Outliers {
        normal_us: normal / 1000.0,
        share: lengths.len() as f64 / ordered_ns.len() as f64,
        typical_us: at(&lengths, 0.5) / 1000.0,
        max_us: ordered_ns.iter().max().map_or(0.0, |&ns| ns as f64 / 1000.0),
        spacing: (spacings.len() >= 2).then(|| [0.05, 0.5, 0.95].map(|quantile| at(&spacings, quantile))),
        spacing_variation: variation(&spacings),
        classes: classes.collect(),
    }
}

/// The mean latency without outliers, in nanoseconds; 0 if there are no requests.
#[must_use]
pub fn normal_ns(latencies_ns: &[u64]) -> f64 {
    let mut sorted: Vec<f64> = latencies_ns.iter().map(|&ns| ns as f64).collect();
    sorted.sort_by(f64::total_cmp);
    let mut normal = at(&sorted, 0.5);
    for _ in 0..ITERATIONS {
        let within = sorted.partition_point(|&ns| ns <= FACTOR * normal).max(1).min(sorted.len());
        let mean = sorted[..within].iter().sum::<f64>() / within.max(1) as f64;
        if (mean - normal).abs() < 1e-9 * normal {
            break;
        }
        normal = mean;
    }
    normal
}

/// A request that takes longer than this number of normal latencies is certainly an outlier.
const CERTAIN: f64 = 10.0;

/// The least factor from the paper's on, in steps of a half, that no more than `share` of the
/// requests exceeds without being certain outliers (ten times normal). On a device with spread
/// latencies, with twice the average as threshold, many requests would be issued again in vain;
/// where the long requests are distinct, however many, the threshold is the paper's factor.
#[must_use]
pub fn threshold(ordered_ns: &[u64], share: f64) -> f64 {
    let normal = normal_ns(ordered_ns);
    let doubtful =
        |factor: f64| picked(ordered_ns, |ns| ns > factor * normal && ns <= CERTAIN * normal).len() as f64;
    let factors = (4..=20).map(|half| f64::from(half) / 2.0);
    factors.into_iter().find(|&factor| doubtful(factor) <= share * ordered_ns.len() as f64).unwrap_or(CERTAIN)
}

/// (index, nanoseconds) of the requests that `which` picks.
fn picked(ordered_ns: &[u64], which: impl Fn(f64) -> bool) -> Vec<(usize, f64)> {
    let all = ordered_ns.iter().map(|&ns| ns as f64).enumerate();
    all.filter(|&(_, ns)| which(ns)).collect()
}

/// The numbers of requests from each to the next within a run, ascending.
fn spacings(picked: &[(usize, f64)], seams: &[usize]) -> Vec<f64> {
    let within = |pair: &&[(usize, f64)]| !seams.iter().any(|&seam| pair[0].0 < seam && seam <= pair[1].0);
    let pairs = picked.windows(2).filter(within);
    let mut spacings: Vec<f64> = pairs.map(|pair| (pair[1].0 - pair[0].0) as f64).collect();
    spacings.sort_by(f64::total_cmp);
    spacings
}

fn class(members: &[(usize, f64)], seams: &[usize], of: usize) -> Option<OutlierClass> {
    if members.is_empty() {
        return None;
    }
    let mut lengths: Vec<f64> = members.iter().map(|member| member.1).collect();
    lengths.sort_by(f64::total_cmp);
    let mean = lengths.iter().sum::<f64>() / lengths.len() as f64;
    // The uniform distribution that begins where they do and has their mean.
    let from = at(&lengths, 0.05).min(mean);
    let share = members.len() as f64 / of as f64;
    let spacings = spacings(members, seams);
    let rhythm = spacings.len() >= REGULAR_LEAST && variation(&spacings) < REGULAR;
    let regular = rhythm.then(|| {
        let least = at(&spacings, 0.05).max(1.0);
        (least as u32, (2.0 / share - least).round().max(least) as u32)
    });
    Some(OutlierClass { share, from_us: from / 1000.0, to_us: (2.0 * mean - from) / 1000.0, regular })
}

/// Standard deviation over mean; 0 for fewer than two values.
fn variation(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    (squares / values.len() as f64).sqrt() / mean
}

/// The quantile of ascending values; 0 if there are none.
fn at(sorted: &[f64], quantile: f64) -> f64 {
    let index = (sorted.len().saturating_sub(1) as f64 * quantile).round() as usize;
    sorted.get(index).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::rng::Rng;

    /// 100 µs give or take 10, but for requests that `outlier` names.
    fn samples(count: u64, outlier: impl Fn(u64, &mut Rng) -> Option<u64>) -> Vec<u64> {
        let mut rng = Rng::new(5);
        (0..count)
            .map(|index| match outlier(index, &mut rng) {
                Some(us) => us * 1000,
                None => rng.between(90_000, 110_000),
            })
            .collect()
    }

    #[test]
    fn share_length_and_rhythm_of_regular_outliers_are_found() {
        let found = outliers(&samples(20_000, |index, _| (index % 100 == 99).then_some(30_000)));
        assert!((found.normal_us - 100.0).abs() < 0.5, "{}", found.normal_us);
        assert!((found.share - 0.01).abs() < 1e-9);
        assert_eq!((found.typical_us, found.max_us), (30_000.0, 30_000.0));
        assert_eq!((found.spacing, found.spacing_variation), (Some([100.0; 3]), 0.0));
        let [class] = found.classes[..] else { panic!("one class, not {:?}", found.classes) };
        assert_eq!((class.from_us, class.to_us, class.regular), (30_000.0, 30_000.0, Some((100, 100))));
    }

    #[test]
    fn outliers_by_chance_of_two_lengths_fall_into_two_classes_without_rhythm() {
        let found = outliers(&samples(100_000, |_, rng| match rng.below(1000) {
            0..=9 => Some(rng.between(300, 700)),
            10 => Some(rng.between(40_000, 60_000)),
            _ => None,
        }));
        assert!((found.share - 0.011).abs() < 0.001, "{}", found.share);
        assert!((0.9..1.1).contains(&found.spacing_variation), "{}", found.spacing_variation);
        let [short, long] = found.classes[..] else { panic!("two classes, not {:?}", found.classes) };
        assert!((short.share - 0.01).abs() < 0.001 && (long.share - 0.001).abs() < 0.0003);
        assert_eq!((short.regular, long.regular), (None, None));
        for (class, mean) in [(short, 500.0), (long, 50_000.0)] {
            assert!(((class.from_us + class.to_us) / 2.0 / mean - 1.0).abs() < 0.05, "{class:?}");
            assert!(class.from_us < mean && mean < class.to_us);
        }
    }

    #[test]
    fn what_lies_between_two_runs_is_no_spacing() {
        let run = |first: u64| samples(1000, |index, _| (index % 100 == first).then_some(30_000));
        let runs = [run(10), run(90), run(40)].concat();
        assert!(outliers(&runs).spacing_variation > 0.1, "the gaps at the seams are 180 and 50");
        let found = outliers_of_runs(&runs, &[0, 1000, 2000]);
        assert_eq!((found.spacing, found.spacing_variation), (Some([100.0; 3]), 0.0));
        assert_eq!(found.classes[0].regular, Some((100, 100)));
    }

    #[test]
    fn very_long_requests_do_not_hide_those_that_are_merely_long() {
        // One in 100 takes ten seconds: the plain mean is 100 ms, far above the 1 ms outliers.
        let found = outliers(&samples(10_000, |index, _| match index % 100 {
            0 => Some(10_000_000),
            50 => Some(1000),
            _ => None,
        }));
        assert!((found.share - 0.02).abs() < 1e-9 && (found.normal_us - 100.0).abs() < 1.0);
    }

    #[test]
    fn steady_requests_have_none_and_nothing_has_nothing() {
        let found = outliers(&samples(1000, |_, _| None));
        assert_eq!((found.share, found.spacing, found.classes.len()), (0.0, None, 0));
        assert_eq!(outliers(&[]), Outliers::default());
        assert_eq!(outliers(&[7000]).normal_us, 7.0);
    }

    #[test]
    fn the_threshold_is_the_papers_unless_latencies_spread() {
        assert_eq!(threshold(&samples(10_000, |index, _| (index % 200 == 0).then_some(5000)), 0.02), 2.0);
        let spread = samples(10_000, |_, rng| (rng.below(10) == 0).then(|| rng.between(250, 450)));
        assert_eq!(threshold(&spread, 0.02), 4.5);
        let apart = samples(1000, |index, _| (index % 4 == 0).then_some(9000));
        assert_eq!(threshold(&apart, 0.02), 2.0, "many that stand apart are outliers all the same");
    }
}
