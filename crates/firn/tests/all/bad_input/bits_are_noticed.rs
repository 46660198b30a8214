//! A flipped bit anywhere on any device costs an error at most: never a panic, a hang, or a wrong
//! result.
//!
//! `FIRN_SEEDS=20` flips other bits, and more of them.

use crate::support::examine::{BusyVerdict, Verdict, examine, examine_busy, examine_reads};
use crate::support::sample::{Ending, Model, Sample, TABLES, busy_sample, quiet, sample, sample_under};
use firndb::device::Device;
use firndb::{Deltas, Tuning};
use firndb_base::rng::Rng;
use firndb_testkit::bytes::{contents, flip, used_blocks};
use firndb_testkit::cases::case;
use firndb_testkit::seeds::number_from;
use std::collections::BTreeMap;

/// How often each test goes over its device.
fn rounds() -> u64 {
    number_from("FIRN_SEEDS").unwrap_or(1)
}

/// How often each outcome was met.
#[derive(Debug, Default)]
struct Tally {
    refused: u32,
    whole: u32,
    reported: u32,
    /// A check that could not be finished.
    unfinished: u32,
}

impl Tally {
    fn add(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Refused(_) => self.refused += 1,
            verdict if verdict.is_whole() => self.whole += 1,
            Verdict::Opened(_, Ok(_)) => self.reported += 1,
            Verdict::Opened(..) => self.unfinished += 1,
        }
    }
}

/// Flips a bit in every `step`-th used block of device number `which` (0: superblock, last: store).
fn flip_everywhere(sample: &Sample, which: usize, step: u64, models: &[&Model]) -> Tally {
    let mut tally = Tally::default();
    for round in 0..rounds() {
        let mut rng = Rng::new(round);
        for block in used_blocks(&*sample.disks.all()[which]) {
            if !rng.one_in(step) {
                continue;
            }
            let (byte, bit) = (block + rng.below(512), rng.below(8) as u32);
            let verdict = case(format!("device {which}, bit {bit} of byte {byte}, round {round}"), || {
                let disks = sample.disks.duplicate();
                flip(&*disks.all()[which], byte, bit);
                examine(&disks, models)
            });
            tally.add(&verdict);
        }
    }
    tally
}

#[test]
fn in_the_log_of_a_closed_database() {
    let sample = sample(1, Ending::Closed);
    let tally = flip_everywhere(&sample, 1, 4, &[&sample.model]);
    assert_eq!(tally.reported, 0, "{tally:?}");
    assert!(tally.whole > 20, "{tally:?}");
}

#[test]
fn in_the_log_of_a_sealed_database() {
    let sample = sample(2, Ending::Sealed);
    for which in [1, 2] {
        let tally = flip_everywhere(&sample, which, 2, &[&sample.model]);
        assert_eq!(tally.reported, 0, "{tally:?}");
        assert!(tally.refused > 2, "log that is needed was hit: {tally:?}");
    }
}

/// The window: the last request before an abrupt end has nothing behind it that says it was
/// durable.
#[test]
fn in_the_log_of_a_database_that_ended_abruptly() {
    let sample = sample(3, Ending::Abrupt);
    for which in [1, 2] {
        let tally = flip_everywhere(&sample, which, 2, &[&sample.model, &sample.before_last]);
        assert_eq!(tally.reported, 0, "{tally:?}");
        assert!(tally.refused > 2, "log that is needed was hit: {tally:?}");
    }
}

#[test]
fn in_the_store_of_a_closed_database() {
    let sample = sample(4, Ending::Closed);
    let tally = flip_everywhere(&sample, 3, 8, &[&sample.model]);
    assert!(tally.reported > 20 && tally.whole > 20, "{tally:?}");
    assert_eq!(tally.unfinished, 0, "a check goes on past damage: {tally:?}");
}

#[test]
fn in_the_store_of_a_database_that_has_to_recover() {
    let sample = sample(5, Ending::Abrupt);
    let tally = flip_everywhere(&sample, 3, 8, &[&sample.model]);
    assert!(tally.reported > 20 && tally.whole > 20, "{tally:?}");
    assert_eq!(tally.unfinished, 0, "a check goes on past damage: {tally:?}");
}

/// What a block of the store's file begins, and its length; `None` if it lies within something.
fn zone(block: &[u8]) -> Option<(&'static str, u64)> {
    match (&block[..8], block[24]) {
        (b"FIRNDLTA", _) => Some(("delta page", 1024)),
        (b"FIRNMAPL", _) => Some(("map log", 4096)),
        (b"FIRNMETA", 1) => Some(("totals", 4096)),
        (b"FIRNMETA", 2) => Some(("bitmap page", 4096)),
        (b"FIRNMETA", 3) => Some(("map page", 4096)),
        _ => None,
    }
}

/// Bits of each zone that deltas and the page map have, in a database that was closed and in one
/// that has to recover.
#[test]
fn in_each_zone_of_a_store_with_deltas() {
    // So little memory for the map that it is swept, and a write buffer, so that it is flushed.
    let tuning = |tuning: Tuning| tuning.deltas(Deltas::On).delta_bytes(4 << 10).map_bytes(8 << 10);
    for (seed, ending) in [(9, Ending::Closed), (10, Ending::Abrupt)] {
        let sample = sample_under(quiet().tuning(tuning), seed, ending);
        let store = contents(&*sample.disks.store);
        let mut rng = Rng::new(seed);
        let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
        for (index, block) in store.chunks(512).enumerate() {
            let Some((zone, len)) = zone(block) else { continue };
            // Where the bytes are in use: two in the header or near it, two anywhere.
            for reach in [64, 200, len, len] {
                let byte = index as u64 * 512 + rng.below(reach);
                let verdict = case(format!("{ending:?}, {zone}, byte {byte}"), || {
                    let disks = sample.disks.duplicate();
                    flip(&*disks.store, byte, rng.below(8) as u32);
                    examine(&disks, &[&sample.model])
                });
                tallies.entry(zone).or_default().add(&verdict);
            }
        }
        for (zone, tally) in &tallies {
            eprintln!("{ending:?}, {zone}: {tally:?}");
            assert_eq!(tally.unfinished, 0, "{zone}: a check goes on past damage: {tally:?}");
        }
        let met = |zone: &str| tallies.get(zone).unwrap_or_else(|| panic!("no {zone}: {tallies:?}"));
        // Refused where the catalog is concerned.
        assert!(met("delta page").reported > met("delta page").refused, "{tallies:?}");
        assert!(met("map page").reported > met("map page").refused, "{tallies:?}");
        // Of the last round, one slot may be torn: it does not matter which is damaged.
        assert!(met("bitmap page").whole + met("bitmap page").reported > 0, "{tallies:?}");
        assert!(met("map log").refused + met("map log").whole > 0, "{tallies:?}");
        assert_eq!((met("totals").refused, met("totals").reported), (0, 0), "{tallies:?}");
    }
}

/// Damage concerns the tables it is in; with threads at work, and left-over work of every kind for
/// them, in this incarnation and those after it.
#[test]
fn in_the_store_of_a_database_with_work_to_do() {
    let sample = busy_sample(8);
    let (mut refused, mut whole, mut damaged) = (0, 0, 0);
    for round in 0..rounds() {
        let mut rng = Rng::new(100 + round);
        for block in used_blocks(&*sample.disks.all()[3]) {
            if !rng.one_in(24) {
                continue;
            }
            let (byte, bit) = (block + rng.below(512), rng.below(8) as u32);
            let verdict = case(format!("the store, bit {bit} of byte {byte}, round {round}"), || {
                let disks = sample.disks.duplicate();
                flip(&*disks.store, byte, bit);
                examine_busy(&disks, &sample.model)
            });
            match verdict {
                BusyVerdict::Refused => refused += 1,
                BusyVerdict::Opened(tables) if tables.is_empty() => whole += 1,
                BusyVerdict::Opened(tables) => {
                    // Two of them share a map page at most, or their definitions a page.
                    assert!(tables.len() <= TABLES.len());
                    damaged += 1;
                }
            }
        }
    }
    assert!(
        whole > 5 && damaged > 5 && refused < damaged,
        "{refused} refused, {whole} whole, {damaged} damaged"
    );
}

#[test]
fn in_one_copy_of_the_superblock() {
    let sample = sample(6, Ending::Abrupt);
    let mut rng = Rng::new(6);
    for copy in 0..2u64 {
        for byte in 0..128 {
            let byte = copy * (16 << 10) + byte;
            case(format!("byte {byte}"), || {
                let disks = sample.disks.duplicate();
                flip(&*disks.superblock, byte, rng.below(8) as u32);
                let verdict = examine(&disks, &[&sample.model]);
                assert!(verdict.is_whole(), "the other copy is whole: {verdict:?}");
            });
        }
    }
}

/// One flipped bit in the newer slot once asked for a backup, though the other was whole: it
/// counted fewer groups.
#[test]
fn in_one_slot_of_the_stores_header() {
    let mut sample = sample(8, Ending::Closed);
    let db = quiet().open_on(sample.disks.devices()).expect("opens");
    let before = sample.disks.store.len();
    let table = db.table("wide").expect("there");
    for i in 0..20_000u32 {
        if sample.disks.store.len() > before {
            break;
        }
        let (key, value) = (format!("more {i:05}").into_bytes(), vec![7; 140]);
        db.transact(|tx| tx.put(&table, &key, &value)).expect("committed");
        sample.model.get_mut("wide").expect("in the model").insert(key, value);
    }
    assert!(sample.disks.store.len() > before, "the store has grown, so its header has changed");
    drop(table);
    db.close().expect("closed");
    for slot in 0..2u64 {
        for byte in (0..72).step_by(3) {
            case(format!("slot {slot}, byte {byte}"), || {
                let disks = sample.disks.duplicate();
                flip(&*disks.store, slot * (64 << 10) + byte, (byte % 8) as u32);
                let db = quiet().open_on(disks.devices()).expect("the other slot says the same");
                if byte == 42 {
                    assert_eq!(examine_reads(&db, &[&sample.model]), []);
                }
            });
        }
    }
}

#[test]
fn in_both_copies_of_the_superblock() {
    let sample = sample(7, Ending::Closed);
    let length =
        contents(&*sample.disks.superblock)[..512].iter().rposition(|&byte| byte != 0).expect("not empty");
    for byte in 0..=length as u64 {
        case(format!("byte {byte}"), || {
            let disks = sample.disks.duplicate();
            flip(&*disks.superblock, byte, (byte % 8) as u32);
            flip(&*disks.superblock, byte + (16 << 10), (byte % 7) as u32);
            match examine(&disks, &[&sample.model]) {
                Verdict::Refused(error) => assert!(error.to_string().contains("superblock"), "{error}"),
                verdict => panic!("{verdict:?}"),
            }
        });
    }
}
