//! Figures 5 and 13: what splitting a request costs, and the array beside round-robin striping.

use super::figure::{Figure, Panel, Point, round};
use super::machine::{Cell, Cpu, Logs};
use super::measuring::Bench;
use super::stream::{Size, StreamCell};
use super::tpcc_figures::{CLIENTS, DRIVES, row};
use firndb_console::{Failure, size};
use firndb_log_comparators::{Compose, Hedging, LogPolicy};
use firndb_profile::DeviceProfile;
use serde_json::json;
use std::time::Duration;

/// What the paper prints of the loss by splitting (3.3): times the bandwidth.
const SPLITTING: [(&str, &str); 3] =
    [("flash-a", "1.41 to 1.51"), ("flash-b", "1.79 to 1.83"), ("flash-c", "1.13 to 1.85")];

/// Figure 5: requests of 4 KiB on two drives, whole, and split into two of 2 KiB.
///
/// Requests are composed at the flush call, one for each, so that none grows by waiting; the split
/// ones are those of a striped log with units of 2 KiB.
pub fn splitting(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::new("5", "requests of 4 KiB on two drives, whole and split into two");
    let requesters: &[usize] = if bench.is_quick() { &[2, 8, 32] } else { &[2, 4, 8, 16, 32] };
    for (drive, printed) in SPLITTING {
        let profile = bench.profile(drive)?;
        let title = format!("Figure 5, {drive}");
        let mut panel = Panel::new(&format!("figure-5-{drive}"), &title, "requesters", "MB/s on both drives");
        (panel.log_x, panel.digits) = (true, 2);
        let mut ratios: Vec<f64> = Vec::new();
        for &threads in requesters {
            let measure = |policy| {
                bench.stream(&StreamCell {
                    logs: Logs::Each(profile.clone(), 2),
                    policy,
                    compose: Compose::AtFlush,
                    hiding: Hedging::Off,
                    threads,
                    size: Size::Fixed(4096),
                    work: Duration::ZERO,
                    fault: None,
                    warm_up: Duration::from_millis(200),
                    time: bench.stream_time(),
                    seed: bench.seed(),
                })
            };
            let whole = measure(LogPolicy::Array)?;
            let split = measure(LogPolicy::Striped { unit_bytes: 2048 })?;
            let ratio = whole.mb_per_second / split.mb_per_second;
            ratios.push(ratio);
            for (name, found) in [("whole", &whole), ("split", &split)] {
                let label = threads.to_string();
                panel.add(name, Point { x: threads as f64, label, value: found.mb_per_second, range: None });
                figure.rows.push(json!({
                    "figure": "5", "series": name, "device_profile": drive, "threads": threads,
                    "mb_per_second": round(found.mb_per_second), "requests": found.log.requests,
                    "latency_us": found.latency,
                }));
            }
        }
        figure.panels.push(panel);
        let (low, high) = bounds(&ratios);
        figure.beside(format!("{drive}: whole / split, least over requesters"), printed, low);
        figure.beside(format!("{drive}: whole / split, most over requesters"), printed, high);
    }
    Ok(figure)
}

/// The least and the most.
pub fn bounds(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::MAX, f64::MIN), |(low, high), &value| (low.min(value), high.max(value)))
}

fn units(quick: bool) -> Vec<u32> {
    let all = (0..10).map(|shift| 512u32 << shift);
    all.filter(|unit| !quick || [512, 8 << 10, 64 << 10, 256 << 10].contains(unit)).collect()
}

/// One device kind under one setting of processor and composing, hiding off on both sides.
struct Comparison<'a> {
    profile: &'a DeviceProfile,
    compose: Compose,
    cpu: Cpu,
}

/// Throughputs relative to the array's without hiding.
struct Ratios {
    /// By stripe unit.
    striped: Vec<(u32, f64)>,
    /// The array's own, with hiding on. Striping can hide nothing: what belongs to a device no
    /// other may write.
    hiding: f64,
}

fn compare(bench: &mut Bench, figure: &mut Figure, with: &Comparison) -> Result<Ratios, Failure> {
    let logs = Logs::Each(with.profile.clone(), 2);
    let name = &with.profile.name;
    let long = name == "flash-c";
    let time = if long { bench.tpcc_time_with_outliers(with.cpu) } else { bench.tpcc_time(with.cpu) };
    let cell = Cell {
        compose: with.compose,
        ..Cell::new(logs, Hedging::Off, CLIENTS, with.cpu, time, bench.seed())
    };
    let mut note = |series: &str, cell: &Cell, found: &super::machine::Found| {
        let mut row = row("13", series, cell, found);
        row["compose"] = json!(format!("{:?}", cell.compose));
        figure.rows.push(row);
    };
    let array = bench.tpcc(&format!("{name} array"), &cell)?;
    note("array", &cell, &array);
    let hides = Cell { hiding: Hedging::Adaptive, ..cell.clone() };
    let hiding = bench.tpcc(&format!("{name} array, hiding on"), &hides)?;
    note("array, hiding on", &hides, &hiding);
    let mut striped = Vec::new();
    for unit_bytes in units(bench.is_quick()) {
        let cell = Cell { policy: LogPolicy::Striped { unit_bytes }, ..cell.clone() };
        let found = bench.tpcc(&format!("{name} striped {unit_bytes}"), &cell)?;
        note(&format!("striped {unit_bytes}"), &cell, &found);
        striped.push((unit_bytes, found.per_second / array.per_second));
    }
    Ok(Ratios { striped, hiding: hiding.per_second / array.per_second })
}

/// Figure 13: TPC-C with the conventional array, over stripe units, relative to Firn's array.
pub fn striping(bench: &mut Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::new("13", "round-robin striping beside the unconventional array, two devices");
    let mut worst: (f64, String) = (f64::MIN, String::new());
    let mut worst_hiding = f64::MIN;
    for cpu in bench.cpus() {
        for (compose, how) in
            [(Compose::WhenDeviceFree, "when a device is free"), (Compose::AtFlush, "at the flush call")]
        {
            let title = format!("Figure 13, processor: {}, requests composed {how}", cpu.name);
            let key =
                format!("figure-13-{}-{}", cpu.name, if how.starts_with("at") { "flush" } else { "free" });
            let mut panel = Panel::new(&key, &title, "stripe unit", "throughput relative to the array");
            (panel.log_x, panel.digits) = (true, 3);
            for name in profiles(bench, cpu, compose) {
                let profile = bench.profile(name)?;
                let ratios = compare(bench, &mut figure, &Comparison { profile: &profile, compose, cpu })?;
                for &(unit, value) in &ratios.striped {
                    let label = size::show(unit.into()).replace(".0", "");
                    panel.add(name, Point { x: f64::from(unit), label, value, range: None });
                }
                let Some(&(unit, best)) = ratios.striped.iter().max_by(|a, b| a.1.total_cmp(&b.1)) else {
                    continue;
                };
                worst_hiding = worst_hiding.max(best / ratios.hiding);
                let at = format!("{name}, {}, composed {how}", cpu.name);
                if best > worst.0 {
                    worst = (best, at.clone());
                }
                let printed = match name {
                    "flash-a" => "1.11 (9.8 % loss at the best unit)",
                    _ => "not printed",
                };
                // The paper's array of flash-C hides outliers (5.2).
                let with_hiding = match name {
                    "flash-c" => "1.36 (26.6 % loss at the best unit)",
                    _ => "not printed",
                };
                let best_unit = size::show(unit.into()).replace(".0", "");
                figure.beside(format!("{at}: array / best unit ({best_unit})"), printed, 1.0 / best);
                let hiding = ratios.hiding / best;
                figure.beside(format!("{at}: array, hiding on / best unit"), with_hiding, hiding);
            }
            figure.panels.push(panel);
        }
    }
    figure.at_least(
        "array over the best stripe unit, least over all profiles and settings",
        1.0 / worst.0,
        1.0,
    );
    let name = "array with hiding on over the best stripe unit, least over all profiles and settings";
    figure.at_least(name, 1.0 / worst_hiding, 1.0);
    figure.notes.push(format!("Where striping comes nearest: {}.", worst.1));
    figure.notes.push("The paper's best units are 64 KiB to 128 KiB.".into());
    Ok(figure)
}

/// The paper's drives in every setting; later devices where the processor lets them work.
fn profiles(bench: &Bench, cpu: Cpu, compose: Compose) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = DRIVES.iter().map(|(name, _)| *name).collect();
    if !bench.is_quick() && cpu.factor == 1.0 && compose == Compose::WhenDeviceFree {
        names.extend(["ssd-2008", "network-volume", "sata-ssd", "nvme", "microsd"]);
    }
    names
}
