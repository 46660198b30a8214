//! What rows cost that do not fit in memory: they are written to the spill device and read again,
//! in requests as large as the operators' ([`Sizes`]), once or several times.

use super::costs::Costs;
use super::times::DeviceTimes;
use firndb_profile::{Access, Order, Submission, Work};
use firndb_spill::{Arena, Sizes};

/// What an operator spills.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Spill {
    /// Bytes written.
    pub(super) bytes: f64,
    /// Microseconds to write them and to read them again, and for the rows that are put together
    /// once more.
    pub(super) us: f64,
}

/// Rows of one side of a join.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    pub(super) rows: f64,
    /// Of all of them.
    pub(super) bytes: f64,
}

/// Bytes of a row of the build side besides its own, and those that rows kept for sorting take.
const HASHED_BYTES: f64 = 80.0;
const SORTED_BYTES: f64 = 48.0;
/// The part of its share that a hash join has for the rows of the build side.
const HASHED_PART: f64 = 9.0 / 16.0;
/// Levels of partitions that are considered.
const LEVELS: u32 = 4;
/// Where a stream may begin: so far from others that it continues none of them.
const WRITTEN_WITHIN: u64 = 1 << 30;
/// A device's logical block: what it really is makes little difference.
const LOGICAL_BLOCK: usize = 512;

impl Spill {
    pub(super) fn plus(self, other: Spill) -> Spill {
        Spill { bytes: self.bytes + other.bytes, us: self.us + other.us }
    }
}

impl Side {
    /// Whether a hash join in this share of memory keeps it as the build side without spilling.
    pub(super) fn is_hashed_in(self, share: f64) -> bool {
        self.bytes + self.rows * HASHED_BYTES <= share * HASHED_PART
    }
}

impl Costs {
    /// A sort of these rows in this share of memory: runs, which are merged, more than once if
    /// there are very many.
    pub(super) fn sort_spill(&self, side: Side, share: f64) -> Spill {
        if side.bytes + side.rows * SORTED_BYTES <= share {
            return Spill::default();
        }
        let share = share.max(1.0);
        let sizes = Sizes::new(share as usize, LOGICAL_BLOCK);
        let longest = (side.bytes / side.rows.max(1.0)) as usize;
        let ways = sizes.ways(longest);
        let mut runs = ((side.bytes + side.rows * SORTED_BYTES) / share).ceil().max(2.0);
        let mut spill = Spill::default();
        loop {
            let merged = (runs as usize).min(ways);
            let write = self.written_us(side.bytes, sizes.run(), runs);
            // Those whose buffer is empty are read together: half of them, in the mean.
            let request = (sizes.merged(merged, longest), Order::Random);
            let read = self.read_again_us(side.bytes, request, merged as f64 / 2.0, side.bytes);
            spill = spill.plus(Spill { bytes: side.bytes, us: write + read });
            runs /= ways as f64;
            if runs <= 1.0 {
                return spill;
            }
        }
    }

    /// A hash join in this share of memory, `matching` of whose probe rows have a partner.
    pub(super) fn hash_spill(&self, build: Side, probe: Side, matching: f64, share: f64) -> Spill {
        let sizes = Sizes::new(share as usize, LOGICAL_BLOCK);
        let partitions = sizes.partitions() as f64;
        // The last chunk of each is half empty, and each ends with space for half a row.
        let chunk = Arena::chunk_bytes((share / partitions) as usize) as f64;
        let kept = (share * HASHED_PART - partitions * chunk / 2.0).max(1.0);
        let unused = 1.0 + (build.bytes / build.rows.max(1.0) / chunk / 2.0).min(1.0);
        let (mut each, mut joins) = (build.bytes * unused + build.rows * HASHED_BYTES, 1.0);
        let mut spill = Spill::default();
        for _ in 0..LEVELS {
            if each <= kept {
                break;
            }
            // Whole partitions go.
            let out = (partitions * (1.0 - kept / each)).ceil();
            let part = out / partitions * joins;
            let sides = [part * build.bytes, part * matching * probe.bytes];
            let bytes = sides[0] + sides[1];
            // The blocks of a buffer that are full; a partition's of them lie together.
            let stream = sizes.stream() as f64 * 0.75;
            // A buffer of them is read together, and waited for; the last of a partition is less.
            let read = sides.into_iter().filter(|side| *side > 0.0).map(|side| {
                let run = side / (out * joins);
                let buffers = (run / sizes.scan() as f64).ceil();
                let piece = (stream / out).min(run).max(sizes.block as f64) as usize;
                let piece = piece.next_power_of_two();
                let gap = Order::Ascending { gap_bytes: (piece as f64 * (out - 1.0)) as u64 };
                let depth = (run / buffers / piece as f64).max(1.0);
                self.read_again_us(side, (piece, gap), depth, bytes)
            });
            let us = read.sum::<f64>()
                + self.written_us(bytes, stream as usize, 2.0 * joins)
                + self.kept_us(2.0 * part * (build.rows + matching * probe.rows));
            spill = spill.plus(Spill { bytes, us });
            // What was not spilled is joined.
            (joins, each) = (part, each / partitions);
        }
        spill
    }

    /// These rows in one run, written and read again.
    pub(super) fn run_spill(&self, side: Side, share: f64) -> Spill {
        let sizes = Sizes::new(share as usize, LOGICAL_BLOCK);
        let read = self.read_again_us(side.bytes, (sizes.scan(), Order::Sequential), 1.0, side.bytes);
        Spill { bytes: side.bytes, us: self.written_us(side.bytes, sizes.run(), 1.0) + read }
    }

    /// In as many streams, each of which begins anywhere: that costs early flash a multiple of what
    /// follows.
    fn written_us(&self, bytes: f64, request: usize, streams: f64) -> f64 {
        let request = (request as f64).min(bytes / streams).max(1.0);
        let bytes_of_request = (request as u64).next_power_of_two();
        let of = |device: &DeviceTimes, order: Order| {
            device.request_us(&Work {
                access: Access::Write,
                bytes: bytes_of_request,
                order,
                depth: 1,
                submission: Submission::Steady,
                span_bytes: WRITTEN_WITHIN,
            }) * request
                / bytes_of_request as f64
        };
        self.spill.as_ref().map_or(0.0, |device| {
            let behind = (bytes / request - streams).max(0.0);
            streams * of(device, Order::Random) + behind * of(device, Order::Sequential)
        })
    }

    fn read_again_us(&self, bytes: f64, (request, order): (usize, Order), depth: f64, span: f64) -> f64 {
        let request = request.next_power_of_two() as u64;
        let work = Work {
            access: Access::Read,
            bytes: request,
            order,
            depth: (depth as u32).max(1),
            submission: Submission::Batches,
            span_bytes: span as u64,
        };
        self.spill.as_ref().map_or(0.0, |device| device.request_us(&work) * bytes / request as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs() -> Costs {
        Costs { spill: Some(DeviceTimes::assumed()), ..Costs::assumed(4096) }
    }

    #[test]
    fn what_fits_costs_nothing_and_little_memory_costs_more() {
        let side = |rows: f64| Side { rows, bytes: rows * 100.0 };
        assert_eq!(costs().sort_spill(side(1000.0), 1e6), Spill::default());
        assert_eq!(costs().hash_spill(side(1000.0), side(1e6), 1.0, 1e6), Spill::default());
        let shares = [30e6, 10e6, 1e6, 1e5];
        let sorts = shares.map(|share| costs().sort_spill(side(1e6), share));
        let joins = shares.map(|share| costs().hash_spill(side(1e6), side(3e6), 1.0, share));
        for spills in [sorts, joins] {
            assert!(spills.is_sorted_by(|a, b| a.bytes <= b.bytes && a.us < b.us * 1.05), "{spills:?}");
        }
        assert_eq!(sorts[0].bytes, 1e8, "once");
        assert!(costs().sort_spill(side(1e6), 0.0).us.is_finite(), "it ends");
        assert!(joins[0].bytes < 4e8 && joins[2].bytes > 3.9e8, "a part stays in memory: {joins:?}");
        let unmatched = costs().hash_spill(side(1e6), side(3e6), 0.0, 1e7);
        assert!((unmatched.bytes - 1e8).abs() < 1e7, "the filter spares the probe side: {unmatched:?}");
    }

    #[test]
    fn each_stream_begins_with_a_write_anywhere() {
        let (costs, request) = (costs(), 64 << 10);
        let [one, two] = [1.0, 2.0].map(|streams| costs.written_us(1e6, request, streams));
        assert!(two > one, "{two} beside {one}");
        // A few bytes of a stream are one write, as long as a larger one.
        let few = costs.written_us(1000.0, request, 2.0);
        assert!(few >= 0.9 * (two - one), "{few} beside {}", two - one);
    }

    #[test]
    fn small_partitions_are_read_one_after_the_other() {
        // As many bytes are spilled, of more partitions: each is waited for.
        let side = |rows: f64| Side { rows, bytes: rows * 100.0 };
        let small = costs().hash_spill(side(700.0), side(3000.0), 1.0, 1e5);
        let large = costs().hash_spill(side(700_000.0), side(3e6), 1.0, 1e8);
        assert!(small.us / small.bytes > 2.0 * large.us / large.bytes, "{small:?} {large:?}");
    }
}
