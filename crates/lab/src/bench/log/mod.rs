//! `firn lab bench log`: the figures of FlashLogging (SIGMOD 2009) measured again, in virtual time,
//! on Firn.
//!
//! Every measurement is a simulation: the real engine or the real log, on emulated devices, its
//! work charged by a stated cost model. Equal arguments give equal results, to the byte of the JSON
//! but for its date and its length.

mod array_figures;
mod devices;
mod hiding_figures;
mod machine;
mod modern;
mod real_device;
mod recovery_figure;
mod ssd_figure;
mod stream;
mod tpcc_figures;

use crate::bench::{figure, picture};
use clap::Args;
use figure::Figure;
use firndb_console::output::write_json;
use firndb_console::{Failure, commit_of_source, interrupt, progress};
use firndb_profile::DeviceProfile;
use firndb_workloads::results::{BenchResult, Conditions};
use indicatif::ProgressBar;
use machine::{Cell, Cpu, Found, Populations};
use serde_json::json;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use stream::{StreamCell, StreamFound};

/// The figures that can be measured.
const FIGURES: [&str; 11] = ["5", "7", "11", "12", "13", "14", "15", "16", "17", "modern", "compose"];

/// `firn lab bench log`.
#[derive(Args, Clone, Debug)]
pub struct BenchLog {
    /// A figure of the paper; again for more
    #[arg(long, value_name = "N", value_parser = clap::builder::PossibleValuesParser::new(FIGURES),
          required_unless_present = "all")]
    pub figure: Vec<String>,
    /// All figures
    #[arg(long, conflicts_with = "figure")]
    pub all: bool,
    /// Fewer points and shorter runs
    #[arg(long)]
    pub quick: bool,
    /// Virtual seconds of each TPC-C run [10, or 2 with --quick]
    #[arg(long, value_name = "S")]
    pub seconds: Option<f64>,
    /// Equal seeds give equal results
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// In real time: the figure `modern` through emulated volumes, 16 and 17 on the device under
    /// --dir
    #[arg(long, conflicts_with = "all")]
    pub real: bool,
    /// Where --real makes its files, and removes them again
    #[arg(long, value_name = "DIR", requires = "real")]
    pub dir: Option<PathBuf>,
    /// Show each measurement on standard error when it is done
    #[arg(long)]
    pub verbose: bool,
    /// Write the pictures into this directory, as SVG
    #[arg(long, value_name = "DIR")]
    pub pictures: Option<PathBuf>,
    /// Write the results to this file as JSON, too
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

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
    let figures = bench.figures();
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

/// What the figures have in common.
pub struct Bench<'a> {
    args: &'a BenchLog,
    stop: &'a AtomicBool,
    populations: Populations,
    spinner: ProgressBar,
}

impl Bench<'_> {
    fn wants(&self, number: &str) -> bool {
        self.args.all || self.args.figure.iter().any(|wanted| wanted == number)
    }

    fn figures(&mut self) -> Result<Vec<Figure>, Failure> {
        let mut figures = Vec::new();
        for number in FIGURES {
            if !self.wants(number) {
                continue;
            }
            match number {
                "5" => figures.push(array_figures::splitting(self)?),
                "7" => figures.push(hiding_figures::two_streams(self)?),
                "11" => figures.extend(tpcc_figures::over_clients(self)?),
                "12" if !self.wants("11") => figures.extend(tpcc_figures::over_clients(self)?),
                "12" => {}
                "13" => figures.push(array_figures::striping(self)?),
                "14" => figures.push(hiding_figures::fixed_size(self)?),
                "15" => figures.push(hiding_figures::tpcc(self)?),
                "16" if self.args.real => figures.push(real_device::scans(self)?),
                "17" if self.args.real => figures.push(real_device::widths(self)?),
                "16" => figures.push(recovery_figure::scans(self)?),
                "17" => figures.push(ssd_figure::partitions(self)?),
                "modern" => figures.push(modern::misbehaving(self)?),
                "compose" => figures.push(modern::composing(self)?),
                _ => unreachable!("the argument is one of the figures"),
            }
        }
        figures.retain(|figure| self.wants(&figure.number));
        Ok(figures)
    }

    /// The shipped profile of this name.
    fn profile(&self, name: &str) -> Result<DeviceProfile, Failure> {
        crate::tpcc::machine::profile(name)
    }

    fn seed(&self) -> u64 {
        self.args.seed
    }

    fn is_quick(&self) -> bool {
        self.args.quick
    }

    /// A directory for files on the device that `--real` measures.
    fn dir(&self) -> Result<PathBuf, Failure> {
        let dir = self.args.dir.as_ref().ok_or_else(|| Failure::bad_argument("--real needs --dir"))?;
        Ok(dir.join(format!("firn-bench-log-{}", std::process::id())))
    }

    fn is_real(&self) -> bool {
        self.args.real
    }

    /// Measured of a TPC-C run: less where the processor does more in it.
    fn tpcc_time(&self, cpu: Cpu) -> Duration {
        let usual = if self.args.quick { 2.0 } else { 10.0 };
        let seconds = self.args.seconds.unwrap_or(usual);
        Duration::from_secs_f64(if cpu.factor < 2.0 { seconds / 4.0 } else { seconds })
    }

    /// The same on a device whose outliers are rare and long: enough of them for a mean.
    fn tpcc_time_with_outliers(&self, cpu: Cpu) -> Duration {
        4 * self.tpcc_time(cpu)
    }

    /// Measured of the log alone.
    fn stream_time(&self) -> Duration {
        Duration::from_millis(if self.args.quick { 500 } else { 2000 })
    }

    fn clients(&self) -> Vec<usize> {
        if self.args.quick { vec![1, 8, 32, 128] } else { vec![1, 2, 4, 8, 16, 32, 64, 128] }
    }

    fn cpus(&self) -> Vec<Cpu> {
        vec![
            Cpu { name: "paper", factor: crate::cost::cpu::paper_factor() },
            Cpu { name: "firn", factor: 1.0 },
        ]
    }

    /// Says what is being measured; an error if Ctrl-C came.
    fn measuring(&self, what: String) -> Result<(), Failure> {
        self.spinner.set_message(what);
        if self.stop.load(Ordering::SeqCst) {
            return Err(Failure::interrupted("stopped before all was measured"));
        }
        Ok(())
    }

    fn tpcc(&mut self, name: &str, cell: &Cell) -> Result<Found, Failure> {
        self.measuring(format!("TPC-C, {name}, {} clients", cell.clients))?;
        let found = self.populations.run(cell)?;
        if self.args.verbose {
            eprintln!(
                "{name}, {} clients, {}: {:.0} tpm, {:.0}/s, p50 {:.0} us, {:.0} B, {} requests, {:?}",
                cell.clients,
                cell.cpu.name,
                found.tpm,
                found.per_second,
                found.new_order.p50,
                found.log_bytes_per_commit,
                found.log.requests,
                found.real
            );
        }
        Ok(found)
    }

    fn stream(&self, cell: &StreamCell) -> Result<StreamFound, Failure> {
        let name = &cell.logs.profile().name;
        let what = format!("log alone, {} x {name}, {} threads", cell.logs.count(), cell.threads);
        self.measuring(what.clone())?;
        let found = if self.args.real { stream::run_in_real_time(cell)? } else { stream::run(cell)? };
        if self.args.verbose {
            eprintln!(
                "{what}, {:?}, {:?}, {:?}: {:.0}/s, {:.2} MB/s, p50 {:.0} us, p99.9 {:.0} us, max {:.0} us, {} \
                 requests, {} re-issued",
                cell.policy,
                cell.hiding,
                cell.size,
                found.per_second,
                found.mb_per_second,
                found.latency.p50,
                found.latency.p999,
                found.latency.max,
                found.log.requests,
                found.log.hiding.reissued
            );
        }
        Ok(found)
    }
}
