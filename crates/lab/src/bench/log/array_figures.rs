//! Figures 5 and 13: what splitting a request costs, and the array beside round-robin striping.

use super::figure::{Figure, Panel, Point};
use super::machine::{Cell, Cpu, Logs};
use super::measuring::Bench;
use super::stream::{Size, StreamCell};
use super::tpcc_figures::{CLIENTS, DRIVES};
use crate::bench::cells::Judged;
use crate::bench::sampled::Sampled;
use firndb_console::{Failure, size};
use firndb_log_comparators::{Compose, Hedging, LogPolicy};
use firndb_profile::DeviceProfile;
use std::time::Duration;

/// What the paper prints of the loss by splitting (3.3): times the bandwidth.
const SPLITTING: [(&str, &str); 3] =
    [("flash-a", "1.41 to 1.51"), ("flash-b", "1.79 to 1.83"), ("flash-c", "1.13 to 1.85")];

/// Figure 5: requests of 4 KiB on two drives, whole, and split into two of 2 KiB.
///
/// Requests are composed at the flush call, one for each, so that none grows by waiting; the split
/// ones are those of a striped log with units of 2 KiB.
pub fn splitting(bench: &Bench) -> Result<Figure, Failure> {
    let title = "requests of 4 KiB on two drives, whole and split into two";
    let mut figure = Figure::new("5", title).of_inputs();
    let requesters: &[usize] = if bench.is_quick() { &[2, 8, 32] } else { &[2, 4, 8, 16, 32] };
    for (drive, printed) in SPLITTING {
        let profile = bench.profile(drive)?;
        let title = format!("Log writes of 4 KiB on two drives {drive}, whole and split in two");
        let key = format!("flashlogging-figure-5-{drive}");
        let mut panel = Panel::new(&key, &title, "threads that write", "MB/s on both drives");
        (panel.log_x, panel.digits) = (true, 2);
        let mut ratios: Vec<Sampled> = Vec::new();
        for &threads in requesters {
            let measure = |policy| -> Result<Sampled, Failure> {
                let found = bench.stream(
                    &StreamCell {
                        logs: Logs::Each(profile.clone(), 2),
                        policy,
                        compose: Compose::AtFlush,
                        hiding: Hedging::Off,
                        threads,
                        size: Size::Fixed(4096),
                        work: Duration::ZERO,
                        fault: None,
                        warm_up: Duration::from_millis(200),
                        time: bench.time(),
                    },
                    Judged::No,
                )?;
                Ok(found.value(|found| found.mb_per_second))
            };
            let whole = measure(LogPolicy::Array)?;
            let split = measure(LogPolicy::Striped { unit_bytes: 2048 })?;
            ratios.push(whole.over(&split));
            for (name, rate) in [("whole", &whole), ("split in two", &split)] {
                panel.add(name, Point::new(threads as f64, threads.to_string(), rate));
            }
        }
        figure.panels.push(panel);
        for (which, ratio) in [("least", Sampled::least(&ratios)), ("most", Sampled::most(&ratios))] {
            let ratio = ratio.unwrap_or_default();
            figure.beside(format!("{drive}: whole / split, {which} over threads"), printed, &ratio);
        }
    }
    Ok(figure)
}

/// Stripe units: all powers of two beside the paper's drives, every second one beside later ones.
fn units(quick: bool, later: bool) -> Vec<u32> {
    let all = (0..10).map(|shift| 512u32 << shift);
    let skipped = |unit: &u32| later && unit.ilog2().is_multiple_of(2);
    all.filter(|unit| !quick || [512, 8 << 10, 64 << 10, 256 << 10].contains(unit))
        .filter(|unit| !skipped(unit))
        .collect()
}

/// One device kind under one setting of processor and composing, hiding off on both sides.
struct Comparison<'a> {
    profile: &'a DeviceProfile,
    compose: Compose,
    cpu: Cpu,
}

/// Throughputs.
struct Rates {
    array: Sampled,
    /// By stripe unit.
    striped: Vec<(u32, Sampled)>,
    /// The array's own, with hiding on. Striping can hide nothing: what belongs to a device no
    /// other may write.
    hiding: Sampled,
}

fn compare(bench: &Bench, with: &Comparison) -> Result<Rates, Failure> {
    let logs = Logs::Each(with.profile.clone(), 2);
    let long = with.profile.name == "flash-c";
    let time = if long { bench.time_with_outliers(with.cpu) } else { bench.time() };
    let cell = Cell { compose: with.compose, ..Cell::new(logs, Hedging::Off, CLIENTS, with.cpu, time) };
    let rate = |cell: &Cell| -> Result<Sampled, Failure> {
        Ok(bench.tpcc(cell, Judged::Yes)?.value(|found| found.per_second))
    };
    let later = DRIVES.iter().all(|(name, _)| *name != with.profile.name);
    let striped = units(bench.is_quick(), later).into_iter().map(|unit_bytes| {
        Ok((unit_bytes, rate(&Cell { policy: LogPolicy::Striped { unit_bytes }, ..cell.clone() })?))
    });
    Ok(Rates {
        array: rate(&cell)?,
        striped: striped.collect::<Result<_, Failure>>()?,
        hiding: rate(&Cell { hiding: Hedging::Adaptive, ..cell.clone() })?,
    })
}

/// The array over striping with its best unit, of all cells so far.
#[derive(Default)]
struct Gains {
    plain: Vec<Sampled>,
    hiding: Vec<Sampled>,
    /// The least of `plain`, and where.
    nearest: Option<(f64, String)>,
}

/// Figure 13: TPC-C with the conventional array, over stripe units, relative to Firn's array.
pub fn striping(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::new("13", "round-robin striping beside the unconventional array, two devices");
    let mut gains = Gains::default();
    for cpu in bench.cpus() {
        for (compose, how, short) in [
            (Compose::WhenDeviceFree, "when a device is free", "free"),
            (Compose::AtFlush, "at the flush call", "flush"),
        ] {
            let title = format!(
                "Striping beside Firn's array on two log devices: requests composed {how}, {}",
                cpu.title()
            );
            let key = format!("flashlogging-figure-13-{}-{short}", cpu.name);
            let mut panel = Panel::new(&key, &title, "stripe unit", "TPC-C throughput, the array's = 1");
            (panel.log_x, panel.digits) = (true, 3);
            for name in profiles(bench, cpu, compose) {
                let profile = bench.profile(name)?;
                let rates = compare(bench, &Comparison { profile: &profile, compose, cpu })?;
                for (unit, rate) in &rates.striped {
                    let label = size::show((*unit).into()).replace(".0", "");
                    panel.add(name, Point::new(f64::from(*unit), label, &rate.over(&rates.array)));
                }
                beside_the_best(
                    &mut figure,
                    &mut gains,
                    &rates,
                    name,
                    &format!("{}, composed {how}", cpu.name),
                );
            }
            figure.panels.push(panel);
        }
    }
    let least = |gains: &[Sampled]| Sampled::least(gains).unwrap_or_default();
    figure.at_least(
        "array over the best stripe unit, least over all profiles and settings",
        &least(&gains.plain),
        1.0,
    );
    let name = "array with hiding on over the best stripe unit, least over all profiles and settings";
    figure.at_least(name, &least(&gains.hiding), 1.0);
    if let Some((_, nearest)) = gains.nearest {
        figure.notes.push(format!("Where striping comes nearest: {nearest}."));
    }
    figure.notes.push("The paper's best units are 64 KiB to 128 KiB.".into());
    Ok(figure)
}

/// The array beside striping with the unit that is best by its median.
fn beside_the_best(figure: &mut Figure, gains: &mut Gains, rates: &Rates, name: &str, setting: &str) {
    let by_median = |one: &&(u32, Sampled), two: &&(u32, Sampled)| one.1.median().total_cmp(&two.1.median());
    let Some((unit, best)) = rates.striped.iter().max_by(by_median) else { return };
    let unit = size::show((*unit).into()).replace(".0", "");
    let at = format!("{name}, {setting}");
    let (plain, hiding) = (rates.array.over(best), rates.hiding.over(best));
    let printed = match name {
        "flash-a" => "1.11 (9.8 % loss at the best unit)",
        _ => "not printed",
    };
    // The paper's array of flash-C hides outliers (5.2).
    let with_hiding = match name {
        "flash-c" => "1.36 (26.6 % loss at the best unit)",
        _ => "not printed",
    };
    figure.beside(format!("{at}: array / best unit ({unit})"), printed, &plain);
    figure.beside(format!("{at}: array, hiding on / best unit"), with_hiding, &hiding);
    if gains.nearest.as_ref().is_none_or(|(least, _)| plain.median() < *least) {
        gains.nearest = Some((plain.median(), at));
    }
    gains.plain.push(plain);
    gains.hiding.push(hiding);
}

/// The paper's drives in every setting; later devices where the processor lets them work.
fn profiles(bench: &Bench, cpu: Cpu, compose: Compose) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = DRIVES.iter().map(|(name, _)| *name).collect();
    if !bench.is_quick() && cpu.factor == 1.0 && compose == Compose::WhenDeviceFree {
        names.extend(["ssd-2008", "network-volume", "sata-ssd", "nvme", "microsd"]);
    }
    names
}
