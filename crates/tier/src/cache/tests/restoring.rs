//! Time to restore a large directory, at memory speed.

use crate::cache::geometry::{Geometry, SEAL_BYTES, Serial};
use crate::cache::group::{Entry, GroupHeader, Seal, Since};
use crate::cache::restore::restore;
use crate::cache::segment::SegmentBuilder;
use crate::page_cache::header::CacheHeader;
use crate::page_cache::header::CacheId;
use firndb_base::rng::Rng;
use firndb_base::{DatabaseId, Lsn, PageId, clock};
use firndb_device::{AlignedBuf, Device, Durability, Fill, MemoryDevice};

const CACHE: CacheId = CacheId([8; 16]);

/// A cache in memory with segments that name `entries` random pages of `among`, without the images,
/// which matter only in the last group.
fn laid_out(entries: u64, among: u64) -> (MemoryDevice, CacheHeader, Geometry, u64) {
    const GROUP: usize = 64;
    // The smallest pages possible: what is not written takes no memory, but it does take addresses.
    let mut groups = entries / GROUP as u64 + 4096;
    groups -= groups % 1024;
    let geometry = Geometry::new(512, 512, GROUP, groups).unwrap();
    let header = CacheHeader {
        database: DatabaseId([3; 16]),
        cache: CACHE,
        page_size: 512,
        block: 512,
        group_pages: GROUP as u32,
        write_through: false,
        groups,
    };
    let device = MemoryDevice::new("cache");
    device.grow(geometry.end(), Fill::Sparse).unwrap();
    header.write(&device).unwrap();
    let mut rng = Rng::new(7);
    let mut builder = SegmentBuilder::begin(&geometry, Serial::FIRST);
    // The last segment is whole but for its last group, which is found by its header.
    let last = entries / GROUP as u64 / geometry.segment_groups * geometry.segment_groups;
    let mut group = AlignedBuf::zeroed(geometry.group_bytes);
    for serial in (1..=last).map(Serial) {
        let entry = |_| Entry {
            page: PageId(1 + rng.below(among)),
            version: Lsn(4096 + serial.0),
            dirty: serial.0 % 2 == 0,
            killed: false,
        };
        let entries: Vec<Entry> = (0..GROUP).map(entry).collect();
        let header = GroupHeader { serial, front: Serial::FIRST, entries, tombstones: Vec::new() };
        if serial.0 == last {
            for (index, entry) in header.entries.iter().enumerate() {
                let at = geometry.image_at(index);
                let seal = Seal { page: entry.page, version: entry.version, serial, since: Since::UNKNOWN };
                seal.write(CACHE, &[1; 512], &mut group[at..at + SEAL_BYTES + 512]);
            }
            header.write(CACHE, &mut group);
            device.write(geometry.group_offset(serial), &group, Durability::Later).unwrap();
        }
        if let Some(segment) = builder.add(&geometry, CACHE, &header) {
            segment.write(&device, &geometry).unwrap();
        }
    }
    (device, header, geometry, last)
}

/// Seconds of processor time of this process, all threads together; zero where the system does not
/// report it. On a busy machine wall time is no measure.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: f64 = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / 100.0
}

fn timed(entries: u64, redo_start: Lsn) -> u64 {
    let among = entries;
    let (device, header, geometry, last) = laid_out(entries, among);
    let (begun, processor) = (clock::now(), processor_seconds());
    let restored = restore(&device, &header, &geometry, Serial(last), redo_start..Lsn::MAX).unwrap();
    let (took, processor) = (begun.elapsed(), processor_seconds() - processor);
    assert_eq!(restored.rear, Serial(last + 1));
    let (valid, dirty) = restored.directory.counts();
    let images = last * 64;
    eprintln!(
        "{images} entries, {valid} of them valid: {:.2} s, of the processor {processor:.2} s, {:.0} ns an entry",
        took.as_secs_f64(),
        processor * 1e9 / images as f64
    );
    let expected = among as f64 * (1.0 - (-(images as f64) / among as f64).exp());
    assert!((valid as f64 - expected).abs() < expected * 0.02, "{valid} valid of {images}");
    assert!(dirty > 0 && dirty < valid);
    took.as_millis() as u64
}

#[test]
fn a_large_directory_comes_back_from_its_segments_by_all_threads() {
    timed(500_000, Lsn::MAX);
    // Versions of recent pages are noted, too.
    timed(200_000, Lsn(4096));
}

/// `cargo test --release -p firndb-tier --lib -- --ignored --nocapture fifty_million`. Needs 3 GB
/// of memory.
#[test]
#[ignore = "takes a minute to lay out, and 3 GB"]
fn fifty_million_entries_are_restored() {
    timed(50_000_000, Lsn::MAX);
}
