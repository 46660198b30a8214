//! A transaction that cannot be undone, because a device failed, never ends; a waiter for its rows
//! gets an error, and does not wait for ever.

use crate::support::bed::Bed;
use firndb::device::{Calls, DeviceErrorKind, FaultPlan};
use firndb::{ErrorKind, Isolation, Options, TransactionOptions};
use std::time::Duration;

#[test]
fn waiters_learn_that_what_they_wait_for_cannot_end() {
    let (plan, bed) = (FaultPlan::new(1), Bed::new(1));
    let options =
        Options::new().page_size(1024).buffer_bytes(64 << 10).log(|log| log.devices(1).bytes(512 << 10));
    let options = options.background_threads(false);
    let db = options.create_on(bed.faulty(&plan, &Default::default())).expect("creates");
    let table = db.create_table("t").expect("creates");
    db.transact(|tx| {
        (0..1000u32).try_for_each(|i| tx.put(&table, &i.to_be_bytes(), &[b'v'; 120]).map(|_| ()))
    })
    .expect("commits");
    let mut holder = db.begin();
    for i in (0..1000u32).step_by(3) {
        holder.put(&table, &i.to_be_bytes(), &[b'w'; 120]).expect("writes");
    }
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let isolation = TransactionOptions { isolation: Isolation::ReadCommitted, ..Default::default() };
            let mut tx = db.begin_with(isolation);
            tx.put(&table, &0u32.to_be_bytes(), b"mine")
        });
        // Until it waits; if it is late, it finds the database poisoned, which is as good.
        for _ in 0..200 {
            if db.statistics().txn.lock_waits > 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        plan.fail_from(0, Calls::Writes, DeviceErrorKind::Failed);
        holder.rollback().expect_err("pages of many rows are not in DRAM");
        let told = waiter.join().expect("no panic").expect_err("the row is not free");
        assert_eq!(told.kind(), ErrorKind::Failed, "{told}");
    });
}
