//! Firn: its defaults, through the adapter that `firn tpcc` uses as well.

use crate::job::{Job, Settings};
use firndb::{Isolation, Options};
use firndb_adapter::FirnEngine;
use firndb_workloads::{EngineError, Outcome, Schema};

/// Opens the database in `settings.dir` and runs a job on it.
pub fn with<J: Job>(settings: &Settings, schema: &Schema, job: J) -> Outcome<J::Output> {
    let buffer = usize::try_from(settings.cache_bytes).unwrap_or(usize::MAX);
    let db = Options::new().buffer_bytes(buffer).open(settings.dir.join("db")).map_err(EngineError::fatal)?;
    let engine = FirnEngine::new(db, schema.clone(), Isolation::Snapshot).map_err(EngineError::fatal)?;
    let output = job.run(&engine);
    let closed = engine.into_database().close().map_err(EngineError::fatal);
    let output = output?;
    closed.map(|()| output)
}
