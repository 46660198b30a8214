//! Firn: its defaults, or deltas off or on, through the adapter that `firn tpcc` uses as well.

use crate::job::{Job, Settings};
use firndb::{Deltas, Isolation, Options};
use firndb_adapter::FirnEngine;
use firndb_workloads::{EngineError, Outcome, Schema};

/// Opens the database in `settings.dir` and runs a job on it.
pub fn with<J: Job>(
    settings: &Settings,
    deltas: Option<Deltas>,
    schema: &Schema,
    job: J,
) -> Outcome<J::Output> {
    let buffer = usize::try_from(settings.cache_bytes).unwrap_or(usize::MAX);
    let mut options = Options::new().buffer_bytes(buffer);
    if let Some(deltas) = deltas {
        options = options.tuning(|tuning| tuning.deltas(deltas));
    }
    let db = options.open(settings.dir.join("db")).map_err(EngineError::fatal)?;
    let engine = FirnEngine::new(db, schema.clone(), Isolation::Snapshot).map_err(EngineError::fatal)?;
    let output = job.run(&engine);
    let closed = engine.into_database().close().map_err(EngineError::fatal);
    let output = output?;
    closed.map(|()| output)
}
