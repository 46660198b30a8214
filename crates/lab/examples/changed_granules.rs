//! Counts what TPC-C changes in a page between two of its evictions: by tree, for granules of a
//! 128th and of a 256th of a page, as reported and as the bytes differ.
//!
//! `cargo run --release -p firndb-lab --example changed_granules [PAGE_SIZE] [WAREHOUSES]
//! [TRANSACTIONS] [BUFFER_MB]`
//!
//! Every dirty page that goes to the store is compared with the version there, which is its base.
//! Beside that, each page is followed as if deltas were kept for it by the rule *rent or buy*: it
//! is written whole when its deltas since the last whole image would add up to a page, or one to
//! more than half of one; else as one delta of all changes since that image.

use firndb::device::MemoryDevice;
use firndb::{Database, Devices, DumpWhat, Isolation, Options, PageId, Progress};
use firndb_adapter::FirnEngine;
use firndb_tier::{Changes, PageRead, PageTier, PageWrite, TierError, TierErrorKind};
use firndb_workloads::tpcc::{
    self, ClientOptions, LoadOptions, Mix, Population, Scale, Terminals, TpccClient,
};
use firndb_workloads::{Attempt, Client, Commit, CommitMode};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Offset of the tree's id in a node, and of its level.
const TREE_AT: usize = 20;
const LEVEL_AT: usize = 1;
/// Bytes of a slot of a delta page beside the changed bytes: the design's estimate.
const SLOT_HEAD: usize = 26;
/// Transactions between two pauses for background work.
const PART: u64 = 100;

/// Tree and whether it is a leaf.
type Class = (u32, bool);

#[derive(Clone, Default)]
struct Counts {
    evictions: u64,
    without_base: u64,
    /// Bytes of the granules that were reported, and of those that differ: 128ths, 256ths, bytes.
    reported: u64,
    differ: [u64; 3],
    /// Deltas that were as large as more than half of a page.
    large: u64,
    /// As if deltas were kept: whole images, deltas, their bytes, and the longest cycle.
    whole: u64,
    deltas: u64,
    delta_bytes: u64,
    /// The first, second, fourth and eighth delta since a whole image: how many, and their bytes.
    by_age: [(u64, u64); 4],
}

/// The deltas of which the sizes are shown.
const AGES: [u32; 4] = [1, 2, 4, 8];

impl Counts {
    fn add(&mut self, other: &Counts) {
        self.evictions += other.evictions;
        self.without_base += other.without_base;
        self.reported += other.reported;
        (0..3).for_each(|at| self.differ[at] += other.differ[at]);
        self.large += other.large;
        self.whole += other.whole;
        self.deltas += other.deltas;
        self.delta_bytes += other.delta_bytes;
        for (sum, other) in self.by_age.iter_mut().zip(other.by_age) {
            (sum.0, sum.1) = (sum.0 + other.0, sum.1 + other.1);
        }
    }
}

/// A page as if deltas were kept for it: what changed since the last whole image, and the bytes
/// that its deltas came to.
#[derive(Clone, Copy)]
struct Cycle {
    changes: Changes,
    paid: usize,
    deltas: u32,
}

const WHOLE: Cycle = Cycle { changes: Changes::NONE, paid: 0, deltas: 0 };

#[derive(Default)]
struct Seen {
    classes: BTreeMap<Class, Counts>,
    cycles: BTreeMap<PageId, Cycle>,
}

/// Watches what goes to the store.
struct Watch {
    tier: Arc<dyn PageTier>,
    active: Arc<AtomicBool>,
    seen: Arc<Mutex<Seen>>,
}

/// Bytes of the granules of `granule` bytes that differ.
fn differing(before: &[u8], after: &[u8], granule: usize) -> u64 {
    let pairs = before.chunks(granule).zip(after.chunks(granule));
    pairs.filter(|(before, after)| before != after).map(|(before, _)| before.len() as u64).sum()
}

impl Watch {
    fn look(&self, write: &PageWrite<'_>) {
        let tree = write.data[TREE_AT..TREE_AT + 4].try_into().expect("four bytes");
        let class = (u32::from_le_bytes(tree), write.data[LEVEL_AT] == 0);
        let mut counts = Counts { evictions: 1, ..Counts::default() };
        let size = write.data.len();
        let mut base = vec![0; size];
        if write.base.is_some() {
            let none = Err(TierError::new(TierErrorKind::Failed, "not read"));
            let mut reads = [PageRead { page: write.page, buf: &mut base, outcome: none }];
            self.tier.read_batch(&mut reads);
            assert!(reads[0].outcome.as_ref().is_ok_and(|found| found.base == write.base), "its base");
            counts.reported = write.changes.bytes(size) as u64;
            let parts = [size / Changes::GRANULES, size / (2 * Changes::GRANULES), 1];
            counts.differ = parts.map(|granule| differing(&base, write.data, granule));
            counts.large = u64::from(counts.reported > size as u64 / 2);
        } else {
            counts.without_base = 1;
        }
        let mut seen = self.seen.lock().expect("no panic under it");
        let cycle = seen.cycles.get(&write.page).copied().unwrap_or(WHOLE);
        let changes = cycle.changes | write.changes;
        let delta = changes.bytes(size) + SLOT_HEAD;
        if write.base.is_none() || delta > size / 2 || cycle.paid + delta > size {
            counts.whole = 1;
            seen.cycles.insert(write.page, WHOLE);
        } else {
            (counts.deltas, counts.delta_bytes) = (1, delta as u64);
            let deltas = cycle.deltas + 1;
            if let Some(at) = AGES.iter().position(|age| *age == deltas) {
                counts.by_age[at] = (1, changes.bytes(size) as u64);
            }
            seen.cycles.insert(write.page, Cycle { changes, paid: cycle.paid + delta, deltas });
        }
        seen.classes.entry(class).or_default().add(&counts);
    }
}

impl PageTier for Watch {
    firndb_tier::forward_tier!(tier: page_size, make_batch_space, wants_clean, reserve, unreserve, prepare);
    firndb_tier::forward_tier!(tier: read_batch, sync, version_of, has_change_for_sure, page_is_lost);
    firndb_tier::forward_tier!(tier: oldest_needed_lsn, statistics, whereabouts, publish);
    fn write_batch(&self, writes: &mut [PageWrite<'_>]) {
        if self.active.load(Relaxed) {
            writes.iter().filter(|write| write.dirty).for_each(|write| self.look(write));
        }
        self.tier.write_batch(writes);
    }
}

/// The trees of the catalog by their numbers: name and pages.
fn trees(db: &Database) -> Result<BTreeMap<u32, (String, u64)>, Box<dyn Error>> {
    let mut lines = Vec::new();
    db.dump(&DumpWhat::Catalog, &mut lines)?;
    let parse = |line: &str| {
        let (name, rest) = line.split_once(": tree ")?;
        let (number, rest) = rest.split_once(", ")?;
        let pages = rest.split(", ").find_map(|part| part.strip_suffix(" pages"))?;
        let number = number.trim_start_matches(|c: char| !c.is_ascii_digit());
        Some((number.parse().ok()?, (name.to_owned(), pages.parse().ok()?)))
    };
    Ok(String::from_utf8(lines)?.lines().filter_map(parse).collect())
}

fn print(seen: &Seen, names: &BTreeMap<u32, (String, u64)>, page_size: usize, transactions: u64) {
    println!(
        "| tree | evictions | no base | reported, 128 | differ, 128 | differ, 256 | bytes | > P/2 | whole | deltas | page writes an eviction | bytes of delta 1, 2, 4, 8 |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|");
    let row = |name: &str, counts: &Counts| {
        let based = (counts.evictions - counts.without_base).max(1) as f64;
        let written = counts.whole as f64 + counts.delta_bytes as f64 / page_size as f64;
        let aged = counts.by_age.map(|(count, bytes)| match count {
            0 => "–".to_owned(),
            count => format!("{:.0}", bytes as f64 / count as f64),
        });
        println!(
            "| {name} | {} | {} | {:.0} | {:.0} | {:.0} | {:.0} | {:.1} % | {} | {} | {:.3} | {} |",
            counts.evictions,
            counts.without_base,
            counts.reported as f64 / based,
            counts.differ[0] as f64 / based,
            counts.differ[1] as f64 / based,
            counts.differ[2] as f64 / based,
            100.0 * counts.large as f64 / based,
            counts.whole,
            counts.deltas,
            written / counts.evictions.max(1) as f64,
            aged.join(", "),
        );
    };
    let mut all = Counts::default();
    let mut classes: Vec<_> = seen.classes.iter().collect();
    classes.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.evictions));
    for ((tree, leaf), counts) in classes {
        let name = names.get(tree).map_or_else(|| format!("tree {tree}"), |(name, _)| name.clone());
        row(&format!("{name}{}", if *leaf { "" } else { ", inner" }), counts);
        all.add(counts);
    }
    row("all", &all);
    let pages: u64 = names.values().map(|(_, pages)| pages).sum();
    println!("{:.2} evictions a transaction; {pages} pages", all.evictions as f64 / transactions as f64);
}

fn main() -> Result<(), Box<dyn Error>> {
    let number = |at: usize, or: u64| std::env::args().nth(at).map_or(Ok(or), |text| text.parse());
    let (page_size, warehouses) = (number(1, 4096)? as usize, number(2, 10)? as u32);
    let (transactions, buffer_mb) = (number(3, 30_000)?, number(4, 100)? as usize);
    let (active, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Seen::default())));
    let devices = Devices {
        superblock: Arc::new(MemoryDevice::new("superblock")),
        logs: vec![Arc::new(MemoryDevice::new("log"))],
        store: Arc::new(MemoryDevice::new("store")),
        store_others: Vec::new(),
        cache: None,
    };
    let (watched, lists) = (active.clone(), seen.clone());
    let options = Options::new()
        .page_size(page_size)
        .buffer_bytes(buffer_mb << 20)
        .log(|log| log.bytes(1 << 30).devices(1))
        .background_threads(false)
        .wrap_tier(move |tier| Arc::new(Watch { tier, active: watched.clone(), seen: lists.clone() }));
    let engine = FirnEngine::new(options.create_on(devices)?, tpcc::schema(), Isolation::Snapshot)?;
    tpcc::load(&engine, &LoadOptions::new(Scale::full(warehouses), 7), &|_| ())?;
    engine.database().checkpoint()?;
    let population = Population::of(&engine)?.ok_or("no population")?;
    let draw = ClientOptions { mix: Mix::default(), terminals: Terminals::Drawn, seed: 7 };
    let mut client = TpccClient::new(&engine, population, &draw, 0)?;
    // The first third fills the buffer.
    for done in (0..transactions * 3 / 2).step_by(PART as usize) {
        active.store(done >= transactions / 2, Relaxed);
        let mut outstanding = Vec::new();
        for _ in 0..PART {
            client.draw();
            if let Attempt::Committed(Commit::Pending(pending)) = client.attempt(CommitMode::Async)? {
                outstanding.push(pending);
            }
        }
        outstanding.into_iter().try_for_each(|pending| pending.wait())?;
        while engine.database().step()? == Progress::Worked {}
    }
    active.store(false, Relaxed);
    println!(
        "{page_size} B pages, {warehouses} warehouses, {transactions} transactions, {buffer_mb} MiB of buffer"
    );
    let names = trees(engine.database())?;
    print(&seen.lock().expect("no panic under it"), &names, page_size, transactions);
    Ok(())
}
