//! Replaying a recorded trace into simulated flash.

use super::{Nand, NandConfig, NandError};
use firndb_base::hash::FixedMap;
use firndb_device::trace::{TraceEvent, TraceOp};

/// When the operations of a trace are submitted to the flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// At their recorded times, even if earlier ones are not done.
    Recorded,
    /// Each when the previous one is done.
    Closed,
}

/// The extent of a trace, known before it is replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceShape {
    /// Operations that are replayed.
    pub events: u64,
    /// Operations that had failed when they were recorded, and are passed over.
    pub failed: u64,
    /// The first byte behind all operations.
    pub end: u64,
}

impl TraceShape {
    /// Adds one more operation.
    pub fn add(&mut self, event: &TraceEvent) {
        if event.failed {
            self.failed += 1;
        } else {
            self.events += 1;
            self.end = self.end.max(event.end());
        }
    }
}

/// Renumbers the pages of a large, sparsely used device in the order in which they are first
/// touched: pages that are never touched need no flash. Neighbours that are first touched together
/// stay neighbours.
#[derive(Debug, Default)]
pub struct DensePages {
    numbers: FixedMap<u64, u64>,
}

impl DensePages {
    fn number(&mut self, page: u64) -> u64 {
        let next = self.numbers.len() as u64;
        *self.numbers.entry(page).or_insert(next)
    }

    /// Pages touched so far.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.numbers.len() as u64
    }
    /// Whether no page was touched.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Splits the operation at pages of `page_bytes`, and moves the pieces to the pages' new
    /// numbers. A discard touches no page: a page that was not touched before holds nothing to
    /// discard.
    pub fn place(&mut self, event: &TraceEvent, page_bytes: u64) -> Vec<TraceEvent> {
        let mut parts: Vec<TraceEvent> = Vec::new();
        let (mut at, end) = (event.offset, event.end());
        while at < end {
            let (page, within) = (at / page_bytes, at % page_bytes);
            let bytes = (page_bytes - within).min(end - at);
            let number = match event.op {
                TraceOp::Discard | TraceOp::Shrink => self.numbers.get(&page).copied(),
                _ => Some(self.number(page)),
            };
            if let Some(number) = number {
                let offset = number * page_bytes + within;
                match parts.last_mut() {
                    Some(last) if last.end() == offset => last.bytes += bytes,
                    _ => parts.push(TraceEvent { offset, bytes, ..*event }),
                }
            }
            // The last page may end beyond what can be counted.
            at = match at.checked_add(bytes) {
                Some(next) => next,
                None => break,
            };
        }
        if parts.is_empty() && event.bytes == 0 {
            parts.push(*event);
        }
        parts
    }
}

/// Replays the operations of a trace on simulated flash, one after the other.
#[derive(Debug)]
pub struct Replay {
    nand: Nand,
    pace: Pace,
    /// Closed pace: when the last operation was done.
    done_ns: u64,
    /// Recorded pace: added to recorded times, so that repetitions follow each other.
    shift_ns: u64,
    /// The recorded time of the first operation, which is the beginning.
    first_ns: Option<u64>,
    latest_ns: u64,
    latency: Latency,
}

/// Simulated times of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Number of writes, and the sum of their latencies in nanoseconds.
    pub writes: (u64, u64),
    /// Number of reads, and the sum of their latencies in nanoseconds.
    pub reads: (u64, u64),
    /// The longest write.
    pub write_max_ns: u64,
    /// The longest read.
    pub read_max_ns: u64,
}

impl Replay {
    /// New flash; `filled` bytes of it are written, from the first on, before time and counts
    /// begin.
    pub fn new(config: NandConfig, pace: Pace, filled: u64) -> Result<Replay, NandError> {
        let mut nand = Nand::new(config)?;
        nand.fill(filled)?;
        let latency = Latency::default();
        Ok(Replay { nand, pace, done_ns: 0, shift_ns: 0, first_ns: None, latest_ns: 0, latency })
    }

    /// The flash.
    #[must_use]
    pub fn nand(&self) -> &Nand {
        &self.nand
    }
    /// Simulated times so far.
    #[must_use]
    pub fn latency(&self) -> Latency {
        self.latency
    }

    /// Prepares to replay the trace again: its recorded times then follow the latest so far.
    pub fn rewind(&mut self) {
        self.shift_ns = self.latest_ns.max(self.done_ns);
        self.first_ns = None;
    }

    /// Resets all counts, to measure what follows the warm-up.
    pub fn begin_counting(&mut self) {
        self.nand.begin_counting();
        self.latency = Latency::default();
        (self.done_ns, self.latest_ns, self.shift_ns, self.first_ns) = (0, 0, 0, None);
    }

    /// Performs the operation. Failed ones are skipped; syncs cost nothing, since there is no
    /// buffer.
    pub fn step(&mut self, event: &TraceEvent) -> Result<(), NandError> {
        if event.failed {
            return Ok(());
        }
        let first_ns = *self.first_ns.get_or_insert(event.start_ns);
        let from_ns = match self.pace {
            Pace::Recorded => event.start_ns.saturating_sub(first_ns).saturating_add(self.shift_ns),
            Pace::Closed => self.done_ns,
        };
        self.latest_ns = self.latest_ns.max(from_ns);
        let (offset, bytes) = (event.offset, event.bytes);
        match event.op {
            TraceOp::Read => {
                self.done_ns = self.nand.read(offset, bytes, from_ns)?;
                let took = self.done_ns - from_ns;
                self.latency.reads = (self.latency.reads.0 + 1, self.latency.reads.1 + took);
                self.latency.read_max_ns = self.latency.read_max_ns.max(took);
            }
            TraceOp::Write | TraceOp::DurableWrite | TraceOp::GrowWritten => {
                self.done_ns = self.nand.write(offset, bytes, from_ns)?;
                let took = self.done_ns - from_ns;
                self.latency.writes = (self.latency.writes.0 + 1, self.latency.writes.1 + took);
                self.latency.write_max_ns = self.latency.write_max_ns.max(took);
            }
            TraceOp::Discard | TraceOp::Shrink => self.nand.discard(offset, bytes)?,
            TraceOp::Sync | TraceOp::Grow => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nand::Translation;

    fn event(start_ns: u64, op: TraceOp, offset: u64, bytes: u64) -> TraceEvent {
        TraceEvent { start_ns, duration_ns: 0, op, offset, bytes, failed: false }
    }

    fn replay(pace: Pace) -> Replay {
        let config = NandConfig::sized(Translation::Page, 1 << 20, 0.1).expect("it fits");
        Replay::new(config, pace, 0).expect("sound")
    }

    #[test]
    fn operations_become_counts_and_times() {
        let mut replay = replay(Pace::Recorded);
        let second = 1_000_000_000;
        for event in [
            event(5 * second, TraceOp::Write, 0, 4096),
            event(6 * second, TraceOp::DurableWrite, 512, 512),
            event(7 * second, TraceOp::Read, 0, 4096),
            event(7 * second, TraceOp::Sync, 0, 0),
            event(8 * second, TraceOp::Discard, 0, 4096),
            TraceEvent { failed: true, ..event(9 * second, TraceOp::Write, 0, 4096) },
        ] {
            replay.step(&event).expect("inside");
        }
        let report = replay.nand().report();
        let host = report.host;
        assert_eq!((host.writes, host.write_bytes, host.reads, host.discards), (2, 4608, 1, 1));
        assert_eq!(host.partial_pages, 1, "a quarter of a page of 2 KiB");
        assert_eq!((report.flash.programs, report.flash.reads), (3, 3));
        assert_eq!(report.write_amplification(), Some(3.0 * 2048.0 / 4608.0));
        // Two pages on two chips side by side; then read and program; then two reads side by side.
        let latency = replay.latency();
        assert_eq!((latency.writes, latency.reads), ((2, 420_000), (1, 20_000)));
        assert_eq!(report.elapsed_ns, 2 * second + 20_000, "times count from the first operation");
    }

    #[test]
    fn repetitions_follow_each_other_and_closed_replays_wait() {
        let write = event(7, TraceOp::Write, 0, 2048);
        for (pace, elapsed) in [(Pace::Recorded, 400_000), (Pace::Closed, 400_000)] {
            let mut replay = replay(pace);
            replay.step(&write).expect("inside");
            replay.rewind();
            replay.step(&write).expect("inside");
            assert_eq!(replay.nand().report().elapsed_ns, elapsed, "{pace:?}");
        }
        let mut replay = replay(Pace::Closed);
        assert!(matches!(
            replay.step(&event(0, TraceOp::Write, 1 << 20, 512)),
            Err(NandError::OutOfRange { .. })
        ));
    }

    #[test]
    fn dense_pages_keep_what_was_touched_together_together() {
        let mut dense = DensePages::default();
        let gib = 1u64 << 30;
        let first = dense.place(&event(0, TraceOp::Write, 7 * gib + 512, 8192), 4096);
        assert_eq!(first, [event(0, TraceOp::Write, 512, 8192)]);
        assert_eq!(dense.len(), 3);
        let far = dense.place(&event(0, TraceOp::Write, 0, 4096), 4096);
        assert_eq!(far, [event(0, TraceOp::Write, 3 * 4096, 4096)]);
        // A discard covers only the pages that were touched, in the fewest pieces.
        let discard = dense.place(&event(0, TraceOp::Discard, 7 * gib - 4096, 1 << 20), 4096);
        assert_eq!(discard, [event(0, TraceOp::Discard, 0, 3 * 4096)]);
        assert!(dense.place(&event(0, TraceOp::Discard, 5 * gib, 4096), 4096).is_empty());
        assert_eq!(dense.place(&event(0, TraceOp::Sync, 0, 0), 4096).len(), 1);
        let last = dense.place(&event(0, TraceOp::Read, u64::MAX - 511, 511), 4096);
        assert_eq!(last.len(), 1);
    }
}
