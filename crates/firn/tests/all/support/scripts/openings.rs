//! Openings: after closing, after crashes, and after crashes of these.

use super::{Script, hundred_rows, indexed, key, many_pages, roomy, value};
use crate::support::session::{Session, Work, by_group};
use firndb::Error;
use firndb::device::{Calls, DeviceErrorKind, FaultPlan};
use firndb_base::rng::Rng;

pub fn scripts() -> Vec<Script> {
    vec![
        Script::new("closing and opening", hundred_rows, closing_and_opening),
        Script::new("recovery", recovery_set_up, recovery).crashed(),
        Script::new(
            "recovery of more than fits into DRAM",
            recovery_of_more_than_fits_into_dram_set_up,
            recovery_of_more_than_fits_into_dram,
        )
        .crashed(),
        Script::new(
            "work while recovery goes on",
            work_while_recovery_goes_on_set_up,
            work_while_recovery_goes_on,
        )
        .crashed(),
        Script::new(
            "recovery of a recovery that was cut short",
            recovery_of_a_recovery_that_was_cut_short_set_up,
            recovery_of_a_recovery_that_was_cut_short,
        )
        .crashed(),
        Script::new(
            "recovery with prepared transactions",
            recovery_with_prepared_transactions_set_up,
            recovery_with_prepared_transactions,
        )
        .crashed(),
        Script::new("a crash between, twice", hundred_rows, a_crash_between_twice),
        Script::new("a bit of everything", indexed, a_bit_of_everything).options(roomy),
        Script::new("a bit of everything, in little DRAM", many_pages, a_bit_of_everything_in_little_dram),
    ]
}

fn closing_and_opening(session: &mut Session) {
    for t in 1..4u32 {
        session.transact(|work| work.put("t", &key(t), &value(t, t, 30)));
        session.reopen();
        session.verify();
    }
}

fn recovery_set_up(session: &mut Session) {
    indexed(session);
    session.checkpoint();
    for t in 1..4u32 {
        session
            .transact(|work| (0..80).step_by(6).try_for_each(|i| work.put("t", &key(i), &value(i, t, 60))));
    }
    leave_open(session);
}

fn recovery(session: &mut Session) {
    session.verify();
    session.transact(|work| work.put("t", &key(1), &value(1, 77, 30)));
}

fn recovery_of_more_than_fits_into_dram_set_up(session: &mut Session) {
    many_pages(session);
    session.checkpoint();
    session.transact(|work| (0..700).step_by(3).try_for_each(|i| work.put("t", &key(i), &value(i, 5, 100))));
    leave_open(session);
}

fn recovery_of_more_than_fits_into_dram(session: &mut Session) {
    session.verify();
}

fn work_while_recovery_goes_on_set_up(session: &mut Session) {
    many_pages(session);
    session.checkpoint();
    session.transact(|work| (0..700).step_by(2).try_for_each(|i| work.put("t", &key(i), &value(i, 5, 150))));
    session.transact(|work| (300..400).try_for_each(|i| work.delete("t", &key(i))));
    leave_open(session);
}

fn work_while_recovery_goes_on(session: &mut Session) {
    // Nothing has been done in the background yet; a row of the loser is among those
    // written.
    session.transact(|work| work.put("t", &key(20), &value(20, 7, 60)));
    for t in 0..8u32 {
        session.transact(|work| {
            work.get("t", &key(t * 83 % 700))?;
            work.put("t", &key(t * 97 % 700), &value(t, 8, 120))
        });
        match t {
            3 => session.checkpoint(),
            _ => session.steps(1),
        }
    }
    session.transact(|work| (400..440).try_for_each(|i| work.delete("t", &key(i))));
    session.verify();
}

fn recovery_of_a_recovery_that_was_cut_short_set_up(session: &mut Session) {
    many_pages(session);
    session.checkpoint();
    session.transact(|work| (0..700).step_by(5).try_for_each(|i| work.put("t", &key(i), &value(i, 5, 90))));
    leave_open(session);
    for calls in [40, 90] {
        session.crash_during_opening(calls);
    }
}

fn recovery_of_a_recovery_that_was_cut_short(session: &mut Session) {
    session.verify();
}

fn recovery_with_prepared_transactions_set_up(session: &mut Session) {
    hundred_rows(session);
    session.prepare(b"gid", |work| (0..30).try_for_each(|i| work.put("t", &key(i), &value(i, 30, 50))));
    session.transact(|work| work.put("t", &key(70), &value(70, 1, 30)));
}

fn recovery_with_prepared_transactions(session: &mut Session) {
    session.verify();
    session.finish_prepared(b"gid", true);
    session.verify();
}

fn a_crash_between_twice(session: &mut Session) {
    for t in 1..3u32 {
        session
            .transact(|work| (0..100).step_by(4).try_for_each(|i| work.put("t", &key(i), &value(i, t, 70))));
        session.create_table(if t == 1 { "x" } else { "y" }, &[by_group()]);
        session.crash_and_open();
        session.verify();
    }
}

fn a_bit_of_everything(session: &mut Session) {
    mixture(session, 11, 40);
}

fn a_bit_of_everything_in_little_dram(session: &mut Session) {
    mixture(session, 12, 40);
}

/// Leaves an open transaction behind for recovery to undo.
fn leave_open(session: &mut Session) {
    session.transact_around(
        |work| (10..50).try_for_each(|i| work.put("t", &key(i), &value(i, 99, 50))),
        |session| {
            session.transact(|work| work.put("t", &key(60), &value(60, 98, 50)));
            session.crash();
        },
        false,
    );
    // The rollback met devices that were switched off, or a bed of its own; recovery does it again.
    session.errors.clear();
}

/// Random work of all kinds, from a seed.
fn mixture(session: &mut Session, seed: u64, count: u32) {
    let mut rng = Rng::new(seed);
    for t in 1..=count {
        let seed = rng.next_u64();
        let script = move |work: &mut Work| -> Result<(), Error> {
            let mut rng = Rng::new(seed);
            for _ in 0..1 + rng.below(12) {
                let i = rng.below(700) as u32;
                match rng.below(4) {
                    0 => work.delete("t", &key(i))?,
                    1 => work.get("t", &key(i))?,
                    _ => work.put("t", &key(i), &value(i, t, 12 + rng.below(90) as usize))?,
                }
            }
            Ok(())
        };
        match rng.below(12) {
            0 => session.checkpoint(),
            1 => session.transact_and_roll_back(script),
            2 => session.create_table("u", &[by_group()]),
            3 => session.drop_table("u"),
            4 => session.crash_and_open(),
            5 => session.steps(8),
            _ => session.transact(script),
        }
    }
    session.verify();
}

/// Opens the database while every call from the `calls`-th on fails, and leaves it so.
impl Session {
    pub fn crash_during_opening(&mut self, calls: u64) {
        let plan = FaultPlan::new(1);
        plan.fail_from(calls, Calls::Any, DeviceErrorKind::Failed);
        let bed = self.bed().expect("a set-up runs on plain devices").duplicate();
        let devices = bed.faulty(&plan, &Default::default());
        drop(self.options().open_on(devices));
        self.replace_bed(bed);
    }
}
