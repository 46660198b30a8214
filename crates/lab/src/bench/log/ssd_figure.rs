//! Figure 17: one SSD as K virtual devices, beside USB drives.

use super::figure::{Better, Figure, Panel, Point};
use super::machine::{Cell, Cpu, Logs};
use super::measuring::Bench;
use super::real_device;
use super::tpcc_figures::{CLIENTS, DRIVES, Kind, cell};
use crate::bench::cells::Judged;
use crate::bench::sampled::Sampled;
use firndb_console::Failure;
use firndb_log_comparators::{Compose, Hedging, LogPolicy};

/// When requests are composed.
const COMPOSED: [(Compose, &str, &str); 2] = [
    (Compose::AtFlush, "at the flush call", "flush"),
    (Compose::WhenDeviceFree, "when a device is free", "free"),
];

/// The logs of the figure and their cells.
fn logs(bench: &Bench, compose: Compose, cpu: Cpu) -> Result<Vec<(String, Cell)>, Failure> {
    let ssd = bench.profile("ssd-2008")?;
    let partitions: &[usize] = if bench.is_quick() { &[1, 2, 4, 10] } else { &[1, 2, 4, 6, 8, 10] };
    let of = |kind, drive| cell(bench, kind, drive, compose, (CLIENTS, cpu));
    let mut all = vec![
        ("disk".to_owned(), of(Kind::Disk, DRIVES[0])?),
        ("ideal".to_owned(), of(Kind::Ideal, DRIVES[0])?),
    ];
    for drive in DRIVES {
        all.push((format!("two {}", drive.0), of(Kind::Two, drive)?));
        all.push((format!("two {} and archive", drive.0), of(Kind::TwoAndArchive, drive)?));
    }
    let on_ssd = |logs, policy| {
        let cell = Cell::new(logs, Hedging::Off, CLIENTS, cpu, bench.time());
        Cell { policy, compose, ..cell }
    };
    let naive = on_ssd(Logs::Each(ssd.clone(), 1), LogPolicy::InPlace);
    all.push(("SSD, blocks written over".to_owned(), naive));
    for &count in partitions {
        let name = if count == 1 { "SSD".to_owned() } else { format!("SSD in {count} parts") };
        all.push((name, on_ssd(Logs::Partitions(ssd.clone(), count), LogPolicy::Array)));
    }
    Ok(all)
}

/// Figure 17.
pub fn partitions(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::new("17", "one SSD as K virtual devices, and USB drives, 32 clients");
    for (compose, how, short) in COMPOSED {
        let title = format!("TPC-C, 32 clients, one SSD or two USB drives as log, requests composed {how}");
        let key = format!("flashlogging-figure-17-{short}");
        let mut panel = Panel::of_bars(&key, &title, "log", "New-Orders a minute");
        panel.log_y = true;
        for cpu in bench.cpus() {
            let mut rates: Vec<(String, Sampled)> = Vec::new();
            for (at, (name, cell)) in logs(bench, compose, cpu)?.into_iter().enumerate() {
                let rate = bench.tpcc(&cell, Judged::No)?.value(|found| found.tpm);
                panel.add(cpu.title(), Point::new(at as f64, &*name, &rate));
                rates.push((name, rate));
            }
            compare(&mut figure, &rates, &format!("{}; composed {how}", cpu.name));
        }
        figure.panels.push(panel);
    }
    let why = "in virtual time; `--real --dir DIR` measures it";
    figure.not_measured(real_device::WIDTH_TARGET, 1.3, Better::Higher, why);
    figure.not_measured(real_device::RAW_TARGET, 0.9, Better::Higher, why);
    Ok(figure)
}

/// The ratios that the text prints, and two USB drives beside the best of the SSD.
fn compare(figure: &mut Figure, rates: &[(String, Sampled)], setting: &str) {
    let of = |name: &str| {
        let found = rates.iter().find(|(found, _)| found == name);
        found.map(|(_, rate)| rate.clone()).unwrap_or_default()
    };
    for (above, below, printed) in [
        ("SSD, blocks written over", "disk", "2.98"),
        ("SSD in 2 parts", "SSD", "1.33"),
        ("SSD in 4 parts", "SSD in 2 parts", "1.12"),
        ("SSD in 4 parts", "disk", "4.12"),
    ] {
        figure.beside(format!("{above} / {below}, {setting}"), printed, &of(above).over(&of(below)));
    }
    let most = |begins: &str| {
        let found = rates.iter().filter(|(name, _)| name.starts_with(begins)).map(|(_, rate)| rate);
        Sampled::most(found).unwrap_or_default()
    };
    let name = format!("best of two USB drives / best of the SSD, {setting}");
    figure.beside(name, "comparable or better", &most("two").over(&most("SSD")));
}
