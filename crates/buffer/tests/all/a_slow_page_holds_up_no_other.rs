//! Pages that come one by one, beside batches that end with their slowest page. In virtual time.

use firndb_base::rng::Rng;
use firndb_base::sim::{self, SimOptions};
use firndb_base::sync::atomic::{AtomicBool, Ordering::SeqCst};
use firndb_base::sync::{Arc, thread};
use firndb_base::{DatabaseId, PageId, Progress, clock};
use firndb_buffer::{BufferPool, PageUse, PoolOptions};
use firndb_device::{AlignedBuf, Device, MemoryDevice};
use firndb_emulate::{Emulated, profiles};
use firndb_log::LogClass;
use firndb_profile::DeviceProfile;
use firndb_tier::store::{Store, StoreOptions};
use firndb_tier::{Allocation, PageRead, PageTier, PageWrite};
use std::time::Duration;

const PAGE_SIZE: usize = 4096;

/// A tier whose pages come as whole batches.
struct Batched(Arc<Store>);

impl PageTier for Batched {
    firndb_tier::forward_tier!(0: page_size, whereabouts, write_batch, make_batch_space, wants_clean, reserve);
    firndb_tier::forward_tier!(0: unreserve, prepare, publish, sync, settle, version_of, has_change_for_sure);
    firndb_tier::forward_tier!(0: page_is_lost, oldest_needed_lsn, statistics);
    fn read_batch(&self, reads: &mut [PageRead<'_>]) {
        self.0.read_batch(reads);
    }
}

/// Pages a second of virtual time.
#[derive(Clone, Copy, Debug)]
struct Rates {
    /// Of lists of 64 random pages.
    lists: f64,
    /// Read ahead in the order of places, by readers.
    scan: f64,
    /// The same in no order, as for the rows of an index's entries.
    scattered: f64,
}

/// A store of pages that lie in their order, on a device that takes no time until a test begins to
/// measure.
fn store_of(pages: usize, device: &Arc<Emulated>, log: &Arc<firndb_log::Log>) -> (Arc<Store>, Vec<PageId>) {
    let options = StoreOptions { page_size: PAGE_SIZE, map_budget_bytes: 8 << 20 };
    let store = Store::create(device.clone() as Arc<dyn Device>, DatabaseId([1; 16]), options);
    let store = Arc::new(store.expect("created"));
    store.attach(log.clone());
    let mut all = Vec::new();
    while all.len() < pages {
        let some: Vec<PageId> =
            (0..64).map(|_| store.reserve(LogClass::Normal).expect("there is space")).collect();
        let appended = {
            let _held = store.prepare(&some).expect("in memory");
            let change = Allocation { allocate: &some, free: &[] };
            store.publish(change, &mut |record| log.try_append(LogClass::Normal, record)).expect("published")
        };
        log.flush(log.end()).expect("flushed");
        let (lsn, image) = (appended.first, AlignedBuf::zeroed(PAGE_SIZE));
        let mut writes: Vec<PageWrite<'_>> =
            some.iter().map(|page| PageWrite::back(*page, lsn, lsn, &image)).collect();
        store.write_batch(&mut writes);
        assert!(writes.iter().all(PageWrite::is_taken));
        all.extend(some);
    }
    (store, all)
}

/// Runs `body` beside the pool's readers.
fn with_readers(pool: &Arc<BufferPool>, body: impl FnOnce()) {
    assert!(pool.begin_read_ahead());
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..pool.readers())
        .map(|_| {
            let (pool, stop) = (pool.clone(), stop.clone());
            let read = move || {
                while !stop.load(SeqCst) {
                    if pool.read_ahead_step() == Progress::Idle {
                        pool.wait_for_read_ahead(Duration::from_secs(100));
                    }
                }
            };
            thread::spawn("reader", read).expect("a thread")
        })
        .collect();
    body();
    stop.store(true, SeqCst);
    pool.end_read_ahead();
    readers.into_iter().for_each(|reader| reader.join().expect("no reader panics"));
}

/// Walks through all pages, with as many ahead as a scan has.
fn scan(pool: &Arc<BufferPool>, pages: &[PageId]) {
    let mut asked = 0;
    for (at, page) in pages.iter().enumerate() {
        let most = (at + pool.read_ahead_pages()).min(pages.len());
        if most - asked.max(at) >= pool.read_window() || most == pages.len() && asked < most {
            pool.read_ahead(&pages[asked.max(at)..most], PageUse::Once);
            asked = most;
        }
        drop(pool.shared_for(*page, PageUse::Once).expect("read"));
    }
}

fn rates(profile: &DeviceProfile, comes_one_by_one: bool, pages: usize, lists: u64) -> Rates {
    let options = SimOptions { step_limit: u64::MAX, ..SimOptions::measuring(1, 64) };
    let profile = profile.clone();
    let run = sim::run(options, move || {
        let log = firndb_log::testing::memory_log_with(64 << 20);
        let device = Emulated::new(Arc::new(MemoryDevice::new("store")), &profile, 1).expect("emulated");
        let device = Arc::new(device);
        device.run_free(true);
        let (store, pages) = store_of(pages, &device, &log);
        let tier: Arc<dyn PageTier> = if comes_one_by_one { store } else { Arc::new(Batched(store)) };
        let pool = || {
            let options = PoolOptions { budget_bytes: 8 << 20 };
            let pool = BufferPool::new(tier.clone(), log.clone(), options).expect("a pool");
            Arc::new(pool.with_read_depth(profile.model.channels as usize))
        };
        device.run_free(false);
        let (one, mut rng, begun) = (pool(), Rng::new(1), clock::now());
        for _ in 0..lists {
            let list: Vec<PageId> = (0..64).map(|_| pages[rng.below(pages.len() as u64) as usize]).collect();
            one.bring_in(&list, PageUse::Working).expect("frames are free");
            list.iter().for_each(|page| drop(one.shared(*page).expect("read")));
        }
        let lists = one.misses() as f64 / begun.elapsed().as_secs_f64();
        let mut in_no_order = pages.clone();
        in_no_order.sort_by_key(|page| page.0.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let [scan, scattered] = [&pages, &in_no_order].map(|pages| {
            let (other, begun) = (pool(), clock::now());
            with_readers(&other, || scan(&other, pages));
            assert_eq!(other.misses(), pages.len() as u64, "each page is read once");
            pages.len() as f64 / begun.elapsed().as_secs_f64()
        });
        Rates { lists, scan, scattered }
    });
    run.unwrap_or_else(|failure| panic!("{failure}")).value
}

/// The rates with pages that come one by one, over those of batches.
fn gains(profile: &DeviceProfile, pages: usize, lists: u64) -> Rates {
    let [batches, one_by_one] = [false, true].map(|one_by_one| rates(profile, one_by_one, pages, lists));
    let of = |rate: fn(&Rates) -> f64| rate(&one_by_one) / rate(&batches);
    let (lists, scan) = (of(|rates| rates.lists), of(|rates| rates.scan));
    let gains = Rates { lists, scan, scattered: of(|rates| rates.scattered) };
    let row = |Rates { lists, scan, scattered }: Rates| format!("{lists:9.2} {scan:9.2} {scattered:9.2}");
    println!("{:22} {} {} {}", profile.name, row(batches), row(one_by_one), row(gains));
    gains
}

/// One read in a hundred of this volume takes 100 ms.
#[test]
fn spikes_hold_up_few_reads() {
    let gains = gains(&profiles::get("network-volume-spiky").expect("shipped"), 2048, 20);
    assert!(gains.lists > 1.5 && gains.scan > 0.97 && gains.scattered > 1.2, "{gains:?}");
}

#[test]
#[ignore = "some seconds: all drives"]
fn no_drive_reads_far_fewer_pages_when_they_come_one_by_one() {
    for profile in profiles::all().iter().filter(|profile| profile.model.mechanics.is_none()) {
        let gains = gains(profile, 8192, 100);
        let least = gains.lists.min(gains.scan).min(gains.scattered);
        assert!(least > 0.99, "{}: {gains:?}", profile.name);
    }
}
