//! `firn compact`, and what `firn stat` shows of space.

use crate::support::run;

#[test]
fn space_comes_back_as_the_dry_run_says() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("db");
    let db = firndb::Options::new().buffer_bytes(64 << 20).open(&dir).expect("created");
    let table = db.create_table("rows").expect("a table");
    let key = |number: u32| number.wrapping_mul(0x9E37_79B1).to_be_bytes();
    for from in (0..60_000u32).step_by(2000) {
        db.transact(|tx| (from..from + 2000).try_for_each(|i| tx.put(&table, &key(i), &[7; 400]).map(drop)))
            .expect("a commit");
    }
    for from in (0..60_000u32).step_by(2000) {
        db.transact(|tx| {
            let gone = (from..from + 2000).filter(|i| i % 10 > 0);
            gone.into_iter().try_for_each(|i| tx.delete(&table, &key(i)).map(drop))
        })
        .expect("a commit");
    }
    drop(table);
    db.close().expect("closed");

    run(&dir, "compact {db} --dry-run").ended(0).says("would come back");
    let plan = run(&dir, "compact {db} --dry-run --json").ended(0).out;
    let plan: serde_json::Value = serde_json::from_str(&plan).expect("JSON");
    let report = run(&dir, "compact {db} --json").ended(0).out;
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["complete"], true);
    let bytes = |at: usize| report["bytes"][at].as_u64().expect("a number");
    assert!(bytes(0) - bytes(1) >= plan["bytes_back"].as_u64().expect("a number"), "{plan}, {report}");
    assert!(bytes(1) <= 48 << 20, "{report}");
    run(&dir, "stat {db}").ended(0).says("live");
    let stat = run(&dir, "stat {db} --json").ended(0).out;
    let stat: serde_json::Value = serde_json::from_str(&stat).expect("JSON");
    assert_eq!(stat["store"]["places_dead"], 0);
    assert_eq!(stat["store"]["places"].as_u64().map(|places| places * 4096), Some(bytes(1)));
    run(&dir, "check {db}").ended(0).says("no damage");
    run(&dir, "compact {db}").ended(0).says("became");
    assert_ne!(run(home.path(), "compact {db}/nothing").code, Some(0));
}
