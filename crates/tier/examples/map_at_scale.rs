//! Counts how many pages of the page map are read and written for each page that leaves the buffer,
//! by the size of the database beside the log between two checkpoints.
//!
//! `cargo run --release -p firndb-tier --features testing --example map_at_scale [PAGES]`. Equal
//! arguments give equal figures on any machine. By default 262,144 pages, a gigabyte of 4 KiB
//! pages, with the log of 32 MiB scaled to it: 110,000 evictions between checkpoints at a gigabyte,
//! a hundredth of that for a hundred. The buffer holds a tenth of the database; the map has a
//! sixteenth of the buffer (the default), a quarter of that, and as much as it needs.

use firndb_tier::testing::at_scale::{Setting, measure};

const EVICTIONS_PER_32_MIB: u64 = 110_000;

fn main() {
    let pages: u64 = std::env::args().nth(1).map_or(262_144, |pages| pages.parse().expect("a number"));
    println!("{pages} pages; counts for each eviction");
    println!("GB per 32 MiB  map memory  skew  writes  reads  bytes read  opening: pages, bytes, reads");
    let buffer_pages = pages / 10;
    let share = (buffer_pages * 4096 / 16) as usize;
    for skew_percent in [0, 80] {
        for map_bytes in [share / 4, share, (pages * 40) as usize] {
            for ratio in [1, 10, 50, 100] {
                let checkpoint_every = EVICTIONS_PER_32_MIB * pages / 262_144 / ratio;
                let evictions = 3 * pages / 2;
                let setting =
                    Setting { pages, buffer_pages, map_bytes, checkpoint_every, evictions, skew_percent };
                let counts = measure(setting, 1);
                println!(
                    "{ratio:>13} {:>7} KiB {skew_percent:>4}% {:>7.4} {:>6.3} {:>11.0} {:>14} {:>9} {:>6}",
                    map_bytes >> 10,
                    counts.writes,
                    counts.reads,
                    counts.bytes_read,
                    counts.opening_pages,
                    counts.opening_bytes,
                    counts.opening_reads
                );
            }
        }
    }
}
