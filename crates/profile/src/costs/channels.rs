//! Devices of channels: flash and network volumes.

use super::draws::Draws;
use super::{Access, Courses, DeviceCosts, Submission, Work, excess_us};
use crate::model::{Blocks, Outliers};
use crate::striping::Cost;

/// Requests over which the chances of batches are averaged, at least, and batches.
const REQUESTS: u32 = 1024;
const BATCHES: u32 = 48;

/// What requests of a work cost, by their position relative to the streams.
struct CourseCosts {
    courses: Courses,
    sequential: Cost,
    overlapping: Cost,
    random: Cost,
}

impl CourseCosts {
    fn mean(&self, of: impl Fn(&Cost) -> f64) -> f64 {
        let Courses { sequential, overlapping } = self.courses;
        sequential * of(&self.sequential)
            + overlapping * of(&self.overlapping)
            + (1.0 - sequential - overlapping) * of(&self.random)
    }

    fn are_equal(&self) -> bool {
        let unequal = self.random != self.sequential || self.random != self.overlapping;
        let is_mixed =
            self.courses.sequential < 1.0 && self.courses.sequential + self.courses.overlapping > 0.0;
        !(unequal && is_mixed)
    }

    fn draw(&self, draws: &mut Draws) -> &Cost {
        let drawn = draws.unit();
        if drawn < self.courses.sequential {
            &self.sequential
        } else if drawn < self.courses.sequential + self.courses.overlapping {
            &self.overlapping
        } else {
            &self.random
        }
    }
}

/// The requests drawn so far.
#[derive(Default)]
struct Sample {
    draws: Draws,
    /// Their own times, added up.
    us: f64,
}

impl DeviceCosts {
    /// Mean time from one completion to the next.
    pub(super) fn channels_us(&self, work: &Work) -> f64 {
        let costs = self.course_costs(work);
        match work.submission {
            Submission::Steady => self.steady_us(work, &costs),
            Submission::Batches => {
                let batches = match costs.are_equal() && self.model.jitter == 0.0 {
                    true => 1,
                    false => BATCHES.max(REQUESTS.div_ceil(work.depth)),
                };
                let mut sample = Sample::default();
                let all: f64 = (0..batches).map(|_| self.batch_us(work, &costs, &mut sample)).sum();
                let requests = f64::from(batches) * f64::from(work.depth);
                // The requests drawn may be dearer than all are.
                all / requests * (costs.mean(|cost| cost.us) / (sample.us / requests))
            }
        }
    }

    fn course_costs(&self, work: &Work) -> CourseCosts {
        let (model, bytes) = (&self.model, work.bytes);
        let courses = self.courses(work);
        if work.access == Access::Read {
            let sequential = self.reads.sequential(bytes);
            let random = self.reads.of(bytes, &model.read_random);
            return CourseCosts { courses, sequential, overlapping: sequential, random };
        }
        let sequential = self.writes.sequential(bytes);
        let overlapping = match model.write_overlapping.is_empty() {
            true => sequential,
            false => self.writes.of(bytes, &model.write_overlapping),
        };
        // The lowest and the highest of some two hundred places are nearly the whole span apart.
        let factor = model.area_factor(work.span_bytes);
        let random = self.writes.of(bytes, &model.write_random).scaled(factor);
        CourseCosts { courses, sequential, overlapping, random }
    }

    /// Either each of the requests outstanding takes its time, or all channels are busy.
    fn steady_us(&self, work: &Work, costs: &CourseCosts) -> f64 {
        let link_us = self.link_us(work);
        let own_us = costs.mean(|cost| cost.us).max(link_us);
        let channel_us = costs.mean(|cost| cost.channels as f64 * cost.channel_us);
        let late = |blocks: Blocks| -> f64 {
            let rules = self.outliers(work).filter(|rule| rule.blocks == blocks);
            rules.map(|rule| rule.share * excess_us(rule, own_us)).sum()
        };
        let on_channel = late(Blocks::Channel);
        let busy = (channel_us + on_channel) / f64::from(self.model.channels);
        let served = overtaken_us(work.depth, own_us + on_channel, busy.max(link_us), late(Blocks::Request));
        served + late(Blocks::Device)
    }

    /// The time of a batch that is submitted to an idle device: each request takes the channels
    /// that are free first.
    fn batch_us(&self, work: &Work, costs: &CourseCosts, sample: &mut Sample) -> f64 {
        let mut free_at = vec![0.0f64; self.model.channels as usize];
        let (pace, link) = (self.pace_us(), self.link_us(work));
        let (mut link_free, mut end) = (0.0f64, 0.0f64);
        for i in 0..work.depth {
            let drawn = 1.0 + self.model.jitter * (2.0 * sample.draws.unit() - 1.0);
            let cost = costs.draw(&mut sample.draws).scaled(drawn);
            sample.us += cost.us;
            if cost.channels < free_at.len() {
                free_at.select_nth_unstable_by(cost.channels - 1, f64::total_cmp);
            }
            let mut start = f64::INFINITY;
            let from = f64::from(i) * pace;
            for free in &mut free_at[..cost.channels] {
                let begins = free.max(from);
                start = start.min(begins);
                *free = begins + cost.channel_us;
                end = end.max(*free);
            }
            link_free = link_free.max(start) + link;
            end = end.max(start + cost.us).max(link_free);
        }
        let own_us = costs.mean(|cost| cost.us);
        end + self.outliers(work).map(|rule| late_us(rule, work.depth, own_us, end)).sum::<f64>()
    }
}

/// Mean time from one completion to the next, of `depth` requests that take `own_us` each, no two
/// ending less than `least_us` apart, if outliers that others overtake add `late_us` to each in the
/// mean: a chain whose state is the number of those, which leave the others the fewer places.
fn overtaken_us(depth: u32, own_us: f64, least_us: f64, late_us: f64) -> f64 {
    let rate = |late: u32| {
        let rate = f64::from(depth - late) / own_us;
        if least_us > 0.0 { rate.min(1.0 / least_us) } else { rate }
    };
    let (mut weight, mut weights, mut rates) = (1.0, 1.0, rate(0));
    for late in 1..=depth {
        weight *= late_us * rate(late - 1) / f64::from(late);
        weights += weight;
        rates += weight * rate(late);
    }
    weights / rates
}

/// What the outliers of a rule add to a batch of `depth` requests that takes `batch_us` without
/// them, and each of its requests `own_us`.
fn late_us(rule: &Outliers, depth: u32, own_us: f64, batch_us: f64) -> f64 {
    match rule.blocks {
        Blocks::Device => f64::from(depth) * rule.share * excess_us(rule, own_us),
        Blocks::Request | Blocks::Channel => {
            // The outlier may be any of the batch: half of it has passed in the mean.
            let met = 1.0 - (1.0 - rule.share).powf(f64::from(depth));
            met * excess_us(rule, (batch_us + own_us) / 2.0)
        }
    }
}
