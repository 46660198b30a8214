//! Rows: inserted, updated, deleted, read, with indexes.

use super::{Script, empty_table, hundred_rows, indexed, key, many_pages, value};
use crate::support::session::Session;
use firndb::Direction;

pub fn scripts() -> Vec<Script> {
    vec![
        Script::new("inserts", empty_table, inserts),
        Script::new("inserts over two log devices", empty_table, inserts_over_two_log_devices).logs(2),
        Script::new("inserts over four log devices", empty_table, inserts_over_four_log_devices).logs(4),
        Script::new("updates", hundred_rows, updates),
        Script::new("deletes", hundred_rows, deletes),
        Script::new("scans of more than fits into DRAM", many_pages, scans_of_more_than_fits_into_dram),
        Script::new("updates of more than fits into DRAM", many_pages, updates_of_more_than_fits_into_dram),
        Script::new("secondary indexes", indexed, secondary_indexes),
        Script::new("rows refused by a unique index", indexed, rows_refused_by_a_unique_index),
    ]
}

fn inserts(session: &mut Session) {
    for t in 0..8u32 {
        session.transact(|work| (0..4).try_for_each(|i| work.insert("t", &key(t * 4 + i), &value(i, t, 30))));
    }
    session.verify();
}

fn inserts_over_two_log_devices(session: &mut Session) {
    for t in 0..10u32 {
        session.transact(|work| work.insert("t", &key(t), &value(t, 0, 130)));
    }
    session.verify();
}

fn inserts_over_four_log_devices(session: &mut Session) {
    for t in 0..12u32 {
        session.transact(|work| work.insert("t", &key(t), &value(t, 0, 40)));
        session.steps(1);
    }
}

fn updates(session: &mut Session) {
    for t in 1..7u32 {
        session.transact(|work| {
            for i in (0..100).step_by(9) {
                work.put("t", &key(i), &value(i, t, 20 + (t * i) as usize % 60))?;
            }
            Ok(())
        });
        session.steps(2);
    }
    session.verify();
}

fn deletes(session: &mut Session) {
    for t in 0..5u32 {
        session.transact(|work| (0..15).try_for_each(|i| work.delete("t", &key(t * 15 + i))));
        session.steps(6);
    }
    session.verify();
}

fn scans_of_more_than_fits_into_dram(session: &mut Session) {
    session.transact(|work| {
        work.scan("t", Direction::Forward)?;
        work.scan("t", Direction::Backward)?;
        (0..700).step_by(37).try_for_each(|i| work.get("t", &key(i)))
    });
}

fn updates_of_more_than_fits_into_dram(session: &mut Session) {
    for t in 1..4u32 {
        session.transact(|work| {
            (0..700).step_by(11).try_for_each(|i| work.put("t", &key(i), &value(i, t, 140)))
        });
        session.steps(3);
    }
    session.verify();
}

fn secondary_indexes(session: &mut Session) {
    for t in 1..5u32 {
        session.transact(|work| {
            for i in (0..80).step_by(7) {
                work.put("t", &key(i), &value(i, t, 30))?;
            }
            work.delete("t", &key(t * 3))
        });
        session.steps(4);
    }
    session.verify();
}

fn rows_refused_by_a_unique_index(session: &mut Session) {
    session.transact(|work| {
        work.insert("t", &key(200), &value(200, 1, 30))?;
        work.insert_in_vain("t", &key(201), &value(5, 0, 30))?;
        work.insert_in_vain("t", &key(7), &value(7, 9, 30))?;
        work.insert("t", &key(202), &value(202, 1, 30))
    });
    session.verify();
}
