//! Devices that lose, misplace, tear, spoil or repeat writes, silently: while the database is
//! open and after it was opened again, every result is right or an error.
//!
//! One seed again: `FIRN_SEED=7`; more seeds: `FIRN_SEEDS=100000`.

use crate::support::bed::Bed;
use crate::support::examine::{examine, examine_open, examine_reads};
use crate::support::sample::{Ending, Model, change, create_tables, quiet, sample, statements, try_change};
use firndb::device::{Calls, DeviceErrorKind, Fault, FaultPlan, FaultRule, Faulty, When};
use firndb::{Database, Devices, ErrorKind};
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_testkit::cases::case;
use firndb_testkit::seeds::for_seeds;

/// Cause: both copies were read by one call, and one slot of the store's header was older than the
/// other. Effect: one bad sector, or one flipped bit, stopped every opening.
#[test]
fn one_bad_sector_in_a_header_is_survived_and_mended_by_the_next_write() {
    let sample = sample(11, Ending::Sealed);
    for offset in [0, 512, 16 << 10, (16 << 10) + 512] {
        case(format!("the superblock's sector at {offset}"), || {
            let disks = sample.disks.duplicate();
            let bad = Arc::new(Faulty::new(disks.superblock.clone(), &FaultPlan::new(0)));
            bad.make_unreadable(offset, 512);
            let devices = Devices { superblock: bad.clone(), ..disks.devices() };
            let db = quiet().open_on(devices.clone()).expect("the other copy is whole");
            assert_eq!(bad.unreadable_blocks(), 0, "the opening has written it");
            assert_eq!(examine_reads(&db, &[&sample.model]), []);
            bad.make_unreadable(offset, 512);
            change(&db, &mut sample.model.clone(), &mut Rng::new(1));
            db.checkpoint().expect("a checkpoint");
            assert_eq!(bad.unreadable_blocks(), 0, "a checkpoint has written it");
            drop(db);
            bad.wear_out(offset, 512);
            let error =
                quiet().open_on(devices).expect_err("there is one copy only, and it is not written over");
            assert_eq!(error.kind(), ErrorKind::Failed, "{error}");
            quiet().open_on(disks.devices()).expect("on another medium").close().expect("closed");
        });
    }
    for offset in [0, 64 << 10] {
        case(format!("the store's header at {offset}"), || {
            let disks = sample.disks.duplicate();
            let bad = Arc::new(Faulty::new(disks.store.clone(), &FaultPlan::new(0)));
            bad.make_unreadable(offset, 512);
            let db =
                quiet().open_on(Devices { store: bad.clone(), ..disks.devices() }).expect("the other slot");
            assert_eq!(examine_reads(&db, &[&sample.model]), []);
            let (table, mut i) = (db.table("plain").expect("there"), 0u64);
            while bad.unreadable_blocks() > 0 {
                i += 1;
                assert!(i < 100_000, "the store never grows");
                db.transact(|tx| tx.put(&table, format!("more {i}").as_bytes(), &[1; 200]))
                    .expect("committed");
            }
            db.close().expect("closed");
            drop(table);
            quiet().open_on(disks.devices()).expect("whole again");
        });
    }
}

struct Run {
    disks: Bed,
    plan: FaultPlan,
    db: Database,
    model: Model,
    before_last: Model,
    rng: Rng,
}

impl Run {
    /// A database with something in it, over devices that will go wrong.
    fn new(seed: u64) -> Run {
        let mut rng = Rng::new(seed);
        let (disks, plan) = (Bed::new(2), FaultPlan::new(seed));
        let options = quiet()
            .buffer_bytes((64 + rng.below(64) as usize) << 10)
            .tuning(|tuning| tuning.checkpoint_log_bytes(64 << 10));
        let db = options.create_on(disks.failing(&plan)).expect("created");
        let mut model = create_tables(&db);
        for _ in 0..20 {
            change(&db, &mut model, &mut rng);
        }
        db.checkpoint().expect("a checkpoint");
        Run { disks, plan, db, before_last: model.clone(), model, rng }
    }

    /// Works until an error or to the end; an error has to tell of damage.
    fn work(&mut self) {
        for _ in 0..60 {
            let before = self.model.clone();
            if let Err(error) = try_change(&self.db, &mut self.model, &mut self.rng) {
                assert!(matches!(error.kind(), ErrorKind::Damaged | ErrorKind::Failed), "{error:?}");
                return;
            }
            self.before_last = before;
            if self.rng.one_in(8) {
                let step = if self.rng.one_in(2) { self.db.checkpoint() } else { self.db.step().map(drop) };
                if let Err(error) = step {
                    assert!(matches!(error.kind(), ErrorKind::Damaged | ErrorKind::Failed), "{error:?}");
                    return;
                }
            }
        }
    }
}

fn silent_write_fault(rng: &mut Rng) -> Fault {
    match rng.below(4) {
        0 => Fault::Lost,
        1 => Fault::Misdirected { by: 512 * rng.between(1, 300) as i64 * if rng.one_in(2) { 1 } else { -1 } },
        2 => Fault::Torn { blocks: rng.below(4), error: None },
        _ => Fault::BitRot { bits: 1 + rng.below(8) as u32 },
    }
}

/// One write of one device goes wrong without a word. Whether that was noticed at the next opening.
fn a_write_goes_wrong(seed: u64, device: &str) -> bool {
    let mut run = Run::new(seed);
    let fault = silent_write_fault(&mut run.rng);
    let rule = FaultRule {
        calls: Calls::Writes,
        device: Some(device.to_owned()),
        when: When::Nth(run.rng.below(if device == "superblock" { 8 } else { 40 })),
        fault,
    };
    run.plan.add(rule);
    run.work();
    if run.rng.one_in(2) {
        examine_open(&run.db, &[&run.model]);
    }
    run.plan.heal();
    let verdict = if run.rng.one_in(2) {
        // A close that fails says so; what it leaves is what a crash would leave.
        let _ = run.db.close();
        examine(&run.disks, &[&run.model, &run.before_last])
    } else {
        let crashed = run.disks.duplicate();
        drop(run.db);
        // What is not acknowledged yet may be gone: the last request before the end.
        examine(&crashed, &[&run.model, &run.before_last])
    };
    !verdict.is_whole()
}

/// Runs `test` for many seeds, some of which have to show that faults happen and are noticed.
fn noticed_sometimes(count: u64, test: impl Fn(u64) -> bool) {
    let noticed = std::cell::Cell::new(0);
    for_seeds(count, |seed| noticed.set(noticed.get() + u32::from(test(seed))));
    assert!(noticed.get() > 0 || std::env::var_os("FIRN_SEED").is_some(), "no fault was noticed in any run");
}

#[test]
fn a_write_of_the_log() {
    noticed_sometimes(60, |seed| a_write_goes_wrong(seed, if seed % 2 == 0 { "log.0" } else { "log.1" }));
}

#[test]
fn a_write_of_the_store() {
    noticed_sometimes(120, |seed| a_write_goes_wrong(seed, "store"));
}

#[test]
fn a_write_of_the_superblock() {
    for_seeds(40, |seed| assert!(!a_write_goes_wrong(seed, "superblock"), "the other copy is whole"));
}

#[test]
fn reads_that_are_spoilt_now_and_then() {
    for_seeds(80, spoilt_reads);
}

/// Cause: a stale leaf, not where its parent said, sent a scan back to where it came from. Effect:
/// it went round for ever. Mend: a scan that does not get ahead has met damage.
#[test]
fn a_scan_of_a_tree_that_leads_in_circles_ends() {
    for seed in [129, 346] {
        spoilt_reads(seed);
    }
}

fn spoilt_reads(seed: u64) {
    let mut run = Run::new(seed);
    let fault = match run.rng.below(3) {
        0 => Fault::BitRot { bits: 1 + run.rng.below(8) as u32 },
        1 => Fault::Misdirected { by: 512 * run.rng.between(1, 300) as i64 },
        _ => Fault::Stale,
    };
    run.plan.add(FaultRule {
        calls: Calls::Reads,
        device: None,
        when: When::OneIn(run.rng.between(2, 30)),
        fault,
    });
    run.work();
    // A check meets other spoilt reads than those before it, or none.
    drop(examine_reads(&run.db, &[&run.model]));
    drop(run.db.check(&mut |_| {}));
    let crashed = run.disks.duplicate();
    drop(run.db);
    // Recovery from devices that are spoilt when they are read, and then from the same ones,
    // healed.
    let plan = FaultPlan::new(seed);
    plan.one_in(20, Calls::Reads, Fault::BitRot { bits: 3 });
    let again = crashed.duplicate();
    match quiet().open_on(again.failing(&plan)) {
        Ok(db) => drop(examine_reads(&db, &[&run.model, &run.before_last])),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Damaged, "{error}"),
    }
    examine(&crashed, &[&run.model]);
}

#[test]
fn a_device_that_is_gone() {
    for_seeds(60, |seed| {
        let mut run = Run::new(seed);
        let device = ["log.0", "log.1", "store", "superblock"][run.rng.below(4) as usize];
        let rule = FaultRule {
            calls: [Calls::Any, Calls::Writes, Calls::Reads][run.rng.below(3) as usize],
            device: Some(device.to_owned()),
            when: When::From(run.rng.below(60)),
            fault: Fault::Fail(DeviceErrorKind::Failed),
        };
        run.plan.add(rule);
        let mut after = None;
        for _ in 0..60 {
            // A commit whose log write failed may be there or not.
            let mut attempt = run.model.clone();
            let mut tracked = run.rng.clone();
            match try_change(&run.db, &mut run.model, &mut run.rng) {
                Ok(()) => {}
                Err(error) => {
                    assert!(
                        matches!(error.kind(), ErrorKind::Failed | ErrorKind::Unknown),
                        "a failed device is reported: {error:?}"
                    );
                    apply(&mut attempt, &mut tracked);
                    after = Some((attempt, error.kind()));
                    break;
                }
            }
            let _ = run.db.step();
        }
        if after.is_some() && device.starts_with("log") {
            // A failed log takes no commit until it is opened again.
            let mut model = run.model.clone();
            let error = try_change(&run.db, &mut model, &mut run.rng).expect_err("the log failed");
            assert!(matches!(error.kind(), ErrorKind::Failed | ErrorKind::Unknown), "{error:?}");
        }
        run.plan.heal();
        let _ = run.db.close();
        let unknown = after.as_ref().filter(|(_, kind)| *kind == ErrorKind::Unknown).map(|(model, _)| model);
        let models: Vec<&Model> = [Some(&run.model), unknown].into_iter().flatten().collect();
        let verdict = examine(&run.disks, &models);
        assert!(verdict.is_whole(), "nothing was damaged: {verdict:?}");
    });
}

/// What `change` would have done to the model.
fn apply(model: &mut Model, rng: &mut Rng) {
    for statement in statements(rng) {
        let rows = model.get_mut(statement.table).expect("in the model");
        match statement.value {
            Some(value) => drop(rows.insert(statement.key, value)),
            None => drop(rows.remove(&statement.key)),
        }
    }
}
