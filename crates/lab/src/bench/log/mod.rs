//! `firn lab bench log`: the figures of FlashLogging (SIGMOD 2009) measured again, in virtual time,
//! on Firn.
//!
//! Every measurement is a simulation: the real engine or the real log, on emulated devices, its
//! work charged by a stated cost model. Equal arguments give equal results, to the byte of the JSON
//! but for its date and its length.

pub mod args;
mod array_figures;
mod devices;
mod hiding_figures;
mod machine;
mod measuring;
mod modern;
mod real_device;
mod recovery_figure;
mod ssd_figure;
mod stream;
mod tpcc_figures;

use crate::bench::{figure, picture};
use args::{BenchLog, FIGURES};
use figure::Figure;
use firndb_console::output::write_json;
use firndb_console::{Failure, commit_of_source, interrupt, progress};
use firndb_workloads::results::{BenchResult, Conditions};
use machine::Populations;
use measuring::Bench;
use serde_json::json;
use std::time::{Duration, Instant};

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
    if let Some(dir) = &args.pictures {
        std::fs::create_dir_all(dir).map_err(|error| Failure::new(format!("{}: {error}", dir.display())))?;
    }
    let stop = interrupt::install()?;
    let began = Instant::now();
    let mut bench =
        Bench { args, stop, populations: Populations::default(), spinner: progress::spinner("beginning") };
    let figures = figures(&mut bench);
    bench.spinner.finish_and_clear();
    let figures = figures?;
    picture::show(&figures, args.pictures.as_deref())?;
    match &args.json {
        Some(path) => write_json(path, &results(args, &figures, began.elapsed())),
        None => Ok(()),
    }
}

fn results(args: &BenchLog, figures: &[Figure], took: Duration) -> BenchResult<serde_json::Value> {
    let config = json!({
        "figures": figures.iter().map(|figure| &figure.number).collect::<Vec<_>>(),
        "quick": args.quick, "seconds": args.seconds, "cores": machine::CORES,
    });
    let mut conditions = Conditions::now("firn-bench/1", commit_of_source(), config, args.seed);
    conditions.simulated = !args.real;
    conditions.seconds = took.as_secs_f64();
    BenchResult {
        conditions,
        bench: "log".into(),
        rows: figures.iter().flat_map(|figure| figure.rows.clone()).collect(),
        targets: figures.iter().flat_map(|figure| figure.targets.clone()).collect(),
        paper: figures.iter().flat_map(Figure::paper).collect(),
    }
}

/// The figures that were asked for.
fn figures(bench: &mut Bench) -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    for number in FIGURES {
        if !bench.wants(number) {
            continue;
        }
        match number {
            "5" => figures.push(array_figures::splitting(bench)?),
            "7" => figures.push(hiding_figures::two_streams(bench)?),
            "11" => figures.extend(tpcc_figures::over_clients(bench)?),
            "12" if !bench.wants("11") => figures.extend(tpcc_figures::over_clients(bench)?),
            "12" => {}
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
    figures.retain(|figure| bench.wants(&figure.number));
    Ok(figures)
}
