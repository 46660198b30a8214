//! What a replay into simulated flash prints.

use super::Replay as Args;
use super::replay::Replayed;
use firndb_console::{commit_of_source, size, table};
use firndb_emulate::nand::NandReport;
use firndb_workloads::results::Conditions;
use serde_json::{Value, json};

/// Mean of a sum of nanoseconds, in microseconds.
fn mean_us((count, ns): (u64, u64)) -> Option<f64> {
    (count > 0).then(|| ns as f64 / count as f64 / 1000.0)
}

fn show_us(us: Option<f64>) -> String {
    us.map_or("-".into(), |us| format!("{us:.1} µs"))
}

/// A table for people.
pub fn text(replayed: &Replayed) -> String {
    let (nand, latency) = (replayed.replay.nand(), replayed.replay.latency());
    let (report, config) = (nand.report(), nand.config());
    let mut table = table::new(&["", ""]);
    let mut row = |name: &str, value: String| {
        table.add_row([name.to_owned(), value]);
    };
    row("capacity", size::show(config.logical_bytes()));
    row("flash", format!("{} in {} blocks", size::show(config.geometry.bytes()), config.geometry.blocks()));
    row("over-provisioning", format!("{:.1} %", config.over_provisioning() * 100.0));
    row("operations", replayed.operations.to_string());
    row("host writes", format!("{} ({})", report.host.writes, size::show(report.host.write_bytes)));
    row("host reads", format!("{} ({})", report.host.reads, size::show(report.host.read_bytes)));
    row("pages written in part", report.host.partial_pages.to_string());
    row("discarded", size::show(report.host.discard_bytes));
    row("pages programmed", report.flash.programs.to_string());
    row("pages copied", (report.translation.copies + report.translation.wear_copies).to_string());
    let amplification = report.write_amplification();
    row("write amplification", amplification.map_or("-".into(), |it| format!("{it:.3}")));
    if report.translation.full_merges + report.translation.partial_merges + report.translation.switch_merges
        > 0
    {
        let of = &report.translation;
        row(
            "merges full, partial, switch",
            format!("{}, {}, {}", of.full_merges, of.partial_merges, of.switch_merges),
        );
    }
    row("erases", report.flash.erases.to_string());
    let wear = &report.wear;
    row("a block's erases, least", wear.min.to_string());
    row("a block's erases, median", wear.median.to_string());
    row("a block's erases, most", wear.max.to_string());
    row("standard deviation", format!("{:.2}", wear.deviation));
    row("blocks worn out", format!("{} of {}", wear.retired, wear.blocks));
    row("life left", format!("{:.3} %", wear.life_left() * 100.0));
    row("worst block's life left", format!("{:.3} %", wear.worst_block_left() * 100.0));
    let left = report.host_bytes_left();
    row("writes left at this rate", left.map_or("-".into(), |bytes| size::show(bytes as u64)));
    row("simulated time", format!("{:.3} s", report.elapsed_ns as f64 / 1e9));
    row("chips busy", format!("{:.1} %", report.busy() * 100.0));
    row("mean write", show_us(mean_us(latency.writes)));
    row("longest write", show_us((latency.writes.0 > 0).then_some(latency.write_max_ns as f64 / 1000.0)));
    row("mean read", show_us(mean_us(latency.reads)));
    row("longest read", show_us((latency.reads.0 > 0).then_some(latency.read_max_ns as f64 / 1000.0)));
    let mut text = table::text(table, 1);
    if report.read_only {
        text += &format!("\n\nThe flash was worn out after {} operations.", replayed.operations);
    }
    text
}

/// What the flash below a run did, in a sentence.
pub fn sentence(device: &str, report: &NandReport) -> String {
    let wear = &report.wear;
    let amplification = report.write_amplification().map_or("-".to_owned(), |it| format!("{it:.3}"));
    format!(
        "Flash of {device}: write amplification {amplification}, {} erases while measured; a block's erases in all: least \
         {}, median {}, most {} of {}; {:.3} % of its life left; chips {:.1} % busy.",
        report.flash.erases,
        wear.min,
        wear.median,
        wear.max,
        wear.limit,
        wear.life_left() * 100.0,
        report.busy() * 100.0
    )
}

/// The results as JSON.
pub fn json(args: &Args, replayed: &Replayed) -> Value {
    let (nand, latency) = (replayed.replay.nand(), replayed.replay.latency());
    let (report, config) = (nand.report(), nand.config());
    let settings = json!({
        "trace": args.trace, "translation": format!("{:?}", config.translation).to_lowercase(),
        "gc": format!("{:?}", config.victim).to_lowercase(), "wear_levelling": format!("{:?}", config.wear_levelling),
        "capacity_bytes": config.logical_bytes(), "over_provisioning": config.over_provisioning(),
        "page_bytes": config.geometry.page_bytes, "pages_per_block": config.geometry.pages_per_block,
        "blocks_per_chip": config.geometry.blocks_per_chip, "chips": config.geometry.chips,
        "chips_per_channel": config.geometry.chips_per_channel, "erase_limit": config.erase_limit,
        "read_ns": config.times.read_ns, "program_ns": config.times.program_ns, "erase_ns": config.times.erase_ns,
        "transfer_ns": config.times.transfer_ns, "fill": args.fill, "repeat": args.repeat,
        "warm_up": args.warm_up, "pace": format!("{:?}", args.pace).to_lowercase(), "dense": args.dense,
    });
    let mut head = Conditions::now("firn-nand-replay/1", commit_of_source(), settings, config.seed);
    head.simulated = true;
    head.seconds = report.elapsed_ns as f64 / 1e9;
    let mut all = counts(&report);
    all["operations"] = json!(replayed.operations);
    all["failed_when_recorded"] = json!(replayed.shape.failed);
    all["latency_us"] = json!({
        "write_mean": mean_us(latency.writes), "write_max": latency.write_max_ns as f64 / 1000.0,
        "read_mean": mean_us(latency.reads), "read_max": latency.read_max_ns as f64 / 1000.0,
    });
    if let (Value::Object(all), Ok(Value::Object(head))) = (&mut all, serde_json::to_value(&head)) {
        all.extend(head);
    }
    all
}

/// What the flash did, as JSON.
pub fn counts(report: &NandReport) -> Value {
    let (host, flash, translation, wear) = (&report.host, &report.flash, &report.translation, &report.wear);
    json!({
        "host": {"writes": host.writes, "write_bytes": host.write_bytes, "reads": host.reads,
                 "read_bytes": host.read_bytes, "partial_pages": host.partial_pages,
                 "discards": host.discards, "discard_bytes": host.discard_bytes},
        "flash": {"reads": flash.reads, "programs": flash.programs, "erases": flash.erases,
                  "work_ns": flash.work_ns, "busy": report.busy()},
        "write_amplification": report.write_amplification(),
        "translation": {"collections": translation.collections, "copies": translation.copies,
                        "wear_copies": translation.wear_copies, "full_merges": translation.full_merges,
                        "partial_merges": translation.partial_merges, "switch_merges": translation.switch_merges},
        "wear": {"blocks": wear.blocks, "retired": wear.retired, "limit": wear.limit, "total": wear.total,
                 "min": wear.min, "median": wear.median, "max": wear.max, "deviation": wear.deviation,
                 "life_left": wear.life_left(), "worst_block_left": wear.worst_block_left(),
                 "host_bytes_left": report.host_bytes_left()},
        "read_only": report.read_only,
    })
}
