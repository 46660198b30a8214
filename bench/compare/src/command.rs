//! The command line.

use crate::job::{Peer, Settings};
use crate::memory_limit::MemoryLimit;
use crate::process_io::ProcessIo;
use crate::{child, commit, pages, tpcc};
use clap::{Args, Parser, Subcommand, ValueEnum};
use firndb_workloads::{EngineError, LiveRate, Outcome};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Runs one workload on several engines, alternating between them, and shows medians.
#[derive(Debug, Parser)]
#[command(name = "compare", version)]
pub struct Command {
    #[command(subcommand)]
    workload: Workload,
}

#[derive(Debug, Subcommand)]
enum Workload {
    /// TPC-C: loads each engine once, then runs the mix in rounds and checks consistency.
    Tpcc(tpcc::TpccArgs),
    /// Small durable commits, for each number of clients.
    Commit(commit::CommitArgs),
    /// Durable commits of a few random pages by one client: Firn's page files and SQLite.
    Pages(pages::PagesArgs),
    /// One run of one engine.
    #[command(hide = true)]
    Child,
}

/// Arguments of both workloads.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub struct Common {
    /// Engines, in the order of their turns; all that are built in if not given.
    #[arg(long = "engine", value_delimiter = ',')]
    pub engines: Vec<Peer>,
    /// Measured seconds of each run.
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
    /// Runs of each engine; medians over them are shown.
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// DRAM for an engine's cache, in MiB (LMDB has none of its own).
    #[arg(long, default_value_t = 512)]
    pub memory_mib: u64,
    /// Most memory that an engine's process may have in all, page cache included, in MiB (needs
    /// root).
    #[arg(long)]
    pub memory_limit_mib: Option<u64>,
    /// Seed of all inputs.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Directory for the databases, on the device to be measured. They are made anew and removed.
    #[arg(long, default_value = "compare-db")]
    pub dir: PathBuf,
    /// Keep the databases.
    #[arg(long)]
    pub keep: bool,
    /// Also write the results here.
    #[arg(long)]
    pub json: Option<PathBuf>,
}

impl Command {
    /// Runs the command.
    pub fn run(self) -> Outcome<()> {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = stop.clone();
        ctrlc::set_handler(move || asked.store(true, Ordering::Relaxed)).map_err(EngineError::fatal)?;
        match self.workload {
            Workload::Tpcc(args) => tpcc::run(args.resolved(), &stop),
            Workload::Commit(args) => commit::run(&args, &stop),
            Workload::Pages(args) => pages::run(&args, &stop),
            Workload::Child => child::run(&stop),
        }
    }
}

impl Common {
    /// The chosen engines.
    pub fn peers(&self) -> Vec<Peer> {
        match self.engines.as_slice() {
            [] => Peer::value_variants().iter().copied().filter(|peer| peer.by_default()).collect(),
            engines => engines.to_vec(),
        }
    }

    /// The control group that all runs share, if the caller set a limit.
    pub fn limit(&self) -> Outcome<Option<MemoryLimit>> {
        self.memory_limit_mib.map(|mebibytes| MemoryLimit::new(mebibytes << 20)).transpose()
    }

    /// Measured time of a run.
    pub fn time(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    /// An empty directory for one engine. Refuses a directory that this program did not make.
    pub fn fresh(&self, peer: Peer, sessions: usize) -> Outcome<Settings> {
        self.fresh_for(peer.name())?;
        Ok(self.settings(peer, sessions))
    }

    /// As [`Common::fresh`]: the directory, for whatever has this name.
    pub fn fresh_for(&self, name: &str) -> Outcome<PathBuf> {
        let dir = self.dir.join(name);
        self.remove(&dir)?;
        let made = std::fs::create_dir_all(&dir).and_then(|()| std::fs::write(dir.join(MARK), []));
        made.map_err(|error| EngineError::Fatal(format!("{}: {error}", dir.display())))?;
        Ok(dir)
    }

    /// The settings of an engine; its directory exists.
    pub fn settings(&self, peer: Peer, sessions: usize) -> Settings {
        Settings { dir: self.dir.join(peer.name()), cache_bytes: self.memory_mib << 20, sessions }
    }

    /// Removes the databases of the runs, unless `keep` is set.
    pub fn clean_up(&self, peers: &[Peer]) -> Outcome<()> {
        self.clean_up_named(&peers.iter().map(|peer| peer.name()).collect::<Vec<_>>())
    }

    /// As [`Common::clean_up`], of whatever has these names.
    pub fn clean_up_named(&self, names: &[&str]) -> Outcome<()> {
        if !self.keep {
            for name in names {
                self.remove(&self.dir.join(name))?;
            }
            // Fails if other files are there, which must stay.
            let _ = std::fs::remove_dir(&self.dir);
        }
        Ok(())
    }

    fn remove(&self, dir: &Path) -> Outcome<()> {
        if !dir.exists() {
            return Ok(());
        }
        if !dir.join(MARK).exists() {
            return Err(EngineError::Fatal(format!(
                "{} is there and was not made by this program: choose another --dir",
                dir.display()
            )));
        }
        std::fs::remove_dir_all(dir).map_err(EngineError::fatal)
    }
}

/// A file that marks a directory as made by this program.
const MARK: &str = "made-by-compare";

/// How closely the I/O counters' start follows the end of the warm-up.
pub const LOOK: Duration = Duration::from_millis(20);

/// Shows the progress of a run, and stores in `base` the I/O of the process when counting began.
pub fn show_progress(name: &str, base: &mut Option<ProcessIo>) -> impl FnMut(LiveRate) {
    let mut shown = Duration::ZERO;
    let mut shown_commits = 0;
    move |live| {
        if live.warming_up {
            *base = ProcessIo::now();
        }
        let since = live.elapsed - shown;
        if since < Duration::from_secs(1) || !std::io::stderr().is_terminal() {
            return;
        }
        let phase = if live.warming_up { "warming up" } else { "measuring" };
        eprint!(
            "\r{name:<10} {phase:<10} {:>5.0} s {:>10.0} commits/s, {} retries   ",
            live.elapsed.as_secs_f64(),
            (live.commits - shown_commits) as f64 / since.as_secs_f64(),
            live.retries
        );
        let _ = std::io::stderr().flush();
        (shown, shown_commits) = (live.elapsed, live.commits);
    }
}

/// Ends the line of a run's progress.
pub fn end_progress() {
    if std::io::stderr().is_terminal() {
        eprintln!();
    }
}

/// The commit of the source, where git knows it.
pub fn source_commit() -> String {
    let git = std::process::Command::new("git")
        .args(["-C", env!("CARGO_MANIFEST_DIR"), "rev-parse", "HEAD"])
        .stderr(Stdio::null())
        .output();
    match git {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        _ => "unknown".to_owned(),
    }
}

/// The median of `values`, the lower of the two in the middle if their number is even.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}

/// Settings of an engine as JSON.
pub fn settings_json(settings: Vec<(String, String)>) -> Value {
    settings.into_iter().map(|(name, value)| (name, json!(value))).collect()
}

/// Writes results to a file, if one was named.
pub fn write_json(path: Option<&Path>, results: &impl serde::Serialize) -> Outcome<()> {
    let Some(path) = path else { return Ok(()) };
    let text = serde_json::to_string_pretty(results).map_err(EngineError::fatal)?;
    std::fs::write(path, text + "\n")
        .map_err(|error| EngineError::Fatal(format!("{}: {error}", path.display())))
}
