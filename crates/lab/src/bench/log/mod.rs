//! `firn lab bench log`: the figures of FlashLogging (SIGMOD 2009) measured again, in virtual time,
//! on Firn.
//!
//! Every measurement is a simulation: the real engine or the real log, on emulated devices, its
//! work charged by a stated cost model. Equal arguments give equal results, to the byte of the JSON
//! but for its date and its length.

mod archive_cost;
pub mod args;
mod array_figures;
mod bounds;
pub mod devices;
mod found;
mod hiding_figures;
mod latencies_figure;
mod machine;
mod measuring;
mod modern;
mod real_device;
mod recovery_figure;
mod restart_figure;
mod ssd_figure;
mod stream;
mod tpcc_figures;

use crate::bench::cells::Cells;
use crate::bench::figure::{self, Figure};
use crate::bench::kept::Head;
use args::{BenchLog, FIGURES};
use firndb_console::{Failure, commit_of_source};
use firndb_workloads::results::Conditions;
use machine::Populations;
use measuring::Bench;
use serde_json::json;
use std::sync::Arc;

pub fn run(args: &BenchLog) -> Result<(), Failure> {
    if args.seconds.is_some_and(|seconds| !(0.01..=3600.0).contains(&seconds)) {
        return Err(Failure::bad_argument("--seconds must be a number from 0.01 to 3600"));
    }
    if args.real && !args.figure.iter().all(|figure| ["modern", "16", "17"].contains(&figure.as_str())) {
        return Err(Failure::bad_argument("--real measures the figures `modern`, 16 and 17 only"));
    }
    if args.real && args.dir.is_none() && args.figure.iter().any(|figure| figure != "modern") {
        return Err(Failure::bad_argument(
            "figures 16 and 17 in real time need --dir, a directory on the device",
        ));
    }
    let running = &args.running;
    let cells = Cells::begin(running, args.quick, head(args), Vec::new())?;
    let populations = Arc::new(Populations::new(running.seed));
    let bench = Bench { args, stop: cells.stop(), cells, populations };
    let all = || figures(&bench);
    let figures =
        if args.real { bench.cells.figures_in_real_time(all)? } else { bench.cells.figures(all)? };
    bench.cells.show(&figures)
}

fn head(args: &BenchLog) -> Head {
    let config = json!({
        "quick": args.quick, "seconds": args.seconds, "cores": machine::CORES,
        "warehouses": machine::WAREHOUSES,
    });
    let mut conditions = Conditions::now("firn-bench/1", commit_of_source(), config, args.running.seed);
    conditions.simulated = !args.real;
    Head::new("log", conditions)
}

/// The figures that were asked for.
fn figures(bench: &Bench) -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    for number in FIGURES {
        if !bench.wants(number) {
            continue;
        }
        match number {
            "2" => figures.push(tpcc_figures::flush_sizes(bench)?),
            "5" => figures.push(array_figures::splitting(bench)?),
            "6" => figures.push(latencies_figure::of_single_writes(bench)?),
            "7" => figures.push(hiding_figures::two_streams(bench)?),
            "11" => figures.push(tpcc_figures::over_clients(bench)?),
            "12" => figures.push(tpcc_figures::at_32_clients(bench)?),
            "13" => figures.push(array_figures::striping(bench)?),
            "14" => figures.push(hiding_figures::fixed_size(bench)?),
            "15" => figures.push(hiding_figures::tpcc(bench)?),
            "16" if bench.is_real() => figures.push(real_device::scans(bench)?),
            "17" if bench.is_real() => figures.push(real_device::widths(bench)?),
            "16" => figures.push(recovery_figure::scans(bench)?),
            "17" => figures.push(ssd_figure::partitions(bench)?),
            "modern" => figures.push(modern::misbehaving(bench)?),
            "compose" => figures.push(modern::composing(bench)?),
            _ => unreachable!("the argument is one of the figures"),
        }
    }
    Ok(figures)
}
