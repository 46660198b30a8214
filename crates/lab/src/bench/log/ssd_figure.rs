//! Figure 17: one SSD as K virtual devices.

use super::array_figures::bounds;
use super::figure::{Beside, Figure, Panel, Point};
use super::machine::{Cell, Cpu, Logs};
use super::measuring::Bench;
use super::real_device;
use super::tpcc_figures::{CLIENTS, row};
use firndb_console::Failure;
use firndb_log_comparators::{Hedging, LogPolicy};
use firndb_profile::DeviceProfile;

/// TPC-C's rate by configuration: `disk`, `ideal`, `ssd naive`, `1p`, ….
type Rates = Vec<(String, f64)>;

fn measure(
    bench: &mut Bench,
    figure: &mut Figure,
    ssd: &DeviceProfile,
    cpu: Cpu,
    variant: &str,
) -> Result<Rates, Failure> {
    let partitions: &[usize] = if bench.is_quick() { &[1, 2, 4, 10] } else { &[1, 2, 4, 6, 8, 10] };
    let mut cells = vec![
        ("disk".to_owned(), Logs::Each(bench.profile("disk-10k")?, 1), LogPolicy::Array),
        ("ideal".to_owned(), Logs::Each(bench.profile("disk-10k-wce")?, 1), LogPolicy::Array),
        ("ssd naive".to_owned(), Logs::Each(ssd.clone(), 1), LogPolicy::InPlace),
    ];
    for &count in partitions {
        cells.push((format!("{count}p"), Logs::Partitions(ssd.clone(), count), LogPolicy::Array));
    }
    let mut rates = Vec::new();
    for (name, logs, policy) in cells {
        let time = bench.tpcc_time(cpu);
        let cell = Cell { policy, ..Cell::new(logs, Hedging::Off, CLIENTS, cpu, time, bench.seed()) };
        let found = bench.tpcc(&format!("{name}, {variant}"), &cell)?;
        let mut row = row("17", &name, &cell, &found);
        row["variant"] = variant.into();
        figure.rows.push(row);
        rates.push((name, found.tpm));
    }
    Ok(rates)
}

/// Figure 17, over the profile's bands.
pub fn partitions(bench: &mut Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::new("17", "one SSD as K virtual devices, 32 clients");
    let ssd = bench.profile("ssd-2008")?;
    for cpu in bench.cpus() {
        let middle = measure(bench, &mut figure, &ssd, cpu, "middle")?;
        let mut all = vec![middle.clone()];
        if !bench.is_quick() {
            for variant in ssd.variants() {
                let name = format!("{:?}", variant.name).to_lowercase();
                if name != "middle" {
                    all.push(measure(bench, &mut figure, &variant.profile, cpu, &name)?);
                }
            }
        }
        let title = format!("Figure 17, processor: {}", cpu.name);
        let key = format!("figure-17-{}", cpu.name);
        let mut panel = Panel::new(&key, &title, "log", "New-Orders a minute");
        for (at, (name, value)) in middle.iter().enumerate() {
            let values: Vec<f64> = all.iter().map(|rates| rates[at].1).collect();
            let range = (all.len() > 1).then(|| bounds(&values));
            panel.add("TPC-C", Point { x: at as f64, label: name.clone(), value: *value, range });
        }
        figure.panels.push(panel);
        let of = |rates: &Rates, name: &str| {
            rates.iter().find(|(found, _)| found == name).map_or(f64::NAN, |(_, rate)| *rate)
        };
        for (cell, above, below, printed) in [
            ("ssd naive / disk", "ssd naive", "disk", "2.98"),
            ("2p / 1p", "2p", "1p", "1.33"),
            ("4p / 2p", "4p", "2p", "1.12"),
            ("4p / disk", "4p", "disk", "4.12"),
        ] {
            let ratios: Vec<f64> = all.iter().map(|rates| of(rates, above) / of(rates, below)).collect();
            figure.beside.push(Beside {
                cell: format!("{cell}, {}", cpu.name),
                paper: printed.into(),
                ours: ratios[0],
                range: (ratios.len() > 1).then(|| bounds(&ratios)),
            });
        }
    }
    let why = "in virtual time; `--real --dir DIR` measures it";
    figure.not_measured(real_device::WIDTH_TARGET, 1.3, "higher", why);
    figure.not_measured(real_device::RAW_TARGET, 0.9, "higher", why);
    Ok(figure)
}
