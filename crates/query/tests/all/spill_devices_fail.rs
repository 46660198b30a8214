//! A spill device that fails, is full, or returns other bytes than were written ends the query with
//! an error that says so, never with wrong rows, and costs the database nothing.

use crate::common::{Filled, World, random_table, rest, run, spill};
use crate::joins_count_before_they_choose::adaptive;
use crate::naive::evaluate;
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_device::*;
use firndb_query::{JoinKind, On, Plan, Query, QueryErrorKind, QueryOptions, SortColumn, Source};
use firndb_spill::{SpillErrorKind, SpillSpace};

fn world() -> (World, Vec<Filled>) {
    world_of(6)
}

fn world_of(seed: u64) -> (World, Vec<Filled>) {
    let mut rng = Rng::new(seed);
    let world = World::new(4 << 10);
    let tables = ["a", "b"].into_iter().map(|name| random_table(&mut rng, &world, name, 300, 800)).collect();
    (world, tables)
}

fn plans(tables: &[Filled]) -> [Plan; 5] {
    let all = |of: &Filled| Box::new(Plan::scan(Source::new(&of.table).unwrap()));
    let on = || On::keys(JoinKind::LeftOuter, &[(1, 1)]);
    let (left, right) = (all(&tables[0]), all(&tables[1]));
    [
        all(&tables[0]).sort(&[SortColumn { column: 1, descending: false }]),
        Plan::SortMerge { left: left.clone(), right: right.clone(), on: on() }.count(),
        Plan::HashJoin { left, right, on: on() }.count(),
        adaptive(tables, JoinKind::Inner, 10, true).count(),
        adaptive(tables, JoinKind::LeftOuter, 1000, false).count(),
    ]
}

fn options(space: &Arc<SpillSpace>) -> QueryOptions {
    QueryOptions { memory: 64 << 10, spill: Some(space.clone()), ..QueryOptions::default() }
}

#[test]
fn the_nth_call_that_goes_wrong_never_gives_wrong_rows() {
    let (world, tables) = world();
    let faults = [
        (Calls::Any, Fault::Fail(DeviceErrorKind::Failed)),
        (Calls::Any, Fault::FailLate(DeviceErrorKind::Failed)),
        (Calls::Writes, Fault::Fail(DeviceErrorKind::NoSpace)),
        (Calls::Writes, Fault::Torn { blocks: 1, error: None }),
        (Calls::Writes, Fault::Lost),
        (Calls::Writes, Fault::Misdirected { by: 4096 }),
        (Calls::Reads, Fault::Misdirected { by: 256 << 10 }),
        (Calls::Reads, Fault::BitRot { bits: 1 }),
        (Calls::Reads, Fault::Stale),
    ];
    let (mut failed, mut survived) = (0, 0);
    for plan in plans(&tables) {
        for (calls, fault) in &faults {
            for nth in [0, 1, 2, 3, 5, 8, 13, 21, 34, 55] {
                let faults = FaultPlan::new(nth);
                let device = Faulty::new(Arc::new(MemoryDevice::new("spill")), &faults);
                let space = SpillSpace::open(Arc::new(device), 64 << 20).unwrap();
                // So that the device holds blocks of another query.
                let other = plans(&tables)[0].clone();
                let mut txn = world.begin();
                let mut beside = Query::new(&other, &options(&space)).unwrap();
                assert!(beside.next(&mut txn).unwrap().is_some());
                let rule = FaultRule { calls: *calls, device: None, when: When::Nth(nth), fault: *fault };
                faults.add(rule);
                match run(&plan, &options(&space), &mut txn) {
                    Ok(rows) => {
                        survived += 1;
                        evaluate(&plan, &tables).assert_is(rows, &|| format!("{fault:?} {nth} {plan:?}"));
                    }
                    Err(error) => {
                        failed += 1;
                        let expected = match fault {
                            Fault::Fail(DeviceErrorKind::NoSpace) => QueryErrorKind::Full,
                            _ => QueryErrorKind::SpillFailed,
                        };
                        assert_eq!(error.kind, expected, "{error}");
                        assert!(error.message.contains("spill"), "{error}");
                    }
                }
                drop(beside);
                assert_eq!(space.used_bytes(), 0, "all is given back");
                // The transaction goes on.
                assert_eq!(run(&plan, &options(&spill(64 << 20)), &mut txn).map(drop), Ok(()));
            }
        }
    }
    assert!(failed > 100 && survived > 5, "{failed} failed, {survived} survived");
}

/// A raw device, which keeps all that was ever written.
#[derive(Debug)]
struct Raw(MemoryDevice);

impl Device for Raw {
    fn info(&self) -> &DeviceInfo {
        self.0.info()
    }
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.0.read(offset, buf)
    }
    fn write(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), DeviceError> {
        self.0.write(offset, data, durability)
    }
    fn sync(&self) -> Result<(), DeviceError> {
        self.0.sync()
    }
    fn grow(&self, len: u64, fill: Fill) -> Result<(), DeviceError> {
        self.0.grow(len, fill)
    }
    fn shrink(&self, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// Blocks of an earlier process lie where a lost write of this one should be.
#[test]
fn what_an_earlier_process_left_is_taken_for_no_rows_of_this_one() {
    let raw = Arc::new(Raw(MemoryDevice::new("spill")));
    let mut failed = 0;
    for nth in 0..12 {
        let ((old_world, old), (world, tables)) = (world_of(2 * nth), world_of(2 * nth + 1));
        let space = SpillSpace::open(raw.clone(), 64 << 20).unwrap();
        run(&plans(&old)[0], &options(&space), &mut old_world.begin()).unwrap();
        drop(space);
        let faults = FaultPlan::new(nth);
        let space = SpillSpace::open(Arc::new(Faulty::new(raw.clone(), &faults)), 64 << 20).unwrap();
        let (calls, fault) = (Calls::Writes, Fault::Lost);
        faults.add(FaultRule { calls, device: None, when: When::Nth(nth), fault });
        let plan = &plans(&tables)[0];
        match run(plan, &options(&space), &mut world.begin()) {
            Ok(rows) => evaluate(plan, &tables).assert_is(rows, &|| format!("{nth}")),
            Err(error) => {
                assert_eq!(error.kind, QueryErrorKind::SpillFailed, "{error}");
                failed += 1;
            }
        }
    }
    assert!(failed > 2, "{failed}");
}

/// The mark is there before any row: otherwise the device would be taken for another's.
#[test]
fn a_device_that_lost_power_at_any_moment_is_a_spill_device_again() {
    let (world, tables) = world();
    let plan = CrashPlan::new();
    let device = plan.device_holding(&Arc::new(MemoryDevice::new("spill")));
    let space = SpillSpace::open(device, 64 << 20).unwrap();
    run(&plans(&tables)[0], &options(&space), &mut world.begin()).unwrap();
    drop(space);
    let mut rng = Rng::new(11);
    for event in 0..=plan.event_count() {
        for survival in Survival::ALL {
            let image = plan.image_at(event, survival, &mut rng).remove(0);
            if let Err(error) = SpillSpace::open(image, 64 << 20) {
                panic!("{survival:?} at event {event}: {error}");
            }
        }
    }
}

#[test]
fn a_full_device_and_none_are_errors_of_kind_full() {
    let (world, tables) = world();
    for plan in plans(&tables) {
        let small = spill(128 << 10);
        let error = run(&plan, &options(&small), &mut world.begin()).unwrap_err();
        assert!(error.kind == QueryErrorKind::Full && error.message.contains("spill_bytes"), "{error}");
        assert_eq!(small.used_bytes(), 0);
        // The file system is full before the limit is reached.
        let device = MemoryDevice::with("spill", 512, 150 << 10);
        let small = SpillSpace::open(Arc::new(device), 64 << 20).unwrap();
        let error = run(&plan, &options(&small), &mut world.begin()).unwrap_err();
        assert!(error.kind == QueryErrorKind::Full && error.message.contains("is full"), "{error}");
        let none = QueryOptions { spill: None, ..options(&small) };
        let error = run(&plan, &none, &mut world.begin()).unwrap_err();
        assert!(error.kind == QueryErrorKind::Full && error.message.contains("no spill device"), "{error}");
    }
}

#[test]
fn what_holds_anything_else_is_not_taken_for_a_spill_device() {
    let block = |bytes: &[u8]| {
        let device = Arc::new(MemoryDevice::new("spill"));
        device.grow(1 << 20, Fill::Sparse).unwrap();
        let mut block = AlignedBuf::zeroed(4096);
        block[..bytes.len()].copy_from_slice(bytes);
        device.write(0, &block, Durability::Later).unwrap();
        device
    };
    for (bytes, is_ours) in [(&b"a thesis"[..], false), (b"FIRNSPIL and more", false), (b"FIRNSPIL", true)] {
        let device = block(bytes);
        device.write(512 << 10, &[7; 512], Durability::Later).unwrap();
        let opened = SpillSpace::open(device.clone(), 1 << 20);
        assert_eq!(opened.is_ok(), is_ours, "{bytes:?}");
        match opened {
            Ok(_) => assert_eq!(device.len(), 4096, "emptied"),
            Err(error) => {
                assert_eq!(error.kind, SpillErrorKind::BadArgument, "{error}");
                let mut left = AlignedBuf::zeroed(4096);
                device.read(0, &mut left).unwrap();
                assert!(device.len() == 1 << 20 && left.starts_with(bytes), "left as it was");
            }
        }
    }
}

#[test]
fn queries_share_a_device() {
    let (world, tables) = world();
    let space = spill(64 << 20);
    let plans = plans(&tables);
    let mut txn = world.begin();
    let mut queries: Vec<(Query, Vec<_>)> =
        plans.iter().map(|plan| (Query::new(plan, &options(&space)).unwrap(), Vec::new())).collect();
    for (query, rows) in &mut queries {
        let batch = query.next(&mut txn).unwrap().expect("a batch");
        rows.extend(
            batch.rows().map(|row| (0..row.len()).map(|at| row.get(at).unwrap().to_value()).collect()),
        );
    }
    for ((mut query, mut rows), plan) in queries.into_iter().zip(&plans) {
        rows.extend(rest(&mut query, &mut txn).unwrap());
        evaluate(plan, &tables).assert_is(rows, &|| format!("{plan:?}"));
    }
    assert_eq!(space.used_bytes(), 0);
}
