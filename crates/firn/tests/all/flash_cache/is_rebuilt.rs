//! The flash cache's device is lost. If log was kept for it, whatever only it held is made anew, at
//! any moment of a power cut; if not, the database says so and stays as it is.

use crate::support::caches;
use crate::support::images::{Case, Tally, Walk, walk_all};
use crate::support::scripts;
use firndb::{CacheSpec, Database, ErrorKind, Options};

fn small(options: Options) -> Options {
    caches::small(options).cache(|cache| cache.rebuildable(true))
}
fn page_by_page(options: Options) -> Options {
    caches::page_by_page(options).cache(|cache| cache.rebuildable(true))
}
fn roomy(options: Options) -> Options {
    caches::roomy(options).cache(|cache| cache.rebuildable(true))
}
fn through(options: Options) -> Options {
    caches::through(options).cache(|cache| cache.rebuildable(true))
}
/// With whether the long scripts' larger pages fit into it.
const CACHES: [(caches::Cache, bool); 4] =
    [(small, false), (page_by_page, false), (roomy, true), (through, false)];

const WALKED: [&str; 9] = [
    "updates of more than fits into DRAM",
    "inserts over two log devices",
    "deletes",
    "splits in the middle",
    "merges",
    "space given back",
    "before-images spill, rollback",
    "tables are dropped",
    "recovery of more than fits into DRAM",
];
const LONG: [&str; 2] = ["the log goes around", "a bit of everything, in little DRAM"];

fn walk(walk: Walk) -> Tally {
    let cases = CACHES.into_iter().flat_map(|(cache, fits)| {
        let long = if fits { &LONG[..] } else { &[] };
        WALKED.iter().chain(long).map(move |name| Case {
            name: (*name).to_owned(),
            script: scripts::named(name).over_cache(cache),
            // The device is gone after every cut.
            reopened: |options| options.cache(|cache| cache.give_up(true)),
        })
    });
    walk_all(cases, walk)
}

#[test]
fn a_power_cut_takes_the_cache_along() {
    let tally = walk(Walk { images: 6, again_one_in: 8, go_on_one_in: 4, seed: 3 });
    assert!(tally.images > 100, "{}", tally.images);
    tally.failures.assert_none("lost caches");
}

/// `cargo test --release -p firndb --test all flash_cache::is_rebuilt -- --ignored --nocapture`
#[test]
#[ignore = "takes minutes"]
fn many_power_cuts_take_the_cache_along() {
    let tally = walk(Walk { images: 200, again_one_in: 8, go_on_one_in: 6, seed: 4 });
    eprintln!("{} events, {} images, {} of second crashes", tally.events, tally.images, tally.again);
    tally.failures.assert_none("lost caches");
}

fn options() -> Options {
    Options::new().page_size(1024).buffer_bytes(96 << 10).log(|log| log.bytes(1 << 20).devices(1))
}
fn value(i: u32, version: u32) -> Vec<u8> {
    format!("{version} {i} {}", "x".repeat(90)).into_bytes()
}
fn fill(db: &Database, count: u32, version: u32) {
    let table = db.open_table("t").unwrap();
    for chunk in (0..count).collect::<Vec<_>>().chunks(50) {
        db.transact(|tx| {
            chunk.iter().try_for_each(|i| tx.put(&table, &i.to_be_bytes(), &value(*i, version)).map(drop))
        })
        .unwrap();
    }
}
fn verify(db: &Database, count: u32, version: u32) {
    let table = db.open_table("t").unwrap();
    let mut tx = db.snapshot();
    for i in 0..count {
        assert_eq!(tx.get(&table, &i.to_be_bytes()).unwrap(), Some(value(i, version)), "row {i}");
    }
    let report = db.check(&mut |_| {}).unwrap();
    assert!(report.is_clean(), "{:?}", report.damage);
}

#[test]
fn log_is_kept_for_it_and_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let options = || options().cache(|cache| cache.bytes(1 << 20).group_pages(8).rebuildable(true));
    let db = options().open(&path).unwrap();
    // Several times the log: whatever is changed again and again would hold it for ever.
    for version in 0..12 {
        fill(&db, 3000, version);
        let kept = db.cache_status().unwrap().rebuildable_log_bytes.expect("rebuildable");
        assert!(kept <= 3 * (1 << 20) / 4, "{kept} bytes of log are kept");
    }
    let cache = db.statistics().cache.unwrap();
    assert!(cache.pages_dirty > 50 && cache.write_backs > 0, "{cache:?}");
    db.close().unwrap();
    std::fs::remove_file(path.join("cache")).unwrap();
    let error = options().open(&path).unwrap_err();
    assert!(error.to_string().contains("holds pages that nothing else has"), "{error}");
    let db = options().cache(|cache| cache.give_up(true)).open(&path).unwrap();
    db.finish_recovery().unwrap();
    assert!(db.cache_status().is_none() && db.recovery_report().redone > 0, "{:?}", db.recovery_report());
    verify(&db, 3000, 11);
    // And life goes on, with another cache.
    db.attach_cache(&CacheSpec::new(512 << 10).group_pages(8)).unwrap();
    fill(&db, 3000, 12);
    assert!(db.cache_status().unwrap().rebuildable_log_bytes.is_some());
    db.close().unwrap();
    // With the option off it retains no more log, now and later.
    let kept = |options: Options| {
        let db = options.open(&path).unwrap();
        let kept = db.cache_status().unwrap().rebuildable_log_bytes;
        db.close().unwrap();
        kept
    };
    assert!(kept(Options::new()).is_some());
    assert_eq!(kept(Options::new().cache(|cache| cache.rebuildable(false))), None);
    assert_eq!(kept(Options::new()), None);
    verify(&Options::new().open(&path).unwrap(), 3000, 12);
}

/// It once had to be asked for at every opening: one look with other options (`firn stat`) and the
/// log that was kept for the cache was given back, for good.
#[test]
fn an_opening_that_does_not_ask_for_it_does_not_end_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db =
        options().cache(|cache| cache.bytes(1 << 20).group_pages(8).rebuildable(true)).open(&path).unwrap();
    fill(&db, 3000, 1);
    db.close().unwrap();
    let db = Options::new().open(&path).unwrap();
    let named = db.statistics().settings.into_iter().find(|setting| setting.name == "cache.rebuildable");
    assert_eq!(named.map(|setting| setting.value).as_deref(), Some("true"));
    db.checkpoint().unwrap();
    drop(db);
    let db = options().open(&path).unwrap();
    fill(&db, 3000, 2);
    assert!(db.statistics().cache.unwrap().pages_dirty > 50, "the cache holds what nothing else has");
    db.close().unwrap();
    std::fs::remove_file(path.join("cache")).unwrap();
    let db = options().cache(|cache| cache.give_up(true)).open(&path).unwrap();
    verify(&db, 3000, 2);
}

/// A commit of its own takes a block, however few bytes it has: by their number alone, the log
/// would be full long before the cache had to give any of it up. Checkpoints that a client requests
/// again and again do not fill it either.
#[test]
fn small_commits_and_many_checkpoints_never_fill_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let options = || options().cache(|cache| cache.bytes(1 << 20).group_pages(8).rebuildable(true));
    let db = options().open(&path).unwrap();
    fill(&db, 1500, 1);
    let table = db.open_table("t").unwrap();
    for round in 0..4000u32 {
        db.transact(|tx| tx.put(&table, &0u32.to_be_bytes(), &round.to_be_bytes()).map(drop)).unwrap();
    }
    for _ in 0..3000 {
        db.checkpoint().unwrap();
    }
    db.transact(|tx| tx.put(&table, &0u32.to_be_bytes(), &value(0, 1)).map(drop)).unwrap();
    drop(table);
    db.close().unwrap();
    let db = options().open(&path).unwrap();
    verify(&db, 1500, 1);
}

#[test]
fn what_no_log_was_kept_for_is_not_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = options().cache(|cache| cache.bytes(1 << 20).group_pages(8)).open(&path).unwrap();
    fill(&db, 3000, 1);
    db.close().unwrap();
    let error = options().cache(|cache| cache.give_up(true)).open(&path).unwrap_err();
    assert!(
        error.kind() == ErrorKind::Unusable && error.to_string().contains("cannot be given up"),
        "{error}"
    );
    // Nothing has changed. Asked for now, log is kept for what comes, and what is there goes to the
    // store.
    let db = options().cache(|cache| cache.rebuildable(true)).open(&path).unwrap();
    verify(&db, 3000, 1);
    fill(&db, 500, 1);
    assert!(db.cache_status().unwrap().rebuildable_log_bytes.is_some());
    db.close().unwrap();
    std::fs::remove_file(path.join("cache")).unwrap();
    let db = options().cache(|cache| cache.give_up(true)).open(&path).unwrap();
    verify(&db, 3000, 1);
}
