//! What `firn characterize` prints, and its JSON.

use crate::characterize::CharacterizeArgs;
use firndb_characterize::{Measured, Measurements, Op, Pattern, Purpose};
use firndb_console::{commit_of_source, say, size, table};
use firndb_profile::{Choice, DeviceProfile};
use firndb_workloads::results::config_hash;
use serde_json::{Value, json};
use std::fmt::Display;

/// The kinds of requests that are measured by size, and what they are called.
pub const KINDS: [(&str, Op, Pattern); 6] = [
    ("read, sequential", Op::Read, Pattern::Sequential),
    ("read, random", Op::Read, Pattern::Random),
    ("durable write, sequential", Op::WriteDurable, Pattern::Sequential),
    ("durable write, random", Op::WriteDurable, Pattern::Random),
    ("write, sequential", Op::WriteLater, Pattern::Sequential),
    ("write, random", Op::WriteLater, Pattern::Random),
];

pub fn print(profile: &DeviceProfile, measured: &Measurements) {
    say!("{}", profile.title);
    say!("{}", profile.source);
    profile.notes.iter().for_each(|note| say!("note: {note}"));
    print_sizes(measured);
    print_rest(measured);
    print_outliers(measured);
    print_choices(profile);
}

/// A duration for people, three digits.
pub fn show_us(us: f64) -> String {
    match us {
        us if us < 100.0 => format!("{us:.1} us"),
        us if us < 10_000.0 => format!("{us:.0} us"),
        us if us < 1e6 => format!("{:.1} ms", us / 1000.0),
        us => format!("{:.2} s", us / 1e6),
    }
}

fn print_sizes(measured: &Measurements) {
    let mut sizes =
        table::new(&["one at a time", "size", "per s", "MB/s", "mean", "p50", "p99", "p99.9", "max"]);
    for (name, op, pattern) in KINDS {
        for one in measured.of(Purpose::BySize, op, pattern) {
            let latency = &one.tally.latency;
            sizes.add_row([
                name.to_owned(),
                size::show(one.cell.bytes as u64),
                format!("{:.0}", one.requests_per_second()),
                format!("{:.1}", one.mb_per_second()),
                show_us(latency.mean_us()),
                show_us(latency.quantile_us(0.5)),
                show_us(latency.quantile_us(0.99)),
                show_us(latency.quantile_us(0.999)),
                show_us(latency.max_us()),
            ]);
        }
    }
    say!("\n{}", table::text(sizes, 1));
}

fn print_rest(measured: &Measurements) {
    let mut rest = table::new(&["else", "what", "per s", "MB/s", "mean", "p99", "the others' mean"]);
    for one in &measured.cells {
        if matches!(one.cell.purpose, Purpose::BySize | Purpose::Outliers) {
            continue;
        }
        let aside = &one.tally.aside;
        let area = one.cell.area.map_or(String::new(), |area| format!(", area of {}", size::show(area)));
        rest.add_row([
            one.cell.purpose.name().replace('_', " "),
            format!("{}{area}", one.cell),
            format!("{:.0}", one.requests_per_second() * one.cell.batch as f64),
            format!("{:.1}", one.mb_per_second()),
            show_us(one.tally.latency.mean_us()),
            show_us(one.tally.latency.quantile_us(0.99)),
            if aside.count() > 0 { show_us(aside.mean_us()) } else { String::new() },
        ]);
    }
    say!("\n{}", table::text(rest, 2));
    say!(
        "\"The others\" are the syncs of sync, the writes of mixed, the second stream of two streams. \"At once\" means are of the \
         whole batch."
    );
    if let Some((first, last)) = firndb_characterize::sustained(measured) {
        say!("Writing without a pause slows down from {first:.0} to {last:.0} MB/s.");
    }
    let stalls: usize = measured.cells.iter().map(|one| one.tally.stalls.len()).sum();
    let longest = measured.cells.iter().flat_map(|one| &one.tally.stalls).map(|stall| stall.1).max();
    if let Some(longest) = longest {
        say!(
            "{stalls} times nothing at all was completed for 100 ms or more; the longest time was {longest} ms."
        );
    }
}

fn print_outliers(measured: &Measurements) {
    for one in measured.about(Purpose::Outliers) {
        let found = one.outliers();
        let spacing = found.spacing.map_or(String::new(), |[least, middle, most]| {
            let rhythm = if found.spacing_variation < 0.25 { "regularly" } else { "irregularly" };
            format!(", {rhythm} {middle:.0} writes apart ({least:.0} to {most:.0})")
        });
        say!(
            "\nDurable sequential writes of {}: {} of normal ones; {:.3} % of {} take over twice as long: typically {}, at \
             most {}{spacing}",
            size::show(one.cell.bytes as u64),
            show_us(found.normal_us),
            found.share * 100.0,
            one.tally.ordered.len(),
            show_us(found.typical_us),
            show_us(found.max_us),
        );
    }
}

fn print_choices(profile: &DeviceProfile) {
    let Some(choices) = &profile.choices else { return };
    fn row<T: Display>(what: &str, choice: &Option<Choice<T>>, digits: usize) -> Option<[String; 3]> {
        let choice = choice.as_ref()?;
        Some([what.to_owned(), format!("{:.digits$}", choice.value), choice.reason.clone()])
    }
    let mut chosen = table::new(&["for the engine", "", "because"]);
    let rows = [
        row("log width", &choices.log_width, 0),
        row("cache batch, bytes", &choices.cache_batch_bytes, 0),
        row("reads at once", &choices.read_batch, 0),
        row("outlier, times normal", &choices.outlier_threshold, 1),
        row("random : sequential read", &choices.random_to_sequential_read, 2),
        row("random : sequential write", &choices.random_to_sequential_write, 2),
    ];
    rows.into_iter().flatten().for_each(|row| {
        chosen.add_row(row);
    });
    say!("\n{}\n", table::text(chosen, 3));
}

/// The results in the project's common layout.
pub fn json(
    args: &CharacterizeArgs,
    profile: &DeviceProfile,
    measured: &Measurements,
    started: &str,
) -> Value {
    let config = json!({
        "path": args.path, "quick": args.quick, "area_bytes": measured.area, "seed": args.seed,
        "device": profile.title, "notes": profile.notes,
    });
    json!({
        "schema": "firn-characterize/1",
        "commit": commit_of_source(),
        "config_hash": config_hash(&config),
        "config": config,
        "device_profile": profile.name,
        "simulated": false,
        "seed": args.seed,
        "started_at": started,
        "seconds": measured.seconds,
        "cut_short": measured.cut_short,
        "rows": measured.cells.iter().map(row).collect::<Vec<_>>(),
        "profile": profile,
    })
}

pub fn row(one: &Measured) -> Value {
    let (cell, tally) = (&one.cell, &one.tally);
    let latency = |latency: &firndb_characterize::Distribution| {
        json!({
            "count": latency.count(), "mean": latency.mean_us(), "p50": latency.quantile_us(0.5),
            "p95": latency.quantile_us(0.95), "p99": latency.quantile_us(0.99),
            "p999": latency.quantile_us(0.999), "max": latency.max_us(),
        })
    };
    let found = one.outliers();
    json!({
        "purpose": cell.purpose.name(), "op": cell.op.name(), "pattern": cell.pattern.name(),
        "read_percent": match cell.op { Op::Mixed { read_percent } => Some(read_percent), _ => None },
        "ground": cell.ground.name(), "bytes": cell.bytes, "batch": cell.batch, "depth": cell.depth,
        "streams": cell.streams, "area_bytes": cell.area,
        "requests_per_second": one.requests_per_second(), "mb_per_second": one.mb_per_second(),
        "rounds": one.rounds,
        "latency_us": latency(&tally.latency),
        "aside_latency_us": (tally.aside.count() > 0).then(|| latency(&tally.aside)),
        "distribution_us": thinned(tally.latency.cumulative()),
        "stalls_ms": tally.stalls,
        "mb_in_each_100_ms": match cell.purpose {
            Purpose::Sustained => tally.timeline.iter().map(|&bytes| bytes as f64 / 1e6).collect::<Vec<_>>(),
            _ => Vec::new(),
        },
        "outliers": (!tally.ordered.is_empty()).then(|| json!({
            "normal_us": found.normal_us, "share": found.share, "typical_us": found.typical_us,
            "spacing_p5_p50_p95": found.spacing, "spacing_variation": found.spacing_variation,
        })),
    })
}

/// A distribution without the points that stand within half a percent, and a twentieth of what is
/// missing to all, of the one before: a few hundred are left of tens of thousands.
fn thinned(mut points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let last = points.len().saturating_sub(1);
    let (mut index, mut kept) = (0, 0.0);
    points.retain(|&(_, share)| {
        let keep = index == 0 || index == last || share - kept >= 0.005f64.min((1.0 - kept) / 20.0);
        index += 1;
        if keep {
            kept = share;
        }
        keep
    });
    points
}

#[cfg(test)]
mod tests {
    use super::thinned;

    #[test]
    fn a_thinned_distribution_keeps_its_ends_its_tail_and_few_points_between() {
        let points: Vec<(f64, f64)> = (1..=50_000).map(|i| (f64::from(i), f64::from(i) / 50_000.0)).collect();
        let few = thinned(points.clone());
        assert!((200..500).contains(&few.len()), "{}", few.len());
        assert_eq!((few[0], few[few.len() - 1]), (points[0], points[49_999]));
        assert!(few.iter().filter(|point| point.1 > 0.999).count() > 20);
        assert_eq!(thinned(Vec::new()), Vec::new());
    }
}
