//! Damage to the catalog concerns the tables that are defined there.

use crate::damage::support::{
    assert_damaged, assert_sound, filled, get, key, look_into, nodes_of, opened, places_of, put, put_all,
    quiet, recovered, rot, value,
};
use crate::support::bed::Bed;
use firndb::{ErrorKind, Progress};

const CATALOG: u32 = 1;

#[test]
fn a_damaged_leaf_of_the_catalog_concerns_the_tables_defined_there() {
    let bed = Bed::new(1);
    let (db, _, b) = filled(&quiet(), &bed);
    for number in 0..60 {
        db.create_table(&format!("table {number}")).expect("created");
    }
    db.drop_table("table 59").expect("dropped");
    // It is to be undone in a table that no catalog will list, and in one that is there.
    let mut loser = db.begin();
    loser.put(&db.table("table 30").expect("there"), &key(1), &value(1, "lost")).expect("written");
    loser.put(&b, &key(1), &value(1, "lost")).expect("written");
    put_all(&db, &b, 0..1, "third");
    db.checkpoint().expect("taken");
    let bed = {
        let left = bed.duplicate();
        drop(loser);
        left
    };
    let definition = places_of(&bed, b"table 30");
    rot(&bed, &definition);
    for threads in [false, true] {
        let bed = bed.duplicate();
        look_into(&quiet(), &bed);
        let options = quiet().background_threads(threads);
        let db = opened(&options, &bed);
        recovered(&db, threads);
        let there = db.table_names().len();
        assert!(there > 30 && there < 61, "{there} of 61 tables");
        assert_damaged(db.table("table 30").map(drop));
        assert_damaged(db.create_table("table 30").map(drop));
        assert_damaged(db.rename_table("b", "table 30"));
        assert_eq!(db.recovery_report().losers_set_aside, 1);
        put(&db, "b", 1, "mine").expect("committed");
        db.drop_table("table 58").expect("dropped");
        while !threads && db.step().expect("a step") == Progress::Worked {}
        db.close().expect("closed");

        rot(&bed, &definition);
        let db = opened(&options, &bed);
        recovered(&db, threads);
        assert_eq!(db.table_names().len(), 60);
        assert_eq!((db.recovery_report().losers, db.recovery_report().losers_left), (1, 0));
        assert_eq!(get(&db, "table 30", 1).expect("readable"), None, "what did not commit is not there");
        db.close().expect("closed");
        assert_sound(&opened(&quiet(), &bed));
    }
    let root = nodes_of(&bed, CATALOG, 1..=9);
    rot(&bed, &root);
    let error = quiet().open_on(bed.plain()).expect_err("no table can be found");
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(error.to_string().contains("the catalog cannot be read"), "{error}");
}
