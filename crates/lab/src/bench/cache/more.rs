//! Table 5 and figure 5: more flash or more DRAM, and more disks.

use super::Bench;
use super::compared::{DEFAULT, GSC, LC, title};
use super::found::Found;
use super::machine::{Cell, Clients, DRAM_PERCENT, Data};
use super::sizes::{MLC, judged};
use crate::bench::cells::{Judged, Measured};
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::sampled::Sampled;
use firndb_console::Failure;

/// New-Orders a minute that the paper prints for one to five times 2 GB of flash.
const MORE_FLASH: [f64; 5] = [3681.0, 4310.0, 4830.0, 5161.0, 5570.0];
/// 2 GB of 50.
const FLASH_PERCENT: f64 = 4.0;
/// 6 GB of 50.
const DISKS_PERCENT: f64 = 12.0;
/// The paper's clients.
const CLIENTS: Clients = Clients::Pinned;

fn tpm(found: &Measured<Found>) -> Sampled {
    found.value(|found| found.tpm)
}

/// Table 5: the same money for DRAM or for ten times as much flash.
pub fn money(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::table("5", "more DRAM or more flash for the same money");
    let mut panel = Panel::new(
        "face-table-5",
        "Throughput: the same money for DRAM or for ten times as much flash",
        "times 0.4 % of the database more DRAM, or times 4 % of it on flash",
        "New-Orders a minute",
    );
    let steps: &[usize] = if bench.is_quick() { &[1, 3, 5] } else { &[1, 2, 3, 4, 5] };
    let mut first = None;
    for &step in steps {
        let add = |panel: &mut Panel, name: &str, value: &Sampled| {
            panel.add(name, Point::new(step as f64, format!("x{step}"), value));
        };
        let dram = DRAM_PERCENT * (step + 1) as f64;
        let cell = Cell { dram_percent: dram, ..bench.cell(bench.disks()?, None, CLIENTS)? };
        add(&mut panel, "more DRAM", &tpm(&bench.measure(&cell, Judged::No)?));
        for policy in [GSC, DEFAULT] {
            let cell = bench.cached(policy, MLC, FLASH_PERCENT * step as f64, CLIENTS)?;
            // Figure 4 has these cells, too.
            let found = tpm(&bench.measure(&cell, judged(policy))?);
            add(&mut panel, &format!("more flash, {}", title(policy)), &found);
            if policy == GSC {
                let base = first.get_or_insert_with(|| found.clone());
                if step > 1 {
                    let paper = format!("{:.2}", MORE_FLASH[step - 1] / MORE_FLASH[0]);
                    figure.beside(format!("more flash x{step} over x1"), &paper, &found.over(base));
                }
            }
        }
    }
    figure.panels.push(panel);
    Ok(figure)
}

/// Figure 5: 4, 8 and 16 disks.
pub fn disks(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::new("5", "throughput over the number of disks");
    let mut panel = Panel::new(
        "face-figure-5",
        &format!("Throughput with a cache of {DISKS_PERCENT} % of the database on {MLC}"),
        "disks",
        "New-Orders a minute",
    );
    panel.log_x = true;
    let mut gsc = Vec::new();
    for count in [4usize, 8, 16] {
        let array = Data::DisksInPlace(bench.profile(&format!("cheetah-15k-raid{count}"))?);
        let mut add = |name: &str, value: &Sampled| {
            panel.add(name, Point::new(count as f64, count.to_string(), value));
        };
        for policy in [LC, GSC, DEFAULT] {
            let cell = bench.cached(policy, MLC, DISKS_PERCENT, CLIENTS)?;
            let found = bench.measure(&Cell { data: array.clone(), ..cell }, judged(policy))?;
            add(title(policy), &tpm(&found));
            if policy == GSC {
                gsc.push(tpm(&found));
            }
        }
        let alone = bench.measure(&bench.cell(array, None, CLIENTS)?, Judged::Yes)?;
        add("disks only", &tpm(&alone));
    }
    figure.panels.push(panel);
    figure.at_least("GSC: 8 disks over 4", &gsc[1].over(&gsc[0]), 1.0);
    figure.at_least("GSC: 16 disks over 8", &gsc[2].over(&gsc[1]), 1.0);
    Ok(figure)
}
