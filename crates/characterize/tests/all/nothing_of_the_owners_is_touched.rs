//! Where a target writes, and what it leaves behind.

use firndb_base::sync::Arc;
use firndb_characterize::{Consent, Error, Ground, Stop, Target, TargetKind, TargetOptions};
use std::path::Path;
use std::time::Duration;

const AREA: u64 = 16 << 20;

fn options() -> TargetOptions {
    TargetOptions {
        area: Some(AREA),
        prepare: Duration::from_secs(60),
        consent: Consent::default(),
        keep: false,
    }
}

fn never() -> Stop {
    Arc::new(|| false)
}

fn open(path: &Path, options: &TargetOptions) -> Result<Target, Error> {
    Target::open(path, options, &mut |_, _| {}, &never())
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn in_a_directory_no_name_is_ever_left_even_while_it_works() {
    let dir = tempfile::tempdir().unwrap();
    let target = open(dir.path(), &options()).unwrap();
    assert_eq!((target.kind(), target.area()), (TargetKind::Files, AREA));
    assert_eq!(names(dir.path()), [""; 0]);
    let mut bytes = vec![0; 1 << 20];
    target.device().read(AREA - (1 << 20), &mut bytes).unwrap();
    let zeros = bytes.iter().filter(|&&byte| byte == 0).count();
    assert!(zeros < bytes.len() / 128, "the area is written with noise up to its end");
    drop(target);
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn a_file_is_left_as_it_is_unless_the_caller_says_so_twice() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine");
    std::fs::write(&path, vec![7u8; AREA as usize]).unwrap();
    let once = Consent { destroy_contents: true, i_am_sure: None };
    let other = Consent { destroy_contents: true, i_am_sure: Some(dir.path().join("other")) };
    for consent in [Consent::default(), once, other] {
        let target = open(&path, &TargetOptions { consent, ..options() }).unwrap();
        assert_eq!(target.kind(), TargetKind::Files);
        assert!(target.notes().iter().any(|note| note.contains("left as it is")), "{:?}", target.notes());
        assert!(std::fs::read(&path).unwrap().iter().all(|&byte| byte == 7));
    }
    let consent = Consent { destroy_contents: true, i_am_sure: Some(path.clone()) };
    let target = open(&path, &TargetOptions { consent, ..options() }).unwrap();
    assert_eq!((target.kind(), target.area()), (TargetKind::WholeFile, AREA));
    drop(target);
    assert!(std::fs::read(&path).unwrap().iter().any(|&byte| byte != 7));
    assert_eq!(names(dir.path()), ["mine"], "the file itself is kept");
}

#[test]
fn wrong_places_are_refused_with_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let missing = open(&dir.path().join("none"), &options()).unwrap_err();
    assert!(matches!(&missing, Error::BadArgument(text) if text.contains("no such file")), "{missing}");
    let odd = open(Path::new("/dev/null"), &options()).unwrap_err();
    assert!(matches!(&odd, Error::BadArgument(text) if text.contains("neither")), "{odd}");
    let large = open(dir.path(), &TargetOptions { area: Some(1 << 60), ..options() }).unwrap_err();
    assert!(matches!(large, Error::Full(_)), "{large}");
    let small = open(dir.path(), &TargetOptions { area: Some(1 << 20), ..options() }).unwrap_err();
    assert!(matches!(small, Error::Full(_)), "{small}");
    let proc = open(Path::new("/proc"), &options()).unwrap_err();
    assert!(matches!(&proc, Error::Unusable(text) if text.contains("/proc")), "{proc}");
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn a_stop_while_the_area_is_written_ends_it() {
    let dir = tempfile::tempdir().unwrap();
    let stop: Stop = Arc::new(|| true);
    let outcome = Target::open(dir.path(), &options(), &mut |_, _| {}, &stop);
    assert_eq!(outcome.err(), Some(Error::Interrupted));
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn unwritten_ground_is_made_beside_the_target() {
    let dir = tempfile::tempdir().unwrap();
    let target = open(dir.path(), &options()).unwrap();
    for ground in [Ground::Reserved, Ground::Hole] {
        let fresh = target.fresh(ground, 1 << 20).unwrap().expect("a directory takes more files");
        assert_eq!(fresh.len(), 1 << 20);
    }
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn memory_is_measured_and_called_memory() {
    if !Path::new("/dev/shm").is_dir() {
        eprintln!("skipped: there is no /dev/shm");
        return;
    }
    let target = open(Path::new("/dev/shm"), &options()).unwrap();
    assert!(target.notes().iter().any(|note| note.contains("direct I/O")), "{:?}", target.notes());
}
