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
//!
//! The emulator's disks and [`crate::DeviceCosts`] both compute with it.

use crate::model::Mechanics;
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

/// A request to an array of disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskRequest {
    /// Byte of the array.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// A read; else a write that goes to the platter.
    pub reads: bool,
}

/// When an array of disks works on a request; in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskService {
    /// The first arm starts on it.
    pub start: u64,
    /// Its data is transferred.
    pub end: u64,
    /// How long arms are occupied, all of them added up.
    pub busy: u64,
}

/// An array of disks in time; a single disk is an array of one.
#[derive(Clone, Debug)]
pub struct Arms {
    mechanics: Mechanics,
    /// Bytes of one spindle.
    spindle_bytes: u64,
    spindles: Vec<Spindle>,
    rotation_ns: f64,
    track_bytes: f64,
}

/// A position within a rounding error behind the head is under it, not a rotation away.
const ALMOST_A_ROTATION: f64 = 1.0 - 1e-6;

/// Nanoseconds from microseconds.
fn ns(us: f64) -> u64 {
    (us * 1000.0).round() as u64
}

impl Arms {
    /// Idle, with the arms at the beginning.
    #[must_use]
    pub fn new(mechanics: &Mechanics, capacity_bytes: u64) -> Arms {
        let rotation_ns = 60e9 / mechanics.rpm;
        Arms {
            spindle_bytes: capacity_bytes.div_ceil(u64::from(mechanics.spindles)).max(1),
            spindles: vec![Spindle::default(); mechanics.spindles as usize],
            rotation_ns,
            track_bytes: (mechanics.transfer_mb_s * rotation_ns / 1000.0).max(1.0),
            mechanics: mechanics.clone(),
        }
    }

    /// The order in which a batch of requests that begin at these offsets is served: each arm
    /// sweeps upwards from where it stands, if the disk reorders.
    #[must_use]
    pub fn elevator(&self, offsets: &[u64]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..offsets.len()).collect();
        if !self.mechanics.reordering.is_empty() {
            let place = |offset: u64| {
                let (spindle, offset) = self.place(offset);
                (offset < self.spindles[spindle].head, offset)
            };
            order.sort_by_key(|&i| place(offsets[i]));
        }
        order
    }

    /// The earliest moment at which every arm is idle.
    #[must_use]
    pub fn idle_at(&self) -> u64 {
        self.spindles.iter().map(|spindle| spindle.free_at).max().unwrap_or_default()
    }

    /// Keeps the arm that serves `offset` busy until `until`.
    pub fn hold(&mut self, offset: u64, until: u64) {
        let (index, _) = self.place(offset);
        let spindle = &mut self.spindles[index];
        spindle.free_at = spindle.free_at.max(until);
    }

    /// Serves a request that may begin at `from`. `swept` says that it is part of a batch in the
    /// order of [`Arms::elevator`]: its seek is short already.
    pub fn serve(&mut self, from: u64, request: &DiskRequest, swept: bool) -> DiskService {
        if request.bytes == 0 {
            return DiskService { start: from, end: from, busy: 0 };
        }
        if self.spindles.len() == 1 {
            return self.serve_part(0, from, request, swept);
        }
        let mut service = DiskService { start: u64::MAX, end: from, busy: 0 };
        for (index, offset, bytes) in self.parts(request) {
            let part = self.serve_part(index, from, &DiskRequest { offset, bytes, ..*request }, swept);
            service.start = service.start.min(part.start);
            service.end = service.end.max(part.end);
            service.busy += part.busy;
        }
        service
    }

    /// Spindle of a byte of the array, and its offset there.
    fn place(&self, offset: u64) -> (usize, u64) {
        let (stripe, count) = (self.mechanics.stripe_bytes, self.spindles.len() as u64);
        if count == 1 {
            return (0, offset);
        }
        let number = offset / stripe;
        ((number % count) as usize, number / count * stripe + offset % stripe)
    }

    /// The range of each spindle that takes part: one each, since the stripes of a range follow
    /// each other there.
    fn parts(&self, request: &DiskRequest) -> Vec<(usize, u64, u64)> {
        let stripe = self.mechanics.stripe_bytes;
        let mut parts: Vec<(usize, u64, u64)> = Vec::new();
        let (mut at, end) = (request.offset, request.offset.saturating_add(request.bytes));
        while at < end {
            let bytes = (stripe - at % stripe).min(end - at);
            let (spindle, offset) = self.place(at);
            match parts.iter_mut().find(|part| part.0 == spindle) {
                Some(part) => part.2 += bytes,
                None => parts.push((spindle, offset, bytes)),
            }
            at += bytes;
        }
        parts
    }

    /// Serves what lies on one spindle, at its offset there.
    fn serve_part(&mut self, index: usize, from: u64, request: &DiskRequest, swept: bool) -> DiskService {
        let DiskRequest { offset, bytes, reads } = *request;
        let spindle = &mut self.spindles[index];
        while spindle.outstanding.front().is_some_and(|&end| end <= from) {
            spindle.outstanding.pop_front();
        }
        let depth = spindle.outstanding.len() as u32 + 1;
        let free_at = spindle.free_at;
        let transfer = (bytes as f64 * 1000.0 / self.mechanics.transfer_mb_s).round() as u64;
        let ahead = spindle.read_ahead.filter(|&(next, _)| reads && next == offset);
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
                let end = moves + self.positioning_ns(index, moves, request, depth, swept) + transfer;
                self.spindles[index].read_ahead = reads.then_some((offset + bytes, end));
                (start, end)
            }
        };
        let spindle = &mut self.spindles[index];
        spindle.free_at = end;
        spindle.head = offset + bytes;
        spindle.outstanding.push_back(end);
        DiskService { start, end, busy: end - start }
    }

    /// Seek and rotation to a request's offset for an arm that sets out at `moves`.
    fn positioning_ns(
        &self,
        index: usize,
        moves: u64,
        request: &DiskRequest,
        depth: u32,
        swept: bool,
    ) -> u64 {
        let mechanics = &self.mechanics;
        let track = |byte: u64| (byte as f64 / self.track_bytes).floor();
        let distance = (track(request.offset) - track(self.spindles[index].head)).abs();
        let mut seek_ms = 0.0;
        if distance > 0.0 {
            seek_ms = mechanics.seek_ms(distance * self.track_bytes / self.spindle_bytes as f64);
            if !request.reads {
                seek_ms += mechanics.write_settle_ms;
            }
        }
        let seek_ns = seek_ms * 1e6;
        let target = (request.offset as f64 / self.track_bytes).fract();
        let angle = ((moves as f64 + seek_ns) / self.rotation_ns).fract();
        let away = (target - angle).rem_euclid(1.0);
        let rotation_ns = if away > ALMOST_A_ROTATION { 0.0 } else { away * self.rotation_ns };
        let factor = mechanics.reordering_factor(depth);
        let seek_factor = if swept { 1.0 } else { factor };
        (seek_ns * seek_factor + rotation_ns * factor).round() as u64
    }
}
