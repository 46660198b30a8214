//! Arms and platters: seek by distance, rotation by the clock, transfer; several spindles as a
//! RAID-0.
//!
//! The bytes of a spindle lie on one long spiral: the track of an offset is `offset / track bytes`,
//! its angle the fraction of that. The platter's angle follows from the time alone. A write that
//! continues the last one, submitted after that one has returned, therefore waits for nearly a
//! whole rotation, which is why disks are slow logs (FlashLogging section 1.1); if it was queued
//! before, the disk streams.
//!
//! Sequential reads are served from what the disk has read ahead meanwhile, at most a track, as
//! long as no other request has moved the arm.

use crate::channels::Service;
use crate::outliers::Met;
use crate::request::{Request, RequestKind};
use crate::time::{ns, transfer_ns};
use firndb_profile::Mechanics;
use std::collections::VecDeque;

/// One disk.
#[derive(Clone, Debug, Default)]
struct Spindle {
    free_at: u64,
    /// Byte of this spindle at which the arm stands.
    head: u64,
    /// Where a sequential read would begin, and when the medium had passed it.
    read_ahead: Option<(u64, u64)>,
    /// Ends of the requests that are not done yet.
    outstanding: VecDeque<u64>,
}

/// An array of disks; a single disk is an array of one.
#[derive(Clone, Debug)]
pub(crate) struct Disks {
    mechanics: Mechanics,
    /// Bytes of one spindle.
    spindle_bytes: u64,
    sync_ns: u64,
    spindles: Vec<Spindle>,
    rotation_ns: f64,
    track_bytes: f64,
}

/// A position within a rounding error behind the head is under it, not a rotation away.
const ALMOST_A_ROTATION: f64 = 1.0 - 1e-6;

impl Disks {
    /// Idle, with the arms at the beginning.
    pub fn new(mechanics: &Mechanics, capacity_bytes: u64, sync_us: f64) -> Disks {
        let rotation_ns = 60e9 / mechanics.rpm;
        Disks {
            spindle_bytes: capacity_bytes.div_ceil(u64::from(mechanics.spindles)).max(1),
            sync_ns: ns(sync_us),
            spindles: vec![Spindle::default(); mechanics.spindles as usize],
            rotation_ns,
            track_bytes: (mechanics.transfer_mb_s * rotation_ns / 1000.0).max(1.0),
            mechanics: mechanics.clone(),
        }
    }

    /// The order in which a batch is served: each arm sweeps upwards from where it stands, if the
    /// disk reorders.
    pub fn elevator(&self, requests: &[Request]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..requests.len()).collect();
        if !self.mechanics.reordering.is_empty() {
            let place = |request: &Request| {
                let (spindle, offset) = self.place(request.offset);
                (offset < self.spindles[spindle].head, offset)
            };
            order.sort_by_key(|&i| place(&requests[i]));
        }
        order
    }

    /// Serves a request that may begin at `from`. `swept` says that it is part of a batch in the
    /// order of [`Disks::elevator`]: its seek is short already.
    pub fn serve(&mut self, from: u64, request: &Request, swept: bool, outlier: Option<Met>) -> Service {
        if request.kind == RequestKind::Sync {
            let start = self.spindles.iter().map(|spindle| spindle.free_at).max().unwrap_or(from).max(from);
            return Service { start, end: start + self.sync_ns, busy: self.sync_ns };
        }
        if request.bytes == 0 {
            return Service { start: from, end: from, busy: 0 };
        }
        let mut service = Service { start: u64::MAX, end: from, busy: 0 };
        for (index, offset, bytes) in self.parts(request) {
            let part = self.serve_part(index, from, offset, bytes, request.kind, swept);
            service.start = service.start.min(part.start);
            service.end = service.end.max(part.end);
            service.busy += part.busy;
        }
        if let Some(met) = outlier {
            let (index, _) = self.place(request.offset);
            let late = service.start.saturating_add(ns(met.us)).max(service.end);
            service.busy += late - service.end;
            service.end = late;
            let spindle = &mut self.spindles[index];
            spindle.free_at = spindle.free_at.max(late);
        }
        service
    }

    /// Spindle of a byte of the array, and its offset there.
    fn place(&self, offset: u64) -> (usize, u64) {
        let (stripe, count) = (self.mechanics.stripe_bytes, self.spindles.len() as u64);
        let number = offset / stripe;
        ((number % count) as usize, number / count * stripe + offset % stripe)
    }

    /// The range of each spindle that takes part: one each, since the stripes of a range follow
    /// each other there.
    fn parts(&self, request: &Request) -> Vec<(usize, u64, u64)> {
        let (stripe, count) = (self.mechanics.stripe_bytes, self.spindles.len());
        if count == 1 {
            return vec![(0, request.offset, request.bytes)];
        }
        let mut parts: Vec<(usize, u64, u64)> = Vec::new();
        let mut at = request.offset;
        while at < request.end() {
            let bytes = (stripe - at % stripe).min(request.end() - at);
            let (spindle, offset) = self.place(at);
            match parts.iter_mut().find(|part| part.0 == spindle) {
                Some(part) => part.2 += bytes,
                None => parts.push((spindle, offset, bytes)),
            }
            at += bytes;
        }
        parts
    }

    fn serve_part(
        &mut self,
        index: usize,
        from: u64,
        offset: u64,
        bytes: u64,
        kind: RequestKind,
        swept: bool,
    ) -> Service {
        let spindle = &mut self.spindles[index];
        while spindle.outstanding.front().is_some_and(|&end| end <= from) {
            spindle.outstanding.pop_front();
        }
        let depth = spindle.outstanding.len() as u32 + 1;
        let free_at = spindle.free_at;
        let transfer = transfer_ns(bytes, self.mechanics.transfer_mb_s);
        let ahead = spindle.read_ahead.filter(|&(next, _)| kind == RequestKind::Read && next == offset);
        let (start, end) = match ahead {
            Some((_, passed)) => {
                let start = free_at.max(from);
                let track_ago = start.saturating_sub(self.rotation_ns as u64);
                let on_medium = passed.max(track_ago) + transfer;
                self.spindles[index].read_ahead = Some((offset + bytes, on_medium));
                (start, on_medium.max(start + ns(self.mechanics.buffered_us)))
            }
            None => {
                // The controller works on a waiting request while the arm is busy with another.
                let start = free_at.max(from);
                let moves = free_at.max(from + ns(self.mechanics.overhead_us));
                let end = moves + self.positioning_ns(index, moves, offset, kind, depth, swept) + transfer;
                self.spindles[index].read_ahead =
                    (kind == RequestKind::Read).then_some((offset + bytes, end));
                (start, end)
            }
        };
        let spindle = &mut self.spindles[index];
        spindle.free_at = end;
        spindle.head = offset + bytes;
        spindle.outstanding.push_back(end);
        Service { start, end, busy: end - start }
    }

    /// Seek and rotation to `offset` for an arm that sets out at `moves`.
    fn positioning_ns(
        &self,
        index: usize,
        moves: u64,
        offset: u64,
        kind: RequestKind,
        depth: u32,
        swept: bool,
    ) -> u64 {
        let mechanics = &self.mechanics;
        let track = |byte: u64| (byte as f64 / self.track_bytes).floor();
        let distance = (track(offset) - track(self.spindles[index].head)).abs();
        let mut seek_ms = 0.0;
        if distance > 0.0 {
            let part = (distance * self.track_bytes / self.spindle_bytes as f64).min(1.0);
            let (root, linear) = mechanics.seek_curve();
            seek_ms = mechanics.seek_track_ms + root * part.sqrt() + linear * part;
            if kind != RequestKind::Read {
                seek_ms += mechanics.write_settle_ms;
            }
        }
        let seek_ns = seek_ms * 1e6;
        let target = (offset as f64 / self.track_bytes).fract();
        let angle = ((moves as f64 + seek_ns) / self.rotation_ns).fract();
        let away = (target - angle).rem_euclid(1.0);
        let rotation_ns = if away > ALMOST_A_ROTATION { 0.0 } else { away * self.rotation_ns };
        let factor = self.reordering(depth);
        let seek_factor = if swept { 1.0 } else { factor };
        (seek_ns * seek_factor + rotation_ns * factor).round() as u64
    }

    /// The factor for `depth` requests at a spindle, linear in the logarithm of the depth.
    fn reordering(&self, depth: u32) -> f64 {
        let points = &self.mechanics.reordering;
        let above = points.partition_point(|point| point.depth < depth);
        match (above.checked_sub(1).map(|at| points[at]), points.get(above)) {
            (None, None) => 1.0,
            (Some(last), None) => last.factor,
            (None, Some(first)) => first.factor,
            (Some(low), Some(high)) => {
                let log = |depth: u32| f64::from(depth).ln();
                let part = (log(depth) - log(low.depth)) / (log(high.depth) - log(low.depth));
                low.factor + (high.factor - low.factor) * part
            }
        }
    }
}
