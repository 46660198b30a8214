//! Figure 16: the bandwidth of the recovery scan.

use super::Bench;
use super::figure::{Figure, Panel, Point, round};
use super::machine::{Logs, simulate};
use super::stream::{failed, identity, memories};
use crate::Failure;
use firn_base::rng::Rng;
use firn_base::sync::Arc;
use firn_base::{Epoch, Lsn, clock};
use firn_device::{Device, MemoryDevice};
use firn_log::{Kind, Log, LogClass, LogOptions, LogScan, Record};
use serde_json::json;

/// Appends log of TPC-C's kind to devices that take no time, and answers their contents. The requests go round the
/// devices, as they do where all are equally fast.
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
                let record = Record { kind: Kind(0x20), body: &body };
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

/// Figure 16.
pub fn scans(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::new("16", "bandwidth of the recovery scan, over devices");
    let bytes = if bench.is_quick() { 24 << 20 } else { 192 << 20 };
    let mut panel = Panel::new("figure-16", "Figure 16", "devices", "MB of log a second");
    (panel.digits, panel.log_x) = (1, true);
    let counts = [1usize, 2, 4];
    let images: Vec<Vec<MemoryDevice>> =
        counts.iter().map(|&count| written(count, bytes, bench.seed())).collect::<Result<_, _>>()?;
    let (mut two, mut four) = (f64::MAX, f64::MAX);
    let names = ["flash-a", "flash-b", "flash-c", "disk-10k", "ssd-2008", "sata-ssd", "network-volume"];
    for name in names {
        let profile = bench.profile(name)?;
        let mut rates = Vec::new();
        for (image, &count) in images.iter().zip(&counts) {
            bench.measuring(format!("scanning {count} x {name}"))?;
            let memories = image.iter().map(MemoryDevice::duplicate).collect();
            let rate = scan(memories, Logs::Each(profile.clone(), count), bench.seed())?;
            let label = count.to_string();
            panel.add(name, Point { x: count as f64, label, value: rate, range: None });
            figure.rows.push(json!({
                "figure": "16", "device_profile": name, "log_devices": count,
                "log_bytes": bytes, "mb_per_second": round(rate),
            }));
            rates.push(rate);
        }
        two = two.min(rates[1] / rates[0]);
        four = four.min(rates[2] / rates[0]);
        if name.starts_with("flash") {
            figure.beside(format!("{name}: two devices / one"), "1.19 to 1.81", rates[1] / rates[0]);
        }
    }
    figure.panels.push(panel);
    figure.at_least("recovery scan: two devices / one, least over profiles", two, 1.9);
    figure.at_least("recovery scan: four devices / one, least over profiles", four, 3.6);
    Ok(figure)
}
