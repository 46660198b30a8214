//! Page files, and large values: whole pages that rows name.

use super::{Script, key, value};
use crate::support::model::Rows;
use crate::support::session::pages::image;
use crate::support::session::{Session, by_group, by_unique};

/// Pages of these scripts are of 1 KiB.
const PAGE: usize = 1024;

pub fn scripts() -> Vec<Script> {
    vec![
        Script::new("page files: puts and parts", twenty_pages, puts_and_parts),
        Script::new("page files: savepoints and rollbacks", twenty_pages, savepoints_and_rollbacks),
        Script::new("page files: more than fits into DRAM", twenty_pages, more_than_fits),
        Script::new("page files: cut and grown", twenty_pages, cut_and_grown),
        Script::new("page files: prepared", twenty_pages, prepared),
        Script::new("page files: parts beside their pages", twenty_pages, parts_beside_pages),
        Script::new("page files: created and dropped", no_pages, created_and_dropped),
        Script::new("page files: recovery", twenty_pages, recovery).crashed(),
        Script::new("large values: replaced and freed", ten_values, replaced_and_freed),
        Script::new("large values: savepoints and prepared", ten_values, values_prepared),
        Script::new("large values: dropped with their table", ten_values, values_dropped),
        Script::new("large values: recovery", ten_values, values_recovered).crashed(),
        Script::new("tables are loaded", ten_values, tables_are_loaded),
        Script::new("loaded tables are changed", loaded_table, loaded_tables_are_changed),
        Script::new("recovery of a loaded table", loaded_table, loaded_tables_are_changed).crashed(),
    ]
}

fn no_pages(session: &mut Session) {
    session.create_page_file("a");
}

fn twenty_pages(session: &mut Session) {
    session.create_page_file("a");
    session.transact(|work| (0..20).try_for_each(|page| work.put_page("a", page, &image(page, 1, PAGE))));
}

fn puts_and_parts(session: &mut Session) {
    for version in 2..6u64 {
        session.transact(|work| {
            for page in 0..version {
                work.put_page("a", page * 3, &image(page * 3, version, PAGE))?;
            }
            work.write_page("a", version, 500, &[version as u8; 300])?;
            work.write_page("a", 25 + version, 0, b"past the end")?;
            work.free_page("a", 10 + version)?;
            // All zeros, by parts.
            work.write_page("a", 18, 0, &[0; PAGE])?;
            work.read_file("a")
        });
        session.steps(3);
    }
    session.verify();
}

fn savepoints_and_rollbacks(session: &mut Session) {
    for version in 2..5u64 {
        session.transact(|work| {
            work.put_page("a", 1, &image(1, version, PAGE))?;
            let first = work.savepoint();
            (0..6).try_for_each(|page| work.put_page("a", page, &image(page, 100 + version, PAGE)))?;
            let second = work.savepoint();
            work.set_pages("a", 4)?;
            work.put_page("a", 30, &image(30, version, PAGE))?;
            work.roll_back_to(&second)?;
            work.write_page("a", 2, 100, b"kept if the second is")?;
            if version % 2 == 0 {
                work.roll_back_to(&first)?;
            }
            work.read_file("a")
        });
        session.transact_and_roll_back(|work| {
            (0..12).try_for_each(|page| work.put_page("a", page * 2, &image(page, 200 + version, PAGE)))?;
            work.checkpoint()?;
            work.write_page("a", 3, 0, b"not kept")?;
            work.set_pages("a", 5)?;
            work.free_page("a", 1)
        });
        session.steps(4);
    }
    session.verify();
}

fn more_than_fits(session: &mut Session) {
    for version in 2..4u64 {
        session.transact(|work| {
            (0..150).try_for_each(|page| work.put_page("a", page, &image(page, version, PAGE)))
        });
        session.steps(4);
    }
    session.transact_and_roll_back(|work| {
        (0..120).try_for_each(|page| work.put_page("a", page, &image(page, 9, PAGE)))
    });
    session.steps(10);
    session.verify();
}

fn cut_and_grown(session: &mut Session) {
    for pages in [7, 40, 0, 3] {
        session.transact(|work| work.set_pages("a", pages));
        session.transact(|work| {
            work.put_page("a", pages + 2, &image(pages + 2, 5, PAGE))?;
            work.read_file("a")
        });
        session.steps(4);
    }
    session.verify();
}

fn prepared(session: &mut Session) {
    for (gid, commit) in [(b"one", true), (b"two", false)] {
        session.prepare(gid, |work| {
            (2..8).try_for_each(|page| work.put_page("a", page, &image(page, 30, PAGE)))?;
            work.write_page("a", 9, 10, b"prepared")?;
            work.free_page("a", 11)
        });
        session.transact(|work| work.put_page("a", 15, &image(15, u64::from(commit), PAGE)));
        session.checkpoint();
        session.steps(4);
        session.finish_prepared(gid, commit);
        session.steps(6);
        session.verify();
    }
}

/// Parts of one granule of eight, and of two, which may stand beside their page; a third puts it
/// whole.
fn parts_beside_pages(session: &mut Session) {
    for version in 2..5u64 {
        let part = |at: u64| [(version * 16 + at) as u8; 40];
        session.transact(|work| {
            (0..12)
                .try_for_each(|page| work.write_page("a", page, 128 * page as usize % 900, &part(page)))?;
            (0..6).try_for_each(|page| work.write_page("a", page, 250, &part(page)))?;
            let savepoint = work.savepoint();
            (0..3).try_for_each(|page| work.write_page("a", page, 600, &part(page)))?;
            work.put_page("a", 4, &image(4, version, PAGE))?;
            work.roll_back_to(&savepoint)?;
            (1..4).try_for_each(|page| work.write_page("a", page, 800, &part(page)))?;
            work.read_file("a")
        });
        session.transact_and_roll_back(|work| {
            (0..20).try_for_each(|page| work.write_page("a", page, 30, &part(page)))?;
            work.free_page("a", 5)?;
            work.set_pages("a", 8)?;
            work.checkpoint()
        });
        session.prepare(b"parts", |work| {
            (8..12).try_for_each(|page| work.write_page("a", page, 400, &part(page)))?;
            work.write_page("a", 13, 30, &part(13))
        });
        session.transact(|work| {
            (14..17).try_for_each(|page| work.write_page("a", page, 500, &part(page)))?;
            work.free_page("a", 17)
        });
        session.steps(3);
        session.finish_prepared(b"parts", version % 2 == 0);
        session.steps(4);
    }
    session.verify();
}

fn created_and_dropped(session: &mut Session) {
    session.create_page_file("b");
    session.transact(|work| (0..30).try_for_each(|page| work.put_page("b", page, &image(page, 1, PAGE))));
    session.transact_around(
        |work| (5..9).try_for_each(|page| work.put_page("b", page, &image(page, 2, PAGE))),
        |session| session.drop_page_file("b"),
        false,
    );
    session.create_page_file("b");
    session.transact(|work| {
        work.put_page("b", 3, &image(3, 4, PAGE))?;
        work.put_page("a", 3, &image(3, 5, PAGE))
    });
    session.steps(20);
    session.verify();
}

fn recovery(session: &mut Session) {
    session.transact(|work| (4..9).try_for_each(|page| work.put_page("a", page, &image(page, 2, PAGE))));
    session.steps(20);
    session.verify();
}

/// Some of whole pages, some with chunks behind them, some with pages of zeros among them.
fn long_value(i: u32, version: u32) -> Vec<u8> {
    let pages = 1 + (i + version) as usize % 4;
    let mut value = value(i, version, pages * PAGE + [0, 1, 700][(i + version) as usize % 3]);
    if pages > 2 {
        value[PAGE..2 * PAGE].fill(0);
    }
    value
}

fn ten_values(session: &mut Session) {
    session.create_table("t", &[]);
    session.transact(|work| (0..10).try_for_each(|i| work.put("t", &key(i), &long_value(i, 0))));
}

fn replaced_and_freed(session: &mut Session) {
    for version in 1..5 {
        session.transact(|work| {
            (version..version + 3).try_for_each(|i| work.put("t", &key(i), &long_value(i, version)))?;
            work.put("t", &key(version), b"short and in its row")?;
            work.delete("t", &key(5 + version))?;
            work.put("t", &key(20 + version), &long_value(20, version))
        });
        session.transact_and_roll_back(|work| {
            (0..8).try_for_each(|i| work.put("t", &key(i), &long_value(i, 9)))
        });
        session.steps(6);
    }
    session.verify();
    session.steps(20);
    session.verify();
}

fn values_prepared(session: &mut Session) {
    for (gid, commit) in [(b"one", true), (b"two", false)] {
        session.prepare(gid, |work| {
            work.put("t", &key(1), &long_value(1, 30))?;
            let place = work.savepoint();
            (2..6).try_for_each(|i| work.put("t", &key(i), &long_value(i, 31)))?;
            work.roll_back_to(&place)?;
            work.put("t", &key(3), &long_value(3, 32))?;
            work.delete("t", &key(4))
        });
        session.transact(|work| work.put("t", &key(8), &long_value(8, u32::from(commit))));
        session.checkpoint();
        session.steps(4);
        session.finish_prepared(gid, commit);
        session.steps(6);
        session.verify();
    }
}

fn values_dropped(session: &mut Session) {
    session.create_table("other", &[]);
    session.transact(|work| (0..10).try_for_each(|i| work.put("other", &key(i), &long_value(i, 1))));
    session.transact_around(
        |work| (3..6).try_for_each(|i| work.put("other", &key(i), &long_value(i, 2))),
        |session| session.drop_table("other"),
        false,
    );
    session.create_table("other", &[]);
    session.transact(|work| {
        work.put("other", &key(3), &long_value(3, 4))?;
        work.put("t", &key(3), &long_value(3, 5))
    });
    session.steps(20);
    session.verify();
}

fn values_recovered(session: &mut Session) {
    session.transact(|work| (4..9).try_for_each(|i| work.put("t", &key(i), &long_value(i, 2))));
    session.steps(20);
    session.verify();
}

/// Enough for some dozen leaves; some are large values.
fn loaded_rows(count: u32) -> Rows {
    let row = |i| if i % 40 == 7 { long_value(i, 0) } else { value(i, 0, 40 + i as usize % 90) };
    (0..count).map(|i| (key(i), row(i))).collect()
}

fn tables_are_loaded(session: &mut Session) {
    session.load_table("none", &[], &loaded_rows(0));
    session.load_table("few", &[by_group()], &loaded_rows(5));
    session.transact_around(
        |work| work.put("t", &key(1), &long_value(1, 2)),
        |session| session.load_table("many", &[by_group(), by_unique()], &loaded_rows(300)),
        false,
    );
    session.steps(4);
    session.load_table("none", &[], &loaded_rows(1));
    session.drop_table("many");
    session.load_table("many", &[], &loaded_rows(200));
    session.steps(20);
    session.verify();
}

fn loaded_table(session: &mut Session) {
    session.load_table("t", &[by_group()], &loaded_rows(300));
}

fn loaded_tables_are_changed(session: &mut Session) {
    for version in 1..5 {
        session.transact(|work| {
            for i in (version * 7..300).step_by(31) {
                work.put("t", &key(i), &value(i, version, 30 + i as usize % 60))?;
            }
            work.delete("t", &key(version * 11))?;
            work.insert("t", &key(1000 + version), &long_value(3, version))
        });
        session
            .transact_and_roll_back(|work| (0..300).step_by(17).try_for_each(|i| work.delete("t", &key(i))));
        session.steps(3);
        if version == 2 {
            session.checkpoint();
        }
    }
    session.verify();
}
