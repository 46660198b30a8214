//! Table 5, figure 5, and what the cache costs where it cannot help.

use super::Bench;
use super::compared::{GSC, KEEP, LC};
use super::machine::{Cell, DRAM_PERCENT, Data};
use super::sizes::{MLC, title};
use crate::bench::cells::Judged;
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::sampled::Sampled;
use firndb_console::Failure;
use std::time::Duration;

/// New-Orders a minute that the paper prints for one to five times 2 GB of flash.
const MORE_FLASH: [f64; 5] = [3681.0, 4310.0, 4830.0, 5161.0, 5570.0];
/// 2 GB of 50.
const FLASH_PERCENT: f64 = 4.0;
/// 6 GB of 50.
const DISKS_PERCENT: f64 = 12.0;

/// Table 5: the same money for DRAM or for ten times as much flash.
pub fn money(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::table("5", "more DRAM or more flash");
    let mut panel =
        Panel::new("face-table-5", "Table 5", "times 200 MB of DRAM or 2 GB of flash", "New-Orders a minute");
    let mut ratios = Vec::new();
    let steps: &[usize] = if bench.args.quick { &[1, 3, 5] } else { &[1, 2, 3, 4, 5] };
    let mut first = None;
    for &step in steps {
        let point = |value: &Sampled| Point::new(step as f64, format!("x{step}"), value);
        let dram = DRAM_PERCENT * (step + 1) as f64;
        let more_dram = Cell { dram_percent: dram, ..bench.cell(bench.disks()?, None)? };
        let more_dram = bench.measure(&more_dram, Judged::Yes)?.value(|found| found.tpm);
        panel.add("more DRAM", point(&more_dram));
        for policy in [GSC, KEEP] {
            let cell = bench.cached(policy, MLC, FLASH_PERCENT * step as f64)?;
            let judged = if policy == GSC { Judged::Yes } else { Judged::No };
            let found = bench.measure(&cell, judged)?.value(|found| found.tpm);
            panel.add(&format!("more flash, {}", title(policy)), point(&found));
            if policy == GSC {
                ratios.push(found.over(&more_dram));
                let base = first.get_or_insert_with(|| found.clone());
                if step > 1 {
                    let paper = format!("{:.2}", MORE_FLASH[step - 1] / MORE_FLASH[0]);
                    figure.beside(format!("more flash x{step} over x1"), &paper, &found.over(base));
                }
            }
        }
    }
    figure.panels.push(panel);
    let least = Sampled::least(&ratios).unwrap_or_default();
    figure.at_least("more flash (GSC) over more DRAM at equal money, least", &least, 1.0);
    Ok(figure)
}

/// Figure 5: 4, 8 and 16 disks.
pub fn disks(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::new("5", "throughput over the number of disks");
    let mut panel = Panel::new("face-figure-5", "Figure 5", "disks", "New-Orders a minute");
    panel.log_x = true;
    let mut gsc = Vec::new();
    for count in [4usize, 8, 16] {
        let array = Data::DisksInPlace(bench.profile(&format!("cheetah-15k-raid{count}"))?);
        let point = |value: &Sampled| Point::new(count as f64, count.to_string(), value);
        for policy in [LC, GSC, KEEP] {
            let cell = Cell { data: array.clone(), ..bench.cached(policy, MLC, DISKS_PERCENT)? };
            let judged = if policy == GSC { Judged::Yes } else { Judged::No };
            let found = bench.measure(&cell, judged)?.value(|found| found.tpm);
            panel.add(title(policy), point(&found));
            if policy == GSC {
                gsc.push(found);
            }
        }
        let alone = bench.measure(&bench.cell(array, None)?, Judged::No)?;
        panel.add("HDD only", point(&alone.value(|found| found.tpm)));
    }
    figure.panels.push(panel);
    figure.at_least("GSC: 8 disks over 4", &gsc[1].over(&gsc[0]), 1.0);
    figure.at_least("GSC: 16 disks over 8", &gsc[2].over(&gsc[1]), 1.0);
    Ok(figure)
}

/// Everything fits into DRAM: the cache cannot help, and should cost nothing.
pub fn overhead(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::new("overhead", "the cache where everything fits into DRAM");
    let mut panel = Panel::of_bars("face-overhead", "All in DRAM", "cache", "transactions a second");
    let time = Duration::from_secs_f64(bench.args.seconds.unwrap_or(1.0));
    let in_dram = |cell: Cell| Cell {
        dram_percent: 150.0,
        // So that checkpoints come.
        checkpoint_bytes: 32 << 20,
        fills: false,
        time,
        ..cell
    };
    let rate = |cell: Cell| -> Result<Sampled, Failure> {
        Ok(bench.measure(&in_dram(cell), Judged::Yes)?.value(|found| found.per_second))
    };
    let alone = rate(bench.cell(bench.disks()?, None)?)?;
    let cached = rate(bench.cached(GSC, MLC, 12.0)?)?;
    for (x, (label, rate)) in [("none", &alone), ("gsc", &cached)].into_iter().enumerate() {
        panel.add("in DRAM", Point::new(x as f64, label, rate));
    }
    figure.panels.push(panel);
    let cost = cached.over(&alone).map(|ratio| (1.0 - ratio) * 100.0);
    figure.at_most("cost of a cache that cannot help, % of throughput", &cost, 2.0);
    figure.notes.push("In virtual time: the cache's own processor time is not in it.".into());
    Ok(figure)
}
