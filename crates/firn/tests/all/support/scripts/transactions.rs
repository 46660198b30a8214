//! Transactions: savepoints, rollbacks, spilt before-images, checkpoints, two-phase commit.

use super::{Script, empty_table, hundred_rows, key, many_pages, value};
use crate::support::session::{Script as SessionScript, Session};

pub fn scripts() -> Vec<Script> {
    vec![
        Script::new("savepoints", hundred_rows, savepoints),
        Script::new("rollbacks", hundred_rows, rollbacks),
        Script::new("before-images spill, commit", many_pages, before_images_spill_commit),
        Script::new("before-images spill, rollback", many_pages, before_images_spill_rollback),
        Script::new("checkpoints within transactions", hundred_rows, checkpoints_within_transactions),
        Script::new(
            "a transaction open while others commit",
            hundred_rows,
            a_transaction_open_while_others_commit,
        ),
        Script::new("checkpoints", hundred_rows, checkpoints),
        Script::new("commits that are waited for later", empty_table, commits_that_are_waited_for_later)
            .logs(2),
        Script::new("prepare and commit", hundred_rows, prepare_and_commit),
        Script::new(
            "prepare and roll back in the next life",
            hundred_rows,
            prepare_and_roll_back_in_the_next_life,
        ),
    ]
}

fn savepoints(session: &mut Session) {
    session.transact(|work| {
        work.put("t", &key(1), &value(1, 1, 30))?;
        let first = work.savepoint();
        (10..40).try_for_each(|i| work.put("t", &key(i), &value(i, 2, 60)))?;
        let second = work.savepoint();
        (30..60).try_for_each(|i| work.delete("t", &key(i)))?;
        work.roll_back_to(&second)?;
        (60..70).try_for_each(|i| work.put("t", &key(i), &value(i, 3, 10)))?;
        work.roll_back_to(&first)?;
        work.put("t", &key(2), &value(2, 4, 30))
    });
    session.verify();
}

fn rollbacks(session: &mut Session) {
    for t in 1..5u32 {
        session.transact_and_roll_back(|work| {
            (0..20).try_for_each(|i| work.put("t", &key(i * t), &value(i, t, 80)))?;
            (90..95).try_for_each(|i| work.delete("t", &key(i)))
        });
        session.transact(|work| work.put("t", &key(t), &value(t, 50 + t, 30)));
    }
    session.verify();
}

fn before_images_spill_commit(session: &mut Session) {
    session.transact(|work| (0..300).try_for_each(|i| work.put("t", &key(i), &value(i, 7, 100))));
    session.steps(10);
    session.verify();
}

fn before_images_spill_rollback(session: &mut Session) {
    session
        .transact_and_roll_back(|work| (0..300).try_for_each(|i| work.put("t", &key(i), &value(i, 8, 80))));
    session.steps(10);
    session.verify();
}

fn checkpoints_within_transactions(session: &mut Session) {
    session.transact(|work| {
        (0..40).try_for_each(|i| work.put("t", &key(i), &value(i, 1, 60)))?;
        work.checkpoint()?;
        (20..60).try_for_each(|i| work.put("t", &key(i), &value(i, 2, 50)))?;
        work.checkpoint()?;
        work.put("t", &key(99), &value(99, 1, 30))
    });
    session.transact_and_roll_back(|work| {
        (0..40).try_for_each(|i| work.put("t", &key(i), &value(i, 3, 40)))?;
        work.checkpoint()?;
        (30..70).try_for_each(|i| work.delete("t", &key(i)))?;
        work.checkpoint()
    });
    session.verify();
}

fn a_transaction_open_while_others_commit(session: &mut Session) {
    for commit in [true, false] {
        session.transact_around(
            |work| (0..30).try_for_each(|i| work.put("t", &key(i), &value(i, 21, 40))),
            |session| {
                for t in 0..3u32 {
                    session.transact(|work| work.put("t", &key(50 + t), &value(50 + t, 22, 40)));
                    session.checkpoint();
                    session.steps(2);
                }
            },
            commit,
        );
    }
    session.verify();
}

fn checkpoints(session: &mut Session) {
    for t in 1..6u32 {
        session.transact(|work| (0..10).try_for_each(|i| work.put("t", &key(i * t), &value(i * t, t, 30))));
        session.checkpoint();
    }
    session.verify();
}

fn commits_that_are_waited_for_later(session: &mut Session) {
    for t in 0..4u32 {
        let scripts = (0..4u32).map(|i| {
            let script: SessionScript =
                Box::new(move |work| work.put("t", &key(t * 4 + i), &value(i, t, 120)));
            script
        });
        session.transact_async(scripts.collect());
    }
    session.verify();
}

fn prepare_and_commit(session: &mut Session) {
    for gid in [b"one", b"two"] {
        session.prepare(gid, |work| {
            let from = if gid == b"one" { 0 } else { 20 };
            (from..from + 15).try_for_each(|i| work.put("t", &key(i), &value(i, 30, 50)))
        });
    }
    session.transact(|work| work.put("t", &key(60), &value(60, 31, 30)));
    session.checkpoint();
    session.verify();
    session.finish_prepared(b"two", true);
    session.finish_prepared(b"one", true);
    session.verify();
}

fn prepare_and_roll_back_in_the_next_life(session: &mut Session) {
    session.prepare(b"gid", |work| {
        (0..15).try_for_each(|i| work.put("t", &key(i), &value(i, 30, 50)))?;
        (40..50).try_for_each(|i| work.delete("t", &key(i)))
    });
    session.reopen();
    session.verify();
    session.finish_prepared(b"gid", false);
    session.verify();
    session.transact(|work| work.put("t", &key(3), &value(3, 33, 30)));
}
