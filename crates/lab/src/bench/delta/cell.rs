//! What is measured: a method over a stream.

use super::recording::{Driven, Extent, Setting, Streams, Writes};
use super::timed::Timed;
use crate::bench::cells::Cellular;
use firndb_console::Failure;
use firndb_page_comparators::bound::Bound;
use firndb_page_comparators::medium::{Bytes, Counts, Direction};
use firndb_page_comparators::stream::StreamReader;
use firndb_page_comparators::{
    APPEND_PACK_ENTRY_BYTES, AppendPack, FIRN_ENTRY_BYTES, Firn, FirnOptions, InPageLogging, InPlace,
    Incremental, LOG_SHARE, Medium, Method, Naive, Part, Placement, RentOrBuy, Replayed, SegmentOptions,
    Start, replay,
};
use firndb_profile::VariantName;
use firndb_tier::TierStatistics;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Space over pages: a drive of 32 GB for 1 GB of pages; and what Firn's store takes.
const AMPLE: f64 = 32.0;
const TIGHT: f64 = 1.25;

/// The methods.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    /// The paper's ORIG.
    InPlace,
    /// The same with a double-write area.
    DoubleWrite,
    /// The paper's A&P on a drive so large that no space is reclaimed.
    AppendPack,
    /// The same on as much space as Firn's store takes.
    AppendPackTight,
    Naive,
    /// The paper's WOL.
    Incremental,
    InPageLogging,
    /// The model of Firn without deltas.
    Off,
    /// Firn's store itself without deltas, as it counts in a run of its own.
    Store,
    /// Firn's store itself with deltas: always, or as the profile of this drive decides.
    StoreDeltas {
        drive: Option<&'static str>,
    },
    /// The model of Firn's deltas, with the cost of reading a delta page over that of writing a
    /// page.
    Firn {
        read_cost: f64,
    },
    /// The model of Firn with placement by whole segments; with deltas, or without.
    Segments {
        read_cost: Option<f64>,
        options: SegmentOptions,
    },
    /// The same over the whole stream, its first events included.
    FirnFromStart,
    /// The least that could be written, over the whole stream.
    Bound,
}

impl Way {
    /// As in tables.
    pub fn title(self) -> &'static str {
        match self {
            Way::InPlace => "in place (ORIG)",
            Way::DoubleWrite => "in place, double write",
            Way::AppendPack => "append and pack",
            Way::AppendPackTight => "append and pack, little space",
            Way::Naive => "naive",
            Way::Incremental => "ICL as published",
            Way::InPageLogging => "IPL (model)",
            Way::Off => "firn, deltas off (model)",
            Way::Store => "firn, deltas off (store)",
            Way::StoreDeltas { drive: None } => "firn (store)",
            Way::StoreDeltas { .. } => "firn auto (store)",
            Way::Firn { .. } | Way::FirnFromStart => "firn (model)",
            Way::Segments { read_cost: None, .. } => "firn, segments, deltas off (model)",
            Way::Segments { .. } => "firn, segments (model)",
            Way::Bound => "minimum",
        }
    }

    /// Bytes of a page's entry in the method's table, at most. Methods with a write buffer share
    /// one stream, and so the memory of the largest table among them.
    fn entry_bytes(self) -> u64 {
        match self {
            Way::InPlace | Way::DoubleWrite => 0,
            Way::AppendPack | Way::AppendPackTight => APPEND_PACK_ENTRY_BYTES,
            _ => FIRN_ENTRY_BYTES,
        }
    }

    fn part(self) -> Part {
        if matches!(self, Way::FirnFromStart | Way::Bound) { Part::Whole } else { Part::Measured }
    }
}

/// A method over a stream.
#[derive(Clone, Debug)]
pub struct Cell {
    pub extent: Extent,
    pub page_size: u64,
    pub checkpoints: bool,
    pub way: Way,
    /// Megabytes of a write buffer, of 100 of memory: taken off the frames. 0: none.
    pub buffer: u64,
    /// Profiles of the drives whose virtual time is measured.
    pub drives: Vec<&'static str>,
}

impl Cellular for Cell {
    type Found = Found;

    fn name(&self) -> String {
        let checkpoints = if self.checkpoints { "" } else { ", no checkpoints" };
        let read_cost = match self.way {
            Way::Firn { read_cost } => format!(", reads at {read_cost:.3}"),
            Way::FirnFromStart => ", from the start".into(),
            Way::StoreDeltas { drive: Some(drive) } => format!(" on {drive}"),
            Way::Segments { read_cost, options } => format!(", reads at {read_cost:?}, {options:?}"),
            _ => String::new(),
        };
        let (way, kib, buffer) = (self.way.title(), self.page_size >> 10, self.buffer);
        format!("{way}{read_cost}, {kib} KiB, buffer {buffer}{checkpoints}")
    }

    /// Counts know no drive.
    fn at_end(&self, _: VariantName) -> Option<Cell> {
        None
    }
}

/// Pages of the stream's size, a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pages {
    pub images: f64,
    pub deltas: f64,
    pub map: f64,
    pub copies: f64,
}

impl Pages {
    fn of(bytes: &Bytes, page_size: u64, commits: u64) -> Pages {
        let pages = |bytes: u64| bytes as f64 / (page_size * commits.max(1)) as f64;
        Pages {
            images: pages(bytes.images),
            deltas: pages(bytes.deltas),
            map: pages(bytes.map),
            copies: pages(bytes.copies),
        }
    }

    pub fn all(&self) -> f64 {
        self.images + self.deltas + self.map + self.copies
    }
}

/// Requests of one kind: whether they write, whether they follow the one before, bytes of each, and
/// how many in all.
pub type KindCount = (bool, bool, u64, u64);

/// What a method did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Found {
    pub frames: u64,
    pub transactions: u64,
    #[serde(rename = "pages_asked_for_per_transaction")]
    pub asked: f64,
    #[serde(rename = "dirty_pages_given_down_per_transaction")]
    pub given: f64,
    /// Of these, share without an image before.
    pub first_share: f64,
    /// Bytes of the granules changed in each of the others, on average.
    pub changed_bytes: f64,
    pub checkpoints: u64,
    #[serde(rename = "pages_written_per_transaction")]
    pub written: Pages,
    #[serde(rename = "pages_read_per_transaction")]
    pub read: Pages,
    pub deltas_read_most: u64,
    #[serde(rename = "merges_per_transaction")]
    pub merges: f64,
    #[serde(rename = "pages_moved_per_transaction")]
    pub moved: f64,
    pub table_bytes: u64,
    /// Pages written for a dirty page given down.
    pub written_each: f64,
    /// The same if delta pages had no space left.
    pub packed_each: f64,
    /// Pages in a request that writes, on average.
    pub run: f64,
    /// Mean bytes by which a page's changes grow from one write to the next; of [`Way::Bound`].
    pub growth: f64,
    pub requests: Vec<KindCount>,
    /// Virtual seconds of all requests, by drive.
    pub seconds: BTreeMap<String, f64>,
}

/// Runs the cell; records its stream if it is not there.
pub fn run(cell: &Cell, streams: &Streams, seed: u64, stop: &'static AtomicBool) -> Result<Found, Failure> {
    let Cell { extent, page_size, checkpoints, way, .. } = *cell;
    let buffer_bytes = extent.buffer_bytes(cell.buffer);
    let pages = streams.pages(extent, page_size)?;
    let frames = extent.memory - buffer_bytes - way.entry_bytes() * pages;
    let setting = Setting { extent, page_size, frames, checkpoints };
    let writes = match way {
        Way::Store => Some(Writes::Whole),
        Way::StoreDeltas { drive: None } => Some(Writes::Deltas { buffer_bytes }),
        Way::StoreDeltas { drive: Some(profile) } => Some(Writes::Auto { buffer_bytes, profile }),
        _ => None,
    };
    if let Some(writes) = writes {
        return Ok(by_store(&streams.drive(setting, &writes, &cell.drives, seed, stop)?, page_size));
    }
    let path = streams.of(setting, seed, stop)?;
    let mut timed = Timed::new(&cell.drives, seed)?;
    let mut medium = Medium::watched(page_size, &mut timed);
    if way == Way::Bound {
        return bound(&path, &mut medium);
    }
    let start = Start { page_size, pages };
    let log_pages = pages / LOG_SHARE;
    let firn = |read_cost, placement| {
        let policy = Box::new(RentOrBuy { read_cost });
        Firn::new(start, FirnOptions { buffer_bytes, policy, placement })
    };
    let threaded = Placement::Threaded;
    let mut method: Box<dyn Method> = match way {
        Way::InPlace => Box::new(InPlace::new(false)),
        Way::DoubleWrite => Box::new(InPlace::new(true)),
        Way::AppendPack => Box::new(AppendPack::new(start, AMPLE)),
        Way::AppendPackTight => Box::new(AppendPack::new(start, TIGHT)),
        Way::Naive => Box::new(Naive::new(start, buffer_bytes, log_pages)),
        Way::Incremental => Box::new(Incremental::new(start, buffer_bytes, log_pages)),
        Way::InPageLogging => Box::new(InPageLogging::new(page_size)),
        Way::Off => Box::new(Firn::new(start, FirnOptions::off(threaded))),
        Way::Firn { read_cost } => Box::new(firn(read_cost, threaded)),
        Way::FirnFromStart => Box::new(firn(0.0, threaded)),
        Way::Segments { read_cost, options } => {
            let placement = Placement::Segments(options);
            Box::new(match read_cost {
                Some(read_cost) => firn(read_cost, placement),
                None => Firn::new(start, FirnOptions::off(placement)),
            })
        }
        Way::Bound | Way::Store | Way::StoreDeltas { .. } => unreachable!("it has returned"),
    };
    let (replayed, frames) = replayed(&path, &mut *method, &mut medium, way.part())?;
    let mut found = found(&replayed, page_size, frames);
    found.seconds = timed.seconds();
    Ok(found)
}

fn replayed(
    path: &Path,
    method: &mut dyn Method,
    medium: &mut Medium<'_>,
    part: Part,
) -> Result<(Replayed, u64), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", path.display()));
    let file = BufReader::new(File::open(path).map_err(|error| failed(&error))?);
    let mut stream = StreamReader::new(file).map_err(|error| failed(&error))?;
    let frames = stream.head().frames;
    let replayed = replay(&mut stream, method, medium, part).map_err(|error| failed(&error))?;
    Ok((replayed, frames))
}

fn bound(path: &Path, medium: &mut Medium<'_>) -> Result<Found, Failure> {
    let page_size = medium.page_size();
    let mut bound = Bound::new(page_size);
    let (replayed, frames) = replayed(path, &mut bound, medium, Part::Whole)?;
    let (written_each, growth) = bound.finish();
    Ok(Found { written_each, growth, ..found(&replayed, page_size, frames) })
}

/// What the store counted, and what its device was asked for.
fn by_store(driven: &Driven, page_size: u64) -> Found {
    let [before, after] = driven.store;
    let each =
        |of: fn(&TierStatistics) -> u64| (of(&after) - of(&before)) as f64 / driven.commits.max(1) as f64;
    let (pages, map) = (each(|store| store.pages_written), page_size as f64);
    let written = Pages {
        images: pages,
        deltas: each(|store| store.delta_pages_written),
        map: each(|store| store.metadata_bytes_written) / map,
        ..Pages::default()
    };
    let asked = each(|store| store.pages_read);
    let given = pages + each(|store| store.deltas_taken);
    Found {
        frames: driven.frames,
        transactions: driven.commits,
        asked,
        given,
        written,
        read: Pages {
            images: asked,
            deltas: each(|store| store.delta_pages_read),
            map: each(|store| store.metadata_bytes_read) / map,
            ..Pages::default()
        },
        merges: each(|store| store.deltas_merged + store.deltas_merged_for_reads),
        written_each: written.all() / given.max(f64::MIN_POSITIVE),
        run: pages / each(|store| store.write_runs).max(f64::MIN_POSITIVE),
        requests: driven.asked.requests.clone(),
        seconds: driven.asked.seconds.clone(),
        ..Found::default()
    }
}

fn found(replayed: &Replayed, page_size: u64, frames: u64) -> Found {
    let Replayed { counts, commits, .. } = replayed;
    let each = |count: u64| count as f64 / (*commits).max(1) as f64;
    let changed = (replayed.writes - replayed.first_writes).max(1);
    Found {
        frames,
        transactions: *commits,
        asked: each(replayed.reads),
        given: each(replayed.writes),
        first_share: replayed.first_writes as f64 / replayed.writes.max(1) as f64,
        changed_bytes: replayed.changed_bytes as f64 / changed as f64,
        checkpoints: replayed.checkpoints,
        written: Pages::of(&counts.written, page_size, *commits),
        read: Pages::of(&counts.read, page_size, *commits),
        deltas_read_most: replayed.deltas_read_most,
        merges: each(counts.merges),
        moved: each(counts.moved) / page_size as f64,
        table_bytes: replayed.table_bytes,
        written_each: counts.written.all() as f64 / (page_size * replayed.writes.max(1)) as f64,
        packed_each: (counts.written.images + counts.packed) as f64
            / (page_size * replayed.writes.max(1)) as f64,
        run: mean_write(counts) / page_size as f64,
        growth: 0.0,
        requests: requests(counts),
        seconds: BTreeMap::new(),
    }
}

/// Mean bytes of a request that writes.
fn mean_write(counts: &Counts) -> f64 {
    let writes = counts.requests.iter().filter(|(kind, _)| kind.direction == Direction::Write);
    counts.written.all() as f64 / writes.map(|(_, count)| *count).sum::<u64>().max(1) as f64
}

fn requests(counts: &Counts) -> Vec<KindCount> {
    let each = counts.requests.iter();
    each.map(|(kind, count)| (kind.direction == Direction::Write, kind.sequential, kind.bytes, *count))
        .collect()
}
