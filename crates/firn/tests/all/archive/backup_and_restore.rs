//! Backups are taken while writers run; a restored database is exactly what the other was at a
//! commit.

use crate::archive::support::{Rows, commit_one, go_on, rows_of, small, wait_for_archive};
use firndb::{Database, Deltas, ErrorKind, Lsn, Options, RestoreTo, Table, Tuning, verify_backup};
use firndb_base::rng::Rng;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Every commit, by its LSN, with the rows that it left.
#[derive(Default)]
struct Ledger(Vec<(Lsn, Rows)>);

/// A few changes in a transaction; large values, deletions and rollbacks among them.
fn work(db: &Database, table: &Table, rng: &mut Rng, rows: &mut Rows, ledger: &mut Ledger) {
    let mut tx = db.begin();
    let mut next = rows.clone();
    for _ in 0..rng.between(1, 6) {
        let key = format!("key {:05}", rng.below(400)).into_bytes();
        if rng.one_in(4) {
            tx.delete(table, &key).unwrap();
            next.remove(&key);
        } else {
            let len = if rng.one_in(30) { rng.between(3000, 20_000) } else { rng.below(300) };
            let value: Vec<u8> = (0..len).map(|i| (rng.next_u64() ^ i) as u8).collect();
            tx.put(table, &key, &value).unwrap();
            next.insert(key, value);
        }
    }
    if rng.one_in(8) {
        return tx.rollback().unwrap();
    }
    let lsn = {
        let commit = tx.commit_async().unwrap();
        commit.wait().unwrap();
        commit.lsn()
    };
    *rows = next;
    ledger.0.push((lsn, rows.clone()));
}

fn check(db: &Database) {
    let report = db.check(&mut |_| {}).unwrap();
    assert!(report.is_clean(), "{:?}", report.damage);
}

#[test]
fn a_restored_database_is_exactly_the_other_one_at_any_commit() {
    restored_at_any_commit(small, 250);
}

/// A backup has pages as base and delta, and restoring them merges and writes deltas.
#[test]
fn a_restored_database_with_deltas_is_exactly_the_other_one() {
    restored_at_any_commit(with_deltas, 120);
}

/// Little memory, so that pages leave it again and again.
fn with_deltas() -> Options {
    let deltas = |tuning: Tuning| tuning.deltas(Deltas::On).delta_bytes(16 << 10);
    small().buffer_bytes(256 << 10).tuning(deltas)
}

fn restored_at_any_commit(small: fn() -> Options, commits: u32) {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let mut rng = Rng::new(7);
    let (mut rows, mut ledger) = (Rows::new(), Ledger::default());
    let often = || small().tuning(|tuning| tuning.checkpoint_log_bytes(128 << 10));
    let archived = || often().archive(|archive| archive.directory(path("archive")));
    let mut db = archived().open(path("db")).unwrap();
    let table = db.create_table("rows").unwrap();
    for _ in 0..200 {
        work(&db, &table, &mut rng, &mut rows, &mut ledger);
    }
    let backup = db.backup(path("backup"), &mut go_on).unwrap();
    let at_backup = ledger.0.len();
    let mut table = table;
    for life in 0..3 {
        for _ in 0..commits {
            work(&db, &table, &mut rng, &mut rows, &mut ledger);
        }
        // Tables come and go, too.
        db.create_table(&format!("table {life}")).unwrap();
        drop(table);
        if life == 1 {
            // Without a word: recovery, a new epoch, and the archive goes on.
            wait_for_archive(&db);
        }
        db.close().unwrap();
        db = often().open(path("db")).unwrap();
        table = db.table("rows").unwrap();
    }
    let statistics = db.archive_statistics().expect("the superblock remembers the archive");
    assert!(statistics.gaps.is_empty(), "{statistics:?}");
    wait_for_archive(&db);
    let source = rows_of(&db, "rows");
    assert_eq!(source, rows);
    check(&db);
    drop(table);
    db.close().unwrap();

    let mut targets: Vec<usize> =
        (0..7).map(|_| rng.between(at_backup as u64, ledger.0.len() as u64 - 1) as usize).collect();
    targets.extend([at_backup, ledger.0.len() - 1]);
    for (i, target) in targets.into_iter().enumerate() {
        let (lsn, expected) = &ledger.0[target];
        let to = path(&format!("restored {i}"));
        let report =
            small().restore(path("backup"), Some(&path("archive")), RestoreTo::Lsn(*lsn), &to).unwrap();
        assert_eq!(report.lsn, *lsn);
        let restored = small().open(&to).unwrap();
        assert!(restored.recovery_report().clean);
        assert!(restored.archive_statistics().is_none(), "its archive would be another");
        assert_ne!(restored.statistics().database, backup.database);
        assert!(rows_of(&restored, "rows") == *expected, "commit {target} at LSN {lsn}");
        if i % 4 == 0 {
            check(&restored);
            // It works as any other, and comes back.
            restored.transact(|tx| tx.put(&restored.table("rows")?, b"new", b"row")).unwrap();
            restored.close().unwrap();
            let again = small().open(&to).unwrap();
            assert_eq!(rows_of(&again, "rows").len(), expected.len() + 1);
        }
    }
    let all = small().restore(path("backup"), Some(&path("archive")), RestoreTo::End, path("all")).unwrap();
    assert!(all.at_end);
    assert_eq!(rows_of(&small().open(path("all")).unwrap(), "rows"), rows);
    // The backup alone gives its own end.
    let alone = small().restore(path("backup"), None, RestoreTo::End, path("alone")).unwrap();
    assert_eq!(alone.lsn, backup.end);
    assert_eq!(rows_of(&small().open(path("alone")).unwrap(), "rows"), ledger.0[at_backup - 1].1);
}

#[test]
fn a_backup_taken_while_writers_run_is_a_state_that_was() {
    backup_beside_writers(small());
}

#[test]
fn a_backup_taken_while_deltas_are_written_is_a_state_that_was() {
    backup_beside_writers(with_deltas());
}

/// Pages whose newest version lies in the flash cache only are copied from there.
#[test]
fn a_backup_of_a_database_with_a_flash_cache_is_a_state_that_was() {
    backup_beside_writers(small().cache(|cache| cache.path("cache").bytes(4 << 20)));
}

/// Sets a flag when it is dropped, by a panic too, so that no thread waits for ever for those that
/// the flag ends.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn backup_beside_writers(options: Options) {
    let dir = tempfile::tempdir().unwrap();
    let db =
        options.tuning(|tuning| tuning.checkpoint_log_bytes(128 << 10)).open(dir.path().join("db")).unwrap();
    let table = db.create_table("accounts").unwrap();
    const ACCOUNTS: u64 = 2000;
    db.transact(|tx| {
        (0..ACCOUNTS).try_for_each(|i| {
            tx.put(&table, &i.to_be_bytes(), &[&1000u64.to_le_bytes()[..], &[7; 200]].concat()).map(|_| ())
        })
    })
    .unwrap();
    let stop = AtomicBool::new(false);
    let commits = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let _stopping = SetOnDrop(&stop);
        for seed in 0..3 {
            let (db, table, stop, commits) = (&db, &table, &stop, &commits);
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                while !stop.load(Ordering::SeqCst) {
                    let (a, b) = (rng.below(ACCOUNTS), rng.below(ACCOUNTS));
                    if a == b {
                        continue;
                    }
                    db.transact(|tx| {
                        let mut move_by = |account: u64, by: i64| {
                            let mut row = tx.get_for_update(table, &account.to_be_bytes())?.unwrap();
                            let amount = u64::from_le_bytes(row[..8].try_into().unwrap());
                            row[..8].copy_from_slice(&amount.wrapping_add_signed(by).to_le_bytes());
                            tx.put(table, &account.to_be_bytes(), &row).map(|_| ())
                        };
                        move_by(a.min(b), 5)?;
                        move_by(a.max(b), -5)
                    })
                    .unwrap();
                    commits.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        for round in 0..3 {
            let before = commits.load(Ordering::SeqCst);
            let backup = dir.path().join(format!("backup {round}"));
            let report = db.backup(&backup, &mut go_on).unwrap();
            assert!(report.pages > 100);
            assert_eq!(verify_backup(&backup, &mut go_on).unwrap(), report);
            let to = dir.path().join(format!("restored {round}"));
            small().restore(&backup, None, RestoreTo::End, &to).unwrap();
            let restored = small().open(&to).unwrap();
            check(&restored);
            let rows = rows_of(&restored, "accounts");
            let sum = rows
                .values()
                .fold(0u64, |sum, row| sum.wrapping_add(u64::from_le_bytes(row[..8].try_into().unwrap())));
            assert_eq!((rows.len() as u64, sum), (ACCOUNTS, ACCOUNTS * 1000));
            assert!(round == 0 || commits.load(Ordering::SeqCst) > before, "writers went on");
        }
    });
}

#[test]
fn a_time_names_the_commits_made_until_then() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let db = small().archive(|archive| archive.directory(path("archive"))).open(path("db")).unwrap();
    let table = db.create_table("rows").unwrap();
    db.transact(|tx| tx.put(&table, b"0", b"")).unwrap();
    let begun = firndb_base::clock::unix_time_us();
    std::thread::sleep(std::time::Duration::from_millis(3));
    db.backup(path("backup"), &mut go_on).unwrap();
    let mut times = Vec::new();
    for i in 1..=6u8 {
        std::thread::sleep(std::time::Duration::from_millis(3));
        db.transact(|tx| tx.put(&table, &[b'0' + i], b"")).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(3));
        times.push(firndb_base::clock::unix_time_us());
    }
    drop(table);
    db.close().unwrap();
    for (i, time) in times.iter().enumerate() {
        let to = path(&format!("restored {i}"));
        let report =
            small().restore(path("backup"), Some(&path("archive")), RestoreTo::Time(*time), &to).unwrap();
        assert_eq!(report.at_end, i == 5);
        assert!(report.last_commit_us <= *time);
        assert_eq!(rows_of(&small().open(&to).unwrap(), "rows").len(), i + 2);
    }
    // No commit lies between this time and the backup's end.
    for archive in [Some(path("archive")), None] {
        let refused =
            small().restore(path("backup"), archive.as_deref(), RestoreTo::Time(begun), path("none"));
        assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::BadArgument), "{archive:?}");
    }
    assert!(!path("none").exists(), "nothing is made for a target that cannot be");
}

#[test]
fn targets_and_sources_that_cannot_be_are_refused_with_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let db = small().archive(|archive| archive.directory(path("archive"))).open(path("db")).unwrap();
    let table = db.create_table("rows").unwrap();
    let report = db.backup(path("backup"), &mut go_on).unwrap();
    db.transact(|tx| tx.put(&table, b"key", b"value")).unwrap();
    wait_for_archive(&db);
    let end = db.archive_statistics().unwrap().archived.unwrap();
    let restore = |archive: Option<&Path>, target| {
        small().restore(path("backup"), archive, target, path("restored")).unwrap_err()
    };
    let archive = path("archive");
    let early = restore(Some(&archive), RestoreTo::Lsn(Lsn(report.end.0 - 1)));
    assert_eq!(early.kind(), ErrorKind::BadArgument);
    assert!(early.to_string().contains("older backup"), "{early}");
    let late = restore(Some(&archive), RestoreTo::Lsn(Lsn(end.0 + 1)));
    assert_eq!(late.kind(), ErrorKind::BadArgument);
    assert!(late.to_string().contains(&format!("ends at LSN {end}")), "{late}");
    let unnamed = restore(None, RestoreTo::Lsn(end));
    assert!(unnamed.to_string().contains("name the archive"), "{unnamed}");
    let other =
        small().archive(|archive| archive.directory(path("other archive"))).open(path("other")).unwrap();
    other.create_table("t").unwrap();
    wait_for_archive(&other);
    let foreign = restore(Some(&path("other archive")), RestoreTo::End);
    assert_eq!(foreign.kind(), ErrorKind::NotFound, "{foreign}");
    assert!(foreign.to_string().contains("holds no log of database"), "{foreign}");
    assert!(!path("restored").exists());
    let taken = small().restore(path("backup"), None, RestoreTo::End, path("other")).unwrap_err();
    assert!(matches!(taken.kind(), ErrorKind::Exists | ErrorKind::InUse), "{taken}");
    let none = small().restore(path("nowhere"), None, RestoreTo::End, path("restored")).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::NotFound);
    let exists = db.backup(path("backup"), &mut go_on).unwrap_err();
    assert_eq!(exists.kind(), ErrorKind::Exists);
    // One database's archive is not another's.
    drop(table);
    db.close().unwrap();
    other.close().unwrap();
    let error =
        small().archive(|archive| archive.directory(path("archive"))).open(path("other")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadArgument);
    assert!(error.to_string().contains("a directory of its own"), "{error}");
    let error =
        small().archive(|archive| archive.directory(path("archive"))).open(path("third")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadArgument);
}

#[test]
fn a_backup_that_was_stopped_or_damaged_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let db = small().open(path("db")).unwrap();
    let table = db.create_table("rows").unwrap();
    db.transact(|tx| (0..300u32).try_for_each(|i| tx.put(&table, &i.to_be_bytes(), &[1; 500]).map(|_| ())))
        .unwrap();
    db.checkpoint().unwrap();
    let mut steps = 0;
    db.backup(path("whole"), &mut |_| {
        steps += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(steps >= 3);
    for stop_at in 1..=steps {
        let to = path(&format!("stopped {stop_at}"));
        let mut step = 0;
        let error = db
            .backup(&to, &mut |_| {
                step += 1;
                if step == stop_at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        let error = small().restore(&to, None, RestoreTo::End, path("restored")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unusable, "{error}");
        assert!(error.to_string().contains("not complete"), "{error}");
    }
    // Every file of it matters.
    let mut rng = Rng::new(3);
    for file in ["pages.firn", "log/log-0000000001.firn", "backup.firn"] {
        let file = path("whole").join(file);
        let bytes = std::fs::read(&file).unwrap();
        let used = bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1;
        for _ in 0..20 {
            let mut broken = bytes.clone();
            let at = rng.below(used as u64) as usize;
            if rng.one_in(3) {
                broken.truncate(at);
            } else {
                broken[at] ^= 1 << rng.below(8);
            }
            std::fs::write(&file, &broken).unwrap();
            let _ = std::fs::remove_dir_all(path("restored"));
            let verified = verify_backup(path("whole"), &mut go_on);
            let restored = small().restore(path("whole"), None, RestoreTo::End, path("restored"));
            if verified.is_ok() {
                // Padding, or a part of a segment behind what the backup needs.
                restored.unwrap();
                let rows = rows_of(&small().open(path("restored")).unwrap(), "rows");
                assert_eq!(rows.len(), 300);
            }
        }
        std::fs::write(&file, &bytes).unwrap();
    }
    verify_backup(path("whole"), &mut go_on).unwrap();
}

#[test]
fn commits_prepared_at_the_target_wait_and_open_ones_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let db = small().archive(|archive| archive.directory(path("archive"))).open(path("db")).unwrap();
    let table = db.create_table("rows").unwrap();
    let mut old = db.begin();
    old.put(&table, b"open since before the backup", b"").unwrap();
    db.backup(path("backup"), &mut go_on).unwrap();
    let mut prepared = db.begin();
    prepared.put(&table, b"prepared", b"").unwrap();
    prepared.prepare(b"gid").unwrap();
    let mut open = db.begin();
    open.put(&table, b"open", b"").unwrap();
    let commit = {
        let mut tx = db.begin();
        tx.put(&table, b"committed", b"").unwrap();
        tx.commit_async().unwrap()
    };
    commit.wait().unwrap();
    db.commit_prepared(b"gid").unwrap();
    open.commit().unwrap();
    old.commit().unwrap();
    wait_for_archive(&db);
    let report = small()
        .restore(path("backup"), Some(&path("archive")), RestoreTo::Lsn(commit.lsn()), path("restored"))
        .unwrap();
    assert_eq!((report.losers, report.prepared), (2, 1));
    let restored = small().open(path("restored")).unwrap();
    assert_eq!(rows_of(&restored, "rows").into_keys().collect::<Vec<_>>(), [b"committed".to_vec()]);
    assert_eq!(restored.prepared(), [b"gid".to_vec()]);
    restored.commit_prepared(b"gid").unwrap();
    assert_eq!(rows_of(&restored, "rows").len(), 2);
}

/// The database is closed, and later opened, while the archive cannot be reached: what it lacks is
/// kept.
#[test]
fn an_archive_that_is_away_for_a_life_gets_what_it_missed() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let db = small().archive(|archive| archive.directory(path("archive"))).open(path("db")).unwrap();
    let table = db.create_table("rows").unwrap();
    db.backup(path("backup"), &mut go_on).unwrap();
    commit_one(&db, &table, 1);
    drop(table);
    db.close().unwrap();
    std::fs::rename(path("archive"), path("away")).unwrap();
    for life in 0..3 {
        let db = small().open(path("db")).unwrap();
        let table = db.table("rows").unwrap();
        (0..100).for_each(|i| _ = commit_one(&db, &table, life * 100 + i));
        let statistics = db.archive_statistics().unwrap();
        assert!(statistics.failing.is_some(), "{statistics:?}");
        drop(table);
        db.close().unwrap();
    }
    std::fs::rename(path("away"), path("archive")).unwrap();
    let db = small().open(path("db")).unwrap();
    wait_for_archive(&db);
    assert!(db.archive_statistics().unwrap().gaps.is_empty());
    let rows = rows_of(&db, "rows");
    db.close().unwrap();
    small().restore(path("backup"), Some(&path("archive")), RestoreTo::End, path("restored")).unwrap();
    assert_eq!(rows_of(&small().open(path("restored")).unwrap(), "rows"), rows);
}

/// An older copy of the database must not write a second history into the archive.
#[test]
fn an_older_copy_of_the_database_is_refused_its_archive() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let db = small().archive(|archive| archive.directory("../archive")).open(path("db")).unwrap();
    let table = db.create_table("rows").unwrap();
    commit_one(&db, &table, 1);
    drop(table);
    db.close().unwrap();
    let copy = path("copy");
    std::fs::create_dir(&copy).unwrap();
    for file in std::fs::read_dir(path("db")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), copy.join(file.file_name())).unwrap();
    }
    let db = small().open(path("db")).unwrap();
    let table = db.table("rows").unwrap();
    commit_one(&db, &table, 2);
    drop(table);
    db.close().unwrap();
    let error = small().open(&copy).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadArgument);
    assert!(error.to_string().contains("older copy"), "{error}");
    small().archive(|archive| archive.forget()).open(&copy).unwrap().close().unwrap();
}

/// The log of building the pages wraps around a small log many times, and is given up: the archive
/// of the new database begins behind it.
#[test]
fn a_restored_database_archives_from_where_it_is_built() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let db = small().page_size(1024).open(path("db")).unwrap();
    let table = db.create_table("rows").unwrap();
    for chunk in 0..150u32 {
        db.transact(|tx| {
            for i in 0..20 {
                tx.put(&table, &(chunk * 20 + i).to_be_bytes(), &[7; 5000])?;
            }
            Ok::<_, firndb::Error>(())
        })
        .unwrap();
    }
    db.backup(path("backup"), &mut go_on).unwrap();
    drop(table);
    db.close().unwrap();
    let tiny = || Options::new().buffer_bytes(256 << 10).log(|log| log.bytes(256 << 10).devices(1));
    let restored = tiny().archive(|archive| archive.directory(path("archive")));
    restored.restore(path("backup"), None, RestoreTo::End, path("to")).unwrap();
    let survey = firndb::survey_archive(path("archive"), true, &mut |_, _| {}).unwrap();
    assert!(survey.damage.is_empty() && survey.stretches.len() == 1, "{survey:?}");
    let db = tiny().open(path("to")).unwrap();
    let table = db.table("rows").unwrap();
    db.transact(|tx| tx.put(&table, b"more", b"row")).unwrap();
    wait_for_archive(&db);
    let statistics = db.archive_statistics().unwrap();
    assert!(statistics.gaps.is_empty() && statistics.failing.is_none(), "{statistics:?}");
    let survey = firndb::survey_archive(path("archive"), true, &mut |_, _| {}).unwrap();
    assert!(survey.damage.is_empty() && survey.stretches.len() == 1, "{survey:?}");
}
