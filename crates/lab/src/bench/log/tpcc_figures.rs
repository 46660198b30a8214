//! Figures 2, 11 and 12: TPC-C over the number of clients, on one and two flash drives, a disk, and
//! the ideal log, with requests composed as Firn does and as the paper does; and how large the
//! requests are.

use super::archive_cost;
use super::bounds;
use super::figure::{Figure, Panel, Point};
use super::machine::{Cell, Cpu, Logs};
use super::measuring::Bench;
use crate::bench::cells::Judged;
use crate::bench::sampled::Sampled;
use crate::cost::cpu::paper_factors;
use firndb_console::{Failure, size};
use firndb_log_comparators::{Compose, Hedging, LogPolicy};
use firndb_profile::DeviceProfile;

/// The paper's drives, and how the paper treats their outliers (5.2).
pub const DRIVES: [(&str, Hedging); 3] =
    [("flash-a", Hedging::Off), ("flash-b", Hedging::Off), ("flash-c", Hedging::TwoStream)];
/// The disk of the archive: as the log's, with its write cache off.
pub const ARCHIVE: &str = "disk-10k";
/// The client count of figures 12, 13 and 17.
pub const CLIENTS: usize = 32;
/// When requests are composed: as Firn does, and as the paper does.
const COMPOSED: [(Compose, &str, &str); 2] = [
    (Compose::AtFlush, "at the flush call, as in the paper", "flush"),
    (Compose::WhenDeviceFree, "when a device is free, as Firn does", "free"),
];
/// What the paper prints for two drives and an archive over the disk (5.2).
const PRINTED_OVER_DISK: [&str; 3] = ["5.7", "5.7", "4.7"];
/// Shares of requests that the paper prints: below a number of KB, %; and the nearest sizes that
/// Firn's log counts, KiB (3.1).
const PRINTED_SIZES: [(&str, &str, u32); 3] = [("10", "82.9", 8), ("15", "90.5", 16), ("36", "99.0", 32)];

/// What a log is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Disk,
    Ideal,
    /// One drive, its blocks written over.
    Naive,
    One,
    Two,
    TwoAndArchive,
}

impl Kind {
    const OF_DRIVE: [Kind; 4] = [Kind::Naive, Kind::One, Kind::Two, Kind::TwoAndArchive];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Disk => "disk",
            Kind::Ideal => "ideal (disk with write cache)",
            Kind::Naive => "one drive, blocks written over",
            Kind::One => "one drive",
            Kind::Two => "two drives",
            Kind::TwoAndArchive => "two drives and archive disk",
        }
    }
}

/// The cell of a log, which for a disk and the ideal is the same beside every drive.
pub fn cell(
    bench: &Bench,
    kind: Kind,
    (drive, hiding): (&str, Hedging),
    compose: Compose,
    (clients, cpu): (usize, Cpu),
) -> Result<Cell, Failure> {
    let one = |name: &str| -> Result<Cell, Failure> {
        let logs = Logs::Each(bench.profile(name)?, 1);
        Ok(Cell { compose, ..Cell::new(logs, Hedging::Off, clients, cpu, bench.time()) })
    };
    let two = |archive: Option<DeviceProfile>| -> Result<Cell, Failure> {
        let logs = Logs::Each(bench.profile(drive)?, 2);
        Ok(Cell { compose, archive, ..Cell::new(logs, hiding, clients, cpu, bench.time()) })
    };
    match kind {
        Kind::Disk => one("disk-10k"),
        Kind::Ideal => one("disk-10k-wce"),
        Kind::Naive => Ok(Cell { policy: LogPolicy::InPlace, ..one(drive)? }),
        Kind::One => one(drive),
        Kind::Two => two(None),
        Kind::TwoAndArchive => two(Some(bench.profile(ARCHIVE)?)),
    }
}

/// Whether a target names the cell.
fn judged(kind: Kind, compose: Compose, clients: usize, cpu: Cpu) -> Judged {
    let named = (kind, compose, clients) == (Kind::TwoAndArchive, Compose::WhenDeviceFree, CLIENTS);
    if named && cpu.name == "firn" { Judged::Yes } else { Judged::No }
}

/// New-Orders a minute of a log.
fn rate(
    bench: &Bench,
    kind: Kind,
    drive: (&str, Hedging),
    compose: Compose,
    (clients, cpu): (usize, Cpu),
) -> Result<Sampled, Failure> {
    let cell = cell(bench, kind, drive, compose, (clients, cpu))?;
    Ok(bench.tpcc(&cell, judged(kind, compose, clients, cpu))?.value(|found| found.tpm))
}

/// Figure 11: throughput over clients.
pub fn over_clients(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::new("11", "logging performance over clients");
    for cpu in bench.cpus() {
        for (compose, how, short) in COMPOSED {
            let mut shares = Vec::new();
            for drive in DRIVES {
                let title =
                    format!("TPC-C on log devices {}, requests composed {how}: {}", drive.0, cpu.title());
                let key = format!("flashlogging-figure-11-{}-{short}-{}", cpu.name, drive.0);
                let mut panel = Panel::new(&key, &title, "clients", "New-Orders a minute");
                (panel.log_x, panel.log_y) = (true, true);
                for clients in bench.clients() {
                    let rate = |kind| rate(bench, kind, drive, compose, (clients, cpu));
                    let point = |rate: &Sampled| Point::new(clients as f64, clients.to_string(), rate);
                    let (disk, ideal) = (rate(Kind::Disk)?, rate(Kind::Ideal)?);
                    panel.add(Kind::Disk.name(), point(&disk));
                    for kind in Kind::OF_DRIVE {
                        panel.add(kind.name(), point(&rate(kind)?));
                    }
                    panel.add(Kind::Ideal.name(), point(&ideal));
                    shares.push(disk.over(&ideal));
                }
                figure.panels.push(panel);
            }
            if cpu.name != "firn" {
                for (which, share) in [("least", Sampled::least(&shares)), ("most", Sampled::most(&shares))] {
                    let printed = if which == "least" { "0.112" } else { "0.299" };
                    let name = format!("disk / ideal, {which} over clients; composed {how}");
                    figure.beside(name, printed, &share.unwrap_or_default());
                }
            }
        }
    }
    Ok(figure)
}

/// The processors of figure 12: the estimate of the paper's has two ends.
fn processors() -> Vec<Cpu> {
    let [paper, slow, fast] = paper_factors().map(|(name, factor)| Cpu { name, factor });
    vec![slow, paper, fast, Cpu { name: "firn", factor: 1.0 }]
}

/// Figure 12: throughput with 32 clients, over the disk's.
pub fn at_32_clients(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::new("12", "throughput with 32 clients beside the disk and the ideal log");
    for (compose, how, short) in COMPOSED {
        let title = format!("TPC-C, 32 clients, beside the disk as log: requests composed {how}");
        let key = format!("flashlogging-figure-12-{short}");
        let mut panel = Panel::of_bars(&key, &title, "log", "times the throughput of the disk");
        (panel.log_y, panel.digits) = (true, 2);
        for cpu in processors() {
            over_the_disk(bench, &mut figure, &mut panel, (compose, how), cpu)?;
        }
        figure.panels.push(panel);
    }
    bounds::target(bench, &mut figure)?;
    archive_cost::target(bench, &mut figure)?;
    Ok(figure)
}

/// One processor and way of composing: each log over the disk, beside what the paper prints.
fn over_the_disk(
    bench: &Bench,
    figure: &mut Figure,
    panel: &mut Panel,
    (compose, how): (Compose, &str),
    cpu: Cpu,
) -> Result<(), Failure> {
    let rate = |kind, drive| rate(bench, kind, drive, compose, (CLIENTS, cpu));
    let (disk, ideal) = (rate(Kind::Disk, DRIVES[0])?, rate(Kind::Ideal, DRIVES[0])?);
    let mut at = 0;
    let mut add = |name: String, rate: &Sampled| {
        panel.add(cpu.title(), Point::new(f64::from(at), name, &rate.over(&disk)));
        at += 1;
    };
    add("ideal".into(), &ideal);
    let setting = format!("{}; composed {how}", cpu.name);
    figure.beside(format!("ideal / disk, {setting}"), "5.8", &ideal.over(&disk));
    let mut shares = Vec::new();
    for (drive, printed) in DRIVES.into_iter().zip(PRINTED_OVER_DISK) {
        for kind in Kind::OF_DRIVE {
            let rate = rate(kind, drive)?;
            add(format!("{}: {}", drive.0, kind.name()), &rate);
            if kind == Kind::TwoAndArchive {
                let name = format!("two {} and archive / disk, {setting}", drive.0);
                figure.beside(name, printed, &rate.over(&disk));
                shares.push(rate.over(&ideal));
            }
        }
    }
    let best = Sampled::most(&shares).unwrap_or_default();
    figure.beside(format!("two drives and archive, best / ideal, {setting}"), "0.986", &best);
    Ok(())
}

/// Figure 2: how large the log's requests are, on the disk, with 32 clients.
pub fn flush_sizes(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::new("2", "sizes of log writes: TPC-C with 32 clients, the disk as log");
    let title = "Sizes of log writes: TPC-C, 32 clients, one disk as log";
    let mut panel = Panel::new(
        "flashlogging-figure-2",
        title,
        "size of a write, below",
        "% of the writes that are smaller",
    );
    (panel.log_x, panel.digits) = (true, 1);
    for (compose, how, _) in COMPOSED {
        for cpu in bench.cpus() {
            let cell = cell(bench, Kind::Disk, DRIVES[0], compose, (CLIENTS, cpu))?;
            let found = bench.tpcc(&cell, judged(Kind::Disk, compose, CLIENTS, cpu))?;
            // What is counted at i is smaller than twice 2^i blocks.
            let below = |kib: u32| {
                found.value(|found| {
                    let sizes = &found.log.requests_by_size;
                    let all: u64 = sizes.iter().sum();
                    let smaller: u64 = sizes.iter().take(kib.ilog2() as usize + 1).sum();
                    100.0 * smaller as f64 / all.max(1) as f64
                })
            };
            let series = format!("composed {how}: {}", cpu.title());
            for kib in (0..9).map(|shift| 1 << shift) {
                let label = size::show(u64::from(kib) << 10).replace(".0", "");
                panel.add(&series, Point::new(f64::from(kib), label, &below(kib)));
            }
            if (compose, cpu.name) == (Compose::AtFlush, "paper") {
                for (kb, printed, kib) in PRINTED_SIZES {
                    let name = format!("% of writes below {kb} KB in the paper, below {kib} KiB here");
                    figure.beside(name, printed, &below(kib));
                }
            }
        }
    }
    figure.panels.push(panel);
    figure
        .notes
        .push("The log counts its writes by powers of two, so that sizes differ from those printed.".into());
    Ok(figure)
}
