//! Reads of many pieces of a device as one batch, in which pieces that touch or overlap are one
//! request.
//!
//! A merged request is read into a staging buffer and its pieces are copied from there. A vectored
//! read would save the copy, which is cheap beside the checksum of the same bytes, and ask a second
//! kind of transfer of every [`Device`].
//!
//! Invariants:
//! * Each piece is delivered once, with its own outcome. A merged request that fails is repeated
//!   piece by piece, so that a bad block harms only the pieces that contain it.
//! * A request has at most [`REQUEST_BYTES_MAX`] bytes, and a call stages at most
//!   [`STAGING_BYTES_MAX`] at a time: a batch that needs more is submitted in several *waves*.
//!   Pieces that are read straight into their places count for neither.
//!
//! Locks: the list of idle buffers is a leaf.

use firndb_base::sync::{Mutex, Rank};
use firndb_device::{AlignedBuf, Device, DeviceError, Io, IoOp};
use std::mem::take;

/// Most bytes of a merged request: where the sequential rate of drives is reached, and a small part
/// of what one batch may stage.
const REQUEST_BYTES_MAX: usize = 256 << 10;
/// Most bytes that a batch stages at a time.
const STAGING_BYTES_MAX: usize = 1 << 20;
/// Most staging buffers kept for reuse.
const BUFFERS_KEPT: usize = 4;

/// The bytes of a piece, or why they could not be read.
pub(crate) type Delivered<'a> = Result<&'a [u8], DeviceError>;

/// A range of whole blocks to read.
pub(crate) struct Piece<'a> {
    pub offset: u64,
    pub len: usize,
    /// Where the bytes are wanted, aligned as `AlignedBuf` is; without it they are delivered from
    /// the staging buffer.
    pub into: Option<&'a mut [u8]>,
    /// By which the caller knows it.
    pub tag: usize,
}

impl Piece<'_> {
    fn end(&self) -> u64 {
        self.offset + self.len as u64
    }
}

/// Reusable staging buffers.
pub(crate) struct Staging {
    idle: Mutex<Vec<AlignedBuf>>,
}

impl Staging {
    pub(crate) fn new(rank: &'static Rank) -> Staging {
        Staging { idle: rank.mutex(Vec::new()) }
    }

    fn take(&self, bytes: usize) -> AlignedBuf {
        let idle = self.idle.lock().pop();
        idle.filter(|buf| buf.len() >= bytes)
            .unwrap_or_else(|| AlignedBuf::zeroed(bytes.next_power_of_two().max(REQUEST_BYTES_MAX)))
    }

    fn keep(&self, buf: AlignedBuf) {
        let mut idle = self.idle.lock();
        if idle.len() < BUFFERS_KEPT {
            idle.push(buf);
        }
    }
}

/// Reads `pieces`, which are in the order of their offsets, and calls `deliver` with the tag and
/// the bytes of each, in no particular order. Returns the number of requests.
pub(crate) fn read_pieces(
    device: &dyn Device,
    staging: &Staging,
    pieces: &mut [Piece<'_>],
    deliver: &mut dyn FnMut(usize, Delivered<'_>),
) -> usize {
    let requests = merged(pieces);
    let staged: usize = requests.iter().map(|request| request.staged).sum();
    let mut buf = (staged > 0).then(|| staging.take(staged.min(STAGING_BYTES_MAX)));
    let space = buf.as_deref_mut().unwrap_or_default();
    assert!(space.len() <= STAGING_BYTES_MAX, "a call stages {} bytes", space.len());
    let mut reader = Reader { device, space, deliver, requests: 0 };
    reader.read(pieces, &requests);
    let count = reader.requests;
    if let Some(buf) = buf {
        staging.keep(buf);
    }
    count
}

/// A number of adjacent pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) pieces: usize,
    pub(crate) bytes: usize,
    /// Bytes of the staging buffer that it takes: all or none.
    staged: usize,
}

/// The requests for pieces that are in the order of their offsets.
pub(crate) fn merged(pieces: &[Piece<'_>]) -> Vec<Request> {
    let mut requests = Vec::with_capacity(pieces.len());
    let mut rest = pieces;
    while let [first, ..] = rest {
        let mut end = first.end();
        let mut count = 1;
        while let Some(next) = rest.get(count) {
            assert!(next.offset >= first.offset, "pieces are in the order of their offsets");
            let longer = end.max(next.end());
            if next.offset > end || longer - first.offset > REQUEST_BYTES_MAX as u64 {
                break;
            }
            (end, count) = (longer, count + 1);
        }
        requests.push(Request::of(&rest[..count]));
        rest = &rest[count..];
    }
    requests
}

impl Request {
    fn of(pieces: &[Piece<'_>]) -> Request {
        let end = pieces.iter().map(Piece::end).max().expect("a request has a piece");
        let bytes = (end - pieces[0].offset) as usize;
        assert!(bytes <= REQUEST_BYTES_MAX, "a request reads {bytes} bytes");
        let direct = pieces.len() == 1 && pieces[0].into.is_some();
        Request { pieces: pieces.len(), bytes, staged: if direct { 0 } else { bytes } }
    }
}

/// A call under way.
struct Reader<'a> {
    device: &'a dyn Device,
    /// The staging buffer.
    space: &'a mut [u8],
    deliver: &'a mut dyn FnMut(usize, Delivered<'_>),
    requests: usize,
}

impl Reader<'_> {
    /// Reads in waves that the staging buffer has space for.
    fn read(&mut self, mut pieces: &mut [Piece<'_>], mut requests: &[Request]) {
        while !requests.is_empty() {
            let mut staged = 0;
            let fits = |request: &&Request| {
                staged += request.staged;
                staged <= self.space.len()
            };
            let count = requests.iter().take_while(fits).count();
            assert!(count > 0, "the staging buffer holds each request");
            let (now, later) = requests.split_at(count);
            let (wave, rest) = take(&mut pieces).split_at_mut(now.iter().map(|request| request.pieces).sum());
            self.read_wave(wave, now);
            (pieces, requests) = (rest, later);
        }
    }

    fn read_wave(&mut self, pieces: &mut [Piece<'_>], requests: &[Request]) {
        let outcomes = self.submit(pieces, requests);
        let (mut failed, mut at, mut staged) = (Vec::new(), 0, 0);
        for (request, outcome) in requests.iter().zip(outcomes) {
            let range = at..at + request.pieces;
            at = range.end;
            let bytes = &self.space[staged..staged + request.staged];
            staged += request.staged;
            let pieces = &mut pieces[range.clone()];
            match outcome {
                Ok(()) => deliver_all(pieces, bytes, self.deliver),
                Err(error) if pieces.len() == 1 => (self.deliver)(pieces[0].tag, Err(error)),
                Err(_) => failed.push(range),
            }
        }
        for range in failed {
            let pieces = &mut pieces[range];
            let each: Vec<Request> = pieces.chunks(1).map(Request::of).collect();
            self.read(pieces, &each);
        }
    }

    /// Reads each request as one transfer, side by side; returns their outcomes.
    fn submit(&mut self, pieces: &mut [Piece<'_>], requests: &[Request]) -> Vec<Result<(), DeviceError>> {
        let mut batch: Vec<Io<'_>> = Vec::with_capacity(requests.len());
        let (mut pieces, mut space) = (pieces, &mut *self.space);
        for request in requests {
            let (now, later) = take(&mut pieces).split_at_mut(request.pieces);
            let offset = now[0].offset;
            let (staged, free) = take(&mut space).split_at_mut(request.staged);
            space = free;
            let buf = match &mut now[0].into {
                Some(into) if request.staged == 0 => &mut **into,
                _ => staged,
            };
            batch.push(Io { offset, op: IoOp::Read(buf), outcome: Ok(()) });
            pieces = later;
        }
        self.requests += batch.len();
        self.device.submit(&mut batch);
        batch.into_iter().map(|io| io.outcome).collect()
    }
}

/// Delivers the pieces of one request; `staged` has its bytes unless they were read into their
/// place.
fn deliver_all(pieces: &mut [Piece<'_>], staged: &[u8], deliver: &mut dyn FnMut(usize, Delivered<'_>)) {
    let begin = pieces[0].offset;
    for piece in pieces {
        let from = (piece.offset - begin) as usize;
        match &mut piece.into {
            Some(into) if staged.is_empty() => deliver(piece.tag, Ok(into)),
            Some(into) => {
                into.copy_from_slice(&staged[from..from + piece.len]);
                deliver(piece.tag, Ok(into));
            }
            None => deliver(piece.tag, Ok(&staged[from..from + piece.len])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::rng::Rng;
    use firndb_base::sync::Arc;
    use firndb_device::{
        Calls, Counting, DeviceErrorKind, Durability, Fault, FaultPlan, FaultRule, Faulty, Fill,
        MemoryDevice, When,
    };

    static RANK: Rank = Rank::new(999, "a test's staging");
    const BLOCK: usize = 512;

    /// A device of `bytes` bytes, all different for any block.
    fn device(bytes: usize) -> (Arc<MemoryDevice>, Vec<u8>) {
        let mut rng = Rng::new(bytes as u64);
        let contents: Vec<u8> = (0..bytes / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
        let device = Arc::new(MemoryDevice::new("data"));
        device.grow(bytes as u64, Fill::Sparse).unwrap();
        device.write(0, &contents, Durability::Later).unwrap();
        (device, contents)
    }

    /// Reads pieces `(offset, len, direct)`; returns the outcomes by tag, and the requests.
    fn read(
        device: &dyn Device,
        staging: &Staging,
        wanted: &[(usize, usize, bool)],
    ) -> (Vec<Result<Vec<u8>, DeviceError>>, usize) {
        let mut bufs: Vec<AlignedBuf> = wanted.iter().map(|(_, len, _)| AlignedBuf::zeroed(*len)).collect();
        let mut pieces: Vec<Piece<'_>> = wanted
            .iter()
            .zip(&mut bufs)
            .enumerate()
            .map(|(tag, (&(offset, len, direct), buf))| Piece {
                offset: offset as u64,
                len,
                into: direct.then_some(&mut **buf),
                tag,
            })
            .collect();
        pieces.sort_by_key(|piece| piece.offset);
        let mut outcomes: Vec<Option<Result<Vec<u8>, DeviceError>>> = vec![None; wanted.len()];
        let requests = read_pieces(device, staging, &mut pieces, &mut |tag, bytes| {
            assert!(outcomes[tag].replace(bytes.map(<[u8]>::to_vec)).is_none(), "delivered once");
        });
        for ((outcome, buf), (.., direct)) in outcomes.iter().zip(&bufs).zip(wanted) {
            if let (Some(Ok(bytes)), true) = (outcome, direct) {
                assert!(**bytes == **buf, "the bytes are where they are wanted");
            }
        }
        (outcomes.into_iter().map(|outcome| outcome.expect("delivered")).collect(), requests)
    }

    #[test]
    fn requests_and_staging_are_bounded() {
        let (device, contents) = device(8 << 20);
        let counting = Counting::new(device);
        let staging = Staging::new(&RANK);
        let wanted: Vec<_> = (0..2048).map(|page| (page * 4096, 4096, page % 3 > 0)).collect();
        let (read, requests) = read(&counting, &staging, &wanted);
        for (read, (offset, len, _)) in read.iter().zip(&wanted) {
            assert!(read.as_deref() == Ok(&contents[*offset..offset + len]));
        }
        assert_eq!(requests, (8 << 20) / REQUEST_BYTES_MAX);
        let counts = counting.snapshot();
        assert_eq!((counts.reads.ops, counts.batches), (32, 8), "waves of a megabyte");
        let idle = staging.idle.lock();
        assert_eq!(idle.iter().map(|buf| buf.len()).collect::<Vec<_>>(), [STAGING_BYTES_MAX], "one, reused");
    }

    #[test]
    fn pieces_alone_are_read_straight_into_their_places() {
        let (device, _) = device(1 << 20);
        let staging = Staging::new(&RANK);
        let wanted: Vec<_> = (0..100).map(|page| (page * 8192, 4096, true)).collect();
        assert_eq!(read(&*device, &staging, &wanted).1, 100);
        assert!(staging.idle.lock().is_empty(), "nothing was staged");
    }

    #[test]
    fn whatever_pieces_are_wanted_are_delivered_though_reads_fail() {
        const BYTES: usize = 2 << 20;
        let (inner, contents) = device(BYTES);
        let staging = Staging::new(&RANK);
        for seed in 0..if cfg!(miri) { 5 } else { 200 } {
            let mut rng = Rng::new(seed);
            let plan = FaultPlan::new(seed);
            let when = When::OneIn(1 + seed % 10);
            let fault = Fault::Fail(DeviceErrorKind::Failed);
            plan.add(FaultRule { calls: Calls::Reads, device: None, when, fault });
            let device = Faulty::new(inner.clone(), &plan);
            let near = 1 + rng.below((BYTES / BLOCK - 200) as u64);
            let wanted: Vec<_> = (0..1 + rng.below(200))
                .map(|_| {
                    let most = if rng.one_in(9) { 150 } else { 9 };
                    let len = BLOCK * (1 + rng.below(most) as usize);
                    (BLOCK * rng.below(near) as usize, len, rng.one_in(2))
                })
                .collect();
            let faultless = seed % 4 == 0;
            let used: &dyn Device = if faultless { &*inner } else { &device };
            let (read, requests) = read(used, &staging, &wanted);
            for (read, (offset, len, _)) in read.iter().zip(&wanted) {
                match read {
                    Ok(read) => assert!(**read == contents[*offset..offset + len]),
                    Err(_) => assert!(!faultless),
                }
            }
            let failed = read.iter().filter(|read| read.is_err()).count() as u64;
            assert!(failed <= plan.fired(), "a request of one piece failed for each that failed");
            assert!(requests as u64 <= wanted.len() as u64 + plan.fired());
        }
    }
}
