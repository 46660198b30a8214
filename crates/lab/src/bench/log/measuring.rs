//! What the figures have in common: how long and how much they measure, and one measurement.

use super::args::BenchLog;
use super::machine::{Cell, Cpu, Found, Populations};
use super::stream::{self, StreamCell, StreamFound};
use firndb_console::Failure;
use firndb_profile::DeviceProfile;
use indicatif::ProgressBar;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A run of the bench.
pub struct Bench<'a> {
    pub args: &'a BenchLog,
    pub stop: &'a AtomicBool,
    pub populations: Populations,
    pub spinner: ProgressBar,
}

impl Bench<'_> {
    pub fn wants(&self, number: &str) -> bool {
        self.args.all || self.args.figure.iter().any(|wanted| wanted == number)
    }

    /// The shipped profile of this name.
    pub fn profile(&self, name: &str) -> Result<DeviceProfile, Failure> {
        crate::tpcc::machine::profile(name)
    }

    pub fn seed(&self) -> u64 {
        self.args.seed
    }

    pub fn is_quick(&self) -> bool {
        self.args.quick
    }

    /// A directory for files on the device that `--real` measures.
    pub fn dir(&self) -> Result<PathBuf, Failure> {
        let dir = self.args.dir.as_ref().ok_or_else(|| Failure::bad_argument("--real needs --dir"))?;
        Ok(dir.join(format!("firn-bench-log-{}", std::process::id())))
    }

    pub fn is_real(&self) -> bool {
        self.args.real
    }

    /// Measured of a TPC-C run: less where the processor does more in it.
    pub fn tpcc_time(&self, cpu: Cpu) -> Duration {
        let usual = if self.args.quick { 2.0 } else { 10.0 };
        let seconds = self.args.seconds.unwrap_or(usual);
        Duration::from_secs_f64(if cpu.factor < 2.0 { seconds / 4.0 } else { seconds })
    }

    /// The same on a device whose outliers are rare and long: enough of them for a mean.
    pub fn tpcc_time_with_outliers(&self, cpu: Cpu) -> Duration {
        4 * self.tpcc_time(cpu)
    }

    /// Measured of the log alone.
    pub fn stream_time(&self) -> Duration {
        Duration::from_millis(if self.args.quick { 500 } else { 2000 })
    }

    pub fn clients(&self) -> Vec<usize> {
        if self.args.quick { vec![1, 8, 32, 128] } else { vec![1, 2, 4, 8, 16, 32, 64, 128] }
    }

    pub fn cpus(&self) -> Vec<Cpu> {
        vec![
            Cpu { name: "paper", factor: crate::cost::cpu::paper_factor() },
            Cpu { name: "firn", factor: 1.0 },
        ]
    }

    /// Says what is being measured; an error if Ctrl-C came.
    pub fn measuring(&self, what: String) -> Result<(), Failure> {
        self.spinner.set_message(what);
        if self.stop.load(Ordering::SeqCst) {
            return Err(Failure::interrupted("stopped before all was measured"));
        }
        Ok(())
    }

    pub fn tpcc(&mut self, name: &str, cell: &Cell) -> Result<Found, Failure> {
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

    pub fn stream(&self, cell: &StreamCell) -> Result<StreamFound, Failure> {
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
