//! Tables and indexes that are created, renamed and dropped.

use super::{Script, hundred_rows, indexed, key, nothing, value};
use crate::support::session::{Session, by_group, by_unique};

pub fn scripts() -> Vec<Script> {
    vec![
        Script::new("tables are created", nothing, tables_are_created),
        Script::new("tables are dropped", indexed, tables_are_dropped),
        Script::new("tables are renamed", indexed, tables_are_renamed),
        Script::new("an index is built", hundred_rows, an_index_is_built),
        Script::new("tables are analyzed", indexed, tables_are_analyzed),
        Script::new(
            "an index is refused by the rows",
            an_index_is_refused_by_the_rows_set_up,
            an_index_is_refused_by_the_rows,
        ),
    ]
}

fn tables_are_created(session: &mut Session) {
    for name in ["a", "b", "c"] {
        session.create_table(name, &[by_group()]);
        session.transact(|work| work.insert(name, &key(1), &value(1, 1, 30)));
    }
    session.verify();
}

fn tables_are_dropped(session: &mut Session) {
    session.create_table("u", &[]);
    session.transact(|work| work.insert("u", &key(1), &value(1, 1, 30)));
    session.drop_table("t");
    session.steps(20);
    session.create_table("t", &[]);
    session.transact(|work| work.insert("t", &key(1), &value(1, 2, 30)));
    session.drop_table("u");
    session.steps(20);
    session.verify();
}

fn tables_are_renamed(session: &mut Session) {
    session.rename_table("t", "v");
    session.transact(|work| work.put("v", &key(1), &value(1, 9, 30)));
    session.create_table("t", &[]);
    session.rename_table("v", "w");
    session.verify();
}

fn tables_are_analyzed(session: &mut Session) {
    session.analyze("t");
    session.transact(|work| work.insert("t", &key(900), &value(900, 1, 30)));
    session.create_table("u", &[]);
    session.analyze("u");
    session.analyze("t");
    session.drop_index("t", "by group");
    session.drop_table("u");
    session.create_table("u", &[]);
    session.analyze("t");
    session.verify();
}

fn an_index_is_built(session: &mut Session) {
    session.create_index("t", by_group());
    session.transact(|work| work.put("t", &key(1), &value(1, 2, 30)));
    session.create_index("t", by_unique());
    session.transact(|work| work.delete("t", &key(2)));
    session.drop_index("t", "by group");
    session.steps(20);
    session.verify();
}

fn an_index_is_refused_by_the_rows_set_up(session: &mut Session) {
    session.create_table("t", &[]);
    session.transact(|work| (0..60).try_for_each(|i| work.insert("t", &key(i), &value(i % 50, 1, 30))));
}

fn an_index_is_refused_by_the_rows(session: &mut Session) {
    session.create_index_in_vain("t", by_unique());
    session.steps(20);
    session.transact(|work| work.put("t", &key(1), &value(1, 2, 30)));
    session.verify();
}
