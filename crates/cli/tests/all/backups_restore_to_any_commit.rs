//! `firn backup`, `firn restore`, `firn archive`, as their users run them.

use crate::support::run;
use serde_json::Value;

#[test]
fn a_backup_while_tpcc_runs_restores_to_a_consistent_database() {
    let dir = tempfile::tempdir().unwrap();
    let (db, at) = (dir.path().join("db"), dir.path().to_string_lossy().into_owned());
    let json = dir.path().join("out.json");
    run(&db, &format!("tpcc --dir {{db}} --scale tiny --warehouses 2 --clients 3 --buffer 8M --archive {at}/archive --backup-to {at}/backup --seconds 2 --warmup 0"))
        .ended(0)
        .says("the backup in")
        .says("every row is whole");
    run(&db, &format!("backup --verify {at}/backup")).ended(0).says("is whole");
    // Opening began an epoch, a few bytes that are not archived yet; before that, all was.
    let stat = run(&db, "stat {db}").ended(0).says("archive: up to LSN").says(" B behind");
    assert!(!stat.out.contains("GAP") && !stat.out.contains("FAILING"), "{}", stat.out);
    run(&db, "archive status {db}").ended(0).says("archive: up to LSN");
    run(&db, &format!("archive list {at}/archive --json {}", json.display())).ended(0).says("log from LSN");
    let list: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(list["stretches"].as_array().unwrap().len(), 1);
    let end = list["stretches"][0][1].as_u64().unwrap();
    run(&db, &format!("archive verify {at}/archive")).ended(0).says("records read");

    // The backup's own end, an LSN in between, and everything.
    run(&db, &format!("restore --from {at}/backup {at}/first --log 16M --json {}", json.display())).ended(0);
    let first: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let begin = first["lsn"].as_u64().unwrap();
    assert!(begin < end);
    let middle = (begin + end) / 2;
    let from = format!("restore --from {at}/backup --archive {at}/archive --log 16M");
    run(&db, &format!("{from} --to {middle} {at}/middle")).ended(0).says("a new database");
    run(&db, &format!("{from} {at}/last --json {}", json.display())).ended(0);
    let last: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!((&last["lsn"], &last["at_end"]), (&end.into(), &true.into()));
    let time = last["last_commit"].as_str().unwrap();
    run(&db, &format!("{from} --to {time} {at}/time")).ended(0).says(time);
    for name in ["first", "middle", "last", "time"] {
        let restored = dir.path().join(name);
        run(&restored, "tpcc --dir {db} --check-only").ended(0).says("every row is whole");
        run(&restored, "check {db}").ended(0).says("no damage found");
    }
    // A restored database goes on.
    run(&dir.path().join("middle"), "tpcc --dir {db} --no-load --transactions 20").ended(0);

    run(&db, &format!("{from} --to {} {at}/none", end + 1)).ended(2).warns("the archive ends at LSN");
    run(&db, &format!("{from} --to yesterday {at}/none")).ended(2).warns("neither an LSN nor a time");
    run(&db, &format!("restore --from {at}/archive {at}/none")).ended(1).warns("there is no backup here");
    run(&db, &format!("backup {{db}} {at}/backup")).ended(1).warns("is not empty");
    run(&db, &format!("archive list {at}/nowhere")).ended(1).warns("no such directory");
    // What would mix, and what holds nothing.
    run(&db, &format!("backup {{db}} {at}/db/backup")).ended(1).warns("it lies in the database's");
    run(&db, &format!("backup {{db}} {at}/archive/backup")).ended(1).warns("which holds an archive");
    run(&db, &format!("backup {{db}} {}", json.display())).ended(1).warns("is no directory");
    run(&db, &format!("check {at}/backup")).ended(1).warns("no Firn database here, but a backup");
    run(&db, &format!("tpcc --dir {at}/backup --scale tiny")).ended(1).warns("it holds a backup");
    run(&db, &format!("tpcc --dir {at}/backup/in --scale tiny")).ended(1).warns("which holds a backup");
    run(&db, &format!("tpcc --dir {at}/archive --scale tiny")).ended(1).warns("it holds an archive");
    run(&db, "tpcc --dir {db} --no-load --archive {db}/archive").ended(1).warns("it lies in the database's");
    run(&db, &format!("restore --from {at}/backup {at}/archive")).ended(1).warns("is not empty");
    run(&db, &format!("restore --from {at}/backup --archive {at}/backup {at}/none"))
        .ended(1)
        .warns("holds no archived log");
    run(&db, &format!("restore --from {at}/backup --archive {at}/nowhere {at}/none"))
        .ended(1)
        .warns("no such directory");
    assert!(!dir.path().join("none").exists());
}

#[test]
fn damage_in_an_archive_ends_with_a_status_and_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let (db, at) = (dir.path().join("db"), dir.path().to_string_lossy().into_owned());
    let opened = firndb::Options::new()
        .archive(|archive| archive.directory(dir.path().join("archive")))
        .open(&db)
        .unwrap();
    let table = opened.create_table("t").unwrap();
    (0..200u32).for_each(|i| _ = opened.transact(|tx| tx.put(&table, &i.to_be_bytes(), &[1; 500])).unwrap());
    drop(table);
    opened.close().unwrap();
    let segment = dir.path().join("archive/log-0000000001.firn");
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[5000] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    run(&db, &format!("archive verify {at}/archive")).ended(1).says("DAMAGE:").warns("faults found");
}

#[test]
fn an_empty_directory_in_the_place_of_the_archive_is_shown_until_the_archive_is_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let (db, archive) = (dir.path().join("db"), dir.path().join("archive"));
    let open = || firndb::Options::new().archive(|options| options.directory(&archive)).open(&db).unwrap();
    let opened = open();
    opened.create_table("t").unwrap();
    opened.close().unwrap();
    std::fs::rename(&archive, dir.path().join("away")).unwrap();
    std::fs::create_dir(&archive).unwrap();
    run(&db, "archive status {db}").ended(0).says("FAILING").says("not mounted");
    run(&db, "stat {db}").ended(0).says("FAILING");
    let stat: Value = serde_json::from_str(&run(&db, "stat {db} --json").ended(0).out).unwrap();
    assert!(stat["archive"]["failing"].as_str().unwrap().contains("firn archive forget"), "{stat}");
    run(&db, "archive forget {db}").ended(0);
    open().close().unwrap();
    let status = run(&db, "archive status {db}").ended(0);
    assert!(!status.out.contains("FAILING"), "{}", status.out);
}

#[test]
fn verifying_an_archive_with_a_gap_ends_with_status_1() {
    let dir = tempfile::tempdir().unwrap();
    let (db, at) = (dir.path().join("db"), dir.path().to_string_lossy().into_owned());
    for (archive, rows) in [("archive", 100u32), ("another", 10_000), ("archive", 100)] {
        let opened = firndb::Options::new()
            .log(|log| log.bytes(1 << 20))
            .archive(|options| options.directory(dir.path().join(archive)))
            .open(&db)
            .unwrap();
        let table = opened.create_table(&format!("t{}", opened.table_names().len())).unwrap();
        (0..rows)
            .for_each(|i| _ = opened.transact(|tx| tx.put(&table, &i.to_be_bytes(), &[1; 500])).unwrap());
        drop(table);
        opened.close().unwrap();
    }
    run(&db, &format!("archive list {at}/archive")).ended(0).says("GAP:");
    run(&db, &format!("archive verify {at}/archive")).ended(1).says("GAP:").warns("1 faults found");
}
