//! What the devices allow a log of two flash drives and an archive disk that acknowledges commits:
//! two bounds that no log can pass, computed from the profiles.
//!
//! All log goes to the drives, each byte once, and to the archive. So the log's bytes a second are
//! at most those that both drives write with requests of their best size, and at most the disk's
//! (the *bandwidth* bound). Each of n clients waits for its commit, which one request of one device
//! brings home: if n(i) of them wait for device i, it completes at most n(i) commits in the time of
//! a request with the log of n(i) commits. The split of the clients over the devices that comes to
//! most is the *latency* bound. Both leave out outliers and anything that requests wait for.

use super::figure::Figure;
use super::machine::Cpu;
use super::measuring::Bench;
use super::tpcc_figures::{ARCHIVE, CLIENTS, DRIVES, Kind, cell};
use crate::bench::cells::{Judged, end_of};
use crate::bench::sampled::{Sampled, grouped, median};
use firndb_console::Failure;
use firndb_emulate::{Model, Request};
use firndb_log_comparators::Compose;
use firndb_profile::{DeviceProfile, VariantName};
use std::time::Duration;

/// Of TPC-C's transactions, those that write log: New-Order, Payment and Delivery.
const WRITING: f64 = 0.92;
/// Bytes of a log block over those of its payload.
const FRAMING: f64 = 512.0 / 472.0;
/// Writes whose median is a device's usual time.
const WRITES: usize = 65;

/// Bounds of commits a second, those that write nothing included.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bounds {
    bandwidth: f64,
    latency: f64,
}

/// The usual time of a durable sequential write, seconds.
fn write_seconds(profile: &DeviceProfile, bytes: u64) -> Result<f64, Failure> {
    let mut model = Model::new(profile, 1).map_err(|error| Failure::bad_argument(error.to_string()))?;
    let (mut now, mut times) = (Duration::ZERO, Vec::new());
    for at in 0..WRITES as u64 {
        let done = model.submit(now, &Request::durable_write(at * bytes, bytes));
        times.push((done - now).as_secs_f64());
        now = done;
    }
    Ok(median(&times))
}

/// Bytes a second with writes of the best size up to 1 MiB.
fn bytes_per_second(profile: &DeviceProfile) -> Result<f64, Failure> {
    let mut best = 0.0f64;
    for bytes in (12..=20).map(|shift| 1u64 << shift) {
        best = best.max(bytes as f64 / write_seconds(profile, bytes)?);
    }
    Ok(best)
}

/// Share of what the archive's disk can write that this much log a second takes.
pub fn disk_share(bench: &Bench, log_bytes: f64) -> Result<f64, Failure> {
    Ok(log_bytes * FRAMING / bytes_per_second(&bench.profile(ARCHIVE)?)?)
}

/// Commits a second by the number of clients that wait for the device, from none on.
fn by_clients(profile: &DeviceProfile, bytes_of_commit: f64) -> Result<Vec<f64>, Failure> {
    let rate = |clients: usize| {
        let bytes = ((clients as f64 * bytes_of_commit) as u64).next_multiple_of(512).max(512);
        Ok(clients as f64 / write_seconds(profile, bytes)?)
    };
    (0..=CLIENTS).map(rate).collect()
}

/// The bounds with this much log for a commit, of those that write nothing, too.
fn bounds(drive: &DeviceProfile, disk: &DeviceProfile, log_bytes: f64) -> Result<Bounds, Failure> {
    let bytes_of_commit = log_bytes * FRAMING / WRITING;
    let (on_drive, on_disk) = (by_clients(drive, bytes_of_commit)?, by_clients(disk, bytes_of_commit)?);
    let both = |clients: usize| on_drive[clients / 2] + on_drive[clients - clients / 2];
    let latency = (0..=CLIENTS).map(|at_disk| on_disk[at_disk] + both(CLIENTS - at_disk));
    let bandwidth = (2.0 * bytes_per_second(drive)?).min(bytes_per_second(disk)?);
    Ok(Bounds {
        bandwidth: bandwidth / bytes_of_commit.max(1.0) / WRITING,
        latency: latency.fold(0.0, f64::max) / WRITING,
    })
}

/// Two drives and an archive at Firn's processor, as a share of what the devices allow.
pub fn target(bench: &Bench, figure: &mut Figure) -> Result<(), Failure> {
    let cpu = Cpu { name: "firn", factor: 1.0 };
    let mut shares = Vec::new();
    for drive in DRIVES {
        let cell = cell(bench, Kind::TwoAndArchive, drive, Compose::WhenDeviceFree, (CLIENTS, cpu))?;
        let found = bench.tpcc(&cell, Judged::Yes)?;
        let at = |log_bytes: f64, end: VariantName| -> Result<Bounds, Failure> {
            let profile = |name: &str| -> Result<DeviceProfile, Failure> {
                let profile = bench.profile(name)?;
                Ok(end_of(&profile, end).unwrap_or(profile))
            };
            bounds(&profile(drive.0)?, &profile(ARCHIVE)?, log_bytes)
        };
        let share = found.value_at(|found, end| {
            let bounds = at(found.log_bytes_per_commit, end);
            bounds.map_or(f64::NAN, |bounds| found.per_second / bounds.bandwidth.min(bounds.latency))
        });
        let log_bytes = found.value(|found| found.log_bytes_per_commit).median();
        let Bounds { bandwidth, latency } = at(log_bytes, VariantName::Middle)?;
        let rate = found.value(|found| found.per_second).median();
        figure.notes.push(format!(
            "Two {} and an archive, {CLIENTS} clients, Firn's processor: {} commits a second. Bandwidth allows {}: \
             min(2 x {:.1}, {:.1}) MB/s of the drives and of the disk over {:.0} B of log blocks for a commit. Latency \
             allows {}: the most of the sum of n(i) / T(i, n(i) commits) over the devices, n(1) + n(2) + n(3) = \
             {CLIENTS}, T the usual time of a write.",
            drive.0,
            grouped(rate, 0),
            grouped(bandwidth, 0),
            bytes_per_second(&bench.profile(drive.0)?)? / 1e6,
            bytes_per_second(&bench.profile(ARCHIVE)?)? / 1e6,
            log_bytes * FRAMING,
            grouped(latency, 0),
        ));
        let name =
            format!("two {} and archive, Firn's processor, over min(bandwidth, latency bound)", drive.0);
        figure.beside(name, "not printed", &share);
        shares.push(share);
    }
    figure.at_least(
        "two flash drives and an archive that acknowledges, Firn's processor: commits / min(bandwidth bound, latency \
         bound), least over drives",
        &Sampled::least(&shares).unwrap_or_default(),
        0.9,
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(name: &str) -> DeviceProfile {
        crate::tpcc::machine::profile(name).unwrap()
    }

    #[test]
    fn the_bounds_follow_from_the_times_of_the_profiles() {
        let (drive, disk) = (profile("flash-a"), profile("disk-10k"));
        let found = bounds(&drive, &disk, 1300.0).unwrap();
        let each = 1300.0 * FRAMING / WRITING;
        let most = (2.0 * bytes_per_second(&drive).unwrap()).min(bytes_per_second(&disk).unwrap());
        assert!((found.bandwidth * WRITING * each / most - 1.0).abs() < 1e-9);
        // At least what all clients at the drives, or all at the disk, come to.
        let at = |profile: &DeviceProfile, clients: u64| {
            let bytes = ((clients as f64 * each) as u64).next_multiple_of(512);
            clients as f64 / write_seconds(profile, bytes).unwrap() / WRITING
        };
        assert!(found.latency >= 2.0 * at(&drive, 16) && found.latency >= at(&disk, 32), "{found:?}");
        assert!(found.latency <= 2.0 * at(&drive, 32) + at(&disk, 32), "{found:?}");
    }

    #[test]
    fn a_drive_of_half_the_speed_halves_the_bandwidth_bound() {
        let (drive, disk) = (profile("flash-a"), profile("disk-10k"));
        let mut slow = drive.clone();
        slow.model.set(firndb_profile::Parameter::WriteTime, 2.0);
        let of = |drive| bounds(drive, &disk, 1300.0).unwrap().bandwidth;
        let ratio = of(&slow) / of(&drive);
        assert!((0.45..0.55).contains(&ratio), "{ratio}");
    }
}
