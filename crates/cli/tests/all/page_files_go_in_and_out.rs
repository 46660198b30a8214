//! `firn pagefile`: a file goes in whole or not at all, and comes out as it went in.

use crate::support::{loaded, run};

#[test]
fn a_file_goes_in_and_comes_out_as_it_was() {
    let (dir, db) = loaded();
    let path = |name: &str| dir.path().join(name).display().to_string();
    // Pages of zeros, first, in between and last.
    let mut bytes = vec![0; 7 * 4096];
    bytes[4096..3 * 4096].fill(5);
    bytes[5 * 4096 + 17] = 6;
    std::fs::write(path("in"), &bytes).unwrap();
    run(&db, "pagefile list {db}").ended(0).says("has no page files");
    run(&db, &format!("pagefile import {{db}} image {}", path("in"))).ended(0).says("image: 7 pages");
    run(&db, "pagefile list {db}").ended(0).says("image: 7 pages");
    run(&db, "check {db}").ended(0).says("1 page files with 3 pages").says("no damage found");
    run(&db, &format!("pagefile export {{db}} image {}", path("out"))).ended(0);
    assert!(std::fs::read(path("out")).unwrap() == bytes);
    run(&db, &format!("pagefile export {{db}} image {}", path("out"))).ended(1).warns("exists");
    run(&db, &format!("pagefile export {{db}} none {}", path("other"))).ended(1).warns("no page file");

    let again = format!("pagefile import {{db}} image {}", path("in"));
    run(&db, &again).ended(1).warns("--replace");
    std::fs::write(path("in"), vec![8; 4096]).unwrap();
    run(&db, &format!("{again} --replace")).ended(0).says("image: 1 pages");
    run(&db, &format!("pagefile export {{db}} image {}", path("second"))).ended(0);
    assert!(std::fs::read(path("second")).unwrap() == [8; 4096]);
}

#[test]
fn a_length_that_is_no_multiple_is_refused_with_what_to_do() {
    let (dir, db) = loaded();
    let file = dir.path().join("odd");
    std::fs::write(&file, vec![1; 4097]).unwrap();
    let import = format!("pagefile import {{db}} odd {}", file.display());
    run(&db, &import)
        .ended(1)
        .warns("no multiple of the database's page size of 4096")
        .warns("truncate -s 8192");
    run(&db, "pagefile list {db}").ended(0).says("has no page files");
    run(&db, "pagefile import {db} gone /nowhere/to/be/found").ended(1).warns("/nowhere/to/be/found");
}

/// Cause: the length came from metadata, which is 0 for what is no regular file. Effect: nothing
/// was imported, as a success, and with `--replace` the contents were lost.
#[test]
fn what_has_no_length_is_refused_and_changes_nothing() {
    let (dir, db) = loaded();
    let path = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(path("in"), vec![8; 4096]).unwrap();
    run(&db, &format!("pagefile import {{db}} image {}", path("in"))).ended(0);
    let made = std::process::Command::new("mkfifo").arg(path("fifo")).status().unwrap();
    assert!(made.success());
    for source in ["/proc/self/status".to_owned(), "/dev/null".to_owned(), path("db"), path("fifo")] {
        let import = format!("pagefile import {{db}} image {source} --replace");
        run(&db, &import).ended(1).warns("copy it to a file first");
    }
    run(&db, "pagefile list {db}").ended(0).says("image: 1 pages");
}

/// Cause: the page file is created by a commit of its own. Effect: after a crash in the middle of
/// an import, it could be repeated with `--replace` only.
#[test]
fn an_import_goes_on_from_an_empty_page_file() {
    let (dir, db) = loaded();
    let file = dir.path().join("in");
    std::fs::write(&file, vec![8; 4096]).unwrap();
    let open = firndb::Options::new().create(false).open(&db).unwrap();
    drop(open.create_page_file("image").unwrap());
    open.close().unwrap();
    let import = format!("pagefile import {{db}} image {}", file.display());
    run(&db, &import).ended(0).says("image: 1 pages");
    run(&db, &import).ended(1).warns("--replace");
}
