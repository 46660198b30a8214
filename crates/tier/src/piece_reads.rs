//! Pieces of a device that are read side by side and taken as they come: those that touch or
//! overlap as one request, and requests that are late a second time.
//!
//! Invariants:
//! * Each piece is delivered once. A request of several that fails is repeated piece by piece, so
//!   that a bad block harms only the pieces that contain it.
//! * A request that was begun a second time counts when the first of the two succeeds. The other
//!   one is left under way, at most [`COPIES_MAX`] of a thread, and its memory with it.

use crate::merged_reads::{Piece, merged};
use crate::page_reads::Bufs;
use firndb_base::clock::{self, Moment};
use firndb_device::{AlignedBuf, Device, DeviceError, InFlight, LateReads, Lateness, OwnedRead};
use std::collections::BTreeMap;

/// Most requests of a thread that are under way twice, or left behind.
const COPIES_MAX: usize = 8;

/// The device that is read, and what is known of its reads.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub device: &'a dyn Device,
    pub late: &'a LateReads,
}

/// Pieces that one thread has under way on one device.
#[derive(Default)]
pub(crate) struct PieceReads {
    in_flight: InFlight,
    requests: BTreeMap<u64, UnderWay>,
    /// Reads under way whose request is complete.
    left_behind: usize,
    /// When to look for late ones.
    look_at: Option<Moment>,
}

/// A request.
struct UnderWay {
    offset: u64,
    len: usize,
    /// Its reads under way: two if it was begun again.
    reads: usize,
    is_twice: bool,
    pieces: Vec<Part>,
}

impl UnderWay {
    /// One more read of it.
    fn read(&mut self, number: u64, bufs: &mut Bufs) -> OwnedRead {
        self.reads += 1;
        let tag = number << 1 | u64::from(self.is_twice);
        OwnedRead { offset: self.offset, len: self.len, buf: bufs.take(self.len), tag }
    }
}

/// Notes a request for pieces that touch or overlap; returns the read that is to be begun for it.
fn new_request(
    under_way: &mut BTreeMap<u64, UnderWay>,
    late: &LateReads,
    bufs: &mut Bufs,
    pieces: Vec<Part>,
    len: usize,
) -> OwnedRead {
    let (number, offset) = (late.begin(len, 1, clock::now()), pieces[0].offset);
    let mut request = UnderWay { offset, len, reads: 0, is_twice: false, pieces };
    let read = request.read(number, bufs);
    under_way.insert(number, request);
    read
}

/// A piece of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub tag: usize,
    pub offset: u64,
    pub len: usize,
}

/// A request that is complete.
pub(crate) struct Completed {
    pub pieces: Vec<Part>,
    /// Offset on the device of the first byte of `buf`.
    pub offset: u64,
    pub buf: AlignedBuf,
    /// An error only for a single piece.
    pub outcome: Result<(), DeviceError>,
}

impl PieceReads {
    /// Begins to read pieces, which are in the order of their offsets; returns the number of
    /// requests.
    pub(crate) fn begin(&mut self, source: Source<'_>, bufs: &mut Bufs, mut pieces: &[Piece<'_>]) -> usize {
        let requests = merged(pieces);
        let Self { in_flight, requests: under_way, .. } = self;
        let mut reads = requests.iter().map(|request| {
            let (now, later) = pieces.split_at(request.pieces);
            pieces = later;
            let parts = now.iter().map(|piece| Part { tag: piece.tag, offset: piece.offset, len: piece.len });
            new_request(under_way, source.late, bufs, parts.collect(), request.bytes)
        });
        source.device.begin_reads(in_flight, &mut reads);
        requests.len()
    }

    fn begin_request(&mut self, source: Source<'_>, bufs: &mut Bufs, pieces: Vec<Part>, len: usize) {
        let read = new_request(&mut self.requests, source.late, bufs, pieces, len);
        source.device.begin_read(&mut self.in_flight, read);
    }

    /// Begins a request again.
    fn begin_copy(&mut self, source: Source<'_>, bufs: &mut Bufs, number: u64) {
        let request = self.requests.get_mut(&number).expect("it is under way");
        source.device.begin_read(&mut self.in_flight, request.read(number, bufs));
    }

    /// Waits for the next request to complete; `None` if none is under way. Also returns how many
    /// were begun meanwhile.
    pub(crate) fn next(&mut self, source: Source<'_>, bufs: &mut Bufs) -> (Option<Completed>, usize) {
        let mut begun = 0;
        let once = self.requests.iter().find(|(_, request)| !request.is_twice);
        if let (None, Some((oldest, _)), false) = (self.look_at, once, source.device.hides_late_reads()) {
            // This may have passed: what is complete is taken first.
            self.look_at = source.late.late_at(*oldest);
        }
        while !self.requests.is_empty() {
            let Some(done) = source.device.next_read(&mut self.in_flight, self.look_at) else {
                begun += self.begin_late(source, bufs);
                continue;
            };
            let OwnedRead { buf, tag, .. } = done.read;
            let (number, is_copy) = (tag >> 1, tag & 1 == 1);
            let Some(request) = self.requests.get_mut(&number) else {
                self.left_behind -= 1;
                bufs.keep(buf);
                continue;
            };
            request.reads -= 1;
            if done.outcome.is_err() && request.reads > 0 {
                bufs.keep(buf);
                continue;
            }
            let request = self.requests.remove(&number).expect("it was there");
            self.left_behind += request.reads;
            let in_vain = request.is_twice && request.reads > 0 && !is_copy;
            source.late.complete(number, in_vain, clock::now());
            if done.outcome.is_err() && request.pieces.len() > 1 {
                bufs.keep(buf);
                for piece in request.pieces {
                    self.begin_request(source, bufs, vec![piece], piece.len);
                    begun += 1;
                }
                continue;
            }
            let UnderWay { pieces, offset, .. } = request;
            return (Some(Completed { pieces, offset, buf, outcome: done.outcome }), begun);
        }
        (None, begun)
    }

    /// Begins those again that are late; how many.
    #[cold]
    fn begin_late(&mut self, source: Source<'_>, bufs: &mut Bufs) -> usize {
        let (now, mut late, mut next) = (clock::now(), Vec::new(), None::<Moment>);
        let mut copies = self.left_behind + self.requests.values().filter(|it| it.is_twice).count();
        for (number, _) in self.requests.iter().filter(|(_, request)| !request.is_twice) {
            if copies == COPIES_MAX {
                break;
            }
            match source.late.judge(*number, now) {
                Lateness::Late => {
                    late.push(*number);
                    copies += 1;
                }
                Lateness::LookAt(moment) => next = Some(next.map_or(moment, |next| next.min(moment))),
                Lateness::Unknown => {}
            }
        }
        self.look_at = next;
        for number in &late {
            self.requests.get_mut(number).expect("it is under way").is_twice = true;
            self.begin_copy(source, bufs, *number);
        }
        assert!(self.in_flight.count() <= self.requests.len() + COPIES_MAX, "copies are bounded");
        late.len()
    }
}
