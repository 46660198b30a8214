//! `firn analyze`, and what `firn stat` shows of it.

use crate::support::run;
use firndb::{IndexPart, IndexSpec, TableSpec};

#[test]
fn all_tables_or_one_are_analyzed_and_stat_shows_it() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("db");
    let db = firndb::Options::new().buffer_bytes(1 << 20).open(&dir).expect("created");
    let index = IndexSpec::ranges("colour", false, vec![IndexPart::Value(0..1)]);
    let table = db.create_table_with("rows", TableSpec::raw().with_index(index)).expect("a table");
    db.create_table("empty").expect("a table");
    db.transact(|tx| {
        (0..1500u32).try_for_each(|key| tx.put(&table, &key.to_be_bytes(), &[key as u8; 20]).map(drop))
    })
    .expect("a commit");
    drop(table);
    db.close().expect("closed");

    run(&dir, "stat {db}").ended(0).says("never");
    let text = run(&dir, "analyze {db}").ended(0).out;
    assert!(text.contains("1500") && text.contains("colour") && text.contains("empty"), "{text}");
    let printed = run(&dir, "analyze {db} rows --json").ended(0).out;
    let printed: serde_json::Value = serde_json::from_str(&printed).expect("JSON");
    let rows = &printed["rows"];
    assert_eq!((rows["rows"].as_u64(), rows["sampled"].as_u64()), (Some(1500), Some(1000)), "{printed}");
    assert_eq!(rows["indexes"][0]["name"], "colour");
    assert_eq!(rows["indexes"][0]["table_leaves"][0].as_f64(), Some(1.0));
    assert!(printed.get("empty").is_none(), "{printed}");

    let stat = run(&dir, "stat {db} --json").ended(0).out;
    let stat: serde_json::Value = serde_json::from_str(&stat).expect("JSON");
    assert_eq!(stat["tables"]["rows"]["statistics"], *rows);
    assert!(rows["at"].as_str().is_some_and(|at| at.starts_with("20") && at.ends_with('Z')), "{printed}");
    assert_eq!(stat["tables"]["rows"]["changed_since"], 0);
    run(&dir, "stat {db}").ended(0).says("changed since").says(rows["at"].as_str().expect("a time"));
    run(&dir, "check {db}").ended(0).says("no damage");

    let absent = run(&dir, "analyze {db} absent").ended(1).warns("absent");
    assert!(absent.out.is_empty(), "no table without rows: {}", absent.out);
    assert_ne!(run(home.path(), "analyze {db}/nothing").code, Some(0));
    assert!(!home.path().join("nothing").exists(), "no database is created");
}
