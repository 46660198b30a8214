//! Servers side by side, with service times from tables: flash and network volumes.

use crate::outliers::{Met, unit};
use crate::request::{Request, RequestKind};
use crate::streams::{Course, Streams, WorkingArea};
use crate::time::ns;
use firndb_base::rng::Rng;
use firndb_profile::{Blocks, ModelSection};

/// The times of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Service {
    /// Its server starts on it.
    pub start: u64,
    /// Its data is transferred, or durable.
    pub end: u64,
    /// How long the server is occupied.
    pub busy: u64,
}

/// All channels of a device.
#[derive(Clone, Debug)]
pub(crate) struct Channels {
    tables: ModelSection,
    free_at: Vec<u64>,
    reads: Streams,
    area: WorkingArea,
}

impl Channels {
    /// The profile's channels, all idle.
    pub fn new(model: &ModelSection) -> Channels {
        Channels {
            tables: model.clone(),
            free_at: vec![0; model.channels as usize],
            reads: Streams::new(model.read_streams),
            area: WorkingArea::default(),
        }
    }

    fn normal_us(&mut self, request: &Request, write_course: Course) -> f64 {
        let tables = &self.tables;
        match (request.kind, write_course) {
            (RequestKind::Sync, _) => tables.sync_us,
            (RequestKind::Read, _) => match self.reads.meet(request) {
                Course::Sequential | Course::Overlapping => tables.read_sequential.us(request.bytes),
                Course::Random => tables.read_random.us(request.bytes),
            },
            (_, Course::Overlapping) if !tables.write_overlapping.is_empty() => {
                tables.write_overlapping.us(request.bytes)
            }
            (_, Course::Sequential | Course::Overlapping) => tables.write_sequential.us(request.bytes),
            (_, Course::Random) => {
                let area = self.area.meet(request);
                tables.write_random.us(request.bytes) * area_factor(tables, area)
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
        let normal = ns(self.normal_us(request, write_course) * drawn);
        let busy = outlier.map_or(normal, |met| normal.max(ns(met.us)));
        let channel = earliest(&self.free_at);
        let start = self.free_at[channel].max(from);
        let end = start.saturating_add(busy);
        match outlier.map(|met| met.blocks) {
            None | Some(Blocks::Channel) => self.free_at[channel] = end,
            Some(Blocks::Request) => self.free_at[channel] = start.saturating_add(normal),
            Some(Blocks::Device) => self.free_at.iter_mut().for_each(|free| *free = end.max(*free)),
        }
        Service { start, end, busy }
    }
}

/// The server that is free first; the lowest-numbered of several.
fn earliest(free_at: &[u64]) -> usize {
    (0..free_at.len()).min_by_key(|&channel| free_at[channel]).expect("a profile has at least one channel")
}

fn area_factor(tables: &ModelSection, bytes: u64) -> f64 {
    let points = &tables.area;
    let above = points.partition_point(|point| point.bytes < bytes);
    match (above.checked_sub(1).map(|at| points[at]), points.get(above)) {
        (None, None) => 1.0,
        (Some(last), None) => last.factor,
        (None, Some(first)) => first.factor,
        (Some(low), Some(high)) => {
            let part = (bytes - low.bytes) as f64 / (high.bytes - low.bytes) as f64;
            low.factor + (high.factor - low.factor) * part
        }
    }
}
