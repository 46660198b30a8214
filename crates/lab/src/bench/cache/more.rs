//! Table 5, figure 5, and what the cache costs where it cannot help.

use super::Bench;
use super::compared::{GSC, KEEP, LC};
use super::machine::{Cell, DRAM_PERCENT, Data};
use super::sizes::{MLC, title};
use crate::bench::figure::{Figure, Panel, Point};
use firndb_console::Failure;
use std::time::Duration;

/// New-Orders a minute that the paper prints for one to five times 2 GB of flash.
const MORE_FLASH: [f64; 5] = [3681.0, 4310.0, 4830.0, 5161.0, 5570.0];
/// 2 GB of 50.
const FLASH_PERCENT: f64 = 4.0;
/// 6 GB of 50.
const DISKS_PERCENT: f64 = 12.0;

/// Table 5: the same money for DRAM or for ten times as much flash.
pub fn money(bench: &mut Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::table("5", "more DRAM or more flash");
    let mut panel =
        Panel::new("face-table-5", "Table 5", "times 200 MB of DRAM or 2 GB of flash", "New-Orders a minute");
    let mut least = f64::MAX;
    let steps: &[usize] = if bench.args.quick { &[1, 3, 5] } else { &[1, 2, 3, 4, 5] };
    let mut first = None;
    for &step in steps {
        let point = |value| Point { x: step as f64, label: format!("x{step}"), value, range: None };
        let dram = DRAM_PERCENT * (step + 1) as f64;
        let more_dram = bench.measure(&Cell { dram_percent: dram, ..bench.cell(bench.disks()?, None)? })?;
        panel.add("more DRAM", point(more_dram.tpm));
        for policy in [GSC, KEEP] {
            let found = bench.measure(&bench.cached(policy, MLC, FLASH_PERCENT * step as f64)?)?;
            panel.add(&format!("more flash, {}", title(policy)), point(found.tpm));
            if policy == GSC {
                least = least.min(found.tpm / more_dram.tpm);
                let base = *first.get_or_insert(found.tpm);
                if step > 1 {
                    let paper = format!("{:.2}", MORE_FLASH[step - 1] / MORE_FLASH[0]);
                    figure.beside(format!("more flash x{step} over x1"), &paper, found.tpm / base);
                }
            }
        }
    }
    figure.panels.push(panel);
    figure.at_least("more flash (GSC) over more DRAM at equal money, least", least, 1.0);
    Ok(figure)
}

/// Figure 5: 4, 8 and 16 disks.
pub fn disks(bench: &mut Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::new("5", "throughput over the number of disks");
    let mut panel = Panel::new("face-figure-5", "Figure 5", "disks", "New-Orders a minute");
    panel.log_x = true;
    let mut gsc = Vec::new();
    for count in [4usize, 8, 16] {
        let array = Data::DisksInPlace(bench.profile(&format!("cheetah-15k-raid{count}"))?);
        let point = |value| Point { x: count as f64, label: count.to_string(), value, range: None };
        for policy in [LC, GSC, KEEP] {
            let cell = Cell { data: array.clone(), ..bench.cached(policy, MLC, DISKS_PERCENT)? };
            let found = bench.measure(&cell)?;
            panel.add(title(policy), point(found.tpm));
            if policy == GSC {
                gsc.push(found.tpm);
            }
        }
        let alone = bench.measure(&bench.cell(array, None)?)?;
        panel.add("HDD only", point(alone.tpm));
    }
    figure.panels.push(panel);
    figure.at_least("GSC: 8 disks over 4", gsc[1] / gsc[0], 1.0);
    figure.at_least("GSC: 16 disks over 8", gsc[2] / gsc[1], 1.0);
    Ok(figure)
}

/// Everything fits into DRAM: the cache cannot help, and should cost nothing.
pub fn overhead(bench: &mut Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::new("overhead", "the cache where everything fits into DRAM");
    let mut panel = Panel::new("face-overhead", "All in DRAM", "cache", "transactions a second");
    let time = Duration::from_secs_f64(bench.args.seconds.unwrap_or(1.0));
    let in_dram = |cell: Cell| Cell {
        dram_percent: 150.0,
        // So that checkpoints come.
        checkpoint_bytes: 32 << 20,
        fills: false,
        time,
        ..cell
    };
    let alone = bench.measure(&in_dram(bench.cell(bench.disks()?, None)?))?;
    let policy = GSC;
    let cached = bench.measure(&in_dram(bench.cached(policy, MLC, 12.0)?))?;
    for (x, (label, found)) in [("none", &alone), ("gsc", &cached)].into_iter().enumerate() {
        let label = label.to_owned();
        panel.add("in DRAM", Point { x: x as f64, label, value: found.per_second, range: None });
    }
    figure.panels.push(panel);
    let cost = (1.0 - cached.per_second / alone.per_second) * 100.0;
    figure.at_most("cost of a cache that cannot help, % of throughput", cost, 2.0);
    figure.notes.push("In virtual time: the cache's own processor time is not in it.".into());
    Ok(figure)
}
