//! What a request costs a device of channels: its own time, and the time of the channels that it is
//! striped over.
//!
//! With C channels, a request of B bytes has n = ceil(B / stripe) stripes and occupies k = min(C,
//! n) channels. Its time T(B) is the table's. Of the channels' time, all of them together, it takes
//! T(B) if it is one stripe. A sequential one of several takes the least of
//!
//! * k T(B): no channel works on it for longer than it takes;
//! * n T(stripe): a large request costs no more than its stripes one by one;
//! * C B / bandwidth, if the profile states the bandwidth of that direction: alone, such requests
//!   reach it;
//!
//! times the profile's occupancy: 1 if the chips are what limits a stream, less if they wait for
//! the interface. A random or overlapping one occupies each of its channels for as much longer as
//! it takes longer than a sequential one of its size, and again costs no more than its stripes.
//! None costs less than one stripe. Each of the k channels is occupied for an equal share, never
//! for longer than T(B).

use crate::model::ModelSection;
use crate::table::ServiceTable;

/// What one request costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Its own time, once it is served.
    pub us: f64,
    /// Channels that it occupies.
    pub channels: usize,
    /// How long it occupies each of them.
    pub channel_us: f64,
}

impl Cost {
    /// A request that occupies one channel for its own time.
    #[must_use]
    pub fn of_one(us: f64) -> Cost {
        Cost { us, channels: 1, channel_us: us }
    }

    /// All times multiplied by `factor`.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Cost {
        Cost { us: self.us * factor, channel_us: self.channel_us * factor, ..self }
    }
}

/// Costs of the requests of one direction, by size.
#[derive(Clone, Debug)]
pub struct Costs {
    sequential: ServiceTable,
    /// `None` if every request occupies one channel.
    stripe_bytes: Option<u64>,
    channels: u64,
    /// Most that a byte of a stream costs of all channels' time, by the stated bandwidth.
    byte_us: f64,
    occupancy: f64,
}

impl Costs {
    /// The costs of reads.
    #[must_use]
    pub fn of_reads(model: &ModelSection) -> Costs {
        Costs::new(model, &model.read_sequential, model.read_mb_s, model.read_occupancy)
    }

    /// The costs of writes.
    #[must_use]
    pub fn of_writes(model: &ModelSection) -> Costs {
        Costs::new(model, &model.write_sequential, model.write_mb_s, model.write_occupancy)
    }

    fn new(model: &ModelSection, sequential: &ServiceTable, mb_s: Option<f64>, occupancy: f64) -> Costs {
        let channels = f64::from(model.channels);
        Costs {
            sequential: sequential.clone(),
            stripe_bytes: model.striped.then_some(model.stripe_bytes),
            channels: u64::from(model.channels),
            byte_us: mb_s.or(model.total_mb_s).map_or(f64::INFINITY, |mb_s| channels / mb_s),
            occupancy,
        }
    }

    /// What a sequential request of `bytes` costs.
    #[must_use]
    pub fn sequential(&self, bytes: u64) -> Cost {
        self.of(bytes, &self.sequential)
    }

    /// What a request of `bytes` costs that takes the times of this table.
    #[must_use]
    pub fn of(&self, bytes: u64, times: &ServiceTable) -> Cost {
        let us = times.us(bytes);
        let Some(stripe_bytes) = self.stripe_bytes.filter(|&stripe| bytes > stripe) else {
            return Cost::of_one(us);
        };
        let (stripes, used) = (bytes.div_ceil(stripe_bytes), bytes.div_ceil(stripe_bytes).min(self.channels));
        let (stripes, channels) = (stripes as f64, used as f64);
        let streamed_us = self.sequential.us(bytes);
        let stream = (channels * streamed_us)
            .min(stripes * self.sequential.us(stripe_bytes))
            .min(bytes as f64 * self.byte_us);
        let stripe_us = times.us(stripe_bytes);
        let all = stream * self.occupancy + channels * (us - streamed_us);
        let all = all.min(stripes * stripe_us).max(stripe_us);
        let cost = Cost { us, channels: used as usize, channel_us: all / channels };
        debug_assert!(cost.channel_us <= us * (1.0 + 1e-9), "{cost:?}");
        cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight channels, as FaCE's Samsung 470: a page of a stream takes 130.38 us of a channel, the
    /// whole drive reads 251.33 MB/s.
    fn model() -> ModelSection {
        ModelSection {
            channels: 8,
            read_sequential: ServiceTable::new([(4096, 130.38), (32_768, 130.38), (1 << 20, 4172.11)]),
            read_random: ServiceTable::new([(4096, 280.75), (32_768, 280.75), (1 << 20, 4322.48)]),
            write_sequential: ServiceTable::new([(4096, 135.0)]),
            write_random: ServiceTable::new([(4096, 1267.0)]),
            read_mb_s: Some(251.33),
            ..ModelSection::default()
        }
    }

    fn channels_and_us(cost: Cost) -> (usize, f64) {
        (cost.channels, (cost.channel_us * 10.0).round() / 10.0)
    }

    #[test]
    fn a_request_occupies_what_it_is_striped_over_and_pure_streams_reach_the_stated_bandwidth() {
        let model = model();
        let costs = Costs::of_reads(&model);
        for (bytes, sequential, random) in [
            (512, (1, 130.4), (1, 280.8)),
            (4096, (1, 130.4), (1, 280.8)),
            (4608, (2, 73.3), (2, 223.7)),
            (8192, (2, 130.4), (2, 280.7)),
            (32_768, (8, 130.4), (8, 280.7)),
            (262_144, (8, 1043.0), (8, 1193.4)),
            (1 << 20, (8, 4172.1), (8, 4322.5)),
        ] {
            assert_eq!(channels_and_us(costs.sequential(bytes)), sequential, "{bytes} B");
            assert_eq!(channels_and_us(costs.of(bytes, &model.read_random)), random, "{bytes} B");
        }
    }

    #[test]
    fn a_request_costs_no_more_than_its_stripes_and_no_less_than_one_of_them() {
        // The table grows in proportion and no bandwidth is stated.
        let writes = Costs::of_writes(&model()).sequential(65_536);
        assert_eq!((channels_and_us(writes), writes.us), ((8, 270.0), 2160.0));
        let occupied = |occupancy: f64, bytes: u64| {
            let model = ModelSection { read_occupancy: occupancy, ..model() };
            Costs::of_reads(&model).sequential(bytes)
        };
        assert_eq!(channels_and_us(occupied(0.01, 32_768)), (8, 16.3));
        assert_eq!(channels_and_us(occupied(0.25, 262_144)), (8, 260.8));
        assert_eq!(occupied(0.25, 262_144).us, occupied(1.0, 262_144).us);
    }

    #[test]
    fn a_random_request_keeps_its_channels_for_as_much_longer_as_it_takes_longer() {
        let model = model();
        let costs = Costs::of_writes(&model);
        let (stream, random) = (costs.sequential(16_384), costs.of(16_384, &model.write_random));
        assert_eq!((channels_and_us(stream), channels_and_us(random)), ((4, 135.0), (4, 1267.0)));
    }

    #[test]
    fn a_device_that_does_not_stripe_gives_each_request_one_channel() {
        let cost = Costs::of_reads(&ModelSection { striped: false, ..model() }).sequential(1 << 20);
        assert_eq!((cost.channels, cost.channel_us), (1, cost.us));
    }
}
