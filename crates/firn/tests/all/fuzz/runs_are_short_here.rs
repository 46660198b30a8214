//! The fuzzers' functions on a stable compiler: each runs the corpus that lies beside the fuzzers,
//! and then for a second or so on random bytes and on mutated files of the corpus.
//!
//! A seed is a file of the corpus that is checked in. `seed-accepted-*` must get through (the
//! record fits its page, the database opens), `seed-refused-*` must not: a change of a format that
//! leaves the seeds behind fails here. `fuzz::seeds` makes them anew.
//!
//! `FIRN_FUZZ_SECONDS=600` runs each longer, `FIRN_SEED=7` replays one seed of the random numbers.

#[path = "../../../../../fuzz/src/harness.rs"]
pub(crate) mod harness;

use firndb_base::rng::Rng;
use firndb_testkit::seeds::number_from;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where a fuzzer's corpus is.
pub(crate) fn corpus_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name)
}

/// Files of a fuzzer's corpus with their names, in the order of these.
fn corpus(name: &str) -> Vec<(String, Vec<u8>)> {
    let path = corpus_path(name);
    let entries = std::fs::read_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("the directory is readable").path()).collect();
    paths.sort();
    let named = |path: PathBuf| {
        let bytes = std::fs::read(&path).expect("the file is readable");
        (path.file_name().expect("a file").to_string_lossy().into_owned(), bytes)
    };
    paths.into_iter().map(named).collect()
}

fn fuzz(name: &str, longest: u64, run: fn(&[u8]) -> bool) {
    let corpus = corpus(name);
    let mut seeds = 0;
    for (file, bytes) in &corpus {
        let expected = match file {
            file if file.starts_with("seed-accepted-") => Some(true),
            file if file.starts_with("seed-refused-") => Some(false),
            _ => None,
        };
        let got_through = run(bytes);
        if let Some(expected) = expected {
            seeds += 1;
            assert_eq!(
                got_through, expected,
                "fuzz/corpus/{name}/{file} does not reach what it was made for any more. If a format was \
                 changed: cargo test -p firndb --test all fuzz::seeds -- --ignored"
            );
        }
    }
    assert!(seeds >= 5, "fuzz/corpus/{name} has {seeds} seeds");
    let limit = Duration::from_secs(number_from("FIRN_FUZZ_SECONDS").unwrap_or(1));
    let (only, began) = (number_from("FIRN_SEED"), Instant::now());
    for seed in only.unwrap_or(0).. {
        let mut rng = Rng::new(seed);
        let mut bytes = corpus[rng.below(corpus.len() as u64) as usize].1.clone();
        if bytes.is_empty() || rng.one_in(2) {
            bytes = (0..rng.below(longest)).map(|_| rng.next_u64() as u8).collect();
        }
        for _ in 0..rng.below(8) {
            let Some(last) = (bytes.len() as u64).checked_sub(1) else { break };
            let at = rng.between(0, last) as usize;
            match rng.below(3) {
                0 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][rng.below(5) as usize],
                1 => bytes[at] ^= 1 << rng.below(8),
                _ => bytes.truncate(at + 1),
            }
        }
        if let Err(panic) = std::panic::catch_unwind(|| run(&bytes)) {
            eprintln!("{name}: FIRN_SEED={seed} panics");
            std::panic::resume_unwind(panic);
        }
        if only.is_some() || began.elapsed() > limit {
            return;
        }
    }
}

#[test]
fn pages_and_their_records() {
    fuzz("page", 1400, harness::page);
}

#[test]
fn delta_pages() {
    fuzz("delta", 60, harness::delta);
}

#[test]
fn blocks_of_the_log() {
    fuzz("log", 300, harness::log);
}

#[test]
fn superblocks() {
    fuzz("superblock", 60, harness::superblock);
}

#[test]
fn metadata_of_the_store() {
    fuzz("store", 120, harness::store);
}

#[test]
fn rows_of_page_files() {
    fuzz("page_rows", 200, harness::page_rows);
}

#[test]
fn operations_beside_a_map() {
    fuzz("operations", 600, harness::operations);
}
