//! What `firn lab emulate` shows while it runs and when it ends.

use super::Emulate;
use firndb_console::output::write_json;
use firndb_console::{Failure, commit_of_source, say, size, table};
use firndb_emulate_fs::{Counts, Ending, Kind, KindCounts};
use firndb_profile::DeviceProfile;
use firndb_workloads::results::Conditions;
use serde::Serialize;
use serde_json::json;

/// The line of counters.
pub fn line(counts: &Counts) -> String {
    let [reads, writes, syncs] = &counts.kinds;
    format!(
        "{:.0} s  reads {} ({})  writes {} ({})  syncs {}  {}  busy {:.0} %",
        counts.seconds,
        reads.requests,
        size::show(reads.bytes),
        writes.requests,
        size::show(writes.bytes),
        syncs.requests,
        slowest(counts),
        counts.busy * 100.0
    )
}

/// Latencies of the kind that programs wait for the longest, on the whole.
fn slowest(counts: &Counts) -> String {
    let waited = |kind: &KindCounts| kind.mean_us * kind.requests as f64;
    match counts.kinds.iter().max_by(|a, b| waited(a).total_cmp(&waited(b))) {
        Some(kind) if kind.requests > 0 => {
            format!("{} {:.0} µs, 99 % {} µs", name(kind.kind), kind.mean_us, kind.p99_us)
        }
        _ => "idle".to_owned(),
    }
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Read => "read",
        Kind::Write => "write",
        Kind::Sync => "sync",
    }
}

/// What is written with `--json`.
#[derive(Serialize)]
struct Results<'a> {
    #[serde(flatten)]
    conditions: &'a Conditions,
    requests: &'a [KindCounts],
    busy: f64,
    power_cut_at_seconds: Option<f64>,
    was_busy: bool,
}

pub struct Report {
    conditions: Conditions,
}

impl Report {
    /// Notes the conditions.
    pub fn begin(args: &Emulate, profile: &DeviceProfile) -> Report {
        let config = json!({
            "profile": profile, "size": args.size, "direct": args.direct, "fault": args.fault,
            "fault_file": args.fault_file,
        });
        let mut conditions = Conditions::now("firn-emulate/1", commit_of_source(), config, args.seed);
        conditions.device_profile = Some(profile.name.clone());
        Report { conditions }
    }

    /// Shows how it ended, and writes the results if asked to.
    pub fn end(mut self, args: &Emulate, ending: &Ending) -> Result<(), Failure> {
        let counts = &ending.counts;
        let mut rows =
            table::new(&["requests", "count", "bytes", "failed", "mean µs", "50 % µs", "99 % µs", "max µs"]);
        for kind in &counts.kinds {
            rows.add_row([
                name(kind.kind).to_owned(),
                kind.requests.to_string(),
                size::show(kind.bytes),
                kind.failed.to_string(),
                format!("{:.0}", kind.mean_us),
                kind.p50_us.to_string(),
                kind.p99_us.to_string(),
                kind.max_us.to_string(),
            ]);
        }
        say!("\n{}\n", table::text(rows, 1));
        say!("{:.1} s, of which the device was busy {:.0} %", counts.seconds, counts.busy * 100.0);
        if let Some(at) = ending.power_cut {
            say!("power was cut after {:.1} s; what was not synced is lost", at.as_secs_f64());
            if let Some(backing) = &args.backing {
                say!("what is left is in {}; mount it again to look at it", backing.display());
            }
        }
        if ending.was_busy {
            say!("files were still open; their programs get errors from now on");
        }
        self.conditions.seconds = counts.seconds;
        let Some(path) = &args.json else { return Ok(()) };
        write_json(
            path,
            &Results {
                conditions: &self.conditions,
                requests: &counts.kinds,
                busy: counts.busy,
                power_cut_at_seconds: ending.power_cut.map(|at| at.as_secs_f64()),
                was_busy: ending.was_busy,
            },
        )
    }
}
