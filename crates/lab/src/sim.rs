//! `firn lab sim`: whole databases under faults and power cuts, from a seed.

use clap::Args;
use firndb_console::output::write_json;
use firndb_console::{Failure, interrupt, progress, say};
use firndb_sim::swarm::{SwarmReport, swarm};
use firndb_sim::{Scenario, Verdict};
use serde_json::json;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// `firn lab sim`.
#[derive(Args, Debug)]
pub struct Sim {
    /// Run this seed, and tell what happens
    #[arg(long, value_name = "N", conflicts_with_all = ["seeds", "minutes"])]
    pub seed: Option<u64>,
    /// Run these seeds, for example 0..1000; with 1000.. from there on, until Ctrl-C or --minutes
    /// end it
    #[arg(long, value_name = "A..[B]", value_parser = parse_range)]
    pub seeds: Option<(u64, u64)>,
    /// Stop after this number of minutes [without --seeds: 1]
    #[arg(long, value_name = "M")]
    pub minutes: Option<f64>,
    /// Simulations at the same time [one a processor]
    #[arg(long, value_name = "N")]
    pub workers: Option<usize>,
    /// Break the write-ahead rule, and stop at the first seed that notices; the exit status is 1 if
    /// none does
    #[arg(long)]
    pub canary: bool,
    /// Run this number of hours of virtual time a seed, over the smallest flash caches
    #[arg(long, value_name = "H", conflicts_with = "canary", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub hours: Option<u64>,
    /// The smallest of logs, which go round and round for hours of virtual time
    #[arg(long, conflicts_with = "canary")]
    pub going_round: bool,
    /// A backup taken while clients work, and states since restored from it and the archive
    #[arg(long, conflicts_with = "canary")]
    pub restoring: bool,
    /// Go on after a failure
    #[arg(long)]
    pub keep_going: bool,
    /// Write the results to this file as JSON, too
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

fn parse_range(text: &str) -> Result<(u64, u64), String> {
    let shape =
        || format!("{text:?} is no range of seeds; write it as 0..1000, or 1000.. for one without end");
    let (low, high) = text.split_once("..").ok_or_else(shape)?;
    let low = low.parse().map_err(|_| shape())?;
    let high = if high.is_empty() { u64::MAX } else { high.parse().map_err(|_| shape())? };
    if low >= high {
        return Err(format!("{text:?} holds no seed"));
    }
    Ok((low, high))
}

impl Sim {
    fn scenario(&self, seed: u64) -> Scenario {
        let scenario = match self.hours {
            Some(hours) => Scenario::of_hours(seed, hours),
            None if self.canary => Scenario::new(seed).with_canary(),
            None => Scenario::new(seed),
        };
        let scenario = if self.restoring { scenario.restoring() } else { scenario };
        if self.going_round { scenario.going_round() } else { scenario }
    }

    fn replay(&self, seed: u64) -> String {
        let hours = self.hours.map_or(String::new(), |hours| format!(" --hours {hours}"));
        let flags = [
            (self.canary, " --canary"),
            (self.restoring, " --restoring"),
            (self.going_round, " --going-round"),
        ];
        let flags: String = flags.into_iter().filter(|(on, _)| *on).map(|(_, flag)| flag).collect();
        format!("firn lab sim --seed {seed}{flags}{hours}")
    }
}

pub fn run(args: &Sim) -> Result<(), Failure> {
    match args.seed {
        Some(seed) => one(args, seed),
        None => many(args),
    }
}

fn one(args: &Sim, seed: u64) -> Result<(), Failure> {
    let scenario = args.scenario(seed);
    say!("seed {seed}: {scenario}");
    let verdict = firndb_sim::run(&scenario);
    verdict.narrative.iter().for_each(|line| say!("{line}"));
    let summary = &verdict.summary;
    say!(
        "\n{} commits, {} rolled back, {} of unknown fate ({} of them there); {} openings, {} power cuts, {} faults, {} \
         states restored\n{:.3} s of virtual time, {:.1} times round the log, {} steps, trace {:016x}",
        summary.committed,
        summary.aborted,
        summary.unknown[0] + summary.unknown[1],
        summary.unknown[1],
        summary.recoveries,
        summary.cuts,
        summary.faults,
        summary.restored,
        summary.time.as_secs_f64(),
        summary.laps,
        summary.steps,
        summary.trace
    );
    if let Some(path) = &args.json {
        write_json(
            path,
            &json!({"seed": seed, "trace": format!("{:016x}", summary.trace), "wrong": verdict.wrong}),
        )?;
    }
    if verdict.wrong.is_empty() {
        say!("nothing is wrong");
        return Ok(());
    }
    Err(Failure::new(format!("seed {seed} found something:\n  {}", verdict.wrong.join("\n  "))))
}

fn many(args: &Sim) -> Result<(), Failure> {
    let stop = interrupt::install()?;
    let (low, high) = args.seeds.unwrap_or((0, u64::MAX));
    let minutes = args.minutes.or(args.seeds.is_none().then_some(1.0));
    let limit = match minutes {
        Some(minutes) if !(minutes.is_finite() && minutes > 0.0) => {
            return Err(Failure::bad_argument("--minutes must be above zero"));
        }
        Some(minutes) => Some(Duration::from_secs_f64(minutes * 60.0)),
        None => None,
    };
    let workers = args.workers.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let total = limit.map_or(high - low, |limit| limit.as_millis() as u64);
    let bar = match (limit, high) {
        (None, u64::MAX) => progress::spinner("simulating"),
        _ => progress::bar("simulating", total),
    };
    let (began, done) = (Instant::now(), AtomicU64::new(0));
    let after = |seed: u64, verdict: &Verdict| {
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        bar.set_position(limit.map_or(done, |_| began.elapsed().as_millis() as u64).min(total));
        bar.set_message(format!("{done} seeds"));
        if !verdict.wrong.is_empty() {
            bar.suspend(|| {
                eprintln!("seed {seed}: {}\n  again: {}", verdict.wrong.join("; "), args.replay(seed))
            });
        }
        !stop.load(Ordering::SeqCst) && (args.keep_going || verdict.wrong.is_empty())
    };
    let report = swarm(low..high, limit, workers, |seed| args.scenario(seed), after);
    bar.finish_and_clear();
    tell(&report, began.elapsed());
    if let Some(path) = &args.json {
        let failures: Vec<_> =
            report.failures.iter().map(|(seed, wrong)| json!({"seed": seed, "wrong": wrong})).collect();
        write_json(
            path,
            &json!({
                "schema": "firn-sim/1", "seeds": report.seeds, "seconds": began.elapsed().as_secs_f64(),
                "virtual_seconds": report.total.time.as_secs_f64(), "commits": report.total.committed,
                "restored": report.total.restored, "laps": report.total.laps, "power_cuts": report.total.cuts,
                "faults": report.total.faults, "pages_compared": report.total.pages_compared, "failures": failures,
            }),
        )?;
    }
    conclude(args, &report)?;
    match stop.load(Ordering::SeqCst) {
        true => Err(Failure::interrupted(format!("stopped after {} seeds", report.seeds))),
        false => Ok(()),
    }
}

fn tell(report: &SwarmReport, took: Duration) {
    let total = &report.total;
    say!(
        "{} seeds in {:.1} s ({:.1} a second): {} commits, {} rolled back, {} of unknown fate; {} openings, {} power \
         cuts, {} faults, {} damaged and said so; {} pages got lower numbers, {} were compared with what had been \
         written, {} layouts chosen, {} tables analyzed, {} states restored; {:.1} s of virtual time, {:.0} times round the log, {:.1} million steps",
        report.seeds,
        took.as_secs_f64(),
        report.seeds as f64 / took.as_secs_f64(),
        total.committed,
        total.aborted,
        total.unknown[0] + total.unknown[1],
        total.recoveries,
        total.cuts,
        total.faults,
        report.damaged,
        total.renumbered,
        total.pages_compared,
        total.laid_out,
        total.analyzed,
        total.restored,
        total.time.as_secs_f64(),
        total.laps,
        total.steps as f64 / 1e6
    );
}

fn conclude(args: &Sim, report: &SwarmReport) -> Result<(), Failure> {
    match (report.failures.first(), args.canary) {
        (None, false) => {
            say!("nothing is wrong");
            Ok(())
        }
        (None, true) => Err(Failure::new("no seed noticed that the write-ahead rule was broken")),
        (Some((seed, _)), true) => {
            say!("seed {seed} noticed; {} seeds were run. See it: {}", report.seeds, args.replay(*seed));
            Ok(())
        }
        (Some((seed, wrong)), false) => Err(Failure::new(format!(
            "{} of {} seeds found something; the first is {seed}:\n  {}\nSee it: {}",
            report.failures.len(),
            report.seeds,
            wrong.join("\n  "),
            args.replay(*seed)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_range;

    #[test]
    fn ranges_of_seeds() {
        assert_eq!(parse_range("0..10"), Ok((0, 10)));
        assert_eq!(parse_range("10.."), Ok((10, u64::MAX)));
        assert!(parse_range("..10").is_err());
        assert!(parse_range("10").is_err());
        assert!(parse_range("10..10").is_err());
        assert!(parse_range("a..b").is_err());
    }
}
