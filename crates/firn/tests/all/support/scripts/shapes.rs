//! Trees that split and merge, and a store that grows and shrinks.

use super::{Script, empty_table, fill, hundred_rows, key, many_pages, tiny, value};
use crate::support::session::Session;
use firndb::Options;
use firndb_base::rng::Rng;

pub fn scripts() -> Vec<Script> {
    vec![
        Script::new("splits at the end", empty_table, splits_at_the_end),
        Script::new("splits in the middle", hundred_rows, splits_in_the_middle),
        Script::new("merges", many_pages, merges),
        Script::new("growth by groups", empty_table, growth_by_groups),
        Script::new("space given back", space_given_back_set_up, space_given_back),
        Script::new("compaction", compaction_set_up, compaction).options(in_small_groups),
    ]
}

fn splits_at_the_end(session: &mut Session) {
    for t in 0..4u32 {
        session
            .transact(|work| (0..30).try_for_each(|i| work.insert("t", &key(t * 30 + i), &value(i, t, 140))));
    }
    session.verify();
}

fn splits_in_the_middle(session: &mut Session) {
    let mut rng = Rng::new(3);
    for t in 1..5u32 {
        session.transact(|work| {
            (0..30).try_for_each(|_| {
                let i = rng.below(400) as u32;
                work.put("t", &key(i), &value(i, t, 140))
            })
        });
    }
    session.verify();
}

fn merges(session: &mut Session) {
    for t in 0..5u32 {
        session.transact(|work| {
            (0..700)
                .filter(|i| i % 5 == t || i % 40 > 0)
                .try_for_each(|i| if i % 5 == t { work.delete("t", &key(i)) } else { Ok(()) })
        });
        session.steps(30);
    }
    session.verify();
}

fn growth_by_groups(session: &mut Session) {
    fill(session, "t", 0..400, 50, 140);
    session.checkpoint();
    fill(session, "t", 400..700, 50, 140);
    session.verify();
}

fn space_given_back_set_up(session: &mut Session) {
    session.create_table("u", &[]);
    fill(session, "u", 0..800, 100, 140);
    empty_table(session);
    session.checkpoint();
}

fn space_given_back(session: &mut Session) {
    session.drop_table("u");
    session.steps(10);
    session.checkpoint();
    session.steps(60);
    session.checkpoint();
    session.steps(60);
    fill(session, "t", 0..40, 20, 110);
    session.verify();
}

/// Groups of some 80 pages, so that page numbers are moved and several groups cut off.
fn in_small_groups() -> Options {
    tiny().store_layout(1024, 2)
}

fn compaction_set_up(session: &mut Session) {
    session.create_table("u", &[]);
    fill(session, "u", 0..4000, 100, 140);
    empty_table(session);
    session.checkpoint();
}

fn compaction(session: &mut Session) {
    for from in (0..4000).step_by(200) {
        session.transact(move |work| {
            (from..from + 200).filter(|i| i % 10 != 3).try_for_each(|i| work.delete("u", &key(i)))
        });
    }
    session.compact();
    session.transact(|work| work.put("u", &key(3), &value(3, 9, 60)));
    session.compact();
    fill(session, "t", 0..40, 20, 110);
    session.verify();
}
