//! `check`, `stat`, `dump`, `bench` and bad arguments, as somebody meets them who has not read the code.

mod support;

use serde_json::Value;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use support::{firn, loaded, run};

#[test]
fn arguments_that_make_no_sense_end_with_status_2_and_a_sentence() {
    let none = Path::new("");
    for (arguments, sentence) in [
        ("", "Usage: firn"),
        ("tpcc --warehouses 0", "0 is not in 1..=65535"),
        ("tpcc --warehouses many", "invalid value 'many'"),
        ("tpcc --buffer 12x", "is not a size; write for example"),
        ("tpcc --load-only --check-only", "cannot be used with"),
        ("tpcc --isolation chaos", "[possible values: snapshot, serializable]"),
        ("tpcc --frobnicate", "unexpected argument '--frobnicate'"),
        ("check", "required arguments were not provided"),
        ("dump x --log --page 3", "cannot be used with"),
        ("bench commit --seconds 0", "--seconds must be a positive number"),
        ("bench commit --clients 0,1", "--clients must be numbers from 1 to 1024"),
        ("bench commit --clients 1 --spinners", "--spinners measures 8 clients"),
        ("torture kill --rounds 0", "0 is not in"),
        ("profiles no-such-device", "shipped profiles are flash-a,"),
        ("profiles /no/such/file.toml", "/no/such/file.toml: "),
        ("profiles --toml", "required arguments were not provided"),
        ("nand replay", "required arguments were not provided"),
        ("nand replay x --ftl magic", "[possible values: page, block, naive, dynamic]"),
        ("nand replay x --fill 2", "--fill is 2; it is a share from 0 to 1"),
        ("nand replay x --device sda", "is no device; write for example 8,16"),
        ("nand cost --read-us -1", "unexpected argument '-1'"),
        ("nand cost --erase-us 1e9", "--erase-us is 1000000000"),
        ("conjure", "unrecognized subcommand 'conjure'"),
    ] {
        run(none, arguments).ended(2).warns(sentence);
    }
    // Told by the engine, not by the command line.
    let dir = tempfile::tempdir().unwrap();
    run(&dir.path().join("db"), "tpcc --dir {db} --buffer 1000")
        .ended(2)
        .warns("buffer_bytes is 1000; at least");
}

#[test]
fn every_command_explains_itself() {
    let none = Path::new("");
    for command in ["tpcc", "check", "stat", "dump", "profiles", "bench", "torture", "nand"] {
        let all = run(none, "--help").ended(0).says(command);
        drop(all);
        let help = run(none, &format!("{command} --help")).ended(0).says("Usage: firn");
        assert!(!help.out.contains("--scale"), "what is for tests is not shown");
    }
    run(none, "--version").ended(0).says("firn 0.");
    run(none, "torture kill --help").ended(0).says("--rounds");
    run(none, "bench commit --help").ended(0).says("--spinners");
}

#[test]
fn profiles_are_listed_shown_and_printed_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("profiles.json");
    run(&json, "profiles --json {db}").ended(0).says("x25-e").says("disk-7200").says("4K commit");
    let listed: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let x25e = listed["profiles"].as_array().unwrap().iter().find(|row| row["name"] == "x25-e").unwrap();
    let reads = x25e["random_reads_per_second"].as_f64().unwrap();
    assert!((38_427.0 * 0.95..38_427.0 * 1.05).contains(&reads), "{reads}");
    run(&json, "profiles x25-e")
        .ended(0)
        .says("38427 /s")
        .says("FaCE (VLDB 2012), table 1")
        .says("not known");
    // What is printed is a profile, and a file is shown as a shipped one is.
    let file = dir.path().join("mine.toml");
    std::fs::write(&file, run(&json, "profiles nvme --toml").ended(0).out).unwrap();
    run(&file, "profiles {db}").ended(0).says("500000 /s");
    std::fs::write(&file, "version = 1\nname = 3\n").unwrap();
    run(&file, "profiles {db}").ended(2).warns("mine.toml").warns("name");
}

#[test]
fn stat_and_dump_show_what_is_there() {
    let (_dir, db) = loaded();
    run(&db, "stat {db}").ended(0).says("had been closed cleanly").says("warehouse").says("order_line");
    let stat: Value = serde_json::from_str(&run(&db, "stat {db} --json").ended(0).out).unwrap();
    assert_eq!(stat["page_size"], 4096);
    assert_eq!(stat["tables_rows_about"]["warehouse"], 2);
    assert_eq!(stat["recovery"]["clean"], true);
    let devices = stat["log"]["devices"].as_array().unwrap().len();
    assert!(devices == 1 || devices == 4, "as the device's latency asked for: {devices}");

    run(&db, "dump {db}").ended(0).says("the catalog: tree").says("index \"by_name\" of table \"customer\"");
    let rows = run(&db, "dump {db} --table district").ended(0).out;
    assert_eq!(rows.lines().count(), 20, "ten districts of two warehouses");
    assert!(rows.lines().all(|line| line.contains(" = ")), "{rows}");
    let page = run(&db, "dump {db} --page 1").ended(0).out;
    assert!(page.starts_with("page 1, version LSN"), "{page}");
    assert_eq!(page.lines().count(), 1 + 4096 / 16);
    let log = run(&db, "dump {db} --log").ended(0).out;
    assert!(log.lines().any(|line| line.contains("checkpoint")), "{log}");
    run(&db, "dump {db} --table nonsense").ended(1).warns("nonsense");
    run(&db, "dump {db} --page 99999999").ended(1).warns("99999999");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let (_dir, db) = loaded();
    let mut child = firn()
        .args(["dump", "--table", "order_line"])
        .arg(&db)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{output:?}");
}

#[test]
fn check_tells_damage_and_names_the_page() {
    let (_dir, db) = loaded();
    run(&db, "check {db}").ended(0).says("no damage found");
    let clean: Value = serde_json::from_str(&run(&db, "check {db} --json").ended(0).out).unwrap();
    assert_eq!((&clean["faults"], &clean["tables"]), (&0.into(), &10.into()));
    // A bit of a row turns over on the medium: the row is found in the file by its text.
    let text = run(&db, "dump {db} --table customer").ended(0).out;
    let words = text.lines().next().unwrap().split(|letter: char| !letter.is_ascii_alphanumeric());
    let word = words.max_by_key(|word| word.len()).unwrap();
    let needle = &word.as_bytes()[word.len().saturating_sub(20)..];
    assert!(needle.len() > 8, "{text}");
    let store = std::fs::OpenOptions::new().read(true).write(true).open(db.join("store")).unwrap();
    let mut bytes = vec![0; store.metadata().unwrap().len() as usize];
    store.read_exact_at(&mut bytes, 0).unwrap();
    let mut hits = 0;
    for at in 0..bytes.len() - needle.len() {
        if &bytes[at..at + needle.len()] == needle {
            store.write_all_at(&[bytes[at] ^ 1], at as u64).unwrap();
            hits += 1;
        }
    }
    assert!(hits > 0, "the row is somewhere in the store");
    let ran = run(&db, "check {db}").ended(1).says("DAMAGE: ").says("page ");
    ran.warns("faults found in").warns("db");
    let damaged = run(&db, "check {db} --json");
    let report: Value = serde_json::from_str(&damaged.ended(1).out).unwrap();
    assert!(report["faults"].as_u64().unwrap() > 0);
    assert!(report["damage"][0].as_str().unwrap().contains("page"), "{report}");
}

#[test]
fn a_database_in_use_is_left_alone() {
    let (_dir, db) = loaded();
    let open = firn::Database::open(&db).unwrap();
    let begun = std::time::Instant::now();
    run(&db, "stat {db}").ended(1).warns("is in use");
    assert!(begun.elapsed() < std::time::Duration::from_secs(2), "the answer does not take long");
    open.close().unwrap();
    run(&db, "stat {db}").ended(0);
}

#[test]
fn bench_commit_lists_every_target() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("out.json");
    let arguments = "bench commit --dir {db} --clients 1,8 --seconds 0.05 --rounds 2";
    let ran = run(dir.path(), &format!("{arguments} --json {}", json.display())).ended(0);
    ran.says("commit p50 over raw sync write p50, 1 client: ").says("not measured (run with --spinners)");
    let read = || -> Value { serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap() };
    let result = read();
    assert_eq!((&result["schema"], &result["bench"]), (&"firn-bench/1".into(), &"commit".into()));
    let targets = result["targets"].as_array().unwrap();
    assert_eq!(targets.len(), 2);
    assert!(targets[0]["value"].as_f64().unwrap() > 0.0);
    assert_eq!((&targets[1]["value"], &targets[1]["met"]), (&Value::Null, &false.into()));
    assert!(targets[1]["reason"].is_string());

    run(dir.path(), &format!("{arguments} --spinners --json {}", json.display()))
        .ended(0)
        .says("8 + 2 spinners");
    let result = read();
    assert!(result["targets"][1]["value"].as_f64().unwrap() > 0.0);
    assert_eq!(
        result["targets"][1]["name"],
        "two spinners, 8 clients: commit p50 over idle p50 of 8 clients"
    );
    assert_eq!(result["rows"].as_array().unwrap().len(), 2 * 2 + 2 * 3);
    let names: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["out.json"], "what was measured on is removed again");
}
