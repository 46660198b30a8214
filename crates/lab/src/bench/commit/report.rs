//! What `firn lab bench commit` shows and writes.

use super::{BenchCommit, Round, Rounds, Run, SPINNING_CLIENTS};
use firndb_adapter::FirnEngine;
use firndb_console::output::write_json;
use firndb_console::{Failure, commit_of_source, say, size, table};
use firndb_workloads::results::{BenchResult, Conditions, Target};
use firndb_workloads::{Engine, commit_bench};
use serde_json::{Value, json};

/// Spinning threads that the target names.
const SPINNERS: u32 = 2;
const RAW_TARGET: f64 = 1.15;
const SPINNING_TARGET: f64 = 2.0;

/// Under which conditions a run begins.
pub fn head(args: &BenchCommit, engine: &FirnEngine) -> Conditions {
    let settings: serde_json::Map<String, Value> =
        engine.settings().into_iter().map(|(name, value)| (name, Value::String(value))).collect();
    let config = json!({
        "clients": args.clients, "seconds": args.seconds, "rounds": args.rounds, "spinners": args.spinners,
        "engine": settings,
    });
    Conditions::now("firn-bench/1", commit_of_source(), config, 1)
}

/// Shows the medians and targets, and writes the results if asked to.
pub fn report(args: &BenchCommit, head: Conditions, rounds: &Rounds) -> Result<(), Failure> {
    say!(
        "durable commits of one row of 100 bytes; medians of {} rounds of {} s, each beside the raw device\n\n{}\n",
        rounds.iter().map(Vec::len).max().unwrap_or(0),
        args.seconds,
        medians(args, rounds)
    );
    let targets = targets(args, rounds);
    for target in &targets {
        let verdict = if target.met { "met" } else { "missed" };
        match (target.value, &target.reason) {
            (Some(value), _) => {
                say!("{}: {value:.2}, at most {} wanted: {verdict}", target.name, target.target);
            }
            (None, reason) => {
                say!("{}: not measured ({})", target.name, reason.as_deref().unwrap_or("no reason given"));
            }
        }
    }
    let Some(path) = &args.json else { return Ok(()) };
    let rows = rows(args, rounds)?;
    write_json(
        path,
        &BenchResult { conditions: head, bench: "commit".into(), rows, targets, paper: Vec::new() },
    )
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Firn's median latency over the raw device's, in one round.
fn over_raw(round: &Round) -> f64 {
    round.idle.p50_us() / round.raw.p50_us
}

fn medians(args: &BenchCommit, rounds: &Rounds) -> String {
    let mut table = table::new(&[
        "clients",
        "commits/s",
        "p50 us",
        "p99 us",
        "log B/commit",
        "writes/commit",
        "raw writes/s",
        "of size",
        "in flight",
        "raw p50 us",
        "p50 / raw p50",
    ]);
    let line = |name: String, runs: Vec<&Run>| -> Vec<String> {
        let of = |value: fn(&Run) -> f64| median(runs.iter().map(|run| value(run)));
        vec![
            name,
            format!("{:.0}", of(|run| run.report.per_second(run.report.commits()))),
            format!("{:.0}", of(Run::p50_us)),
            format!("{:.0}", of(|run| run.report.kinds[0].latency.p99)),
            format!("{:.0}", of(|run| run.log_bytes)),
            format!("{:.2}", of(|run| run.writes_per_commit)),
        ]
    };
    // After Ctrl-C some have no round.
    for (clients, rounds) in args.clients.iter().zip(rounds).filter(|(_, rounds)| !rounds.is_empty()) {
        let raw = |value: &dyn Fn(&Round) -> f64| median(rounds.iter().map(value));
        let mut row = line(clients.to_string(), rounds.iter().map(|round| &round.idle).collect());
        row.extend([
            format!("{:.0}", raw(&|round| round.raw.writes_per_second)),
            size::show(raw(&|round| round.raw.write_bytes as f64) as u64),
            rounds.first().map_or(0, |round| round.raw.streams).to_string(),
            format!("{:.0}", raw(&|round| round.raw.p50_us)),
            format!("{:.2}", raw(&over_raw)),
        ]);
        table.add_row(row);
        let spinning: Vec<&Run> = rounds.iter().filter_map(|round| round.spinning.as_ref()).collect();
        if let (false, Some(spinners)) = (spinning.is_empty(), args.spinners) {
            let mut row = line(format!("{clients} + {spinners} spinners"), spinning);
            row.resize(11, String::new());
            table.add_row(row);
        }
    }
    table::text(table, 0)
}

/// Every target of this bench, measured or not.
fn targets(args: &BenchCommit, rounds: &Rounds) -> Vec<Target> {
    let of = |clients: u32| {
        args.clients.iter().position(|found| *found == clients).map(|place| &rounds[place][..])
    };
    let raw = match of(1) {
        Some([]) => Err("stopped before".to_owned()),
        Some(rounds) => Ok(median(rounds.iter().map(over_raw))),
        None => Err("1 is not among --clients".to_owned()),
    };
    let spinning = match (of(SPINNING_CLIENTS), args.spinners) {
        (Some([]), _) => Err("stopped before".to_owned()),
        (Some(rounds), Some(SPINNERS)) => Ok(median(rounds.iter().filter_map(|round| {
            let spinning = round.spinning.as_ref()?;
            Some(spinning.p50_us() / round.idle.p50_us())
        }))),
        (_, Some(other)) => Err(format!("the target is about {SPINNERS} spinners, not {other}")),
        (_, None) => Err("run with --spinners".to_owned()),
    };
    vec![
        target("commit p50 over raw sync write p50, 1 client", raw, RAW_TARGET),
        target("two spinners, 8 clients: commit p50 over idle p50 of 8 clients", spinning, SPINNING_TARGET),
    ]
}

fn target(name: &str, value: Result<f64, String>, target: f64) -> Target {
    let (value, reason) = match value {
        Ok(value) => (Some(value), None),
        Err(reason) => (None, Some(reason)),
    };
    let met = value.is_some_and(|value| value <= target);
    Target { name: name.into(), value, target, better: "lower", met, reason }
}

/// The raw measurements, in the order they belong to: by client count, then by round.
fn rows(args: &BenchCommit, rounds: &Rounds) -> Result<Vec<Value>, Failure> {
    let mut rows = Vec::new();
    for (&clients, rounds) in args.clients.iter().zip(rounds) {
        for (number, round) in rounds.iter().enumerate() {
            rows.push(row(clients, number, 0, &round.idle)?);
            if let (Some(run), Some(spinners)) = (&round.spinning, args.spinners) {
                rows.push(row(clients, number, spinners, run)?);
            }
            rows.push(json!({
                "engine": "raw sync writes", "clients": clients, "round": number, "spinners": 0,
                "in_flight": round.raw.streams, "write_bytes": round.raw.write_bytes,
                "writes_per_second": round.raw.writes_per_second,
                "latency_us": {"p50": round.raw.p50_us, "p99": round.raw.p99_us},
            }));
        }
    }
    Ok(rows)
}

fn row(clients: u32, round: usize, spinners: u32, run: &Run) -> Result<Value, Failure> {
    let mut row = commit_bench::row("firn", clients as usize, &run.report);
    row.log_bytes_per_commit = Some(run.log_bytes);
    let mut row = serde_json::to_value(row).map_err(|error| Failure::new(error.to_string()))?;
    row["round"] = json!(round);
    row["spinners"] = json!(spinners);
    row["log_writes_per_commit"] = json!(run.writes_per_commit);
    row["log_bytes_written_per_commit"] = json!(run.written_per_commit);
    row["log_write_bytes_median"] = json!(run.write_bytes);
    Ok(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_was_not_measured_is_listed_with_a_reason_and_not_met() {
        let missing = target("t", Err("no time".into()), 1.0);
        assert_eq!((missing.value, missing.met, missing.reason.as_deref()), (None, false, Some("no time")));
        assert!(target("t", Ok(1.0), 1.0).met);
        assert!(!target("t", Ok(1.01), 1.0).met);
    }
}
