//! The fuzzers' functions on a stable compiler: a second or so each of random bytes, of mutated corpus files, and of
//! whatever corpus lies beside the fuzzers.
//!
//! `FIRN_FUZZ_SECONDS=600` runs each longer, `FIRN_SEED=7` replays one seed.

#[path = "../../../fuzz/src/harness.rs"]
mod harness;

use firn_base::rng::Rng;
use std::time::{Duration, Instant};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Files of a fuzzer's corpus, in the order of their names.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths.into_iter().filter_map(|path| std::fs::read(path).ok()).collect()
}

fn fuzz(name: &str, longest: u64, run: fn(&[u8])) {
    let corpus = corpus(name);
    corpus.iter().for_each(|bytes| run(bytes));
    let limit = Duration::from_secs(number("FIRN_FUZZ_SECONDS").unwrap_or(1));
    let (only, began) = (number("FIRN_SEED"), Instant::now());
    for seed in only.unwrap_or(0).. {
        let mut rng = Rng::new(seed);
        let mut bytes = match corpus.len() as u64 {
            0 => Vec::new(),
            count => corpus[rng.below(count) as usize].clone(),
        };
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
fn operations_beside_a_map() {
    fuzz("operations", 600, harness::operations);
}
