//! `check`, `stat`, `dump` and bad arguments, as a user meets them who has not read the code.

use crate::support::{Ran, firn, loaded, run};
use serde_json::Value;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

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
        ("profiles no-such-device", "shipped profiles are flash-a,"),
        ("profiles /no/such/file.toml", "/no/such/file.toml: "),
        ("profiles --toml", "required arguments were not provided"),
        ("conjure", "unrecognized subcommand 'conjure'"),
    ] {
        run(none, arguments).ended(2).warns(sentence);
    }
    // Refused by the engine, not by the command line's parser.
    let dir = tempfile::tempdir().unwrap();
    run(&dir.path().join("db"), "tpcc --dir {db} --buffer 1000")
        .ended(2)
        .warns("buffer_bytes is 1000; at least");
}

#[test]
fn every_command_explains_itself() {
    let none = Path::new("");
    for command in ["tpcc", "check", "stat", "dump", "profiles"] {
        let all = run(none, "--help").ended(0).says(command);
        drop(all);
        let help = run(none, &format!("{command} --help")).ended(0).says("Usage: firn");
        assert!(!help.out.contains("--scale"), "what is for tests is not shown");
    }
    run(none, "--version").ended(0).says("firn 0.");
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
    run(&db, "stat {db}").ended(0).says("had been closed cleanly").says("read ahead").says("order_line");
    let stat: Value = serde_json::from_str(&run(&db, "stat {db} --json").ended(0).out).unwrap();
    assert_eq!(stat["page_size"], 4096);
    assert_eq!(
        stat["tables"]["warehouse"],
        serde_json::json!({"rows": 2, "exact": true, "statistics": null, "changed_since": 2})
    );
    assert_eq!(stat["recovery"]["clean"], true);
    assert!(stat["buffer"]["misses"].as_u64().unwrap() > 0 && stat["buffer"]["pages_ahead_wasted"].is_u64());
    let devices = stat["log"]["devices"].as_array().unwrap().len();
    assert!(devices == 1 || devices == 4, "as the device's latency asked for: {devices}");

    run(&db, "dump {db}").ended(0).says("the catalog: tree").says("index \"by_name\" of table \"customer\"");
    let rows = run(&db, "dump {db} --table district").ended(0).out;
    assert_eq!(
        run(&db, "dump {db} --table district --raw").ended(0).out,
        rows,
        "a table of bytes is raw anyway"
    );
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
    let open = firndb::Database::open(&db).unwrap();
    let begun = std::time::Instant::now();
    run(&db, "stat {db}").ended(1).warns("is in use");
    assert!(begun.elapsed() < std::time::Duration::from_secs(2), "the refusal does not take long");
    open.close().unwrap();
    run(&db, "stat {db}").ended(0);
}

/// Rows of typed tables are shown by column; as bytes, if that is asked for.
#[test]
fn typed_rows_are_dumped_by_their_columns() {
    use firndb::{Column, ColumnType, Schema, TableSpec, Value, ValueRef};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = firndb::Database::open(&path).unwrap();
    let columns = vec![
        Column::new("id", ColumnType::I64),
        Column::new("full name", ColumnType::Text),
        Column::new("score", ColumnType::F64),
        Column::new("photo", ColumnType::Bytes).nullable(),
        Column::new("seen", ColumnType::Timestamp).nullable(),
    ];
    let spec = TableSpec::typed(Schema::with_key(columns, &["id"]).unwrap());
    let people = db.create_table_with("people", spec).unwrap().typed().unwrap();
    let row: [Value; 5] = [
        Value::I64(-7),
        Value::Text("Ada \"\n".into()),
        Value::F64(0.5),
        Value::Bytes(vec![0, 255]),
        Value::Null,
    ];
    db.transact(|tx| {
        let row: Vec<ValueRef<'_>> = row.iter().map(Value::as_ref).collect();
        people.insert(tx, &row)
    })
    .unwrap();
    drop(people);
    db.close().unwrap();
    let shown = run(&path, "dump {db} --table people").ended(0).out;
    assert_eq!(
        shown,
        "id = -7, \"full name\" = \"Ada \\\"\\n\", score = 0.5, photo = x'00ff', seen = NULL\n"
    );
    let raw = run(&path, "dump {db} --table people --raw").ended(0).out;
    assert!(raw.contains(" = ") && raw.contains("Ada") && !raw.contains("full name"), "{raw}");
    run(&path, "dump {db} --raw").ended(2).warns("--table");
}

/// A full disk behind standard output is a failure of the command, whatever it does.
#[test]
fn what_cannot_be_said_is_a_failure() {
    let (dir, db) = loaded();
    let at = dir.path().to_string_lossy().into_owned();
    let opened = firndb::Options::new()
        .archive(|archive| archive.directory(dir.path().join("archive")))
        .open(&db)
        .unwrap();
    opened.backup(dir.path().join("backup"), &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    opened.close().unwrap();
    let commands = [
        "--help".to_owned(),
        "--version".to_owned(),
        "stat --help".to_owned(),
        "stat {db}".to_owned(),
        "stat {db} --json".to_owned(),
        "check {db}".to_owned(),
        "check {db} --json".to_owned(),
        "dump {db}".to_owned(),
        "dump {db} --log".to_owned(),
        "dump {db} --table warehouse".to_owned(),
        "log status {db}".to_owned(),
        "cache status {db}".to_owned(),
        "archive status {db}".to_owned(),
        format!("archive list {at}/archive"),
        format!("backup --verify {at}/backup"),
        format!("restore --from {at}/backup {at}/restored"),
        "profiles".to_owned(),
        "profiles nvme --toml".to_owned(),
        "tpcc --dir {db} --check-only".to_owned(),
    ];
    for command in commands {
        let words: Vec<String> =
            command.split(' ').map(|word| word.replace("{db}", &db.to_string_lossy())).collect();
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = firn().args(&words).stdout(full).output().unwrap();
        let ran = Ran::of(output, command).ended(1);
        let sentence = "cannot be written";
        assert!(ran.err.contains(sentence) && ran.err.contains("No space left"), "{:?}: {}", words, ran.err);
        assert_eq!(ran.err.matches("No space left").count(), 1, "said once: {}", ran.err);
    }
    // The work itself was done.
    run(&dir.path().join("restored"), "check {db}").ended(0).says("no damage found");
}

/// Before, a long run ended with the news that its results could not be written.
#[test]
fn a_result_file_that_cannot_be_written_is_noticed_before_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().to_string_lossy().into_owned();
    for json in [format!("{at}/none/out.json"), at.clone()] {
        let begun = std::time::Instant::now();
        let ran =
            run(&dir.path().join("db"), &format!("tpcc --dir {{db}} --scale tiny --json {json}")).ended(1);
        assert!(ran.err.contains("the results cannot be written there"), "{}", ran.err);
        assert!(ran.out.is_empty() && begun.elapsed() < Duration::from_secs(20));
    }
    assert!(!dir.path().join("db").exists(), "nothing was begun");
    // A command that fails leaves no empty file, and what was in one that is there.
    let json = dir.path().join("out.json");
    let command = format!("tpcc --dir {{db}} --no-load --json {}", json.display());
    run(&dir.path().join("db"), &command).ended(1);
    assert!(!json.exists());
    std::fs::write(&json, "of an earlier run").unwrap();
    run(&dir.path().join("db"), &command).ended(1);
    assert_eq!(std::fs::read_to_string(&json).unwrap(), "of an earlier run");
}

#[test]
fn places_that_are_none_are_named_with_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("file"), "text").unwrap();
    std::os::unix::fs::symlink(at("gone"), at("link")).unwrap();
    std::fs::create_dir(at("empty")).unwrap();
    let here = dir.path().to_string_lossy().into_owned();
    for (name, sentence) in [("file", "is a file: name the directory"), ("link", "is a symbolic link to")] {
        for command in [
            "stat {db}",
            "check {db}",
            "dump {db}",
            "log status {db}",
            "cache status {db}",
            "tpcc --dir {db} --scale tiny",
        ] {
            run(&at(name), command).ended(1).warns(sentence);
        }
    }
    for (arguments, sentence) in [
        ("archive list empty", "holds no archived log"),
        ("archive verify empty", "holds no archived log"),
        ("archive list file", "there is no such directory"),
        ("archive list none", "there is no such directory"),
        ("archive status empty", "there is no Firn database here"),
        ("backup --verify empty", "there is no backup here"),
    ] {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let (last, words) = arguments.split_last().unwrap();
        run(dir.path(), &format!("{} {here}/{last}", words.join(" "))).ended(1).warns(sentence);
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3, "nothing was made");
}

/// Sizes are refused before anything is written for them.
#[test]
fn sizes_that_cannot_be_had_are_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    for (arguments, status, sentence) in [
        ("--buffer 1000T", 2, "this machine has"),
        ("--cache 9000T", 1, "bytes free: make them smaller"),
        ("--cache 1", 2, "too small for pages of 4096 bytes"),
        ("--warehouses 65535", 1, "load fewer, or name another directory"),
    ] {
        let begun = std::time::Instant::now();
        let ran = run(&db, &format!("tpcc --dir {{db}} --load-only {arguments}")).ended(status);
        assert!(ran.err.contains(sentence), "{arguments}: {}", ran.err);
        assert!(begun.elapsed() < Duration::from_secs(60), "{arguments}");
        assert!(!db.exists(), "{arguments}: nothing was made");
    }
    // A cache that is to be added to a database that is there.
    firndb::Database::open(&db).unwrap().close().unwrap();
    run(&db, "tpcc --dir {db} --load-only --cache 1").ended(2).warns("too small");
    assert!(!db.join("cache").exists());
}

/// It was once noticed in the midst of the run, after a load that may take hours.
#[test]
fn a_backup_that_cannot_be_taken_is_refused_before_anything_is_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let (db, full) = (dir.path().join("db"), dir.path().join("full"));
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("something"), "text").unwrap();
    for (to, sentence) in
        [("{db}/inside".to_owned(), "lies in"), (full.display().to_string(), "is not empty")]
    {
        let command = format!("tpcc --dir {{db}} --scale tiny --seconds 1 --warmup 0 --backup-to {to}");
        let ran = run(&db, &command);
        assert_ne!(ran.code, Some(0), "{}", ran.out);
        assert!(ran.err.contains(sentence) && !ran.out.contains("loaded"), "{}{}", ran.out, ran.err);
    }
    assert!(!db.join("inside").exists(), "nothing was made");
}

/// On a file system that becomes full in the midst of a load. Needs to mount one.
#[test]
fn a_disk_that_is_full_while_loading_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=280m", "tmpfs"])
        .arg(dir.path())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        return eprintln!("skipped: no file system can be mounted here");
    }
    let ran = run(&dir.path().join("db"), "tpcc --dir {db} --scale tiny --warehouses 60 --load-only");
    let unmounted = std::process::Command::new("umount").arg("-l").arg(dir.path()).status();
    assert!(unmounted.unwrap().success());
    let ran = ran.ended(1);
    for part in ["the load ended early", "No space left on device", "the next run begins it anew"] {
        assert!(ran.err.contains(part), "{part:?} is not in {}", ran.err);
    }
}
