//! `firn log`: the devices of a database's log, shown and changed.

use crate::caches;
use crate::status_args::StatusArgs;
use clap::{Args, Subcommand};
use firndb::{Database, LogArrayStatus, LogMemberState};
use firndb_console::output::write_json;
use firndb_console::{Failure, progress, say, size, table};
use serde_json::json;
use std::path::{Path, PathBuf};

/// What to do with the log's devices.
#[derive(Debug, Subcommand)]
pub enum Log {
    /// Show the log's devices, their capacity and wear, and how many could be lost; changes and
    /// recovers nothing
    Status(StatusArgs),
    /// Add a device: a file that is made, or an empty file or raw device
    Add(Add),
    /// Remove a device; its file is left where it is
    Remove(Remove),
    /// Add a device and remove another
    Replace(Replace),
}

/// `firn log add`.
#[derive(Args, Debug)]
pub struct Add {
    /// The database's directory
    pub dir: PathBuf,
    /// The new device; a relative path counts from the database's directory
    pub path: PathBuf,
}

/// `firn log remove`.
#[derive(Args, Debug)]
pub struct Remove {
    /// The database's directory
    pub dir: PathBuf,
    /// The device's id, as `firn log status` shows it
    #[arg(value_name = "ID")]
    pub member: u32,
}

/// `firn log replace`.
#[derive(Args, Debug)]
pub struct Replace {
    /// The database's directory
    pub dir: PathBuf,
    /// The id of the device to remove, as `firn log status` shows it
    #[arg(value_name = "ID")]
    pub member: u32,
    /// The new device; a relative path counts from the database's directory
    pub path: PathBuf,
}

pub fn run(command: &Log) -> Result<(), Failure> {
    match command {
        Log::Status(args) => status(args),
        Log::Add(args) => change(&args.dir, |db| db.add_log_device(&args.path).map(drop)),
        Log::Remove(args) => change(&args.dir, |db| db.remove_log_device(args.member)),
        Log::Replace(args) => {
            change(&args.dir, |db| db.replace_log_device(args.member, &args.path).map(drop))
        }
    }
}

/// Opens the database, has its log changed, and tells what happened.
fn change(dir: &Path, work: impl FnOnce(&Database) -> Result<(), firndb::Error>) -> Result<(), Failure> {
    let db = caches::options().create(false).on_recovery(progress::recovery()).open(dir)?;
    let outcome = work(&db);
    db.log_events().iter().for_each(|event| say!("{}", event.message));
    let closed = db.close();
    outcome?;
    Ok(closed?)
}

fn status(args: &StatusArgs) -> Result<(), Failure> {
    let status = firndb::log_status(&args.dir)?;
    if let Some(path) = &args.json {
        write_json(path, &as_json(&status))?;
    }
    let mut rows = table::new(&["device", "path", "state", "holds at most", "free", "written in all"]);
    for member in &status.members {
        rows.add_row([
            member.id.to_string(),
            member.path.clone(),
            member.state.name().to_owned(),
            size::show(member.capacity_bytes),
            size::show(member.room_bytes),
            size::show(member.written_bytes),
        ]);
    }
    say!("{}\n", table::text(rows, 3));
    for member in &status.members {
        if let Some(trouble) = &member.trouble {
            say!("device {}: {trouble}", member.id);
        }
    }
    say!("log is needed from LSN {} on", status.needed_from);
    say!("{}", copies(&status));
    Ok(())
}

fn copies(status: &LogArrayStatus) -> String {
    let missing = status.members.iter().filter(|m| m.state == LogMemberState::Missing).count();
    let may_lose = match (status.may_lose, missing) {
        (0, 0) => "no device can be lost".to_owned(),
        (some, 0) => format!("{some} could be lost without losing anything"),
        (some, missing) if missing <= some => {
            format!(
                "{missing} missing, which the copies on the others make up for: open the database without"
            )
        }
        (_, missing) => format!("{missing} missing, which nothing makes up for: bring back what is missing"),
    };
    let copies = match status.redundant_from {
        _ if status.copies == 1 => "one copy of each commit".to_owned(),
        Some(_) if !status.is_degraded() => format!("{} copies of each commit", status.copies),
        Some(from) => format!("{} copies of each commit, of log before LSN {from} fewer", status.copies),
        None => format!("{} copies instead of {} for want of devices", status.copies_now, status.copies),
    };
    format!("{copies}; {may_lose}")
}

fn as_json(status: &LogArrayStatus) -> serde_json::Value {
    let members: Vec<_> = status
        .members
        .iter()
        .map(|member| {
            json!({
                "id": member.id, "path": member.path, "state": member.state.name(),
                "capacity_bytes": member.capacity_bytes, "room_bytes": member.room_bytes,
                "written_bytes": member.written_bytes, "trouble": member.trouble,
            })
        })
        .collect();
    json!({
        "schema": "firn-log-status/1",
        "copies": status.copies, "copies_now": status.copies_now, "may_lose": status.may_lose,
        "needed_from": status.needed_from.0, "redundant_from": status.redundant_from.map(|lsn| lsn.0),
        "degraded": status.is_degraded(), "members": members,
    })
}
