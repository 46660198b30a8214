//! `firn characterize`: measures a device and writes what it is like.

use crate::characterize_compare;
use crate::characterize_pictures;
use crate::characterize_report;
use clap::Args;
use firndb_characterize::{
    Cell, Consent, Effort, Error, Head, Measurements, Plan, Stop, Target, TargetOptions, measure,
};
use firndb_console::{Failure, interrupt, output, progress, say, size};
use firndb_profile::DeviceProfile;
use firndb_workloads::wall;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// `firn characterize`.
#[derive(Args, Debug)]
pub struct CharacterizeArgs {
    /// A directory on the file system to measure, or a block device; a file is left as it is, its
    /// directory measured
    #[arg(required_unless_present = "compare")]
    pub path: Option<PathBuf>,
    /// Measure for under 30 seconds instead of about six minutes
    #[arg(long)]
    pub quick: bool,
    /// Where the profile is written [NAME.toml]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// The profile's name: lower-case letters, digits, dots and hyphens
    #[arg(long, default_value = "measured")]
    pub name: String,
    /// Bytes to work in, for example 4G [1G, or half of the free space]
    #[arg(long, value_parser = size::parse)]
    pub area: Option<u64>,
    /// Draw throughput over size and the distribution of latencies into this directory, as SVG
    #[arg(long, value_name = "DIR")]
    pub pictures: Option<PathBuf>,
    /// Write the results to this file as JSON, too
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Overwrite the block device or file itself; to be said together with --i-am-sure
    #[arg(long, requires = "i_am_sure")]
    pub destroy_contents: bool,
    /// The same path again
    #[arg(long, value_name = "PATH", requires = "destroy_contents")]
    pub i_am_sure: Option<PathBuf>,
    /// Make the file PATH, which must not exist, work in it, and leave it there
    #[arg(long, conflicts_with = "destroy_contents")]
    pub keep: bool,
    /// Equal seeds choose equal places
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Measure only this, as a result's description has it ("read random 4096 B, 16 in flight");
    /// writes no profile
    #[arg(long, value_name = "WHAT", conflicts_with_all = ["out", "pictures"])]
    pub only: Option<String>,
    /// With --only: for so long
    #[arg(long, default_value_t = 2.0, requires = "only")]
    pub seconds: f64,
    /// Measure nothing; show two profiles side by side: files, or names that `firn profiles` lists
    #[arg(long, num_args = 2, value_names = ["A", "B"],
          conflicts_with_all = ["path", "quick", "out", "area", "pictures", "json", "only", "destroy_contents", "keep"])]
    pub compare: Option<Vec<String>>,
}

fn failure(error: Error) -> Failure {
    match error {
        Error::BadArgument(message) => Failure::bad_argument(message),
        Error::Interrupted => Failure::interrupted(error.to_string()),
        _ => Failure::new(error.to_string()),
    }
}

pub fn run(args: &CharacterizeArgs) -> Result<(), Failure> {
    if let Some([first, second]) = args.compare.as_deref() {
        return characterize_compare::run(first, second);
    }
    let Some(path) = &args.path else {
        return Err(Failure::bad_argument("name a directory, a file or a block device"));
    };
    let out = args.out.clone().unwrap_or_else(|| PathBuf::from(format!("{}.toml", args.name)));
    check_before(args, path, &out)?;
    let stopped = interrupt::install()?;
    let stop: Stop = Arc::new(move || stopped.load(Ordering::SeqCst));
    let started = wall::iso8601(wall::now_us());

    let mut plan = Plan::new(if args.quick { Effort::Quick } else { Effort::Full });
    plan.seed = args.seed;
    if let Some(only) = &args.only {
        plan = narrowed(plan, only, args.seconds)?;
    }
    let target = prepare(args, path, &plan, &stop)?;
    let measured = measure_with_bar(&target, &plan, &stop)?;
    if args.only.is_some() {
        return report_only(args, &measured);
    }
    let head = Head::of(path, &target, plan.effort, &args.name, &started);
    drop(target);

    let profile = firndb_characterize::profile(&measured, head).map_err(failure)?;
    profile.save(&out).map_err(|error| Failure::new(error.to_string()))?;
    characterize_report::print(&profile, &measured);
    if let Some(dir) = &args.pictures {
        for picture in characterize_pictures::draw(dir, &profile, &measured)? {
            say!("picture: {}", picture.display());
        }
    }
    if let Some(json) = &args.json {
        output::write_json(json, &characterize_report::json(args, &profile, &measured, &started))?;
    }
    say!("profile: {}", out.display());
    Ok(())
}

/// The plan's cell of this description alone, in one round.
fn narrowed(mut plan: Plan, only: &str, seconds: f64) -> Result<Plan, Failure> {
    if !(seconds > 0.0 && seconds < 1e6) {
        return Err(Failure::bad_argument("--seconds must be a positive number below a million"));
    }
    let Some(cell) = plan.cells.iter().copied().find(|cell| cell.to_string() == only) else {
        let mut known: Vec<String> = plan.cells.iter().map(|cell| format!("  {cell}")).collect();
        known.dedup();
        return Err(Failure::bad_argument(format!("--only {only:?}: the plan has\n{}", known.join("\n"))));
    };
    plan.cells = vec![Cell { budget: Duration::from_secs_f64(seconds), ..cell }];
    plan.rounds = 1;
    plan.deadline = Duration::MAX;
    Ok(plan)
}

fn report_only(args: &CharacterizeArgs, measured: &Measurements) -> Result<(), Failure> {
    let [one] = &measured.cells[..] else {
        return Err(Failure::new(
            "this device cannot do that: its blocks are larger, or the area is too small",
        ));
    };
    let latency = &one.tally.latency;
    say!(
        "{}: {:.0} a second, {:.1} MB/s, mean {:.1} us, p50 {:.1} us, p99 {:.1} us",
        one.cell,
        one.requests_per_second(),
        one.mb_per_second(),
        latency.mean_us(),
        latency.quantile_us(0.5),
        latency.quantile_us(0.99)
    );
    match &args.json {
        Some(json) => output::write_json(json, &characterize_report::row(one)),
        None => Ok(()),
    }
}

/// What would be sad to learn after six minutes.
fn check_before(args: &CharacterizeArgs, path: &Path, out: &Path) -> Result<(), Failure> {
    let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    if args.name.is_empty() || !args.name.chars().all(letters) {
        return Err(Failure::bad_argument(format!(
            "--name {:?}: use lower-case letters, digits, dots and hyphens",
            args.name
        )));
    }
    if args.i_am_sure.as_deref().is_some_and(|sure| sure != path) {
        return Err(Failure::bad_argument(format!("--i-am-sure does not name {}", path.display())));
    }
    for file in [Some(out), args.json.as_deref()].into_iter().flatten() {
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !parent.is_dir() {
            return Err(Failure::bad_argument(format!("{}: there is no such directory", parent.display())));
        }
        if file.is_dir() {
            return Err(Failure::bad_argument(format!("{}: is a directory; name a file", file.display())));
        }
    }
    if args.only.is_none() && out.exists() && DeviceProfile::load(out).is_err() {
        return Err(Failure::bad_argument(format!(
            "{}: exists and is no profile; name another file with --out",
            out.display()
        )));
    }
    if let Some(dir) = &args.pictures {
        std::fs::create_dir_all(dir).map_err(|error| Failure::new(format!("{}: {error}", dir.display())))?;
    }
    Ok(())
}

fn prepare(args: &CharacterizeArgs, path: &Path, plan: &Plan, stop: &Stop) -> Result<Target, Failure> {
    let consent = Consent { destroy_contents: args.destroy_contents, i_am_sure: args.i_am_sure.clone() };
    let options = TargetOptions { area: args.area, prepare: plan.prepare, consent, keep: args.keep };
    let bar = progress::bar("writing the area", 0);
    let mut progress = |written: u64, wanted: u64| {
        bar.set_length(wanted);
        bar.set_position(written);
        bar.set_message(size::show(written));
    };
    let target = Target::open(path, &options, &mut progress, stop);
    bar.finish_and_clear();
    let target = target.map_err(failure)?;
    for note in target.notes() {
        eprintln!("firn: note: {note}");
    }
    Ok(target)
}

/// The bar's remaining time is the sum of the budgets that are left.
fn measure_with_bar(target: &Target, plan: &Plan, stop: &Stop) -> Result<Measurements, Failure> {
    let bar = progress::bar("measuring", 0);
    let mut progress = |step: firndb_characterize::Step| {
        bar.set_length(step.total.as_millis() as u64);
        bar.set_position(step.done.as_millis() as u64);
        let left = step.total.saturating_sub(step.done);
        bar.set_message(format!("{} ({} s planned)", step.what, left.as_secs()));
    };
    let measured = measure(target, plan, &mut progress, stop);
    bar.finish_and_clear();
    measured.map_err(failure)
}
