//! TPC-C's tables with a whole population in them, or empty: never half of one.

use firndb::{Database, ErrorKind, Isolation};
use firndb_adapter::FirnEngine;
use firndb_console::Failure;
use firndb_workloads::tpcc::{self, Population};

/// Opens TPC-C's tables in `db`. What a load left that was cut off is dropped, so that the next one
/// finds empty tables.
pub fn open(db: Database, isolation: Isolation) -> Result<FirnEngine, Failure> {
    let engine = FirnEngine::new(db, tpcc::schema(), isolation)?;
    if Population::of(&engine)?.is_some() || is_empty(engine.database())? {
        return Ok(engine);
    }
    let db = engine.into_database();
    for table in tpcc::schema().tables {
        match db.drop_table(&table.name) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    Ok(FirnEngine::new(db, tpcc::schema(), isolation)?)
}

fn is_empty(db: &Database) -> Result<bool, Failure> {
    for table in tpcc::schema().tables {
        let table = db.table(&table.name)?;
        let mut tx = db.snapshot();
        let mut rows = tx.scan(&table, firndb::KeyRange::all(), firndb::Direction::Forward);
        if rows.next(&mut tx)?.is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}
