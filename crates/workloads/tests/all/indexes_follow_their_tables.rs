//! Secondary indexes kept by `Indexed`, against a model, over random changes and rollbacks.

use firndb_workloads::{
    Access, CommitMode, Engine, EngineError, IndexId, IndexSpec, KeyRange, MemoryEngine, Part, Random, Scan,
    Schema, Session, TableId, TableSpec, Transaction, Visit,
};
use std::collections::BTreeMap;

const TABLE: TableId = TableId(0);
const BY_COLOUR: IndexId = IndexId(0);
const BY_NAME: IndexId = IndexId(1);

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Rows of a colour (1 byte, few values) and a name (2 bytes, unique).
fn schema() -> Schema {
    let by_colour = IndexSpec { name: "by_colour".into(), unique: false, parts: vec![Part::Value(0..1)] };
    let by_name =
        IndexSpec { name: "by_name".into(), unique: true, parts: vec![Part::Value(1..3), Part::Key(0..1)] };
    let table =
        TableSpec { name: "things".into(), key_len: 2, row_len: 3, indexes: vec![by_colour, by_name] };
    Schema { tables: vec![table] }
}

fn index_keys<T: Transaction>(txn: &mut T, index: IndexId, scan: Scan<'_>) -> Vec<Vec<u8>> {
    let spec = &schema().tables[0].indexes[index.0];
    let (mut keys, mut index_key) = (Vec::new(), Vec::new());
    txn.scan_index(TABLE, index, scan, &mut |key, row| {
        spec.key_of(key, row, &mut index_key);
        keys.push(index_key.clone());
        Visit::Continue
    })
    .unwrap();
    keys
}

fn expected(model: &Model, index: IndexId, range: KeyRange<'_>) -> Vec<Vec<u8>> {
    let spec = &schema().tables[0].indexes[index.0];
    let keys = model.iter().map(|(key, row)| {
        let mut index_key = Vec::new();
        spec.key_of(key, row, &mut index_key);
        index_key
    });
    let mut keys: Vec<_> = keys.filter(|key| range.contains(key)).collect();
    keys.sort();
    keys
}

fn compare<T: Transaction>(txn: &mut T, model: &Model, random: &mut Random) {
    for index in [BY_COLOUR, BY_NAME] {
        let (low, high) = (random.number(0, 255) as u8, random.number(0, 255) as u8);
        for range in [KeyRange::ALL, KeyRange { low: &[low], high: &[high] }] {
            let limit = random.number(0, 200) as usize;
            let scan = Scan { range, reverse: false, limit };
            let mut keys = expected(model, index, range);
            assert_eq!(index_keys(txn, index, scan), keys[..limit.min(keys.len())]);
            keys.reverse();
            assert_eq!(index_keys(txn, index, scan.reversed()), keys[..limit.min(keys.len())]);
        }
    }
}

/// One random operation on both; the engine must return what the model does.
fn step<T: Transaction>(txn: &mut T, model: &mut Model, random: &mut Random) {
    let mut key = [0; 2];
    key[1] = random.number(0, 199) as u8;
    let mut row = vec![0; 3];
    random.fill(&mut row);
    row[0] %= 4;
    let taken =
        |model: &Model| model.iter().any(|(other, there)| other.as_slice() != key && there[1..] == row[1..]);
    match random.number(0, 3) {
        0 | 1 if taken(model) => (),
        0 => match txn.insert(TABLE, &key, &row) {
            Ok(()) => assert!(model.insert(key.into(), row).is_none()),
            Err(error) => {
                assert_eq!(error, EngineError::Duplicate(TABLE));
                assert!(model.contains_key(key.as_slice()));
            }
        },
        1 => {
            txn.put(TABLE, &key, &row).unwrap();
            model.insert(key.into(), row);
        }
        2 => assert_eq!(txn.delete(TABLE, &key).unwrap(), model.remove(key.as_slice()).is_some()),
        _ => {
            let found = txn.get(TABLE, &key, &mut row).unwrap();
            assert_eq!(found.then_some(&row), model.get(key.as_slice()));
        }
    }
}

#[test]
fn index_scans_answer_as_a_model_does_after_commits_and_rollbacks() {
    let engine = MemoryEngine::new(&schema());
    let mut session = engine.session().unwrap();
    let mut random = Random::new(42);
    let mut model = Model::new();
    for _ in 0..300 {
        let mut txn = session.begin(Access::Write).unwrap();
        let mut changed = model.clone();
        for _ in 0..random.number(1, 30) {
            step(&mut txn, &mut changed, &mut random);
        }
        compare(&mut txn, &changed, &mut random);
        match random.number(0, 2) {
            0 => txn.rollback().unwrap(),
            1 => drop(txn),
            _ => {
                txn.commit(CommitMode::Wait).unwrap().wait().unwrap();
                model = changed;
            }
        }
    }
    assert!(model.len() > 40, "the model must be large enough for scans of several batches");
}

#[test]
fn a_second_row_under_a_unique_index_key_is_refused() {
    let engine = MemoryEngine::new(&schema());
    let mut session = engine.session().unwrap();
    let mut txn = session.begin(Access::Write).unwrap();
    txn.insert(TABLE, &[0, 1], &[0, 7, 7]).unwrap();
    assert_eq!(txn.insert(TABLE, &[0, 2], &[0, 7, 7]), Err(EngineError::Duplicate(TABLE)));
    drop(txn);
    let mut txn = session.begin(Access::Read).unwrap();
    assert_eq!(index_keys(&mut txn, BY_NAME, Scan::all()), Vec::<Vec<u8>>::new());
}
