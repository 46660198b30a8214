//! What one measurement does: a description without state, which plans are lists of.

use firn_device::Durability;
use std::fmt;
use std::time::Duration;

/// The question that a cell helps to answer; results are looked up by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Purpose {
    /// How time depends on request size.
    BySize,
    /// How throughput depends on requests in flight.
    ByDepth,
    /// Durable sequential streams side by side, each with its own thread: how wide a log had best be.
    LogStreams,
    /// Sequential streams written in turn by one thread: how many are still sequential to the device.
    AppendStreams,
    /// One percent of the writes goes to a second stream (FlashLogging, figure 7).
    TwoStreams,
    /// Reads and writes at the same time.
    Mixed,
    /// How random writes slow down as the area they fall into grows.
    ByArea,
    /// Written extents against reserved ones and holes.
    ByGround,
    /// The block written last, again and again.
    Rewrite,
    /// A write and then a sync, each timed.
    Sync,
    /// Several reads handed over at once.
    ReadBatch,
    /// Many durable writes in a row: shares, sizes and spacing of outliers.
    Outliers,
    /// Writing without a pause: whether the speed lasts.
    Sustained,
}

impl Purpose {
    /// A word for results, stable over versions.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Purpose::BySize => "by_size",
            Purpose::ByDepth => "by_depth",
            Purpose::LogStreams => "log_streams",
            Purpose::AppendStreams => "append_streams",
            Purpose::TwoStreams => "two_streams",
            Purpose::Mixed => "mixed",
            Purpose::ByArea => "by_area",
            Purpose::ByGround => "by_ground",
            Purpose::Rewrite => "rewrite",
            Purpose::Sync => "sync",
            Purpose::ReadBatch => "read_batch",
            Purpose::Outliers => "outliers",
            Purpose::Sustained => "sustained",
        }
    }
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// Reads.
    Read,
    /// Writes, safe when it returns.
    WriteDurable,
    /// Writes, safe after a later sync that nobody waits for here.
    WriteLater,
    /// Writes, then syncs; the sync's time is kept apart.
    WriteThenSync,
    /// Reads in so many of a hundred requests, durable writes else; the writes' time is kept apart.
    Mixed {
        /// Of a hundred.
        read_percent: u32,
    },
}

impl Op {
    /// A word for results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::WriteDurable => "write_durable",
            Op::WriteLater => "write",
            Op::WriteThenSync => "write_then_sync",
            Op::Mixed { .. } => "mixed",
        }
    }

    /// Whether anything on the device changes.
    #[must_use]
    pub fn writes(self) -> bool {
        self != Op::Read
    }

    pub(crate) fn durability(self) -> Durability {
        match self {
            Op::Read | Op::WriteLater | Op::WriteThenSync => Durability::Later,
            Op::WriteDurable | Op::Mixed { .. } => Durability::Durable,
        }
    }
}

/// Where requests fall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pattern {
    /// One after another, from the area's start again at its end.
    Sequential,
    /// In an order drawn once, so that nothing is touched twice before all is touched once (Myers,
    /// chapter 3).
    Random,
    /// Always the same place.
    Rewrite,
    /// Sequential in the area's first half, but for so many of a hundred, which are sequential in its second.
    TwoStreams {
        /// Of a hundred; their time is kept apart.
        aside_percent: u32,
    },
}

impl Pattern {
    /// A word for results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Pattern::Sequential => "sequential",
            Pattern::Random => "random",
            Pattern::Rewrite => "rewrite",
            Pattern::TwoStreams { .. } => "two_streams",
        }
    }
}

/// What lies under the writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ground {
    /// Blocks that were written before: nothing of the file system changes.
    Written,
    /// Blocks that are reserved and unwritten: the file system notes that they are written now.
    Reserved,
    /// A hole: the file system finds a block first, as it does for a file that is appended to.
    Hole,
}

impl Ground {
    /// A word for results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Ground::Written => "written",
            Ground::Reserved => "reserved",
            Ground::Hole => "hole",
        }
    }
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Why.
    pub purpose: Purpose,
    /// What each request does.
    pub op: Op,
    /// Where.
    pub pattern: Pattern,
    /// Bytes of a request; a multiple of the device's logical block.
    pub bytes: usize,
    /// Requests handed over together; 1 but for [`Purpose::ReadBatch`].
    pub batch: usize,
    /// Requests (or batches) in flight, each kept up by a thread.
    pub depth: usize,
    /// Sequential streams. Fewer than `depth`: all threads share one; else each thread serves its share in turn.
    pub streams: usize,
    /// Bytes from the start that requests fall into; all there is, if `None`.
    pub area: Option<u64>,
    /// What lies under the writes.
    pub ground: Ground,
    /// Time, all rounds together.
    pub budget: Duration,
}

impl Cell {
    /// One request at a time, sequential, one stream, on written ground.
    #[must_use]
    pub fn new(purpose: Purpose, op: Op, pattern: Pattern, bytes: usize, budget: Duration) -> Cell {
        Cell {
            purpose,
            op,
            pattern,
            bytes,
            batch: 1,
            depth: 1,
            streams: 1,
            area: None,
            ground: Ground::Written,
            budget,
        }
    }
    /// With so many requests in flight.
    #[must_use]
    pub fn depth(self, depth: usize) -> Cell {
        Cell { depth, ..self }
    }
    /// With so many sequential streams.
    #[must_use]
    pub fn streams(self, streams: usize) -> Cell {
        Cell { streams, ..self }
    }
    /// With so many requests handed over together.
    #[must_use]
    pub fn batch(self, batch: usize) -> Cell {
        Cell { batch, ..self }
    }
    /// In the first `area` bytes.
    #[must_use]
    pub fn area(self, area: u64) -> Cell {
        Cell { area: Some(area), ..self }
    }
    /// On other ground.
    #[must_use]
    pub fn ground(self, ground: Ground) -> Cell {
        Cell { ground, ..self }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} B", self.op.name(), self.pattern.name(), self.bytes)?;
        if self.depth > 1 {
            write!(f, ", {} in flight", self.depth)?;
        }
        if self.streams > 1 {
            write!(f, ", {} streams", self.streams)?;
        }
        if self.batch > 1 {
            write!(f, ", {} at once", self.batch)?;
        }
        if self.ground != Ground::Written {
            write!(f, ", {}", self.ground.name())?;
        }
        Ok(())
    }
}
