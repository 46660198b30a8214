//! Servers side by side, with service times from tables: flash and network volumes.
//!
//! A request larger than a stripe occupies as many channels as it has stripes, at most all
//! ([`Costs`] says for how long), so that requests of all kinds and sizes share the
//! drive: a stream that reaches the printed bandwidth leaves nothing for others.
//!
//! Invariants: `free_at` never falls; a request ends when its own time has passed and its last
//! channel has served it, whichever is later; requests take channels in order of arrival.

use crate::outliers::{Met, unit};
use crate::request::{Request, RequestKind};
use crate::streams::{Course, Streams, WorkingArea};
use crate::time::ns;
use firndb_base::rng::Rng;
use firndb_profile::{Blocks, Cost, Costs, ModelSection};

/// The times of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Service {
    /// Its first server starts on it.
    pub start: u64,
    /// Its data is transferred, or durable.
    pub end: u64,
    /// How long servers are occupied, all of them added up.
    pub busy: u64,
}

/// All channels of a device.
#[derive(Clone, Debug)]
pub(crate) struct Channels {
    tables: ModelSection,
    read_costs: Costs,
    write_costs: Costs,
    free_at: Vec<u64>,
    /// All channels, those of the last request first; kept for its allocation.
    order: Vec<usize>,
    reads: Streams,
    area: WorkingArea,
}

impl Channels {
    /// The profile's channels, all idle.
    pub fn new(model: &ModelSection) -> Channels {
        Channels {
            tables: model.clone(),
            read_costs: Costs::of_reads(model),
            write_costs: Costs::of_writes(model),
            free_at: vec![0; model.channels as usize],
            order: (0..model.channels as usize).collect(),
            reads: Streams::new(model.read_streams),
            area: WorkingArea::default(),
        }
    }

    /// What the request costs, without jitter and outliers.
    fn normal(&mut self, request: &Request, write_course: Course) -> Cost {
        let (tables, bytes) = (&self.tables, request.bytes);
        let (reads, writes) = (&self.read_costs, &self.write_costs);
        match (request.kind, write_course) {
            (RequestKind::Sync, _) => Cost::of_one(tables.sync_us),
            (RequestKind::Read, _) => match self.reads.meet(request) {
                Course::Sequential | Course::Overlapping => reads.sequential(bytes),
                Course::Random => reads.of(bytes, &tables.read_random),
            },
            (_, Course::Overlapping) if !tables.write_overlapping.is_empty() => {
                writes.of(bytes, &tables.write_overlapping)
            }
            (_, Course::Sequential | Course::Overlapping) => writes.sequential(bytes),
            (_, Course::Random) => {
                let factor = tables.area_factor(self.area.meet(request));
                writes.of(bytes, &tables.write_random).scaled(factor)
            }
        }
    }

    /// Serves a request that may begin at `from`; `write_course` is its position relative to
    /// earlier writes.
    pub fn serve(
        &mut self,
        from: u64,
        request: &Request,
        write_course: Course,
        outlier: Option<Met>,
        rng: &mut Rng,
    ) -> Service {
        let jitter = self.tables.jitter;
        let drawn = if jitter > 0.0 { 1.0 + jitter * (2.0 * unit(rng) - 1.0) } else { 1.0 };
        let cost = self.normal(request, write_course).scaled(drawn);
        let mut service = self.occupy(from, &cost);
        if let Some(met) = outlier {
            service.end = service.end.max(service.start.saturating_add(ns(met.us)));
            service.busy += self.hold_up(from, service.end, met.blocks);
        }
        service
    }

    /// The time of a sync that waits for nothing.
    pub fn sync_ns(&self) -> u64 {
        ns(self.tables.sync_us)
    }

    /// Occupies all channels for `drain_ns` with writes that a cache has acknowledged.
    pub fn drain(&mut self, from: u64, drain_ns: u64) -> Service {
        self.take_turns(from, self.free_at.len(), drain_ns)
    }

    /// Occupies the channels that are free first, each from when it is free, for an equal share of
    /// the cost.
    fn occupy(&mut self, from: u64, cost: &Cost) -> Service {
        let service = self.take_turns(from, cost.channels, ns(cost.channel_us));
        Service { end: service.end.max(service.start.saturating_add(ns(cost.us))), ..service }
    }

    fn take_turns(&mut self, from: u64, channels: usize, share: u64) -> Service {
        self.choose(channels);
        let (mut start, mut end) = (u64::MAX, 0);
        for &channel in &self.order[..channels] {
            let begins = self.free_at[channel].max(from);
            self.free_at[channel] = begins.saturating_add(share);
            start = start.min(begins);
            end = end.max(self.free_at[channel]);
        }
        Service { start, end, busy: share.saturating_mul(channels as u64) }
    }

    /// Puts the `count` channels that are free first at the beginning of `order`; of several the
    /// lowest-numbered.
    fn choose(&mut self, count: usize) {
        let free_at = &self.free_at;
        if count == 1 {
            let first = (0..free_at.len()).min_by_key(|&channel| free_at[channel]);
            let first = first.expect("a profile has at least one channel");
            let place = self.order.iter().position(|&channel| channel == first);
            self.order.swap(0, place.expect("every channel is in the order"));
        } else if count < free_at.len() {
            self.order.select_nth_unstable_by_key(count - 1, |&channel| (free_at[channel], channel));
        }
    }

    /// Occupies what an outlier that ends at `end` blocks; returns by how much longer.
    fn hold_up(&mut self, from: u64, end: u64, blocks: Blocks) -> u64 {
        let Channels { free_at, order, .. } = self;
        let mut hold = |channel: usize| {
            let begins = free_at[channel].max(from);
            free_at[channel] = free_at[channel].max(end);
            end.saturating_sub(begins)
        };
        match blocks {
            Blocks::Request => 0,
            Blocks::Channel => hold(order[0]),
            Blocks::Device => order.iter().map(|&channel| hold(channel)).sum(),
        }
    }
}
