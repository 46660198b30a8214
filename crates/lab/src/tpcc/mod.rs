//! `firn lab tpcc`: TPC-C on emulated devices. The run itself is `crates/tpcc`'s, as for `firn
//! tpcc`.

mod advice;
pub mod machine;
mod simulated;

use crate::caches::cache_kinds;
use crate::cost::cpu::Cpu;
use clap::{ArgGroup, Args};
use firndb_console::Failure;
use firndb_tpcc::TpccArgs;
use machine::EmulatedMachine;
use std::sync::Arc;

/// `firn lab tpcc`.
#[derive(Args, Clone, Debug)]
#[command(group = ArgGroup::new("machine").args(["sim", "emulate"]).required(true))]
pub struct Tpcc {
    #[command(flatten)]
    pub run: TpccArgs,
    #[command(flatten)]
    pub machine: MachineArgs,
}

/// What the run takes place on.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Emulated devices")]
pub struct MachineArgs {
    /// Run in virtual time, in memory, on devices as their profiles say: equal arguments give equal
    /// figures on any machine
    #[arg(long, conflicts_with_all = [
        "dir", "no_load", "load_only", "check_only", "log_devices", "log_path", "store_path", "cache_path", "trace", "archive",
        "backup_to",
    ])]
    pub sim: bool,
    /// Run in real time, on files that take as long as devices of these profiles
    #[arg(long, conflicts_with_all = ["sim", "log_devices", "log_path", "trace"])]
    pub emulate: bool,
    /// Profile of a log device (a name that `firn profiles` lists, or a TOML file); again for each
    /// device. NAME@fast and NAME@slow take that end of every band of the profile
    #[arg(long, value_name = "PROFILE", default_value = "nvme")]
    pub profile_log: Vec<String>,
    /// Profile of the page store's device
    #[arg(long, value_name = "PROFILE", default_value = "nvme")]
    pub profile_data: String,
    /// Profile of the flash cache's device [the first log device's]
    #[arg(long, value_name = "PROFILE")]
    pub profile_cache: Option<String>,
    /// Give the engine the profile of the store's device, which decides some of its settings
    #[arg(long, requires = "sim")]
    pub profiled: bool,
    /// Cores of the simulated machine
    #[arg(long, value_name = "N", requires = "sim", conflicts_with = "emulate", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub sim_cores: u32,
    /// What computing costs: `firn` (as measured), `firn*FACTOR`, `paper` (as in FlashLogging's
    /// time; `paper-slow`, `paper-fast`), `ideal=RATE` (with which all cores do RATE New-Orders a
    /// minute if no commit waits for the log), `free`
    #[arg(long, value_name = "COST", requires = "sim", conflicts_with = "emulate", default_value = "firn")]
    pub cpu: Cpu,
    /// At the end, whether more DRAM or more flash would serve better, if a byte of DRAM costs as
    /// much as PRICE bytes of flash; the profiles say what reads cost
    #[arg(long, value_name = "PRICE", num_args = 0..=1, default_missing_value = "10")]
    pub advise: Option<f64>,
}

pub fn run(args: &Tpcc) -> Result<(), Failure> {
    let machine = EmulatedMachine::of(args)?;
    if args.machine.sim {
        simulated::run(args, machine)
    } else {
        firndb_tpcc::run_on_files(&args.run, Some(Arc::new(machine)), cache_kinds())
    }
}
