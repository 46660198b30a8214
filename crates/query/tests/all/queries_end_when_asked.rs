//! A cancelled query, and one whose deadline has passed, ends at its next batch, and gives back
//! what it had on the spill device.

use crate::common::{Filled, World, random_table, rest, spill};
use crate::joins_count_before_they_choose::adaptive;
use firndb_base::clock;
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::{AtomicU64, Ordering};
use firndb_device::*;
use firndb_query::{
    Comparison, JoinKind, On, Plan, Predicate, Query, QueryErrorKind, QueryOptions, SortColumn,
};
use firndb_query::{Source, SpillSpace};
use firndb_table::Value;
use firndb_txn::{CancelToken, Isolation};

/// A device that cancels at the n-th transfer.
#[derive(Debug)]
struct Cancelling {
    inner: MemoryDevice,
    token: CancelToken,
    left: AtomicU64,
}

impl Cancelling {
    fn count(&self) {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.token.cancel();
        }
    }
}

impl Device for Cancelling {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.count();
        self.inner.read(offset, buf)
    }
    fn write(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), DeviceError> {
        self.count();
        self.inner.write(offset, data, durability)
    }
    fn sync(&self) -> Result<(), DeviceError> {
        panic!("a spill device needs no durability")
    }
    fn grow(&self, len: u64, fill: Fill) -> Result<(), DeviceError> {
        self.inner.grow(len, fill)
    }
    fn shrink(&self, len: u64) -> Result<(), DeviceError> {
        self.inner.shrink(len)
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, len)
    }
}

fn tables(rng: &mut Rng, world: &World) -> Vec<Filled> {
    ["a", "b"].into_iter().map(|name| random_table(rng, world, name, 400, 800)).collect()
}

#[test]
fn a_cancelled_query_gives_back_what_it_had_wherever_it_was() {
    let mut rng = Rng::new(3);
    let world = World::new(4 << 10);
    let tables = tables(&mut rng, &world);
    let mut cancelled = 0;
    let all = |of: &Filled| Box::new(Plan::scan(Source::new(&of.table).unwrap()));
    let on = On::keys(JoinKind::LeftOuter, &[(1, 1)]);
    let (left, right) = (all(&tables[0]), all(&tables[1]));
    let joins = [
        Plan::SortMerge { left: left.clone(), right: right.clone(), on: on.clone() },
        Plan::HashJoin { left, right, on },
        // By hash, by hash with the other build side, and by lookups.
        adaptive(&tables, JoinKind::Inner, 300, true),
        adaptive(&tables, JoinKind::LeftOuter, 300, false),
        adaptive(&tables, JoinKind::LeftOuter, 1000, false),
    ];
    for join in joins {
        let plan = join.sort(&[SortColumn { column: 0, descending: true }]);
        for nth in (1..).step_by(7) {
            let token = CancelToken::new();
            let (inner, left) = (MemoryDevice::new("spill"), AtomicU64::new(nth));
            let device = Arc::new(Cancelling { inner, token: token.clone(), left });
            let space = SpillSpace::open(device.clone(), 64 << 20).unwrap();
            let options = QueryOptions {
                memory: 160 << 10,
                spill: Some(space.clone()),
                cancel: Some(token.clone()),
                ..QueryOptions::default()
            };
            let mut query = Query::new(&plan, &options).unwrap();
            let mut txn = world.begin();
            let outcome = loop {
                match query.next(&mut txn) {
                    Ok(Some(_)) => {}
                    Ok(None) => break Ok(()),
                    Err(error) => break Err(error),
                }
            };
            assert_eq!((space.used_bytes(), device.len()), (0, 4096), "all is given back, and cut");
            match outcome {
                Err(error) => assert_eq!(error.kind, QueryErrorKind::Cancelled, "{error}"),
                // The last transfers may be behind the last look at the token.
                Ok(()) if token.is_cancelled() => {}
                Ok(()) => break,
            }
            cancelled += 1;
        }
    }
    assert!(cancelled > 40, "it was cancelled at {cancelled} places");
}

#[test]
fn a_passed_deadline_and_a_token_of_the_transaction_end_a_query_too() {
    let mut rng = Rng::new(4);
    let world = World::new(4 << 10);
    let tables = tables(&mut rng, &world);
    let plan = Plan::scan(Source::new(&tables[0].table).unwrap());
    let late = QueryOptions { deadline: Some(clock::now()), ..QueryOptions::default() };
    let error = Query::new(&plan, &late).unwrap().next(&mut world.begin()).unwrap_err();
    assert!(error.kind == QueryErrorKind::Timeout && error.message.contains("more time"), "{error}");
    let token = CancelToken::new();
    let txn_options = firndb_txn::TxnOptions { cancel: Some(token.clone()), ..Default::default() };
    let mut txn = world.manager.begin(txn_options);
    let mut query = Query::new(&plan, &QueryOptions::default()).unwrap();
    token.cancel();
    assert_eq!(query.next(&mut txn).unwrap_err().kind, QueryErrorKind::Cancelled);
}

/// A row that another transaction has changed is waited for under serializable isolation.
#[test]
fn a_query_that_waits_for_a_lock_ends_by_its_deadline_and_by_its_token() {
    let mut rng = Rng::new(6);
    let world = World::new(4 << 10);
    let of = random_table(&mut rng, &world, "a", 20, 0);
    let plan = Plan::scan(Source::new(&of.table).unwrap());
    let key: Vec<_> = of.schema.key().iter().map(|part| of.rows[7][part.column].as_ref()).collect();
    let mut writer = world.begin();
    of.table.typed().unwrap().delete(&mut writer, &key).unwrap();
    let error = |options: QueryOptions| {
        let mut reader = world.begin_at(Isolation::Serializable);
        let error = rest(&mut Query::new(&plan, &options).unwrap(), &mut reader).unwrap_err();
        reader.rollback().unwrap();
        error
    };
    let deadline = clock::now().after(std::time::Duration::from_millis(20));
    let late = error(QueryOptions { deadline, ..QueryOptions::default() });
    assert!(late.kind == QueryErrorKind::Timeout && late.message.contains("deadline"), "{late}");
    let token = CancelToken::new();
    let cancelled = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            token.cancel();
        });
        error(QueryOptions { cancel: Some(token.clone()), ..QueryOptions::default() })
    });
    assert_eq!(cancelled.kind, QueryErrorKind::Cancelled, "{cancelled}");
    writer.commit().unwrap();
    let mut reader = world.begin_at(Isolation::Serializable);
    let left = rest(&mut Query::new(&plan, &QueryOptions::default()).unwrap(), &mut reader).unwrap();
    assert_eq!(left.len(), of.rows.len() - 1);
}

/// Neither waits for a row that is found.
#[test]
fn scans_and_loops_that_find_nothing_see_the_deadline() {
    let mut rng = Rng::new(5);
    let world = World::new(4 << 10);
    let of = random_table(&mut rng, &world, "a", 30_000, 0);
    let none = Predicate::Compare(1, Comparison::Equal, 1000i64.into());
    let soon = || clock::now().after(std::time::Duration::from_millis(1));
    let ends = |plan: &Plan| {
        let options =
            QueryOptions { deadline: soon(), spill: Some(spill(1 << 20)), ..QueryOptions::default() };
        let mut query = Query::new(plan, &options).unwrap();
        query.next(&mut world.begin()).unwrap_err().kind
    };
    let source = || Source::new(&of.table).unwrap();
    let scan = Plan::scan(source().filter(none.clone()).unwrap());
    assert_eq!(ends(&scan), QueryErrorKind::Timeout);
    let all = || Box::new(Plan::scan(source().select(&[0, 1]).unwrap()));
    let on = On::keys(JoinKind::Inner, &[]).and(none);
    assert_eq!(ends(&Plan::BlockNestedLoops { left: all(), right: all(), on }), QueryErrorKind::Timeout);
    // Rows that it does not see are no batches, either.
    let unseen = random_table(&mut Rng::new(5), &world, "b", 0, 0);
    let mut writer = world.begin();
    let typed = unseen.table.typed().unwrap();
    of.rows.iter().for_each(|row| {
        typed.insert(&mut writer, &row.iter().map(Value::as_ref).collect::<Vec<_>>()).unwrap();
    });
    let scan = Plan::scan(Source::new(&unseen.table).unwrap());
    assert_eq!(ends(&scan), QueryErrorKind::Timeout);
    writer.rollback().unwrap();
}
