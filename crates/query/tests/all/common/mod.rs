//! What the tests share: a catalog over a log and a tier in memory, and random tables in it.

use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_base::{TreeId, TxnId};
use firndb_btree::Tree;
use firndb_buffer::{BufferPool, PoolOptions};
use firndb_log::LogClass;
use firndb_query::{Plan, Query, QueryError, QueryOptions, SpillSpace};
use firndb_table::*;
use firndb_tier::testing::MemoryTier;
use firndb_txn::{Isolation, ManagerOptions, Transaction, TxnManager, TxnOptions};

pub struct World {
    pub manager: Arc<TxnManager>,
    pub catalog: Catalog,
}

impl World {
    pub fn new(page_size: usize) -> World {
        let log = firndb_log::testing::memory_log_with(256 << 20);
        let tier = Arc::new(MemoryTier::new(page_size));
        let pool = BufferPool::new(tier, log, PoolOptions { budget_bytes: 4 << 20 }).expect("a pool");
        let pool = Arc::new(pool);
        let create = |id| Tree::create(pool.clone(), id, LogClass::System, &[]).expect("a tree");
        let (system, undo) = (create(SYSTEM_TREE), create(TreeId(2)));
        let options = ManagerOptions::default();
        let manager = TxnManager::new(pool.clone(), undo, TxnId(1), TreeId(3), options);
        let catalog = Catalog::open(manager.clone(), system).expect("an empty catalog");
        World { manager, catalog }
    }

    pub fn begin(&self) -> Transaction {
        self.manager.begin(TxnOptions::default())
    }
    pub fn begin_at(&self, isolation: Isolation) -> Transaction {
        self.manager.begin(TxnOptions { isolation, ..TxnOptions::default() })
    }
}

/// A table, and its rows in the order of their primary keys.
#[derive(Clone)]
pub struct Filled {
    pub table: Table,
    pub schema: Schema,
    pub rows: Vec<Vec<Value>>,
}

pub fn borrowed(row: &[Value]) -> Vec<ValueRef<'_>> {
    row.iter().map(Value::as_ref).collect()
}

/// A value of a small domain, so that many are equal.
pub fn random_value(rng: &mut Rng, column_type: ColumnType, nullable: bool) -> Value {
    if nullable && rng.one_in(6) {
        return Value::Null;
    }
    let number = rng.below(30) as i64 - 5;
    match column_type {
        ColumnType::Bool => (number > 10).into(),
        ColumnType::I32 => (number as i32).into(),
        ColumnType::I64 => number.into(),
        ColumnType::U64 => (number.unsigned_abs()).into(),
        ColumnType::F64 => (number as f64 / 2.0).into(),
        ColumnType::Timestamp => Value::Timestamp(number),
        ColumnType::Text => ["", "a", "ab", "b\0", "é", "z"][rng.below(6) as usize].into(),
        _ => Value::Bytes(vec![number as u8; rng.below(3) as usize]),
    }
}

/// A table of up to `rows` rows: id i64, k i64 NULL, s text NULL, then some columns of random
/// types and one of bytes, up to `longest`. Primary key: id, or k2 and id, some descending.
/// Indexes: `by_k` (k, perhaps s), `by_s` (s), and the unique `by_last` of the last column and id.
pub fn random_table(rng: &mut Rng, world: &World, name: &str, rows: u64, longest: u64) -> Filled {
    let mut columns = vec![
        Column::new("id", ColumnType::I64),
        Column::new("k", ColumnType::I64).nullable(),
        Column::new("s", ColumnType::Text).nullable(),
        Column::new("k2", ColumnType::I64),
    ];
    for at in 0..rng.below(3) {
        columns.push(Column::new(format!("c{at}"), ColumnType::ALL[rng.below(8) as usize]).nullable());
    }
    columns.push(Column::new("pad", ColumnType::Bytes));
    let part = |rng: &mut Rng, column| KeyColumn { column, descending: rng.one_in(3) };
    let key = if rng.one_in(2) { vec![part(rng, 0)] } else { vec![part(rng, 3), part(rng, 0)] };
    let last = columns.len() - 2;
    let mut by_k = vec![KeyColumn::ascending(1)];
    if rng.one_in(2) {
        by_k.push(part(rng, 2));
    }
    let indexes = vec![
        IndexSpec::columns("by_k", false, by_k),
        IndexSpec::columns("by_s", false, vec![part(rng, 2)]),
        IndexSpec::columns("by_last", true, vec![part(rng, last), part(rng, 0)]),
    ];
    let schema = Schema::new(columns, key).expect("a schema");
    let table = world.catalog.create_table(name, TableKind::Typed(schema.clone()), indexes).expect("a table");
    let mut by_key = std::collections::BTreeMap::new();
    let typed = table.typed().expect("typed");
    let mut txn = world.begin();
    for id in 0..rows {
        let mut row: Vec<Value> =
            schema.columns().iter().map(|c| random_value(rng, c.column_type, c.nullable)).collect();
        row[0] = (id as i64 * 3 % 101 - 50 + (id as i64 / 101) * 101).into();
        let len = if rng.one_in(20) { longest } else { longest / 20 };
        *row.last_mut().expect("a column") = Value::Bytes(vec![id as u8; rng.below(len + 1) as usize]);
        typed.insert(&mut txn, &borrowed(&row)).expect("an insert");
        let mut key = Vec::new();
        let key_values: Vec<ValueRef<'_>> =
            schema.key().iter().map(|part| row[part.column].as_ref()).collect();
        schema.encode_key(&key_values, &mut key).expect("a key");
        by_key.insert(key, row);
    }
    txn.commit().expect("a commit");
    Filled { table, schema, rows: by_key.into_values().collect() }
}

/// All rows of a plan.
pub fn run(
    plan: &Plan,
    options: &QueryOptions,
    txn: &mut Transaction,
) -> Result<Vec<Vec<Value>>, QueryError> {
    rest(&mut Query::new(plan, options)?, txn)
}

/// All rows that a query has left.
pub fn rest(query: &mut Query, txn: &mut Transaction) -> Result<Vec<Vec<Value>>, QueryError> {
    let mut rows = Vec::new();
    while let Some(batch) = query.next(txn)? {
        assert!(!batch.is_empty());
        for row in batch.rows() {
            rows.push(
                (0..row.len()).map(|at| Ok(row.get(at)?.to_value())).collect::<Result<_, QueryError>>()?,
            );
        }
    }
    assert!(query.next(txn)?.is_none(), "the end stays the end");
    Ok(rows)
}

/// Space in memory.
pub fn spill(bytes: u64) -> Arc<SpillSpace> {
    SpillSpace::open(Arc::new(firndb_device::MemoryDevice::new("spill")), bytes).unwrap()
}
