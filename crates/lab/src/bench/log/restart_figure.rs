//! The second part of figure 16: how fast the log is read after a kill of a database under TPC-C,
//! from the disk, from flash drives, and from flash drives and the archive's disk.

use super::figure::{Figure, Panel, Point};
use super::machine::{ArchiveDisk, Cell, Cpu, Populations, simulate};
use super::measuring::Bench;
use super::tpcc_figures::{CLIENTS, DRIVES, Kind, cell};
use crate::bench::cells::{Cellular, Judged};
use crate::bench::sampled::Sampled;
use firndb_console::Failure;
use firndb_log_comparators::Compose;
use firndb_profile::VariantName;
use serde::{Deserialize, Serialize};

/// A kill in the middle of a run, and the opening after it.
#[derive(Clone, Debug)]
struct Killed(Cell);

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct KilledFound {
    log_bytes: u64,
    /// From the beginning of opening until the log has been read.
    read_seconds: f64,
    /// Bytes that were read from the archive.
    archive_bytes: u64,
}

impl KilledFound {
    fn mb_per_second(&self) -> f64 {
        self.log_bytes as f64 / self.read_seconds / 1e6
    }
}

impl Cellular for Killed {
    type Found = KilledFound;

    fn name(&self) -> String {
        format!("kill and restart, {}", self.0.name())
    }

    fn at_end(&self, end: VariantName) -> Option<Killed> {
        self.0.at_end(end).map(Killed)
    }
}

fn run(killed: &Killed, seed: u64, populations: &Populations) -> Result<KilledFound, Failure> {
    let left = populations.kill(&killed.0, seed)?;
    let cell = killed.0.clone();
    let (found, _) = simulate(seed, move || {
        let archive = match (&cell.archive, left.archive) {
            (Some(profile), Some(directory)) => Some(ArchiveDisk::of(directory, profile, seed)?),
            _ => None,
        };
        let db = cell.open(&left.population.shared(), archive.as_ref(), seed)?;
        let report = db.recovery_report();
        let found = KilledFound {
            log_bytes: report.log_bytes,
            read_seconds: (report.scan.time + report.analysis.time).as_secs_f64(),
            archive_bytes: report.from_archive + report.archive_first,
        };
        db.close()?;
        Ok(found)
    })?;
    Ok(found)
}

/// Adds the second panel to figure 16.
pub fn after_a_kill(bench: &Bench, figure: &mut Figure) -> Result<(), Failure> {
    let title = "Reading the log after a kill under TPC-C, with and without an archive disk";
    let mut panel = Panel::of_bars("flashlogging-figure-16-kill", title, "log", "MB of log a second");
    panel.digits = 1;
    let cpu = Cpu { name: "firn", factor: 1.0 };
    let mut at = 0.0;
    let mut add = |name: String, kind, drive| -> Result<Sampled, Failure> {
        let cell = Killed(cell(bench, kind, drive, Compose::WhenDeviceFree, (CLIENTS, cpu))?);
        let populations = bench.populations.clone();
        let found = bench.cells.of(&cell, Judged::No, move |cell, seed| run(cell, seed, &populations))?;
        let rate = found.value(KilledFound::mb_per_second);
        panel.add("all log", Point::new(at, &*name, &rate));
        let share = found.value(|it| it.archive_bytes as f64 / it.log_bytes as f64);
        if kind == Kind::TwoAndArchive {
            figure.notes.push(format!(
                "{name}: {:.0} % of the log's {:.0} MB came from the archive.",
                100.0 * share.median(),
                found.first().log_bytes as f64 / 1e6
            ));
        }
        at += 1.0;
        Ok(rate)
    };
    let disk = add(Kind::Disk.name().into(), Kind::Disk, DRIVES[0])?;
    let mut ratios = Vec::new();
    for drive in DRIVES {
        for kind in [Kind::One, Kind::Two, Kind::TwoAndArchive] {
            let rate = add(format!("{}: {}", drive.0, kind.name()), kind, drive)?;
            if kind == Kind::TwoAndArchive {
                ratios.push((drive.0, rate.over(&disk)));
            }
        }
    }
    figure.panels.push(panel);
    for (drive, ratio) in ratios {
        let name = format!("after a kill: two {drive} and archive / disk");
        figure.beside(name, "comparable or better", &ratio);
    }
    Ok(())
}
