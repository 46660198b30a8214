//! Requests that take far longer than most, at seeded intervals.

use crate::request::{Request, RequestKind};
use firndb_base::rng::Rng;
use firndb_profile::{Blocks, Op, Outliers};

/// An outlier that a request met.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Met {
    /// Its latency, in place of the normal one.
    pub us: f64,
    /// The requests that wait for it.
    pub blocks: Blocks,
}

/// One rule and its next outlier.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    stated: Outliers,
    /// Requests until the next outlier, itself included; `None` if each is drawn independently.
    countdown: Option<u32>,
}

impl Rule {
    /// The rule of the profile, at its beginning: the first outlier is anywhere within a spacing.
    pub fn new(stated: &Outliers, rng: &mut Rng) -> Rule {
        let countdown = stated.spacing.map(|(_, most)| rng.between(1, u64::from(most)) as u32);
        Rule { stated: stated.clone(), countdown }
    }

    fn concerns(&self, request: &Request) -> bool {
        let of_op = match request.kind {
            RequestKind::Read => self.stated.op == Op::Read,
            RequestKind::Write | RequestKind::DurableWrite => self.stated.op == Op::Write,
            RequestKind::Sync => false,
        };
        of_op
            && request.bytes >= self.stated.min_bytes
            && self.stated.max_bytes.is_none_or(|most| request.bytes <= most)
    }

    /// Whether the request is an outlier. Every request that the rule applies to counts.
    pub fn meet(&mut self, request: &Request, rng: &mut Rng) -> Option<Met> {
        if !self.concerns(request) {
            return None;
        }
        let struck = match (&mut self.countdown, self.stated.spacing) {
            (Some(left), Some((least, most))) => {
                *left -= 1;
                let struck = *left == 0;
                if struck {
                    *left = rng.between(u64::from(least), u64::from(most)) as u32;
                }
                struck
            }
            _ => unit(rng) < self.stated.share,
        };
        struck.then(|| Met {
            us: self.stated.from_us + (self.stated.to_us - self.stated.from_us) * unit(rng),
            blocks: self.stated.blocks,
        })
    }
}

/// Uniform in 0..1.
pub(crate) fn unit(rng: &mut Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stated(spacing: Option<(u32, u32)>) -> Outliers {
        Outliers {
            op: Op::Write,
            min_bytes: 512,
            max_bytes: Some(4096),
            share: 0.02,
            from_us: 100.0,
            to_us: 900.0,
            spacing,
            blocks: Blocks::Channel,
        }
    }

    #[test]
    fn the_share_is_met_with_and_without_spacing_and_times_lie_within_their_bounds() {
        for spacing in [None, Some((40, 60)), Some((1, 99))] {
            let mut rng = Rng::new(3);
            let mut rule = Rule::new(&stated(spacing), &mut rng);
            let met: Vec<Met> =
                (0..100_000).filter_map(|_| rule.meet(&Request::durable_write(0, 512), &mut rng)).collect();
            assert!((1900..2100).contains(&met.len()), "{} with {spacing:?}", met.len());
            assert!(met.iter().all(|met| (100.0..=900.0).contains(&met.us)));
        }
    }

    #[test]
    fn spacing_is_kept_and_other_requests_do_not_count() {
        let mut rng = Rng::new(4);
        let mut rule = Rule::new(&stated(Some((40, 60))), &mut rng);
        let (mut since, mut spacings) = (0u32, Vec::new());
        for _ in 0..10_000 {
            for other in [Request::read(0, 512), Request::write(0, 8192), Request::sync()] {
                assert_eq!(rule.meet(&other, &mut rng), None);
            }
            since += 1;
            if rule.meet(&Request::write(0, 512), &mut rng).is_some() {
                spacings.push(std::mem::take(&mut since));
            }
        }
        assert!(spacings[1..].iter().all(|spacing| (40..=60).contains(spacing)), "{spacings:?}");
        assert!(spacings[1..].iter().min() < Some(&45) && spacings.iter().max() > Some(&55));
    }
}
