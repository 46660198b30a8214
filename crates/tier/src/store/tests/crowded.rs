//! Writers that change the page map faster than one thread writes it.

use super::harness::*;
use crate::store::write_back::Crowded;
use crate::store::{Journal, Store, StoreOptions};
use firndb_base::clock;
use firndb_base::rng::Rng;
use firndb_base::sim::{self, SimOptions};
use firndb_base::sync::atomic::{AtomicBool, Ordering::SeqCst};
use firndb_base::sync::{Arc, thread};
use firndb_device::{Durability, MemoryDevice};
use firndb_testkit::hooked::{Call, Hooked};
use std::time::Duration;

const WRITERS: u64 = 8;
const PAGES: usize = 24_000;

/// Cause: a writer did nothing about changed metadata pages while another wrote a round of them.
/// Effect: with several writers they grew far beyond the budget, up to the whole map.
#[test]
fn writers_wait_for_the_map_when_it_is_over_its_budget() {
    let run = sim::run(SimOptions { step_limit: u64::MAX, ..SimOptions::measuring(7, 8) }, || {
        let (log, slow) = (TestLog::new(), Arc::new(AtomicBool::new(false)));
        let is_slow = slow.clone();
        let device = Hooked::over(Arc::new(MemoryDevice::new("store")), move |call| {
            let us = match call {
                _ if !is_slow.load(SeqCst) => 0,
                Call::Write { durability: Durability::Later, .. } => 10,
                Call::Write { durability: Durability::Durable, .. } => 100,
                Call::Sync => 1000,
                _ => 0,
            };
            clock::sleep(Duration::from_micros(us));
            Ok(())
        });
        let store = Store::create_with(device, DATABASE, options(), LAYOUT, POLICY).expect("created");
        store.attach_journal(log.clone());
        let mut pages = Vec::new();
        while pages.len() < PAGES {
            pages.extend(allocate(&store, &log, 60).expect("there is space"));
            log.flush(log.end()).expect("flushed");
        }
        store.write_back_all().expect("written");
        slow.store(true, SeqCst);
        let (store, pages) = (Arc::new(store), Arc::new(pages));
        let writer = |number: u64| {
            let (store, log, pages) = (store.clone(), log.clone(), pages.clone());
            move || {
                let (mut rng, mut most) = (Rng::new(number), 0);
                for _ in 0..100 {
                    let mut some: Vec<_> =
                        (0..POLICY.batch_pages).map(|_| pages[rng.below(PAGES as u64) as usize]).collect();
                    some.sort_unstable();
                    some.dedup();
                    assert!(write(&store, &log, &some).iter().all(|(_, outcome)| outcome.is_ok()));
                    log.flush(log.end()).expect("flushed");
                    most = most.max(store.state.lock().cache.len());
                }
                most
            }
        };
        let writers: Vec<_> =
            (0..WRITERS).map(|number| thread::spawn("writer", writer(number)).expect("a thread")).collect();
        let most = writers.into_iter().map(|writer| writer.join().expect("no panic")).max();
        (most.expect("there are writers"), store.state.lock().cache.budget_pages())
    });
    let (most, budget) = run.unwrap_or_else(|failure| panic!("{failure}")).value;
    println!("{most} metadata pages, budget {budget}");
    // The budget, a round of as many, and what each writer adds: map and bitmap pages, old and new.
    let each = 4 * POLICY.batch_pages;
    assert!(most <= 2 * budget + 2 * WRITERS as usize * each, "{most} metadata pages, budget {budget}");
}

/// Cause: recovery has up to twice as many changed entries as are kept later. Effect: after a crash
/// each thread that wrote or allocated pages waited for the sweep, for as long as it took to get
/// through a good part of the map.
#[test]
fn no_writer_waits_for_what_recovery_left() {
    let (log, device) = (TestLog::new(), Arc::new(MemoryDevice::new("store")));
    let generous = StoreOptions { map_budget_bytes: 4 << 20, ..options() };
    let store = Store::create_with(device.clone(), DATABASE, generous, LAYOUT, POLICY).expect("created");
    store.attach_journal(log.clone());
    let pages = allocate(&store, &log, 2000).expect("there is space");
    write(&store, &log, &pages);
    log.flush(log.end()).expect("flushed");
    // Into the map log: nothing is swept yet.
    store.write_back_all().expect("written");
    drop(store);
    let store = recover(device, &log.records(), log.end(), log.end()).expect("recovered");
    store.attach_journal(log.clone());
    let (overlay, most) = {
        let state = store.state.lock();
        (state.overlay.bytes(), state.overlay_max())
    };
    assert!(overlay > most * 3 / 2, "{overlay} bytes of {most}: else no thread would wait");
    assert_eq!(store.crowded(), Some(Crowded::Half));
    while store.state.lock().overlay.bytes() > most {
        store.write_back_if_crowded().expect("swept");
    }
    // From here on it counts in full again.
    assert!(store.crowded() != Some(Crowded::Full) && store.state.lock().overlay_found <= most);
}
