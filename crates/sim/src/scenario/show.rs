//! A scenario in words, for the report of a run.

use super::Scenario;
use crate::chores::ChoresRound;
use std::fmt;

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} clients on {} keys, {:?}, {} cores, a turn is lost once in {}",
            self.clients, self.keys, self.isolation, self.cores, self.preempt_one_in
        )?;
        writeln!(
            f,
            "pages of {}, {} frames, {} log devices of {} KiB, store of at most {} MiB{}",
            self.page_size,
            self.frames,
            self.log_devices,
            self.log_bytes_each >> 10,
            self.store_limit >> 20,
            self.canary.map_or(String::new(), |canary| format!(", BROKEN: {canary:?}"))
        )?;
        writeln!(f, "deltas that wait: {:?} bytes; {:?}", self.delta_bytes, self.store)?;
        writeln!(f, "pages of page files: {:?}, {} bytes private", self.page_files.0, self.page_files.1)?;
        writeln!(f, "{:?}; log to be read in: {:?}", self.array, self.recovery_time)?;
        writeln!(f, "outliers of the log: {:?}; cache: {:?}; {:?}", self.hiding, self.cache, self.policy)?;
        for (number, round) in self.rounds.iter().enumerate() {
            write!(f, "round {number}: {} transactions a client", round.transactions)?;
            if let Some((after, survival)) = round.cut_in_recovery {
                write!(f, "; first a power cut {after:?} into the opening ({survival:?} survives)")?;
            }
            for trouble in &round.troubles {
                let device = trouble.rule.device.as_deref().unwrap_or("any device");
                write!(f, "; {} on {device} ({:?})", trouble.name, trouble.rule.when)?;
            }
            for (after, change) in &round.cache_changes {
                write!(f, "; after {after:?} {change:?}")?;
            }
            if round.array.archive_missing {
                write!(f, "; first {} openings without the archive", round.openings_without_archive())?;
            }
            if round.chores != ChoresRound::default() {
                write!(f, "; {:?}", round.chores)?;
            }
            for (name, rule) in &round.array.troubles {
                write!(f, "; {name} ({:?})", rule.when)?;
            }
            if !round.array.changes.is_empty() {
                write!(f, "; log devices: {:?}", round.array.changes)?;
            }
            write!(f, "; ends with {:?}", round.end)?;
            if let Some(device) = round.array.lost_device {
                write!(f, "; then log device {device} is lost")?;
            }
            if round.cache_lost {
                write!(f, "; then the cache's device is lost")?;
            }
            if let Some((device, bits)) = round.rot {
                write!(f, "; then {bits} bits of device {device} rot")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
