//! Every engine runs TPC-C at a tiny scale and keeps its conditions; scans return the same rows.

use crate::job::{Job, Peer, Settings};
use clap::ValueEnum;
use firndb_workloads::tpcc::{self, ClientOptions, LoadOptions, Mix, Scale, Terminals, When, keys, tables};
use firndb_workloads::{
    Access, CommitMode, DriverOptions, Engine, EngineError, KeyRange, Length, Outcome, Scan as ScanOf,
    Session, TableId, Transaction, Visit,
};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Opens an engine in a directory of its own.
fn with_fresh<J: Job>(peer: Peer, job: J) -> J::Output {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { dir: dir.path().into(), cache_bytes: 64 << 20, sessions: 8 };
    peer.with(&settings, &tpcc::schema(), job).unwrap()
}

fn assert_sound<E: Engine>(engine: &E, when: When) {
    for condition in tpcc::check(engine, when).unwrap() {
        assert!(condition.holds(), "{}: {condition}", engine.name());
    }
}

struct Mixed;
impl Job for Mixed {
    type Output = ();
    fn run<E: Engine>(self, engine: &E) -> Outcome<()> {
        tpcc::load(engine, &LoadOptions::new(Scale::tiny(2), 7), &|_| ())?;
        assert_sound(engine, When::AfterLoad);
        let mut driver = DriverOptions::new(3, Duration::ZERO);
        driver.length = Length::TransactionsPerClient(200);
        let clients = ClientOptions { mix: Mix::default(), terminals: Terminals::Drawn, seed: 8 };
        let report = tpcc::run(engine, &driver, &clients, &AtomicBool::new(false), &mut |_| ())?;
        assert_eq!(report.commits() + report.user_aborts(), 600);
        assert_sound(engine, When::AfterRun);
        Ok(())
    }
}

#[test]
fn every_engine_keeps_the_conditions() {
    for &peer in Peer::value_variants() {
        with_fresh(peer, Mixed);
    }
}

/// Returns the rows, its own and committed ones, that a transaction sees through scans of many
/// shapes, and through lists of keys.
struct Scans;
impl Job for Scans {
    type Output = Vec<Vec<u8>>;
    fn run<E: Engine>(self, engine: &E) -> Outcome<Vec<Vec<u8>>> {
        const TABLE: TableId = tables::NEW_ORDER;
        let mut session = engine.session()?;
        let mut txn = session.begin(Access::Write)?;
        for order in (0..100).step_by(2) {
            txn.insert(TABLE, &keys::order(1, 1, order), &[0])?;
        }
        // A neighbouring table's rows must not appear.
        txn.insert(tables::ITEM, &keys::item(1), &[0; firndb_workloads::tpcc::rows::item::LEN])?;
        txn.commit(CommitMode::Wait)?.wait()?;

        let mut txn = session.begin(Access::Write)?;
        for order in (0..100).step_by(10) {
            assert!(txn.delete(TABLE, &keys::order(1, 1, order))?);
            assert!(!txn.delete(TABLE, &keys::order(1, 1, order))?);
            txn.put(TABLE, &keys::order(1, 1, order + 1), &[1])?;
        }
        let taken = txn.insert(TABLE, &keys::order(1, 1, 1), &[0]);
        assert_eq!(taken, Err(EngineError::Duplicate(TABLE)));
        let mut seen = Vec::new();
        let bounds: Vec<Vec<u8>> =
            [0, 1, 2, 31, 32, 98, 99, 100].iter().map(|&order| keys::order(1, 1, order).into()).collect();
        for low in [&Vec::new()].into_iter().chain(&bounds) {
            for high in [&Vec::new()].into_iter().chain(&bounds) {
                for (reverse, limit) in
                    [(false, usize::MAX), (true, usize::MAX), (false, 3), (true, 3), (true, 0)]
                {
                    let scan = ScanOf { range: KeyRange { low, high }, reverse, limit };
                    txn.scan(TABLE, scan, &mut |key, row| {
                        seen.push([key, row].concat());
                        Visit::Continue
                    })?;
                    seen.push(b"end".to_vec());
                }
            }
        }
        // Out of order, one twice: committed rows, changed, new, deleted and missing ones.
        let keys = [99, 1, 50, 2, 200, 11, 1].map(|order| keys::order(1, 1, order));
        let keys = keys.each_ref().map(|key| &key[..]);
        for for_update in [false, true] {
            let mut rows = vec![Vec::new(); keys.len()];
            let found = &mut |number: usize, row: Option<&[u8]>| {
                assert!(rows[number].is_empty(), "each key is found once");
                rows[number] = row.map_or(b"none".to_vec(), |row| [b"row", row].concat());
            };
            match for_update {
                false => txn.get_many(TABLE, &keys, found)?,
                true => txn.get_many_for_update(TABLE, &keys, found)?,
            }
            seen.extend(rows);
        }
        txn.rollback()?;

        let mut txn = session.begin(Access::Read)?;
        txn.scan(TABLE, ScanOf::all(), &mut |key, row| {
            seen.push([key, row].concat());
            Visit::Continue
        })?;
        Ok(seen)
    }
}

#[test]
fn every_engine_answers_scans_and_lists_of_keys_as_the_memory_engine_does() {
    let expected = with_fresh(Peer::Memory, Scans);
    assert!(expected.len() > 1000);
    for &peer in Peer::value_variants() {
        assert!(with_fresh(peer, Scans) == expected, "{}: other rows, or in another order", peer.name());
    }
}
