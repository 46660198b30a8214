//! Random operations on a mounted file system and on a plain directory give the same results and
//! leave the same files.

use crate::support::{Place, end, listing};
use firndb_base::rng::Rng;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The result of an operation, comparable between file systems.
fn outcome<T>(result: std::io::Result<T>) -> Result<T, i32> {
    result.map_err(|error| error.raw_os_error().unwrap_or(-1))
}

fn path_of(rng: &mut Rng) -> PathBuf {
    let mut path = PathBuf::new();
    for _ in 0..rng.below(3) {
        path.push(format!("d{}", rng.below(3)));
    }
    path.join(format!("{}{}", if rng.one_in(3) { "d" } else { "f" }, rng.below(3)))
}

/// One random operation on a directory; the same draws give the same operation.
fn step(root: &Path, rng: &mut Rng) -> String {
    let path = root.join(path_of(rng));
    let other = root.join(path_of(rng));
    let (offset, length, fill) = (rng.below(3 << 20), rng.below(50_000) as usize, rng.next_u64() as u8);
    let bytes = vec![fill; length];
    let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
    match rng.below(14) {
        0 => format!("mkdir {:?}", outcome(std::fs::create_dir(&path))),
        1 => format!("rmdir {:?}", outcome(std::fs::remove_dir(&path))),
        2 => format!("unlink {:?}", outcome(std::fs::remove_file(&path))),
        3 | 4 => format!("rename {:?}", outcome(std::fs::rename(&path, &other))),
        5 => format!("truncate {:?}", outcome(open().and_then(|file| file.set_len(offset)))),
        6 => format!("rewrite {:?}", outcome(std::fs::write(&path, &bytes))),
        7 => format!("sync {:?}", outcome(open().and_then(|file| file.sync_all()))),
        8 => format!(
            "append {:?}",
            outcome(OpenOptions::new().append(true).open(&path).and_then(|mut file| file.write_all(&bytes)))
        ),
        9 => format!(
            "stat {:?}",
            outcome(
                std::fs::metadata(&path)
                    .map(|found| (found.is_dir(), found.is_file().then_some(found.len())))
            )
        ),
        10 => {
            // A removed file can be used while it is open.
            let result = open().and_then(|file| {
                std::fs::remove_file(&path)?;
                file.write_all_at(&bytes, offset)?;
                let mut read = vec![0; length];
                file.read_exact_at(&mut read, offset)?;
                assert_eq!(read, bytes);
                Ok((file.metadata()?.len(), file.metadata()?.nlink()))
            });
            format!("unlinked {:?}", outcome(result))
        }
        11 => {
            let mut text = Vec::new();
            let result = File::open(&path).and_then(|mut file| file.read_to_end(&mut text));
            format!("read {:?} {}", outcome(result), text.iter().map(|byte| u64::from(*byte)).sum::<u64>())
        }
        _ => format!("write {:?}", outcome(open().and_then(|file| file.write_all_at(&bytes, offset)))),
    }
}

fn compare(direct: bool, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let (place, plain) = (Place::new(), tempfile::tempdir().expect("a directory"));
        let Some(mounted) = place.mount(|options| options.direct = direct) else { return };
        let (mut here, mut there) = (Rng::new(seed), Rng::new(seed));
        for number in 0..150 {
            let ours = step(&place.mount_point(), &mut here);
            let theirs = step(plain.path(), &mut there);
            assert_eq!(ours, theirs, "seed {seed}, step {number}");
        }
        let expected = listing(plain.path());
        assert!(listing(&place.mount_point()) == expected, "seed {seed}: the mounted files differ");
        let counts = end(mounted).counts;
        assert!(counts.kinds[1].requests > 0);
        assert!(listing(&place.backing()) == expected, "seed {seed}: the backing directory's files differ");

        // Mounted again, they are all there.
        let Some(mounted) = place.mount(|_| {}) else { return };
        assert!(listing(&place.mount_point()) == expected, "seed {seed}: the files after a remount differ");
        end(mounted);
    }
}

#[test]
fn through_the_page_cache() {
    compare(false, 0..6);
}

#[test]
fn past_the_page_cache() {
    compare(true, 100..106);
}

#[test]
fn the_reserved_name_is_neither_shown_nor_given() {
    let place = Place::new();
    let Some(mounted) = place.mount(|_| {}) else { return };
    let reserved = place.mount_point().join(".firn-emulate");
    assert_eq!(std::fs::metadata(&reserved).expect_err("hidden").kind(), ErrorKind::NotFound);
    assert_eq!(File::create(&reserved).expect_err("refused").kind(), ErrorKind::PermissionDenied);
    end(mounted);
}

#[test]
fn a_full_device_says_so_and_takes_what_is_freed() {
    let place = Place::new();
    let Some(mounted) = place.mount(|options| options.size = 9 << 20) else { return };
    let at = |name: &str| place.mount_point().join(name);
    std::fs::write(at("a"), vec![1; 6 << 20]).expect("it fits");
    let error = std::fs::write(at("b"), vec![2; 3 << 20]).expect_err("it does not fit");
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert_eq!(std::fs::read(at("a")).expect("there"), vec![1; 6 << 20], "what was there stays");
    std::fs::remove_file(at("b")).expect("removed");
    std::fs::write(at("a"), vec![3; 6 << 20]).expect("a file may be written over");
    std::fs::remove_file(at("a")).expect("removed");
    std::fs::write(at("c"), vec![4; 8 << 20]).expect("what was freed can be used");
    end(mounted);
}

#[test]
fn space_can_be_reserved_and_punched() {
    use rustix::fs::{FallocateFlags, fallocate};
    let place = Place::new();
    let Some(mounted) = place.mount(|options| options.size = 9 << 20) else { return };
    let mut options = File::options();
    let reserved = options.read(true).write(true).create_new(true).open(place.mount_point().join("a"));
    let reserved = reserved.expect("made");
    fallocate(&reserved, FallocateFlags::empty(), 0, 8 << 20).expect("reserved");
    assert_eq!(reserved.metadata().expect("there").len(), 8 << 20);
    assert_eq!(reserved.metadata().expect("there").blocks() * 512, 8 << 20);
    let error = std::fs::write(place.mount_point().join("b"), [1]).expect_err("all is reserved");
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    reserved.write_all_at(&[7; 8192], (1 << 20) - 4096).expect("space is allocated");
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&reserved, punch, 1 << 20, 2 << 20).expect("punched");
    let mut bytes = [1; 8192];
    reserved.read_exact_at(&mut bytes, (1 << 20) - 4096).expect("read");
    assert!(bytes[..4096].iter().all(|byte| *byte == 7) && bytes[4096..].iter().all(|byte| *byte == 0));
    std::fs::write(place.mount_point().join("b"), [1]).expect("what was punched is free");
    drop(reserved);
    end(mounted);
}
