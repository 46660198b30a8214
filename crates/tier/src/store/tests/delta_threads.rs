//! Threads that change pages, settle, merge, gather and read them at once, under schedules drawn by
//! a seed: what was taken is read, whatever was under way.

use super::delta_model::read_found;
use super::harness::*;
use crate::page_tier::{PageTier, PageWrite};
use crate::store::{DeltaPolicy, Journal, Policy, Store};
use crate::{Base, Changes};
use firndb_base::rng::Rng;
use firndb_base::sim::{self, SimOptions};
use firndb_base::sync::atomic::{AtomicBool, Ordering::SeqCst};
use firndb_base::sync::{Arc, thread};
use firndb_base::{Lsn, PageId};
use firndb_device::{AlignedBuf, MemoryDevice};

const WRITERS: usize = 2;
const PAGES: usize = 3;

/// A page in DRAM.
struct Frame {
    version: Lsn,
    image: Vec<u8>,
    base: Option<Base>,
    changes: Changes,
}

/// Changes pages of its own, with what the store says of their bases, and reads them again.
fn writer(store: &Store, log: &TestLog, pages: &[PageId], seed: u64) {
    let mut rng = Rng::new(seed);
    let mut frames: Vec<Frame> = Vec::new();
    for page in pages {
        let (found, image) = read_found(store, *page).expect("it was written");
        frames.push(Frame { version: found.version, image, base: found.base, changes: found.changes });
    }
    for round in 0..60 {
        let at = rng.below(pages.len() as u64) as usize;
        let (page, frame) = (pages[at], &mut frames[at]);
        if rng.one_in(3) {
            let (found, image) = read_found(store, page).expect("it was written");
            assert_eq!(found.version, frame.version, "{page}, round {round}");
            assert!(image == frame.image, "{page} in version {}", frame.version);
            (frame.base, frame.changes) = (found.base, found.changes);
        }
        let start = rng.below(PAGE_SIZE as u64 - 40) as usize;
        frame.version = log.tick();
        frame.image[start..start + 30].fill(round as u8);
        frame.changes.add_range(start..start + 30, PAGE_SIZE);
        log.flush(log.end()).expect("flushed");
        let mut data = AlignedBuf::zeroed(PAGE_SIZE);
        data.copy_from_slice(&frame.image);
        let write = PageWrite::back(page, frame.version, frame.version, &data);
        let mut writes = [write.changed_since(frame.base, frame.changes)];
        store.write_batch(&mut writes);
        match writes[0].outcome.clone() {
            Ok(crate::Written::Taken { base, changes }) => (frame.base, frame.changes) = (base, changes),
            other => panic!("{page}: {other:?}"),
        }
    }
    for (page, frame) in pages.iter().zip(&frames) {
        let (found, image) = read_found(store, *page).expect("it was written");
        assert!((found.version, &image) == (frame.version, &frame.image), "{page} at the end");
    }
}

fn run(seed: u64) {
    let options = SimOptions { seed, preempt_one_in: 2, ..SimOptions::default() };
    let ran = sim::run(options, move || {
        let deltas =
            DeltaPolicy { enabled: true, buffer_bytes: 2_000, pages_percent: 30, read_cost_percent: 30 };
        let (log, device) = (TestLog::new(), Arc::new(MemoryDevice::new("store")));
        let policy = Policy { deltas, ..POLICY };
        let store =
            Store::create_with(device, DATABASE, super::harness::options(), LAYOUT, policy).expect("made");
        store.attach_journal(log.clone());
        let pages = allocate(&store, &log, WRITERS * PAGES).expect("there is space");
        write(&store, &log, &pages);
        let (store, pages, stop) = (Arc::new(store), Arc::new(pages), Arc::new(AtomicBool::new(false)));
        let beside = |what: fn(&Store, &[PageId], &mut Rng)| {
            let (store, pages, stop) = (store.clone(), pages.clone(), stop.clone());
            let background = move || {
                let mut rng = Rng::new(seed);
                while !stop.load(SeqCst) {
                    what(&store, &pages, &mut rng);
                    thread::yield_now();
                }
            };
            thread::spawn("beside", background).expect("a thread")
        };
        let others = [
            beside(|store, pages, rng| {
                let some = rng.below(pages.len() as u64) as usize;
                store.write_whole(&pages[some..]).expect("merged");
            }),
            beside(|store, _, _| store.sync().expect("settled")),
            beside(|store, _, _| _ = store.learn_step(true).expect("cleaned")),
        ];
        let writers: Vec<_> = (0..WRITERS)
            .map(|number| {
                let (store, log) = (store.clone(), log.clone());
                let own = pages[number * PAGES..(number + 1) * PAGES].to_vec();
                let work = move || writer(&store, &log, &own, seed + number as u64);
                thread::spawn("writer", work).expect("a thread")
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
        stop.store(true, SeqCst);
        others.into_iter().for_each(|other| other.join().expect("no panic"));
        store.sync().expect("settled");
        assert_eq!(store.check(true, &mut |_| {}).expect("checked").damage, Vec::<String>::new());
    });
    ran.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
}

/// Cause: a version was taken between the append and the apply of a record that wrote an older one
/// whole. Effect: it was removed with what that superseded. Mend: versions are taken under `order`.
#[test]
fn what_is_taken_beside_merges_and_flushes_is_read() {
    for seed in 0..if cfg!(miri) { 1 } else { 30 } {
        run(seed);
    }
}
