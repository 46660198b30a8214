//! What a drive could do for a transaction's requests, from the rates that it reaches with requests
//! of one kind alone.
//!
//! The rule: the shares of a second that kinds of requests take, each its number over the rate of
//! that kind alone, add up to one at most. So a transaction's requests take `sum of number / rate`
//! of the drive, and the drive allows one over that many transactions a second. The rates are those
//! of the drive's model under one kind of request, 32 random ones or 4 sequential ones at a time,
//! as the drives' printed figures were taken.

use super::meter::Counts;
use firndb_console::Failure;
use firndb_emulate::{Load, Model};
use firndb_profile::{DeviceProfile, Op, Pattern};
use serde::{Deserialize, Serialize};

/// Requests of one kind, a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    pub requests: f64,
    pub bytes: f64,
}

/// A transaction's requests to a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Requests {
    /// Of less than 64 KiB.
    pub random_reads: Asked,
    /// Of 64 KiB and more.
    pub sequential_reads: Asked,
    /// Of less than 64 KiB, and that do not continue the write before them.
    pub random_writes: Asked,
    pub sequential_writes: Asked,
}

impl Requests {
    /// The requests of `commits` transactions.
    pub fn of(counts: &Counts, commits: f64) -> Requests {
        let asked = |requests: u64, bytes: u64| Asked {
            requests: requests as f64 / commits,
            bytes: bytes as f64 / commits,
        };
        Requests {
            random_reads: asked(counts.small_reads, counts.small_read_bytes),
            sequential_reads: asked(
                counts.reads - counts.small_reads,
                counts.read_bytes - counts.small_read_bytes,
            ),
            random_writes: asked(counts.scattered_writes, counts.scattered_write_bytes),
            sequential_writes: asked(
                counts.writes - counts.scattered_writes,
                counts.write_bytes - counts.scattered_write_bytes,
            ),
        }
    }
}

/// Requests that a rate is taken over.
const REQUESTS: usize = 3000;
const RANDOM_DEPTH: u32 = 32;
const SEQUENTIAL_DEPTH: u32 = 4;
const BLOCK: f64 = 512.0;

/// Microseconds of the whole drive that one request of `bytes` takes, if all are of this kind.
pub fn request_us(profile: &DeviceProfile, op: Op, pattern: Pattern, bytes: f64) -> Result<f64, Failure> {
    let mut model = Model::new(profile, 1).map_err(|error| Failure::bad_argument(error.to_string()))?;
    let depth = if pattern == Pattern::Random { RANDOM_DEPTH } else { SEQUENTIAL_DEPTH };
    let bytes = ((bytes / BLOCK).ceil() * BLOCK).max(BLOCK) as u64;
    let load = Load { op, pattern, bytes, durable: true, depth };
    Ok(1e6 / load.run(&mut model, profile.capacity_bytes, REQUESTS, 1).iops)
}

/// Microseconds of the whole drive that a transaction's requests take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DriveTime {
    pub reads_us: f64,
    pub writes_us: f64,
}

impl DriveTime {
    pub fn of(profile: &DeviceProfile, requests: &Requests) -> Result<DriveTime, Failure> {
        let us = |asked: &Asked, op, pattern| -> Result<f64, Failure> {
            if asked.requests == 0.0 {
                return Ok(0.0);
            }
            Ok(asked.requests * request_us(profile, op, pattern, asked.bytes / asked.requests)?)
        };
        use Op::{Read, Write};
        use Pattern::{Random, Sequential};
        Ok(DriveTime {
            reads_us: us(&requests.random_reads, Read, Random)?
                + us(&requests.sequential_reads, Read, Sequential)?,
            writes_us: us(&requests.random_writes, Write, Random)?
                + us(&requests.sequential_writes, Write, Sequential)?,
        })
    }

    /// Transactions a second that the drive allows.
    pub fn bound(&self) -> f64 {
        1e6 / (self.reads_us + self.writes_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_emulate::profiles;

    fn asked(requests: f64, bytes: f64) -> Asked {
        Asked { requests, bytes: requests * bytes }
    }

    #[test]
    fn shares_of_the_printed_rates_add_up_to_the_bound() {
        let profile = profiles::find("samsung-470").unwrap();
        // The rates of the paper's table 1: 28,495 and 6,314 pages a second, 251 and 243 MB/s.
        let group = 262_144.0;
        let requests = Requests {
            random_reads: asked(10.0, 4096.0),
            sequential_reads: asked(0.2, group),
            random_writes: asked(1.0, 4096.0),
            sequential_writes: asked(0.5, group),
        };
        let time = DriveTime::of(&profile, &requests).unwrap();
        let reads = 10.0 * 1e6 / 28_495.0 + 0.2 * group / 251.33;
        let writes = 1e6 / 6314.0 + 0.5 * group / 242.8;
        assert!((time.reads_us / reads - 1.0).abs() < 0.02, "{time:?} {reads}");
        assert!((time.writes_us / writes - 1.0).abs() < 0.02, "{time:?} {writes}");
        assert!((time.bound() * (reads + writes) / 1e6 - 1.0).abs() < 0.02);
        let none = DriveTime::of(&profile, &Requests::default()).unwrap();
        assert_eq!(none, DriveTime::default());
    }

    #[test]
    fn requests_are_sorted_by_kind_and_divided_by_transactions() {
        let counts = Counts {
            reads: 30,
            read_bytes: 20 * 4096 + 10 * 262_144,
            small_reads: 20,
            small_read_bytes: 20 * 4096,
            writes: 6,
            write_bytes: 4096 + 5 * 262_144,
            scattered_writes: 1,
            scattered_write_bytes: 4096,
            ..Counts::default()
        };
        let requests = Requests::of(&counts, 10.0);
        assert_eq!(requests.random_reads, asked(2.0, 4096.0));
        assert_eq!(requests.sequential_reads, asked(1.0, 262_144.0));
        assert_eq!(requests.random_writes, asked(0.1, 4096.0));
        assert_eq!(requests.sequential_writes, asked(0.5, 262_144.0));
    }
}
