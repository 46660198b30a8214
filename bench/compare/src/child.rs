//! Each run of an engine is a process of its own: its I/O and memory are counted alone, the memory
//! limit applies to it, and it starts without state from another run.
//!
//! The parent writes a [`Task`] to the child's standard input and reads its result from standard
//! output, both as JSON; progress goes to standard error.

use crate::commit::{self, CommitArgs};
use crate::job::Peer;
use crate::memory_limit;
use crate::tpcc::{self, TpccArgs};
use firndb_workloads::{EngineError, Outcome};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

/// The work of a child process.
#[derive(Debug, Serialize, Deserialize)]
pub struct Task {
    /// The engine to run.
    pub peer: Peer,
    /// The control group to join.
    pub group: Option<PathBuf>,
    /// The work to do.
    pub work: Work,
}

/// The kinds of work.
#[derive(Debug, Serialize, Deserialize)]
pub enum Work {
    /// Load TPC-C.
    TpccLoad(TpccArgs),
    /// Run TPC-C: the round, and whether consistency is checked after it.
    TpccRun(TpccArgs, usize, bool),
    /// Commit: the number of clients, the round.
    Commit(CommitArgs, usize, usize),
}

/// `compare child`: reads a task, performs it, writes the result.
pub fn run(stop: &AtomicBool) -> Outcome<()> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(EngineError::fatal)?;
    let task: Task = serde_json::from_str(&text).map_err(EngineError::fatal)?;
    if let Some(group) = &task.group {
        memory_limit::join(group)?;
    }
    let result = match &task.work {
        Work::TpccLoad(args) => tpcc::load(args, task.peer)?,
        Work::TpccRun(args, round, last) => tpcc::run_once(args, task.peer, (*round, *last), stop)?,
        Work::Commit(args, clients, round) => commit::run_once(args, task.peer, (*clients, *round), stop)?,
    };
    writeln!(std::io::stdout(), "{result}").map_err(EngineError::fatal)
}

/// Runs a task in a child process.
pub fn spawn(task: &Task) -> Outcome<Value> {
    let name = task.peer.name();
    let program = std::env::current_exe().map_err(EngineError::fatal)?;
    let mut child = Command::new(program)
        .arg("child")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(EngineError::fatal)?;
    let text = serde_json::to_vec(task).map_err(EngineError::fatal)?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(&text).map_err(EngineError::fatal)?;
    }
    let output = child.wait_with_output().map_err(EngineError::fatal)?;
    if !output.status.success() {
        let limit = if task.group.is_some() { "; it may have met the memory limit" } else { "" };
        return Err(EngineError::Fatal(format!("{name}: the run ended with {}{limit}", output.status)));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| EngineError::Fatal(format!("{name}: {error}")))
}
