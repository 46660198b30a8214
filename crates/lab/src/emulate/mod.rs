//! `firn lab emulate`: mounts a file system whose files behave as if they lay on another device,
//! and shows what it does.

mod report;

use clap::Args;
use firndb_console::{Failure, progress, say, size};
use firndb_emulate_fs::{EXTENT, EmulateError, Mounted, script, timing_of};
use firndb_profile::DeviceProfile;
use report::Report;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::path::PathBuf;
use std::time::Duration;

/// `firn lab emulate`.
#[derive(Args, Debug)]
pub struct Emulate {
    /// An empty directory
    #[arg(value_name = "MOUNTPOINT")]
    pub mount_point: PathBuf,
    /// The device: a shipped profile's name (see firn profiles), or a profile's file
    #[arg(long, value_name = "NAME|FILE")]
    pub profile: String,
    /// Space on the device; a file takes whole MiB of it
    #[arg(long, default_value = "1G", value_parser = size::parse)]
    pub size: u64,
    /// Where the bytes are kept, and stay; can be mounted again [a temporary directory, removed at
    /// the end]
    #[arg(long, value_name = "DIR")]
    pub backing: Option<PathBuf>,
    /// Every read and write goes to the device, past the kernel's page cache
    #[arg(long)]
    pub direct: bool,
    /// Other users may use the files, too
    #[arg(long)]
    pub allow_other: bool,
    /// What goes wrong, for example "stall 5s at 10s, eio reads 1M..2M of db/wal from 3s, power-cut
    /// at 20s"
    #[arg(long, value_name = "SCRIPT")]
    pub fault: Vec<String>,
    /// As --fault, from a file, with a clause a line
    #[arg(long, value_name = "FILE")]
    pub fault_file: Option<PathBuf>,
    /// Decides what a power cut takes, and which requests are late
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write what happened to this file as JSON, too
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// How often the line of counters is refreshed, and signals are looked for.
const REFRESH: Duration = Duration::from_millis(100);

pub fn run(args: &Emulate) -> Result<(), Failure> {
    let profile = firndb_emulate::profiles::find(&args.profile)
        .map_err(|error| Failure::bad_argument(format!("--profile {}: {error}", args.profile)))?;
    let options = options(args, &profile)?;
    let timing = timing_of(&profile, args.seed)
        .map_err(|error| Failure::bad_argument(format!("--profile {}: {error}", args.profile)))?;
    // Before anything is mounted: a signal in between would leave a mount behind.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGUSR1])
        .map_err(|error| Failure::new(format!("cannot take over signals: {error}")))?;
    let report = Report::begin(args, &profile);
    let mounted = Mounted::mount(&options, timing).map_err(failure)?;
    announce(args, &profile, &mounted);
    watch(&mounted, &mut signals)?;
    let ending = mounted.end().map_err(failure)?;
    report.end(args, &ending)
}

fn options(args: &Emulate, profile: &DeviceProfile) -> Result<firndb_emulate_fs::MountOptions, Failure> {
    if args.size > profile.capacity_bytes {
        return Err(Failure::bad_argument(format!(
            "--size {} is more than a {} holds: {}",
            size::show(args.size),
            profile.name,
            size::show(profile.capacity_bytes)
        )));
    }
    let mut faults = Vec::new();
    for text in &args.fault {
        faults
            .extend(script::parse(text).map_err(|error| Failure::bad_argument(format!("--fault: {error}")))?);
    }
    if let Some(path) = &args.fault_file {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::bad_argument(format!("{}: {error}", path.display())))?;
        let read = script::parse(&text);
        faults.extend(read.map_err(|error| Failure::bad_argument(format!("{}: {error}", path.display())))?);
    }
    let cuts = faults.iter().any(|fault| matches!(fault, script::Fault::PowerCut { .. }));
    if cuts && args.backing.is_none() {
        return Err(Failure::bad_argument(
            "a power cut needs --backing DIR: what it leaves would be removed with the temporary directory",
        ));
    }
    Ok(firndb_emulate_fs::MountOptions {
        mount_point: args.mount_point.clone(),
        backing: args.backing.clone(),
        size: args.size,
        direct: args.direct,
        allow_other: args.allow_other,
        faults,
        seed: args.seed,
        sector: (profile.logical_block as usize).clamp(512, 4096),
    })
}

/// What the caller named wrongly is a bad argument; what the machine refuses is a failure.
fn failure(error: EmulateError) -> Failure {
    match error {
        EmulateError::MountPoint { .. } | EmulateError::Size(_) => Failure::bad_argument(error.to_string()),
        error => Failure::new(error.to_string()),
    }
}

fn announce(args: &Emulate, profile: &DeviceProfile, mounted: &Mounted) {
    say!(
        "{} ({}), {} in extents of {}",
        profile.title,
        profile.name,
        size::show(args.size),
        size::show(EXTENT)
    );
    match &args.backing {
        Some(backing) => say!("bytes are kept in {}", backing.display()),
        None => say!("bytes are kept in a temporary directory, which is removed at the end"),
    }
    say!(
        "mounted on {}; Ctrl-C unmounts, kill -USR1 {} cuts the power",
        mounted.mount_point().display(),
        std::process::id()
    );
}

/// Runs until it is ended: by a signal, by unmounting, or by a power cut.
fn watch(mounted: &Mounted, signals: &mut Signals) -> Result<(), Failure> {
    let line = progress::spinner("");
    let mut stops = 0;
    while !mounted.is_cut() && !mounted.is_unmounted() {
        for signal in signals.pending() {
            if signal == SIGUSR1 {
                mounted.cut_power();
                continue;
            }
            stops += 1;
            if stops == 1 && !mounted.try_unmount().map_err(failure)? {
                line.suspend(|| {
                    eprintln!(
                        "firn: files are still open in {}; it is unmounted when they are closed (Ctrl-C again: now)",
                        mounted.mount_point().display()
                    );
                });
            }
        }
        if stops > 1 || (stops == 1 && mounted.try_unmount().map_err(failure)?) {
            break;
        }
        line.set_message(report::line(&mounted.counts()));
        std::thread::sleep(REFRESH);
    }
    line.finish_and_clear();
    Ok(())
}
