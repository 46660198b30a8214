//! The flash cache while a database is in use: it is attached, detached, resized and replaced. At
//! every moment of that the power may fail, or a call; whatever was acknowledged is there
//! afterwards.

use crate::support::bed::Bed;
use crate::support::walks::{Cut, Worked, failing_calls, power_cuts};
use firndb::device::{CrashPlan, Device, FaultPlan, Faulty, MemoryDevice};
use firndb::{
    CacheMemberState, CachePolicy, CacheSettings, CacheSpec, CacheStatus, Database, Deltas, Devices, Error,
    ErrorKind, Options, cache_status,
};
use firndb_base::rng::Rng;
use firndb_cache_comparators::{Comparator, Compared};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Little DRAM, so that pages come and go.
fn options() -> Options {
    let known = Options::new().cache(|cache| GSC.kinds().fold(cache, CacheSettings::kind));
    known
        .page_size(1024)
        .buffer_bytes(64 << 10)
        .tuning(|tuning| tuning.version_bytes(4 << 10))
        .log(|log| log.bytes(256 << 10).devices(1))
        .background_threads(false)
}
fn tiny(policy: Compared) -> CacheSpec {
    let bytes = if policy == LC { 160 << 10 } else { 80 << 10 };
    CacheSpec::new(bytes).group_pages(4).kind(policy.kind()).policy(policy.policy())
}

const GSC: Compared = Compared::Firn(CachePolicy::GroupSecondChance);
const GR: Compared = Compared::Firn(CachePolicy::GroupReplacement);
const FIFO: Compared = Compared::Firn(CachePolicy::Fifo);
const LC: Compared = Compared::Other(Comparator::LC);

const ROWS: u32 = 260;

fn value(row: u32, version: u32) -> Vec<u8> {
    format!("{version} {row} {}", "x".repeat(300 + (row as usize * 7) % 90)).into_bytes()
}

/// Commit `n`: every ninth row gets version `n`, others keep theirs.
fn commit(db: &Database, n: u32) -> Result<(), Error> {
    let table = db.open_table("rows")?;
    db.transact(|tx| {
        (0..ROWS)
            .filter(|row| n == 0 || row % 9 == n % 9)
            .try_for_each(|row| tx.put(&table, &row.to_be_bytes(), &value(row, n)).map(drop))
    })
}

/// The rows are those of commit `n`: for some `n` of the range.
fn verify(db: &Database, acknowledged: u32, attempted: u32) {
    let table = db.open_table("rows").unwrap();
    let tx = &mut db.snapshot();
    let found: Vec<_> = (0..ROWS).map(|row| tx.get(&table, &row.to_be_bytes()).unwrap()).collect();
    let after = |n: u32| -> Vec<Option<Vec<u8>>> {
        (0..ROWS)
            .map(|row| {
                let last = (1..=n).rev().find(|n| row % 9 == n % 9).unwrap_or(0);
                Some(value(row, last))
            })
            .collect()
    };
    assert!(
        (acknowledged..=attempted).any(|n| after(n) == found),
        "not as after {acknowledged} to {attempted}"
    );
    let report = db.check(&mut |_| {}).unwrap();
    assert!(report.is_clean(), "{:?}", report.damage);
}

/// Attaches a cache, works, makes it smaller, works, detaches it, works. `told` is called for each
/// acknowledged commit.
fn come_and_go(
    db: &Database,
    device: Arc<dyn Device>,
    policy: Compared,
    told: &mut dyn FnMut(u32),
) -> Result<(), Error> {
    let mut n = 0;
    let mut work = |count: u32| {
        (0..count).try_for_each(|_| {
            n += 1;
            commit(db, n)?;
            told(n);
            db.step()?;
            Ok::<(), Error>(())
        })
    };
    work(2)?;
    db.attach_cache_on(device, &tiny(policy))?;
    work(9)?;
    db.checkpoint()?;
    work(3)?;
    db.resize_cache(if policy == LC { 150 << 10 } else { 60 << 10 }, &mut |_| {})?;
    work(9)?;
    db.detach_cache(&mut |_| {})?;
    work(3)
}

fn created(devices: Devices) -> Database {
    let db = options().create_on(devices).unwrap();
    commit(&db, 0).unwrap();
    db
}

const POLICIES: [Compared; 3] = [GSC, FIFO, LC];

fn crash_walk(policy: Compared, every: u64) {
    let bed = Bed::new(1);
    let plan = CrashPlan::new();
    let mut devices = bed.crashing(&plan);
    let device = devices.cache.take().unwrap();
    let db = created(devices);
    plan.settle();
    come_and_go(&db, device, policy, &mut |n| plan.mark(u64::from(n))).unwrap();
    assert!(db.statistics().cache.is_none());
    drop(db);
    let seed = POLICIES.iter().position(|known| *known == policy).expect("one of them") as u64;
    let mut cached = BTreeSet::new();
    let images = power_cuts(&plan, &mut Rng::new(seed), every, |cut, rng| {
        let Cut { bed, acknowledged, place } = cut;
        let opened = options().open_on(bed.plain());
        let db = opened.unwrap_or_else(|error| panic!("{policy:?}, {place}: {error}"));
        cached.insert(db.cache_status().map(|status| status.shape.map(|shape| shape.bytes)));
        verify(&db, acknowledged as u32, acknowledged as u32 + 1);
        if rng.one_in(4) {
            // What a crash left of a change does not hinder the next one.
            if db.cache_status().is_some() {
                db.detach_cache(&mut |_| {}).unwrap();
            }
            db.attach_cache_on(bed.cache.clone(), &tiny(policy)).unwrap();
            commit(&db, 0).unwrap();
            db.detach_cache(&mut |_| {}).unwrap();
            verify(&db, 0, 0);
        }
    });
    assert!(images > 15 && cached.len() >= 3, "{images} images, {cached:?}");
}

#[test]
fn a_power_cut_while_it_comes_and_goes() {
    POLICIES.into_iter().for_each(|policy| crash_walk(policy, 60));
}

/// `cargo test --release -p firndb --test all flash_cache::comes_and_goes -- --ignored`
#[test]
#[ignore = "takes minutes"]
fn every_power_cut_while_it_comes_and_goes() {
    POLICIES.into_iter().for_each(|policy| crash_walk(policy, 1));
}

/// Calls fail.
fn nth_walk(policy: Compared, every: u64) {
    let work = |plan: &FaultPlan, begins: &dyn Fn()| {
        let bed = Bed::new(1);
        let device = Arc::new(Faulty::new(bed.cache.clone(), plan));
        let db = created(bed.failing(plan));
        begins();
        let mut acknowledged = 0;
        let outcome = come_and_go(&db, device, policy, &mut |n| acknowledged = n);
        drop(db);
        Worked { bed, acknowledged: acknowledged.into(), outcome }
    };
    let failed = failing_calls(every, work, |place, Worked { bed, acknowledged, .. }| {
        let opened = options().open_on(bed.plain());
        let db = opened.unwrap_or_else(|error| panic!("{policy:?}: {place}; opened again: {error}"));
        verify(&db, acknowledged as u32, acknowledged as u32 + 1);
    });
    assert!(failed.refused > 3, "{failed:?}");
}

#[test]
fn a_call_fails_while_it_comes_and_goes() {
    POLICIES.into_iter().for_each(|policy| nth_walk(policy, 400));
}

/// `cargo test --release -p firndb --test all flash_cache::comes_and_goes -- --ignored`
#[test]
#[ignore = "takes minutes"]
fn every_call_fails_while_it_comes_and_goes() {
    POLICIES.into_iter().for_each(|policy| nth_walk(policy, 3));
}

#[test]
fn it_comes_and_goes_while_clients_work() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = options().background_threads(true).log(|log| log.bytes(4 << 20)).open(&path).unwrap();
    db.create_table("rows").unwrap();
    let stop = AtomicBool::new(false);
    let done: Vec<u32> = std::thread::scope(|scope| {
        let work = |client| {
            let (db, stop) = (&db, &stop);
            move || client_until(db, client, stop)
        };
        let clients: Vec<_> = (0..3u32).map(|client| scope.spawn(work(client))).collect();
        for (round, policy) in POLICIES.into_iter().chain([GR]).enumerate() {
            let spec = tiny(policy).path(format!("cache.{round}")).write_through(round == 3);
            db.attach_cache(&spec).unwrap();
            let error = db.attach_cache(&spec).unwrap_err();
            assert!(error.to_string().contains("already"), "{error}");
            wait_for(&db, 300);
            db.resize_cache(200 << 10, &mut |_| {}).unwrap();
            let status = db.cache_status().unwrap();
            assert_eq!((status.state, name_of(&status)), (CacheMemberState::InUse, &*policy.name()));
            assert!(status.shape.unwrap().bytes > 150 << 10, "{status:?}");
            wait_for(&db, 300);
            if round == 1 {
                db.replace_cache(&tiny(GR).path("other"), &mut |_| {}).unwrap();
                wait_for(&db, 100);
            }
            db.detach_cache(&mut |_| {}).unwrap();
            assert!(db.cache_status().is_none());
            assert_eq!(db.detach_cache(&mut |_| {}).unwrap_err().kind(), ErrorKind::NotFound);
            std::fs::remove_file(path.join(if round == 1 {
                "other".into()
            } else {
                format!("cache.{round}")
            }))
            .unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    for reopened in 0..2 {
        verify_clients(&db, &done);
        if reopened == 0 {
            assert_eq!(cache_status(&path).unwrap_err().kind(), ErrorKind::InUse);
        }
    }
    db.close().unwrap();
    assert!(cache_status(&path).unwrap().is_none());
}

/// Changes rows of its own until it is stopped; returns how many times.
fn client_until(db: &Database, client: u32, stop: &AtomicBool) -> u32 {
    let table = db.table("rows").unwrap();
    let mut n = 0;
    while !stop.load(Ordering::Relaxed) {
        n += 1;
        db.transact(|tx| {
            (0..20).try_for_each(|i| {
                let row = client * 10_000 + (n * 37 + i * 11) % 500;
                tx.put(&table, &row.to_be_bytes(), &value(row, n)).map(drop)
            })
        })
        .unwrap();
    }
    n
}

/// Each row is as its client left it.
fn verify_clients(db: &Database, done: &[u32]) {
    let table = db.table("rows").unwrap();
    let mut tx = db.snapshot();
    for (client, count) in (0..).zip(done) {
        let mut newest = std::collections::BTreeMap::new();
        for (n, i) in (1..=*count).flat_map(|n| (0..20).map(move |i| (n, i))) {
            newest.insert((n * 37 + i * 11) % 500, n);
        }
        for (row, n) in newest {
            let row: u32 = client * 10_000 + row;
            assert_eq!(tx.get(&table, &row.to_be_bytes()).unwrap(), Some(value(row, n)), "row {row}");
        }
    }
    drop(tx);
    let report = db.check(&mut |_| {}).unwrap();
    assert!(report.is_clean(), "{:?}", report.damage);
}

/// The policy or, of a cache without one, the kind.
fn name_of(status: &CacheStatus) -> &str {
    status.policy.map_or(&status.kind, |policy| policy.name())
}

/// Until the cache took that many pages.
fn wait_for(db: &Database, pages: u64) {
    let taken = || {
        let cache = db.statistics().cache.unwrap();
        cache.dirty_enqueued + cache.clean_enqueued
    };
    let from = taken();
    while taken() < from + pages {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn what_cannot_be_is_refused_before_anything_changes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = options().open(&path).unwrap();
    commit(&db, 0).unwrap();
    let refused = |spec: CacheSpec, says: &str| {
        let error = db.attach_cache(&spec).unwrap_err();
        assert!(error.kind() == ErrorKind::BadArgument && error.to_string().contains(says), "{error}");
    };
    refused(CacheSpec::new(1000), "give it at least");
    refused(CacheSpec::new(1000).kind(LC.kind()), "give it at least");
    refused(CacheSpec::new(1 << 20).group_pages(0), "cache.group_pages");
    refused(CacheSpec::new(1 << 20).path("store"), "a file of the database already");
    std::fs::write(path.join("something"), vec![7; 64 << 10]).unwrap();
    refused(CacheSpec::new(1 << 20).path("something"), "is not empty");
    assert!(!path.join("cache").exists());
    assert_eq!(db.resize_cache(1 << 20, &mut |_| {}).unwrap_err().kind(), ErrorKind::NotFound);
    let error = db.attach_cache_on(Arc::new(MemoryDevice::new("one")), &CacheSpec::new(1000)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadArgument);
    db.attach_cache(&tiny(GSC)).unwrap();
    let error = db.resize_cache(1000, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("give it at least"), "{error}");
    assert_eq!(db.cache_status().unwrap().state, CacheMemberState::InUse);
    for n in 1..30 {
        commit(&db, n).unwrap();
    }
    verify(&db, 29, 29);
    db.close().unwrap();
    let status = cache_status(&path).unwrap().expect("a cache");
    assert_eq!((status.path.as_str(), status.state), ("cache", CacheMemberState::InUse));
    std::fs::rename(path.join("cache"), path.join("away")).unwrap();
    let status = cache_status(&path).unwrap().expect("a cache");
    assert!(status.state == CacheMemberState::Missing && status.trouble.is_some(), "{status:?}");
    assert!(options().open(&path).unwrap_err().to_string().contains("holds pages that nothing else has"));
    std::fs::rename(path.join("away"), path.join("cache")).unwrap();
    let db = options().open(&path).unwrap();
    verify(&db, 29, 29);
    db.detach_cache(&mut |_| {}).unwrap();
    // It was this database's. What it holds is of no more use, and it may be a cache again.
    db.attach_cache(&tiny(FIFO)).unwrap();
    verify(&db, 29, 29);
}

/// Cause: the newest version of a page was a delta that waited in the store's memory when a cache
/// was attached, and entered it clean. A restart found it there and took its log for needed no
/// more; once the cache had dropped it, the store had an older version. Effect: commits were lost.
#[test]
fn what_waits_in_memory_is_durable_before_there_is_a_cache() {
    let options = options().tuning(|tuning| tuning.deltas(Deltas::On).delta_bytes(16 << 10));
    let bed = Bed::new(1);
    let mut devices = bed.plain();
    let device = devices.cache.take().unwrap();
    let db = options.create_on(devices).unwrap();
    commit(&db, 0).unwrap();
    for n in 1..12 {
        commit(&db, n).unwrap();
    }
    let waiting = || db.statistics().store.deltas_waiting;
    assert!(waiting() > 0);
    db.attach_cache_on(device, &tiny(GSC)).unwrap();
    assert_eq!(waiting(), 0);
    for n in 12..30 {
        commit(&db, n).unwrap();
        db.step().unwrap();
        assert_eq!(waiting(), 0, "the cache has what is dirty, or the store's records do");
    }
    verify(&db, 29, 29);
}
