//! Figures 11 and 12: TPC-C over the number of clients, on one and two flash drives, a disk, and
//! the ideal log.

use super::figure::{Figure, Panel, Point, round};
use super::machine::{Cell, Cpu, Found, Logs};
use super::measuring::Bench;
use firndb_console::Failure;
use firndb_log_comparators::{Hedging, LogPolicy};
use firndb_profile::DeviceProfile;
use serde_json::{Value, json};

/// The paper's drives, and how the paper treats their outliers (5.2).
pub const DRIVES: [(&str, Hedging); 3] =
    [("flash-a", Hedging::Off), ("flash-b", Hedging::Off), ("flash-c", Hedging::TwoStream)];
/// The disk of the archive: as the log's, with its write cache off.
const ARCHIVE: &str = "disk-10k";
/// The client count of figures 12, 13 and 17.
pub const CLIENTS: usize = 32;

/// A measurement as a row of the results.
pub fn row(figure: &str, series: &str, cell: &Cell, found: &Found) -> Value {
    json!({
        "figure": figure, "series": series, "clients": cell.clients, "cpu": cell.cpu.name,
        "log_devices": cell.logs.count(), "device_profile": cell.logs.profile().name,
        "hiding": format!("{:?}", cell.hiding).to_lowercase(),
        "tpmC": round(found.tpm), "transactions_per_second": round(found.per_second),
        "new_order_latency_us": found.new_order,
        "log_bytes_per_commit": round(found.log_bytes_per_commit),
        "log_requests": found.log.requests, "log_written_bytes": found.log.written_bytes,
        "archive_profile": cell.archive.as_ref().map(|profile| &profile.name),
        "archive_early_writes": found.early_writes,
        "reissued": found.log.hiding.reissued, "reissued_bytes": found.log.hiding.reissued_bytes,
        "trace_hash": format!("{:016x}", found.trace_hash),
    })
}

/// A log that figure 11 compares.
struct Compared {
    name: String,
    logs: Logs,
    policy: LogPolicy,
    hiding: Hedging,
    archive: Option<DeviceProfile>,
}

fn compared(bench: &Bench) -> Result<Vec<Compared>, Failure> {
    let one = |name: &str, profile: DeviceProfile| Compared {
        name: name.to_owned(),
        logs: Logs::Each(profile, 1),
        policy: LogPolicy::Array,
        hiding: Hedging::Off,
        archive: None,
    };
    let archive = bench.profile(ARCHIVE)?;
    let mut all = vec![one("disk", bench.profile("disk-10k")?), one("ideal", bench.profile("disk-10k-wce")?)];
    for (drive, hiding) in DRIVES {
        let profile = bench.profile(drive)?;
        let naive = one(&format!("{drive} naive"), profile.clone());
        all.push(Compared { policy: LogPolicy::InPlace, ..naive });
        all.push(one(&format!("{drive} 1f"), profile.clone()));
        let (logs, policy) = (Logs::Each(profile, 2), LogPolicy::Array);
        for (name, archive) in [("2f", None), ("2f-1d", Some(archive.clone()))] {
            let (name, logs) = (format!("{drive} {name}"), logs.clone());
            all.push(Compared { name, logs, policy, hiding, archive });
        }
    }
    Ok(all)
}

/// Figure 11, and figure 12 from its column of 32 clients.
pub fn over_clients(bench: &mut Bench) -> Result<[Figure; 2], Failure> {
    let mut figures = [
        Figure::new("11", "logging performance over clients"),
        Figure::new("12", "throughput with 32 clients beside the disk and the ideal log"),
    ];
    for cpu in bench.cpus() {
        with_processor(bench, cpu, &mut figures)?;
    }
    Ok(figures)
}

fn with_processor(bench: &mut Bench, cpu: Cpu, figures: &mut [Figure; 2]) -> Result<(), Failure> {
    let [eleven, twelve] = figures;
    let mut panel = Panel::new(
        &format!("figure-11-{}", cpu.name),
        &format!("Figure 11, processor: {}", cpu.name),
        "clients",
        "New-Orders a minute",
    );
    panel.log_x = true;
    let mut at_32 = Vec::new();
    for compared in compared(bench)? {
        for clients in bench.clients() {
            let time = bench.tpcc_time(cpu);
            let cell = Cell::new(compared.logs.clone(), compared.hiding, clients, cpu, time, bench.seed());
            let cell = Cell { policy: compared.policy, archive: compared.archive.clone(), ..cell };
            let found = bench.tpcc(&compared.name, &cell)?;
            eleven.rows.push(row("11", &compared.name, &cell, &found));
            let label = clients.to_string();
            panel.add(&compared.name, Point { x: clients as f64, label, value: found.tpm, range: None });
            if clients == CLIENTS {
                at_32.push((compared.name.clone(), found.tpm));
            }
        }
    }
    eleven.panels.push(panel);
    let of = |name: &str| at_32.iter().find(|(found, _)| found == name).map_or(f64::NAN, |(_, tpm)| *tpm);
    let (disk, ideal) = (of("disk"), of("ideal"));
    twelve.beside(format!("ideal / disk, {}", cpu.name), "5.8", ideal / disk);
    let mut bars = Panel::new(
        &format!("figure-12-{}", cpu.name),
        &format!("Figure 12, processor: {}", cpu.name),
        "log",
        "times the throughput of the disk, of the ideal",
    );
    bars.digits = 2;
    for (at, (name, tpm)) in at_32.iter().enumerate() {
        bars.add("over disk", Point { x: at as f64, label: name.clone(), value: tpm / disk, range: None });
        bars.add("over ideal", Point { x: at as f64, label: name.clone(), value: tpm / ideal, range: None });
    }
    twelve.panels.push(bars);
    let two = DRIVES.map(|(drive, _)| of(&format!("{drive} 2f")));
    let best = two.into_iter().fold(f64::MIN, f64::max);
    twelve.beside(
        format!("two flash drives without archive, best / ideal, {}", cpu.name),
        "not printed",
        best / ideal,
    );
    let with = DRIVES.map(|(drive, _)| of(&format!("{drive} 2f-1d")));
    let best = with.into_iter().fold(f64::MIN, f64::max);
    for ((drive, _), tpm) in DRIVES.iter().zip(with) {
        let name = format!("two {drive} and an archive / disk, {}", cpu.name);
        twelve.beside(name, if *drive == "flash-c" { "4.7" } else { "5.7" }, tpm / disk);
    }
    // The paper's 98.6 % is that of its best drives.
    let name = format!("two flash drives and an archive, best / ideal, {}", cpu.name);
    twelve.at_least(name, best / ideal, 0.99);
    let name = format!("two flash drives and an archive, best / disk, {}", cpu.name);
    twelve.at_least(name, best / disk, round(0.99 * ideal / disk));
    Ok(())
}
