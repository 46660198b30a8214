//! How much of the log is read ahead, and by whom.

use crate::read::ahead::READS;

/// Bytes of a read by a thread that reads ahead: what the fastest drives need.
pub(crate) const CHUNK_MAX: usize = 1 << 20;
/// Bytes of a read without such threads. The log may be open, and its devices busy.
const CHUNK_IN_TURN: usize = 256 << 10;
/// The least: one unit of the largest size. Chunks are multiples of it, and so of every unit.
const CHUNK_MIN: usize = 64 << 10;
/// Chunks of a stream with threads: one for each read in flight, one that was read and waits, and
/// one that is examined.
const CHUNKS: usize = READS + 2;
/// Chunks of a stream without.
const CHUNKS_IN_TURN: usize = 4;

/// Memory for reading ahead, of all streams together, if the caller sets none.
pub(crate) const BYTES_USUAL: usize = 32 << 20;

/// How a stream is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadAhead {
    /// Whether threads read it ahead.
    pub threads: bool,
    /// Bytes of the largest read.
    pub chunk_bytes: usize,
    /// Most chunks in memory.
    pub chunks: usize,
}

impl ReadAhead {
    /// For each of `streams` streams, which share `bytes` bytes: all chunks together take no more,
    /// as long as each stream has [`CHUNKS`] of [`CHUNK_MIN`] bytes.
    pub fn of(threads: bool, bytes: usize, streams: usize) -> ReadAhead {
        let (most, chunks) = if threads { (CHUNK_MAX, CHUNKS) } else { (CHUNK_IN_TURN, CHUNKS_IN_TURN) };
        let share = bytes / streams.max(1) / chunks;
        let chunk_bytes = (share - share % CHUNK_MIN).clamp(CHUNK_MIN, most);
        ReadAhead { threads, chunk_bytes, chunks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_streams_together_take_no_more_than_the_budget() {
        for (bytes, streams) in [(0, 1), (320 << 10, 1), (1 << 20, 1), (16 << 20, 3), (32 << 20, 8)] {
            for threads in [false, true] {
                let how = ReadAhead::of(threads, bytes, streams);
                let least = streams * CHUNK_MIN * how.chunks;
                assert!(how.chunk_bytes * how.chunks * streams <= bytes.max(least), "{how:?}");
                assert!(how.chunk_bytes.is_multiple_of(CHUNK_MIN));
            }
        }
        let usual = |streams| ReadAhead::of(true, BYTES_USUAL, streams).chunk_bytes;
        assert_eq!([1, 2, 4, 8].map(usual), [1 << 20, 1 << 20, 1 << 20, 768 << 10]);
    }
}
