//! Figure 16: the bandwidth of the recovery scan.

use super::figure::{Figure, Panel, Point, round};
use super::machine::{Logs, simulate};
use super::measuring::Bench;
use super::real_device;
use super::stream::{failed, identity, memories};
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_base::{Epoch, Lsn, clock};
use firndb_console::Failure;
use firndb_device::{Device, MemoryDevice};
use firndb_log::{Kind, Log, LogClass, LogOptions, LogScan, Record};
use serde_json::json;

/// Appends log of TPC-C's kind to devices that take no time, and returns their contents. The
/// requests go round the devices, as they do where all are equally fast.
fn written(count: usize, bytes: u64, seed: u64) -> Result<Vec<MemoryDevice>, Failure> {
    let (devices, _) = simulate(seed, move || {
        let memories: Vec<Arc<MemoryDevice>> =
            memories(count, bytes * 2 / count as u64 + (16 << 20))?.into_iter().map(Arc::new).collect();
        let devices = memories.iter().map(|memory| memory.clone() as Arc<dyn Device>).collect();
        let log = Log::create(devices, identity(count), Epoch(1), LogOptions::default()).map_err(failed)?;
        let mut rng = Rng::new(seed);
        while log.end().since(Lsn::FIRST) < bytes {
            // What gathers for one request of a busy log.
            for _ in 0..rng.between(1, 12) {
                let body = vec![0x5a; rng.between(200, 2500) as usize];
                let record = Record { kind: Kind::TREE_INSERT, body: &body };
                log.append(LogClass::Normal, record).map_err(failed)?;
            }
            log.flush(log.end()).map_err(failed)?;
        }
        log.close().map_err(failed)?;
        Ok(memories.iter().map(|memory| memory.duplicate()).collect::<Vec<_>>())
    })?;
    Ok(devices)
}

/// 10⁶ bytes of log a second that `LogScan` finds on these devices.
fn scan(memories: Vec<MemoryDevice>, logs: Logs, seed: u64) -> Result<f64, Failure> {
    let (rate, _) = simulate(seed, move || {
        let count = logs.count();
        let devices = logs.emulated(memories, seed)?.devices;
        let began = clock::now();
        let scan = LogScan::new(devices, identity(count), Lsn::FIRST, &mut |_, _| {}).map_err(failed)?;
        let seconds = began.elapsed().as_secs_f64();
        Ok(scan.end().since(Lsn::FIRST) as f64 / seconds / 1e6)
    })?;
    Ok(rate)
}

/// Figure 16. The paper's logs have 900 MB, of which a crash leaves about half to be scanned.
pub fn scans(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::new("16", "bandwidth of the recovery scan, over devices");
    let bytes = if bench.is_quick() { 24 << 20 } else { 400 << 20 };
    let mut panel = Panel::new("figure-16", "Figure 16", "devices", "MB of log a second");
    (panel.digits, panel.log_x) = (1, true);
    let names = ["flash-a", "flash-b", "flash-c", "disk-10k", "ssd-2008", "sata-ssd", "network-volume"];
    let mut rates = vec![Vec::new(); names.len()];
    for count in [1usize, 2, 4] {
        bench.measuring(format!("writing a log on {count} devices"))?;
        let image = written(count, bytes, bench.seed())?;
        for (name, rates) in names.into_iter().zip(&mut rates) {
            bench.measuring(format!("scanning {count} x {name}"))?;
            let memories = image.iter().map(MemoryDevice::duplicate).collect();
            let rate = scan(memories, Logs::Each(bench.profile(name)?, count), bench.seed())?;
            panel.add(name, Point { x: count as f64, label: count.to_string(), value: rate, range: None });
            figure.rows.push(json!({
                "figure": "16", "device_profile": name, "log_devices": count,
                "log_bytes": bytes, "mb_per_second": round(rate),
            }));
            rates.push(rate);
        }
    }
    let least = |at: usize| rates.iter().map(|rates| rates[at] / rates[0]).fold(f64::MAX, f64::min);
    let (two, four) = (least(1), least(2));
    for (name, rates) in names.into_iter().zip(&rates).filter(|(name, _)| name.starts_with("flash")) {
        figure.beside(format!("{name}: two devices / one"), "1.19 to 1.81", rates[1] / rates[0]);
    }
    figure.panels.push(panel);
    figure.at_least("recovery scan: two devices / one, least over profiles", two, 1.9);
    figure.at_least("recovery scan: four devices / one, least over profiles", four, 3.6);
    let why = "in virtual time; `--real --dir DIR` measures it";
    figure.not_measured(real_device::SCAN_TARGET, 0.9, "higher", why);
    Ok(figure)
}
