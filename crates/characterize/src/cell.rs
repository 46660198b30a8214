//! What one measurement does: a description without state. A plan is a list of these.

use firndb_device::Durability;
use std::fmt;
use std::time::Duration;

/// The question that a cell helps to settle; results are looked up by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Purpose {
    /// How time depends on request size.
    BySize,
    /// How throughput depends on requests in flight.
    ByDepth,
    /// Durable sequential streams side by side, each with its own thread: the best width of a log.
    LogStreams,
    /// Sequential streams written in turn by one thread: how many the device still treats as
    /// sequential.
    AppendStreams,
    /// One percent of the writes goes to a second stream (FlashLogging, figure 7).
    TwoStreams,
    /// Reads and writes at the same time.
    Mixed,
    /// Random reads beside a stream of large requests: how much of the device a stream occupies.
    Beside,
    /// How random writes slow down as the area they fall into grows.
    ByArea,
    /// Written extents compared with reserved ones and holes.
    ByGround,
    /// The most recently written block, again and again.
    Rewrite,
    /// A write and then a sync, each timed.
    Sync,
    /// Several reads submitted at once.
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
            Purpose::Beside => "beside",
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
    /// A read.
    Read,
    /// A write that is durable when it returns.
    WriteDurable,
    /// A write that is durable after a later sync, which the cell does not wait for.
    WriteLater,
    /// A write, then a sync; the sync's time is recorded apart.
    WriteThenSync,
    /// Reads in `read_percent` of the requests, durable writes in the others; the writes' time is
    /// recorded apart.
    Mixed {
        /// Percentage of reads.
        read_percent: u32,
    },
    /// Random reads, and in one of the threads a sequential stream of requests of
    /// [`STREAM_BYTES`], whose time is recorded apart. More of them would fill the interface and
    /// leave the chips idle, whose time is the question.
    Beside {
        /// Whether the stream is of durable writes; it reads otherwise.
        writes: bool,
    },
}

/// Size of the requests of a stream beside reads: a group of a flash cache.
pub const STREAM_BYTES: usize = 256 << 10;

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
            Op::Beside { writes: true } => "read_beside_writes",
            Op::Beside { writes: false } => "read_beside_reads",
        }
    }

    /// Whether anything on the device changes.
    #[must_use]
    pub fn writes(self) -> bool {
        !matches!(self, Op::Read | Op::Beside { writes: false })
    }

    pub(crate) fn durability(self) -> Durability {
        match self {
            Op::Read | Op::WriteLater | Op::WriteThenSync => Durability::Later,
            Op::WriteDurable | Op::Mixed { .. } | Op::Beside { .. } => Durability::Durable,
        }
    }
}

/// Which offsets requests have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pattern {
    /// One after another, from the area's start again at its end.
    Sequential,
    /// In an order drawn once, so that no block is touched twice before every block is touched once
    /// (Myers, chapter 3).
    Random,
    /// Always the same place.
    Rewrite,
    /// Sequential in the area's first half, except for `aside_percent` of the requests, which are
    /// sequential in its second half.
    TwoStreams {
        /// Percentage of requests in the second half; their time is recorded apart.
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

/// The state of the blocks that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ground {
    /// Blocks that were written before: the file system changes no metadata.
    Written,
    /// Blocks that are reserved and unwritten: the file system records that they are written now.
    Reserved,
    /// A hole: the file system allocates a block first, as it does when a file is appended to.
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
    /// The question that the cell helps to settle.
    pub purpose: Purpose,
    /// What each request does.
    pub op: Op,
    /// Which offsets the requests have.
    pub pattern: Pattern,
    /// Bytes of a request; a multiple of the device's logical block.
    pub bytes: usize,
    /// Requests submitted together; 1 except for [`Purpose::ReadBatch`].
    pub batch: usize,
    /// Requests (or batches) in flight, each issued by its own thread.
    pub depth: usize,
    /// Sequential streams. Fewer than `depth`: all threads share one; else each thread serves its
    /// share in turn.
    pub streams: usize,
    /// Bytes from the start that requests fall into; the whole area if `None`.
    pub area: Option<u64>,
    /// The state of the blocks that are written.
    pub ground: Ground,
    /// Time of all rounds together.
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
    /// Requests in flight that belong to a stream beside reads.
    #[must_use]
    pub fn stream_depth(&self) -> usize {
        usize::from(matches!(self.op, Op::Beside { .. }))
    }
    /// With `depth` requests in flight.
    #[must_use]
    pub fn depth(self, depth: usize) -> Cell {
        Cell { depth, ..self }
    }
    /// With `streams` sequential streams.
    #[must_use]
    pub fn streams(self, streams: usize) -> Cell {
        Cell { streams, ..self }
    }
    /// With `batch` requests submitted together.
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
