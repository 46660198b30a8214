//! Dropped tables whose pages are in the flash cache. In virtual time: figures are equal on any
//! machine.

use super::in_a_small_log;
use super::{PAGE, pages};
use firndb::Options;
use firndb::device::{Device, MemoryDevice};
use firndb::{CachePolicy, Database, Devices, Table};
use firndb_base::clock;
use firndb_base::rng::Rng;
use firndb_base::sim::{self, SimOptions};
use firndb_base::sync::thread;
use firndb_emulate::{Emulated, profiles};
use std::sync::Arc;
use std::time::Duration;

/// What clients met while a table was dropped, or was not.
#[derive(Debug)]
struct Met {
    longest: Duration,
    cache_written: u64,
    transactions: u64,
}

fn emulated(name: &str, profile: &str) -> Arc<dyn Device> {
    let inner = Arc::new(MemoryDevice::new(name));
    Arc::new(Emulated::new(inner, &profiles::get(profile).expect("shipped"), 1).expect("emulated"))
}

/// One client's longest transaction, and how many it ran.
fn client_until(
    db: &Database,
    table: &Table,
    client: u64,
    begun: clock::Moment,
    time: Duration,
) -> (Duration, u64) {
    let mut rng = Rng::new(client);
    let (mut longest, mut round) = (Duration::ZERO, 0u64);
    while begun.elapsed() < time {
        let begun = clock::now();
        round += 1;
        let key = (rng.below(20_000) as u32).to_be_bytes();
        db.transact(|tx| match round % 3 {
            0 => tx.put(table, &key, &[round as u8; in_a_small_log::VALUE]).map(drop),
            _ => tx.get(table, &key).map(drop),
        })
        .expect("it goes on");
        longest = longest.max(begun.elapsed());
    }
    (longest, round)
}

/// Clients read and change rows that do not fit into DRAM; meanwhile a table of `dropped`
/// pages, most of which are in the cache, is dropped or kept.
fn run(dropped: u32, drops: bool) -> Met {
    let simulation = SimOptions { step_limit: u64::MAX, ..SimOptions::measuring(1, 4) };
    let outcome = sim::run(simulation, move || {
        let cache_bytes = (u64::from(dropped) * 5 / 4 + 4000) * 1100;
        let options = Options::new()
            .page_size(PAGE)
            .buffer_bytes(1 << 20)
            // Statistics would take pages meanwhile.
            .tuning(|tuning| tuning.analyze_in_background(false))
            .log(|log| log.devices(1).bytes(8 << 20))
            .cache(|cache| cache.bytes(cache_bytes).policy(CachePolicy::Keeping));
        let devices = Devices {
            superblock: Arc::new(MemoryDevice::new("superblock")),
            logs: vec![emulated("log.0", "x25-e")],
            store: emulated("store", "cheetah-15k-raid8"),
            store_others: Vec::new(),
            cache: Some(emulated("cache", "x25-e")),
        };
        let db = options.create_on(devices).expect("created");
        let empty = pages(&db);
        in_a_small_log::fill(&db, "kept", 20_000);
        let kept_pages = pages(&db) - empty;
        in_a_small_log::fill(&db, "dropped", dropped * 7);
        db.checkpoint().expect("a checkpoint");
        let cached = db.statistics().cache.expect("there is one").pages_valid;
        assert!(cached > u64::from(dropped) * 3 / 4, "{cached} pages are cached");
        let table = db.table("kept").expect("there");
        let (before, begun) = (db.io_counts(), clock::now());
        let time = Duration::from_secs(15) + Duration::from_micros(u64::from(dropped) * 500);
        let (longest, transactions) = thread::scope(|scope| {
            let work = |client| {
                let (db, table) = (&db, &table);
                move || client_until(db, table, client, begun, time)
            };
            let clients: Vec<_> = (0..4u64).map(|client| scope.spawn(work(client))).collect();
            clock::sleep(Duration::from_millis(300));
            if drops {
                db.drop_table("dropped").expect("dropped");
            }
            let clients = clients.into_iter().map(|client| client.join().expect("no panic"));
            clients.fold((Duration::ZERO, 0), |all, client| (all.0.max(client.0), all.1 + client.1))
        });
        let cache_written = db.io_counts().since(&before).cache_total().write_bytes;
        if drops {
            assert!(pages(&db) <= empty + kept_pages + 10, "it has been freed: {}", pages(&db));
            let left = db.statistics().cache.expect("there is one").pages_valid;
            assert!(left < kept_pages + 2000, "{left} pages are cached");
        }
        db.close().expect("closed");
        Met { longest, cache_written, transactions }
    });
    match outcome {
        Ok(outcome) => outcome.value,
        Err(failure) => panic!("{failure}"),
    }
}

fn compare(dropped: u32) {
    let (kept, gone) = (run(dropped, false), run(dropped, true));
    eprintln!("{dropped} pages kept: {kept:?}; dropped: {gone:?}");
    assert!(gone.longest <= kept.longest + Duration::from_millis(100), "{gone:?} beside {kept:?}");
    let each = |met: &Met| met.cache_written as f64 / met.transactions as f64;
    assert!(each(&gone) < each(&kept) * 1.05, "{gone:?} beside {kept:?}");
    assert!(gone.transactions as f64 > kept.transactions as f64 * 0.9, "{gone:?} beside {kept:?}");
}

#[test]
fn stall_no_client() {
    compare(8_000);
}

/// `cargo test --release -p firndb --test all half_a_million -- --ignored --nocapture`
#[test]
#[ignore = "takes minutes and 2 GB"]
fn half_a_million_of_them_stall_no_client() {
    compare(500_000);
}
