//! `firn lab characterize`: chapter 3 of Myers's thesis on emulated devices, in virtual time.
//!
//! The procedure is the thesis': a file of 20 GB, 30 seconds of each kind of request at each size
//! from 1 KB to 1 MB, one synchronous request at a time, random offsets from a permutation. It is
//! measured by `crates/characterize`, as a real device is.

mod measuring;
mod picture;
mod report;
mod thesis;

use clap::Args;
use firndb_console::output::write_json;
use firndb_console::{Failure, say};
use measuring::Measured;
use std::path::{Path, PathBuf};

/// `firn lab characterize`.
#[derive(Args, Debug)]
pub struct Characterize {
    /// Profiles: names that `firn profiles` lists, or TOML files
    #[arg(value_name = "PROFILE", default_values = ["myers-a", "myers-b"])]
    pub profiles: Vec<String>,
    /// The device that table 3.1 compares them with; measured, too
    #[arg(long, value_name = "PROFILE", default_value = "myers-disk")]
    pub against: String,
    /// Virtual seconds for each size of each kind of request
    #[arg(long, default_value_t = 30.0)]
    pub seconds: f64,
    /// Draw figures 3-1 and 3-2 into this directory, as SVG
    #[arg(long, value_name = "DIR")]
    pub pictures: Option<PathBuf>,
    /// Equal seeds choose equal places
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the results to this file as JSON, too
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl Characterize {
    /// The result file that the arguments name.
    pub fn results(&self) -> Option<&Path> {
        self.json.as_deref()
    }
}

pub fn run(args: &Characterize) -> Result<(), Failure> {
    if !(args.seconds > 0.0 && args.seconds <= 3600.0) {
        return Err(Failure::bad_argument(format!(
            "--seconds is {}; it must be above 0 and at most 3600",
            args.seconds
        )));
    }
    let mut devices: Vec<Measured> = Vec::new();
    for name in args.profiles.iter().chain([&args.against]) {
        if devices.iter().all(|device| device.name != *name) {
            devices.push(measuring::measured(name, args.seconds, args.seed)?);
        }
    }
    let tables = thesis::tables(&devices, &args.against);
    say!("{}", report::text(&devices, &tables));
    if let Some(dir) = &args.pictures {
        for path in picture::draw(dir, &devices)? {
            say!("The picture is {}.", path.display());
        }
    }
    match &args.json {
        Some(path) => write_json(path, &report::json(args, &devices, &tables)?),
        None => Ok(()),
    }
}
