//! The flash cache while a database is in use: it is attached, detached, resized and replaced. At
//! every moment of that the power may fail, or a call; whatever was acknowledged is there
//! afterwards.

use crate::support::bed::Bed;
use firndb::device::{
    Calls, CrashPlan, Device, DeviceErrorKind, Fault, FaultPlan, FaultRule, Faulty, MemoryDevice, Survival,
    When,
};
use firndb::{
    CacheMemberState, CachePolicy, CacheSpec, Database, Devices, Error, ErrorKind, Options, cache_status,
};
use firndb_base::rng::Rng;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Little DRAM, so that pages come and go.
fn options() -> Options {
    Options::new()
        .page_size(1024)
        .buffer_bytes(64 << 10)
        .tuning(|tuning| tuning.version_bytes(4 << 10))
        .log(|log| log.bytes(256 << 10).devices(1))
        .background_threads(false)
}
fn tiny(policy: CachePolicy) -> CacheSpec {
    let bytes = if policy == CachePolicy::LazyCleaning { 160 << 10 } else { 80 << 10 };
    CacheSpec::new(bytes).group_pages(4).policy(policy)
}

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
    policy: CachePolicy,
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
    db.resize_cache(if policy == CachePolicy::LazyCleaning { 150 << 10 } else { 60 << 10 }, &mut |_| {})?;
    work(9)?;
    db.detach_cache(&mut |_| {})?;
    work(3)
}

fn created(devices: Devices) -> Database {
    let db = options().create_on(devices).unwrap();
    commit(&db, 0).unwrap();
    db
}

const POLICIES: [CachePolicy; 3] =
    [CachePolicy::GroupSecondChance, CachePolicy::Fifo, CachePolicy::LazyCleaning];

fn crash_walk(policy: CachePolicy, every: u64) {
    let bed = Bed::new(1);
    let plan = CrashPlan::new();
    let mut devices = bed.crashing(&plan);
    let device = devices.cache.take().unwrap();
    let db = created(devices);
    plan.settle();
    come_and_go(&db, device, policy, &mut |n| plan.mark(u64::from(n))).unwrap();
    assert!(db.statistics().cache.is_none());
    drop(db);
    let (mut replay, mut rng) = (plan.replay(), Rng::new(policy as u64));
    let (mut images, mut cached) = (0, BTreeSet::new());
    loop {
        if rng.one_in(every) {
            let survival = Survival::ALL[rng.below(Survival::ALL.len() as u64) as usize];
            let acknowledged = replay.marks().last().copied().unwrap_or(0) as u32;
            let place = format!("{policy:?}, {survival:?} at event {}", replay.position());
            let bed = Bed::of_image(replay.image(survival, &mut rng));
            let db = options().open_on(bed.plain()).unwrap_or_else(|error| panic!("{place}: {error}"));
            cached.insert(db.cache_status().map(|status| status.shape.map(|shape| shape.bytes)));
            verify(&db, acknowledged, acknowledged + 1);
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
            images += 1;
        }
        if replay.step().is_none() {
            break;
        }
    }
    assert!(images > 15 && cached.len() >= 3, "{images} images, {cached:?}");
}

#[test]
fn a_power_cut_while_it_comes_and_goes() {
    POLICIES.into_iter().for_each(|policy| crash_walk(policy, 60));
}

/// `cargo test --release -p firndb --test all flash_cache_comes_and_goes -- --ignored`
#[test]
#[ignore = "takes minutes"]
fn every_power_cut_while_it_comes_and_goes() {
    POLICIES.into_iter().for_each(|policy| crash_walk(policy, 1));
}

/// Calls fail, once or for ever from there on.
fn nth_walk(policy: CachePolicy, every: u64) {
    let run = |rule: Option<(u64, bool)>| {
        let bed = Bed::new(1);
        let plan = FaultPlan::new(1);
        let wrap = |device: Arc<dyn Device>| Arc::new(Faulty::new(device, &plan)) as Arc<dyn Device>;
        let plain = bed.plain();
        let device = wrap(plain.cache.unwrap());
        let logs = plain.logs.into_iter().map(wrap).collect();
        let devices =
            Devices { superblock: wrap(plain.superblock), logs, store: wrap(plain.store), cache: None };
        let db = created(devices);
        let before = plan.calls();
        if let Some((n, for_ever)) = rule {
            let when = if for_ever { When::From(n) } else { When::Nth(n) };
            let fault = Fault::Fail(DeviceErrorKind::Failed);
            plan.add(FaultRule { calls: Calls::Any, device: None, when, fault });
        }
        let mut acknowledged = 0;
        let outcome = come_and_go(&db, device, policy, &mut |n| acknowledged = n);
        let calls = plan.calls() - before;
        drop(db);
        (bed, acknowledged, calls, outcome)
    };
    let (_, _, calls, outcome) = run(None);
    outcome.unwrap();
    let mut rng = Rng::new(9);
    let mut refused = 0;
    for n in 0..calls {
        if !rng.one_in(every) {
            continue;
        }
        for for_ever in [false, true] {
            let (bed, acknowledged, _, outcome) = run(Some((n, for_ever)));
            if let Err(error) = &outcome {
                assert!(!error.to_string().is_empty());
                refused += 1;
            }
            let db = options().open_on(bed.plain()).unwrap_or_else(|error| {
                panic!("{policy:?}: call {n} failed ({outcome:?}); opened again: {error}");
            });
            verify(&db, acknowledged, acknowledged + 1);
        }
    }
    assert!(refused > 3, "{refused} of {calls} calls");
}

#[test]
fn a_call_fails_while_it_comes_and_goes() {
    POLICIES.into_iter().for_each(|policy| nth_walk(policy, 200));
}

/// `cargo test --release -p firndb --test all flash_cache_comes_and_goes -- --ignored`
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
        let clients: Vec<_> = (0..3u32)
            .map(|client| {
                let (db, stop) = (&db, &stop);
                scope.spawn(move || {
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
                })
            })
            .collect();
        for (round, policy) in POLICIES.into_iter().chain([CachePolicy::GroupReplacement]).enumerate() {
            let spec = tiny(policy).path(format!("cache.{round}")).write_through(round == 3);
            db.attach_cache(&spec).unwrap();
            let error = db.attach_cache(&spec).unwrap_err();
            assert!(error.to_string().contains("already"), "{error}");
            wait_for(&db, 300);
            db.resize_cache(200 << 10, &mut |_| {}).unwrap();
            let status = db.cache_status().unwrap();
            assert_eq!((status.state, status.policy), (CacheMemberState::InUse, Some(policy)));
            assert!(status.shape.unwrap().bytes > 150 << 10, "{status:?}");
            wait_for(&db, 300);
            if round == 1 {
                db.replace_cache(&tiny(CachePolicy::GroupReplacement).path("other"), &mut |_| {}).unwrap();
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
        let table = db.table("rows").unwrap();
        let mut tx = db.snapshot();
        for (client, count) in (0..).zip(&done) {
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
        if reopened == 0 {
            assert_eq!(cache_status(&path).unwrap_err().kind(), ErrorKind::InUse);
        }
    }
    db.close().unwrap();
    assert!(cache_status(&path).unwrap().is_none());
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
    refused(CacheSpec::new(1000).policy(CachePolicy::LazyCleaning), "give it at least");
    refused(CacheSpec::new(1 << 20).group_pages(0), "cache.group_pages");
    refused(CacheSpec::new(1 << 20).path("store"), "a file of the database already");
    std::fs::write(path.join("something"), vec![7; 64 << 10]).unwrap();
    refused(CacheSpec::new(1 << 20).path("something"), "is not empty");
    assert!(!path.join("cache").exists());
    assert_eq!(db.resize_cache(1 << 20, &mut |_| {}).unwrap_err().kind(), ErrorKind::NotFound);
    let error = db.attach_cache_on(Arc::new(MemoryDevice::new("one")), &CacheSpec::new(1000)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadArgument);
    db.attach_cache(&tiny(CachePolicy::GroupSecondChance)).unwrap();
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
    db.attach_cache(&tiny(CachePolicy::Fifo)).unwrap();
    verify(&db, 29, 29);
}
