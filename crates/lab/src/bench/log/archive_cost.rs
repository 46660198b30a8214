//! What an archive costs: throughput of two flash drives with an archive disk that acknowledges
//! commits over that without. Beside it the same with a disk that has its write cache on, which
//! writes eagerly whatever it is given: no way of writing the archive makes its disk faster.

use super::bounds::disk_share;
use super::figure::{Figure, Panel, Point};
use super::machine::{Cell, Cpu};
use super::measuring::Bench;
use super::tpcc_figures::{CLIENTS, DRIVES, Kind, cell};
use crate::bench::cells::Judged;
use crate::bench::sampled::Sampled;
use firndb_console::Failure;
use firndb_log_comparators::Compose;

/// A disk that completes a write when it has taken it.
const EAGER: &str = "disk-10k-wce";

/// Adds the panel and the target to figure 12.
pub fn target(bench: &Bench, figure: &mut Figure) -> Result<(), Failure> {
    let cpu = Cpu { name: "firn", factor: 1.0 };
    let title = "TPC-C on two flash drives, with an archive over without: Firn's processor";
    let mut panel = Panel::of_bars("flashlogging-archive-cost", title, "log", "with over without an archive");
    panel.digits = 3;
    let (mut ratios, mut at) = (Vec::new(), 0.0);
    let mut most_used = 0.0f64;
    for drive in DRIVES {
        for clients in [CLIENTS, 128] {
            let of = |kind| cell(bench, kind, drive, Compose::WhenDeviceFree, (clients, cpu));
            let archived = of(Kind::TwoAndArchive)?;
            let eager = Cell { archive: Some(bench.profile(EAGER)?), ..archived.clone() };
            let alone = bench.tpcc(&of(Kind::Two)?, Judged::Yes)?.value(|found| found.tpm);
            let found = bench.tpcc(&archived, Judged::Yes)?;
            let eager = bench.tpcc(&eager, Judged::No)?.value(|found| found.tpm);
            let ratio = found.value(|found| found.tpm).over(&alone);
            let label = format!("{}, {clients} clients", drive.0);
            panel.add("archive on a disk, write cache off", Point::new(at, &*label, &ratio));
            panel.add("archive on a disk with a write cache", Point::new(at, label, &eager.over(&alone)));
            let first = found.first();
            most_used = most_used.max(disk_share(bench, first.per_second * first.log_bytes_per_commit)?);
            ratios.push(ratio);
            at += 1.0;
        }
    }
    figure.panels.push(panel);
    figure.notes.push(format!(
        "What an archive costs: its disk's bandwidth is nowhere the bound, of which {:.0} % are used at most.",
        100.0 * most_used
    ));
    let least = Sampled::least(&ratios).unwrap_or_default();
    figure.at_least(
        "two flash drives, Firn's processor: throughput with an archive over without, least over drives, 32 and 128 \
         clients, and seeds",
        &least.least_of_seeds(),
        0.95,
    );
    Ok(())
}
