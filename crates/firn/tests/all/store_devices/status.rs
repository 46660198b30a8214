//! What is known of the store's devices while the database is not open.

use super::*;

/// The second device's state, how many may be lost, and why the second is missing.
fn look(dir: &Path) -> (StoreMemberState, usize, String) {
    let status = firndb::store_status(dir).unwrap().unwrap();
    let device = &status.devices[1];
    (device.state, status.may_lose, device.trouble.clone().unwrap_or_default())
}

/// A database over three devices, of which one may be lost.
fn over_three(dir: &Path) {
    let db = small().store_paths(["a", "b", "c"]).store_survives(1).open(dir).unwrap();
    db.create_table("rows").unwrap();
    fill(&db, 0..100);
    db.close().unwrap();
}

/// Cause: the status of a database that is not open asked only whether a file can be opened.
/// Effect: a new file, made before a crash in the place of a lost one, counted as the device, and
/// as many others as before seemed to be dispensable.
#[test]
fn a_file_that_is_not_the_device_counts_as_missing() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("db");
    over_three(&dir);
    std::fs::rename(dir.join("b"), dir.join("away")).unwrap();
    for (bytes, why) in [
        (std::fs::read(dir.join("c")).unwrap(), "is member 2 of 3, not 1 of 3"),
        (Vec::new(), "is no member of an array"),
        (vec![0; 1 << 20], "is no member of an array"),
    ] {
        std::fs::write(dir.join("b"), bytes).unwrap();
        let (state, may_lose, trouble) = look(&dir);
        assert_eq!((state, may_lose), (StoreMemberState::Missing, 0));
        assert!(trouble.contains(why), "{trouble}");
    }
    std::fs::rename(dir.join("away"), dir.join("b")).unwrap();
    assert_eq!(look(&dir), (StoreMemberState::InUse, 1, String::new()));
    verify(&small().open(&dir).unwrap(), 100);
}

/// Cause: the status compared no lengths. Effect: a device that was cut off, which every opening
/// leaves out, was shown as in use, and another one seemed to be dispensable.
#[test]
fn a_device_that_was_cut_off_counts_as_missing() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("db");
    over_three(&dir);
    let whole = std::fs::read(dir.join("b")).unwrap();
    let all = || ["superblock", "a", "b", "c"].map(|name| std::fs::read(dir.join(name)).unwrap());
    for left in [140_000, whole.len() / 2, whole.len() - 4096] {
        std::fs::write(dir.join("b"), &whole[..left / 4096 * 4096]).unwrap();
        let before = all();
        let (state, may_lose, trouble) = look(&dir);
        assert_eq!((state, may_lose), (StoreMemberState::Missing, 0), "{left} bytes left");
        assert!(trouble.contains("has been cut off"), "{trouble}");
        assert!(all() == before, "nothing is changed");
    }
    std::fs::write(dir.join("b"), whole).unwrap();
    assert_eq!(look(&dir), (StoreMemberState::InUse, 1, String::new()));
}
