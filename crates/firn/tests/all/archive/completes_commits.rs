//! The archive acknowledges commits while the log's devices are slow; a crash then needs the
//! archive, and says so.

use crate::archive::support;
use crate::archive::support::{commit_one, rows_of, small_behind, wait_for_archive};
use firndb::device::{
    Calls, CrashPlan, Device, Fault, FaultPlan, FaultRule, Faulty, MemoryDevice, Survival, When,
};
use firndb::{Database, Devices, ErrorKind, Hiding, Options, Table};
use firndb_testkit::gate::{Gate, Mode};
use std::sync::Arc;
use std::time::Duration;

/// A database on devices of which a crash may leave anything, and whose log can be made to stall.
struct Bed {
    plan: CrashPlan,
    faults: FaultPlan,
    media: Vec<Arc<dyn Device>>,
    archive: tempfile::TempDir,
    gate: Gate,
}

impl Bed {
    fn new() -> Bed {
        let plan = CrashPlan::new();
        let media = ["superblock", "log.0", "log.1", "store"]
            .map(|name| plan.device_holding(&Arc::new(MemoryDevice::new(name))) as Arc<dyn Device>)
            .into_iter()
            .collect();
        Bed {
            plan,
            faults: FaultPlan::new(1),
            media,
            archive: tempfile::tempdir().unwrap(),
            gate: Gate::default(),
        }
    }

    fn devices(&self) -> Devices {
        let mut all =
            self.media.iter().map(|d| Arc::new(Faulty::new(d.clone(), &self.faults)) as Arc<dyn Device>);
        let superblock = all.next().unwrap();
        let logs = all.by_ref().take(2).collect();
        Devices { superblock, logs, store: all.next().unwrap(), store_others: Vec::new(), cache: None }
    }

    fn options(&self) -> Options {
        let delay = Duration::from_millis(50);
        let options = small_behind(&self.gate)
            .log(|log| log.hiding(Hiding::Off))
            .archive(|archive| archive.directory(self.archive.path()));
        options.archive(|archive| archive.delay(delay).completes(true))
    }

    /// The log's devices take this long for each write from now on.
    fn slow(&self, time: Duration) {
        for log in ["log.0", "log.1"] {
            let device = Some(log.to_owned());
            self.faults.add(FaultRule {
                calls: Calls::Writes,
                device,
                when: When::From(0),
                fault: Fault::Stall(time),
            });
        }
    }
}

/// The devices after a power cut that left what was durable.
fn left_by(plan: &CrashPlan) -> Devices {
    left_with(plan, Survival::Nothing)
}

fn left_with(plan: &CrashPlan, survival: Survival) -> Devices {
    let image = plan.crash_image(survival, &mut firndb_base::rng::Rng::new(1));
    let mut image = image.into_iter().map(|device| device as Arc<dyn Device>);
    let mut next = || image.next().unwrap();
    let superblock = next();
    let logs = vec![next(), next()];
    Devices { superblock, logs, store: next(), store_others: Vec::new(), cache: None }
}

/// Clients commit until `until` returns true; returns the highest number that was acknowledged to
/// each.
fn run(db: &Database, table: &Table, until: &(dyn Fn() -> bool + Sync)) -> Vec<u64> {
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..12u64)
            .map(|client| {
                scope.spawn(move || {
                    let mut done = 0u64;
                    while !until() && done < 10_000 {
                        let next = done + 1;
                        let row = [&next.to_le_bytes()[..], &[client as u8; 4000]].concat();
                        if db.transact(|tx| tx.put(table, &client.to_be_bytes(), &row)).is_err() {
                            break;
                        }
                        done = next;
                    }
                    done
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    })
}

fn assert_has(db: &Database, acknowledged: &[u64]) {
    let rows = rows_of(db, "rows");
    for (client, &done) in acknowledged.iter().enumerate() {
        let found = rows
            .get(&(client as u64).to_be_bytes()[..])
            .map_or(0, |row| u64::from_le_bytes(row[..8].try_into().unwrap()));
        assert!(found >= done, "client {client}: commit {done} was acknowledged, and {found} is there");
    }
}

fn early_writes(db: &Database) -> u64 {
    db.archive_statistics().unwrap().early_writes
}

/// A database whose archive acknowledged commits while its log was slow, after a power cut: the
/// devices as they were left, and what was acknowledged.
fn cut_off() -> (Bed, Vec<u64>) {
    let bed = Bed::new();
    let db = bed.options().create_on(bed.devices()).unwrap();
    let table = db.create_table("rows").unwrap();
    for i in 0..2 {
        commit_one(&db, &table, i);
        wait_for_archive(&db);
    }
    bed.slow(Duration::from_millis(300));
    let acknowledged = run(&db, &table, &|| {
        let enough = early_writes(&db) >= 5;
        if enough {
            bed.plan.power_off();
        }
        enough
    });
    assert!(acknowledged.iter().sum::<u64>() > 12, "{acknowledged:?}");
    drop(db);
    (bed, acknowledged)
}

#[test]
fn what_the_archive_acknowledged_survives_a_power_cut_and_needs_no_archive_afterwards() {
    let (bed, acknowledged) = cut_off();
    let devices = left_by(&bed.plan);
    let db = bed.options().open_on(devices.clone()).unwrap();
    assert!(db.recovery_report().from_archive > 0, "{:?}", db.recovery_report());
    assert_has(&db, &acknowledged);
    assert!(db.check(&mut |_| {}).unwrap().is_clean());
    let rows = rows_of(&db, "rows");
    db.close().unwrap();
    // Closed cleanly it does without.
    std::fs::rename(bed.archive.path(), bed.archive.path().with_extension("away")).unwrap();
    let db = small_without_archive().open_on(devices).unwrap();
    assert_eq!(rows_of(&db, "rows"), rows);
    std::fs::rename(bed.archive.path().with_extension("away"), bed.archive.path()).unwrap();
}

fn small_without_archive() -> Options {
    support::small().log(|log| log.hiding(Hiding::Off)).archive(|archive| archive.forget())
}

#[test]
fn an_archive_that_is_needed_and_missing_stops_the_opening_unless_it_is_said_to_be_lost() {
    let (bed, acknowledged) = cut_off();
    let away = bed.archive.path().with_extension("away");
    std::fs::rename(bed.archive.path(), &away).unwrap();
    for options in [bed.options(), small_without_archive()] {
        let error = options.open_on(left_by(&bed.plan)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unusable, "{error}");
        assert!(error.to_string().contains("archive.lost"), "{error}");
    }
    // An older copy of it will not do: one with the first chunk only.
    let older = tempfile::tempdir().unwrap();
    let first = std::fs::read(away.join("log-0000000001.firn")).unwrap();
    let len = u32::from_le_bytes(first[4096 + 12..4096 + 16].try_into().unwrap()) as usize;
    let cut = 4096 + (64 + len).next_multiple_of(4096);
    std::fs::write(older.path().join("log-0000000001.firn"), &first[..cut]).unwrap();
    let error = bed
        .options()
        .archive(|archive| archive.directory(older.path()))
        .open_on(left_by(&bed.plan))
        .unwrap_err();
    assert!(error.to_string().contains("older copy"), "{error}");
    // Where it is now it is found, and taken from there.
    let db = bed.options().archive(|archive| archive.directory(&away)).open_on(left_by(&bed.plan)).unwrap();
    assert_has(&db, &acknowledged);
    drop(db);
    // Given up, its commits are lost, and the database goes on; the archive that comes back is of
    // another history.
    let devices = left_by(&bed.plan);
    let db = small_without_archive().archive(|archive| archive.lost(true)).open_on(devices.clone()).unwrap();
    let table = db.table("rows").unwrap();
    commit_one(&db, &table, 7);
    db.close().unwrap();
    let error =
        bed.options().archive(|archive| archive.directory(&away)).open_on(devices.clone()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
    drop(small_without_archive().open_on(devices).unwrap());
    std::fs::rename(&away, bed.archive.path()).unwrap();
}

#[test]
fn an_archive_that_fails_loses_nothing_and_is_needed_no_more_once_the_devices_have_caught_up() {
    let bed = Bed::new();
    let db = bed.options().create_on(bed.devices()).unwrap();
    let table = db.create_table("rows").unwrap();
    commit_one(&db, &table, 1);
    wait_for_archive(&db);
    bed.slow(Duration::from_millis(100));
    let acknowledged = run(&db, &table, &|| early_writes(&db) >= 5);
    bed.gate.set(Mode::Failing);
    bed.faults.heal();
    commit_one(&db, &table, 2);
    db.checkpoint().unwrap();
    bed.plan.power_off();
    drop(db);
    std::fs::rename(bed.archive.path(), bed.archive.path().with_extension("gone")).unwrap();
    let db = small_without_archive().open_on(left_by(&bed.plan)).unwrap();
    assert_has(&db, &acknowledged);
    drop(db);
    std::fs::rename(bed.archive.path().with_extension("gone"), bed.archive.path()).unwrap();
}

#[test]
fn by_option_the_archive_follows_the_devices_and_is_never_needed() {
    let bed = Bed::new();
    let db = bed.options().archive(|archive| archive.completes(false)).create_on(bed.devices()).unwrap();
    let table = db.create_table("rows").unwrap();
    commit_one(&db, &table, 1);
    wait_for_archive(&db);
    bed.slow(Duration::from_millis(20));
    let acknowledged = run(&db, &table, &|| db.archive_statistics().unwrap().writes >= 12);
    assert_eq!(early_writes(&db), 0);
    bed.plan.power_off();
    drop(db);
    let db = small_without_archive().open_on(left_by(&bed.plan)).unwrap();
    assert_has(&db, &acknowledged);
}

/// Cause: pages, map and flash cache went by what the archive had made durable. Effect: with the
/// archive lost after a crash, pages that an earlier checkpoint had covered carried versions beyond
/// the end of the devices' log, and were damaged, or the store refused to open. Mend: what is
/// written below DRAM waits for the log's devices.
///
/// On a busy machine the devices may have caught up by the time of the power cut, so that nothing
/// needs the archive: then it is tried again.
#[test]
fn an_archive_that_is_lost_takes_only_the_commits_that_it_alone_had() {
    let needed = (0..5).any(|_| an_archive_is_lost());
    assert!(needed, "in no attempt did the archive have more than the devices");
}

/// Returns whether the archive had log that the devices lacked.
fn an_archive_is_lost() -> bool {
    const ROWS: u64 = 2000;
    let bed = Bed::new();
    let tight = |options: Options| {
        let options =
            options.page_size(1024).buffer_bytes(64 << 10).tuning(|tuning| tuning.map_bytes(4 << 10));
        options.log(|log| log.bytes(16 << 20)).archive(|archive| archive.eager_bytes(4 << 10))
    };
    let db = tight(bed.options()).create_on(bed.devices()).unwrap();
    let table = db.create_table("rows").unwrap();
    let value = |row: u64, generation: u64| {
        [&row.to_le_bytes()[..], &generation.to_le_bytes(), &[row as u8; 300]].concat()
    };
    let write = |generation: u64, rows: &mut dyn Iterator<Item = u64>| {
        let mut tx = db.begin();
        for row in rows {
            tx.put(&table, &row.to_be_bytes(), &value(row, generation))?;
        }
        tx.commit()
    };
    for first in (0..ROWS).step_by(200) {
        write(1, &mut (first..first + 200)).unwrap();
    }
    db.checkpoint().unwrap();
    wait_for_archive(&db);
    // From here on the devices stall, and twelve clients overwrite rows all over the table.
    bed.slow(Duration::from_millis(300));
    let early = early_writes(&db);
    std::thread::scope(|scope| {
        for client in 0..12 {
            let (db, bed, write) = (&db, &bed, &write);
            scope.spawn(move || {
                for generation in 2..10_000 {
                    let mut rng = firndb_base::rng::Rng::new(generation * 12 + client);
                    let first = rng.below(ROWS / 12);
                    let mut rows = (first..ROWS / 12).step_by(5).take(12).map(|row| row * 12 + client);
                    if write(generation, &mut rows).is_err() {
                        return;
                    }
                    if early_writes(db) >= early + 20 {
                        // What is done from now on never happened.
                        bed.plan.power_off();
                        return;
                    }
                }
            });
        }
    });
    drop(db);
    let away = bed.archive.path().with_extension("away");
    std::fs::rename(bed.archive.path(), &away).unwrap();
    // The process is gone and the power is not: what reached a device is there, be it synced or
    // not.
    let devices = left_with(&bed.plan, Survival::Everything);
    let Err(error) = tight(small_without_archive()).open_on(devices.clone()) else { return false };
    assert!(error.to_string().contains("archive.lost"), "it was needed: {error}");
    let db = tight(small_without_archive()).archive(|archive| archive.lost(true)).open_on(devices).unwrap();
    let rows = rows_of(&db, "rows");
    assert_eq!(rows.len() as u64, ROWS);
    for (key, found) in &rows {
        let row = u64::from_be_bytes(key[..].try_into().unwrap());
        let generation = u64::from_le_bytes(found[8..16].try_into().unwrap());
        assert!(generation >= 1 && *found == value(row, generation), "row {row}");
    }
    let report = db.check(&mut |_| {}).unwrap();
    assert!(report.is_clean(), "{:?}", report.damage);
    db.close().unwrap();
    std::fs::rename(&away, bed.archive.path()).unwrap();
    true
}
