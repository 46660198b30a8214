//! The figure `adaptive`: plans that are chosen by estimates which are wrong by 100 times, beside
//! the fixed plans between which they may go over, each from the same state of DRAM.

use super::Bench;
use super::data::Data;
use super::planner::{Cell, DRIVES, Found, found};
use super::targets::{self, ADAPTIVE, ADAPTIVE_DISK, ADAPTIVE_MEAN};
use super::ways::fixed;
use crate::bench::cells::Cellular;
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::sampled::Sampled;
use firndb_console::Failure;

const PERCENTS: [f64; 5] = [0.02, 0.1, 0.5, 8.0, 30.0];
/// How many times too high estimates are.
const MISJUDGED: [f64; 2] = [0.01, 100.0];
/// DRAM, in per cent of all pages.
const DRAM: f64 = 5.0;
/// Cells that the notes name.
const NAMED: usize = 40;

pub fn figure(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = targets::figure("adaptive");
    let title = "The plan chosen by a wrong estimate over the better fixed one, worst of all selectivities";
    let mut panel = Panel::of_bars("query-adaptive", title, "drive", "times the better plan");
    panel.digits = 2;
    let (mut flash, mut disks, mut named) = (Vec::new(), Vec::new(), Vec::new());
    for (number, profile) in bench.drives(&DRIVES)?.into_iter().enumerate() {
        for (data, misjudged) in
            [Data::Tuples, Data::Tree].iter().flat_map(|data| MISJUDGED.map(|by| (*data, by)))
        {
            let mut of_drive = Vec::new();
            for percent in PERCENTS {
                let cell = Cell {
                    profile: profile.clone(),
                    data,
                    percent,
                    dram_percent: DRAM,
                    cache_percent: 0.0,
                    misjudged,
                    ways: fixed(data),
                    scale: bench.scale(0.2),
                    computing: bench.args.computing(),
                };
                let name = cell.name();
                let found = found(bench, cell)?;
                let slower = found.value(Found::slower);
                named.push((slower.median(), described(&name, found.first())));
                of_drive.push(slower);
            }
            let most = Sampled::most(&of_drive).unwrap_or_default();
            let curve = format!("{}, {misjudged} times", data.name());
            panel.add(&curve, Point::new(number as f64, &*profile.name, &most));
            if profile.name.contains("disk") { disks.extend(of_drive) } else { flash.extend(of_drive) }
        }
    }
    let all = flash.len() + disks.len();
    let sum: f64 = flash.iter().chain(&disks).map(Sampled::median).sum();
    ADAPTIVE.judge(&mut figure, &Sampled::most(&flash).unwrap_or_default());
    ADAPTIVE_DISK.judge(&mut figure, &Sampled::most(&disks).unwrap_or_default());
    ADAPTIVE_MEAN.judge(&mut figure, &Sampled::once(sum / all.max(1) as f64));
    named.sort_by(|a, b| b.0.total_cmp(&a.0));
    let within = named.iter().filter(|cell| cell.0 <= 1.25).count();
    figure.notes.push(format!("{within} of {all} cells are within 1.25; those above 1.1:"));
    let above = named.into_iter().filter(|cell| cell.0 > 1.1);
    figure.notes.extend(above.take(NAMED).map(|(by, text)| format!("{by:.2} times: {text}")));
    figure.panels.push(panel);
    Ok(figure)
}

fn described(name: &str, found: &Found) -> String {
    let (chosen, best) = (&found.chosen, found.best());
    format!(
        "{name}: {} ({:.4} s, planned {:.4}) beside {} ({:.4} s)",
        chosen.plan, chosen.seconds, chosen.planned_s, best.plan, best.seconds
    )
}
