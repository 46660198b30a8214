//! Logs that go around, transactions larger than the log, a store that is nearly full.

use super::{STORE_OF_ONE_GROUP, Script, fill, hundred_rows, key, pages_of_4k, value};
use crate::support::session::{Session, Work};
use firndb::Error;

pub fn scripts() -> Vec<Script> {
    vec![
        Script::new("the log goes around", hundred_rows, the_log_goes_around).options(pages_of_4k),
        Script::new("the log goes around on two devices", hundred_rows, the_log_goes_around_on_two_devices)
            .options(pages_of_4k)
            .logs(2),
        Script::new("a rollback larger than the log", hundred_rows, a_rollback_larger_than_the_log)
            .options(pages_of_4k),
        Script::new(
            "recovery of a transaction larger than the log",
            recovery_of_a_transaction_larger_than_the_log_set_up,
            recovery_of_a_transaction_larger_than_the_log,
        )
        .options(pages_of_4k)
        .crashed(),
        Script::new("a transaction larger than the log", hundred_rows, a_transaction_larger_than_the_log)
            .options(pages_of_4k),
        Script::new(
            "a store that is nearly full",
            a_store_that_is_nearly_full_set_up,
            a_store_that_is_nearly_full,
        )
        .store_limit(STORE_OF_ONE_GROUP),
    ]
}

fn the_log_goes_around(session: &mut Session) {
    for t in 1..34u32 {
        session.transact(|work| (0..20).try_for_each(|i| work.put("t", &key(i), &value(i, t, 600))));
        session.steps(2);
    }
    session.verify();
}

fn the_log_goes_around_on_two_devices(session: &mut Session) {
    for t in 1..34u32 {
        session.transact(|work| (0..24).try_for_each(|i| work.put("t", &key(i), &value(i, t, 600))));
        session.steps(2);
    }
    session.verify();
}

fn a_rollback_larger_than_the_log(session: &mut Session) {
    session.transact_and_roll_back(|work| large(work, 450));
    session.transact(|work| work.put("t", &key(5), &value(5, 2, 30)));
    session.verify();
}

fn recovery_of_a_transaction_larger_than_the_log_set_up(session: &mut Session) {
    hundred_rows(session);
    session.transact_around(|work| large(work, 450), Session::crash, false);
    session.errors.clear();
}

fn recovery_of_a_transaction_larger_than_the_log(session: &mut Session) {
    session.verify();
}

fn a_transaction_larger_than_the_log(session: &mut Session) {
    session.transact(|work| (0..700).try_for_each(|i| work.put("t", &key(i), &value(i, 1, 600))));
    session.transact(|work| work.put("t", &key(5), &value(5, 2, 30)));
    session.verify();
}

fn a_store_that_is_nearly_full_set_up(session: &mut Session) {
    session.create_table("t", &[]);
    session.create_table("u", &[]);
    fill(session, "t", 0..200, 40, 100);
    // To the brim, then a little out again.
    let mut full = false;
    for t in 0..100u32 {
        session.transact(|work| {
            for i in 0..400 {
                if !full && !work.put_if_room("u", &key(t * 400 + i), &value(t * 400 + i, 0, 140))? {
                    full = true;
                }
            }
            Ok(())
        });
    }
    assert!(full, "the store is larger than this script takes it for");
    session.transact(|work| (0..60).try_for_each(|i| work.delete("u", &key(i))));
    session.checkpoint();
    session.steps(50);
}

fn a_store_that_is_nearly_full(session: &mut Session) {
    for t in 0..10u32 {
        session.transact(|work| {
            for i in 0..100 {
                if !work.put_if_room("u", &key(50_000 + t * 100 + i), &value(i, t, 140))? {
                    break;
                }
            }
            Ok(())
        });
        session.steps(1);
    }
    session.verify();
    session.drop_table("u");
    session.checkpoint();
    session.steps(40);
    session.checkpoint();
    session.transact(|work| (0..200).step_by(3).try_for_each(|i| work.put("t", &key(i), &value(i, 3, 60))));
    session.verify();
}

/// Inserts and updates of some 700 bytes each, all in one transaction.
fn large(work: &mut Work, count: u32) -> Result<(), Error> {
    (0..count).try_for_each(|i| work.put("t", &key(i % 300), &value(i, 40 + i / 300, 600)))
}
