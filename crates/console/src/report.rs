//! Reports of the engine as more than one command shows them.

use crate::{moment, size};
use firndb::{BackupReport, RecoveryCost, RecoveryReport};
use serde_json::{Value, json};
use std::path::Path;

/// What a finished backup holds, and to which commits it can be restored.
pub fn backup_sentence(report: &BackupReport, at: &Path) -> String {
    format!(
        "the backup in {} is whole: {} pages ({}) of database {}, and log from LSN {} to {end}; it can be restored to \
         LSN {end} ({}) and, with the archive, to any later commit",
        at.display(),
        report.pages,
        size::show(report.page_bytes),
        report.database,
        report.from,
        moment::show(report.times_us.1),
        end = report.end
    )
}

/// What opening cost, part by part.
pub fn recovery_parts_json(recovery: &RecoveryReport) -> Vec<Value> {
    let part = |(name, cost): (&str, RecoveryCost)| {
        json!({"part": name, "seconds": cost.time.as_secs_f64(), "log_reads": cost.log_reads,
               "cache_reads": cost.cache_reads, "store_reads": cost.store_reads})
    };
    recovery.parts().into_iter().map(part).collect()
}
