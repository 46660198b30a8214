//! `firn characterize --compare A B`: two profiles side by side, measured or shipped.

use crate::characterize_report::show_us;
use comfy_table::Table;
use firndb_console::{Failure, say, size, table};
use firndb_emulate::profiles;
use firndb_profile::{DeviceProfile, MeasuredRow, ModelSection, Op, Pattern, ServiceTable};

pub fn run(first: &str, second: &str) -> Result<(), Failure> {
    let load = |name: &str| profiles::find(name).map_err(|error| Failure::bad_argument(error.to_string()));
    let (a, b) = (load(first)?, load(second)?);
    say!("A  {}: {} ({})", a.name, a.title, a.source);
    say!("B  {}: {} ({})", b.name, b.title, b.source);
    say!("\n{}", table::text(times(&a.model, &b.model), 2));
    say!("B/A above 1: B is slower.\n");
    say!("{}", table::text(facts(&a, &b), 1));
    let rows = rows(&a.measured, &b.measured);
    if !rows.is_empty() {
        say!("\n{}", table::text(rows, 3));
        say!("Measured under equal conditions; B/A above 1: B makes more requests a second.");
    }
    Ok(())
}

/// Times by size, one request at a time; the sizes of both tables.
fn times(a: &ModelSection, b: &ModelSection) -> Table {
    let mut all = table::new(&["one at a time", "size", "A", "B", "B/A"]);
    type Kind = (&'static str, fn(&ModelSection) -> &ServiceTable);
    let kinds: [Kind; 5] = [
        ("read, sequential", |model| &model.read_sequential),
        ("read, random", |model| &model.read_random),
        ("durable write, sequential", |model| &model.write_sequential),
        ("durable write, random", |model| &model.write_random),
        ("durable rewrite", |model| &model.write_overlapping),
    ];
    for (name, of) in kinds {
        let (a, b) = (of(a), of(b));
        let mut sizes: Vec<u64> = a.points.iter().chain(&b.points).map(|point| point.0).collect();
        sizes.sort_unstable();
        sizes.dedup();
        for bytes in sizes {
            let us = |table: &ServiceTable| (!table.is_empty()).then(|| table.us(bytes));
            let shown = |us: Option<f64>| us.map_or("-".to_owned(), show_us);
            let (a, b) = (us(a), us(b));
            all.add_row([name.to_owned(), size::show(bytes), shown(a), shown(b), ratio(b, a)]);
        }
    }
    all
}

fn ratio(of: Option<f64>, to: Option<f64>) -> String {
    match (of, to) {
        (Some(of), Some(to)) if to > 0.0 => format!("{:.2}", of / to),
        _ => "-".to_owned(),
    }
}

/// What is not a time by size.
fn facts(a: &DeviceProfile, b: &DeviceProfile) -> Table {
    let mut all = table::new(&["", "A", "B"]);
    let mut add = |what: &str, of: &dyn Fn(&DeviceProfile) -> Option<String>| {
        let shown = |profile: &DeviceProfile| of(profile).unwrap_or_else(|| "-".to_owned());
        all.add_row([what.to_owned(), shown(a), shown(b)]);
    };
    add("capacity", &|profile| Some(size::show(profile.capacity_bytes)));
    add("block", &|profile| Some(size::show(u64::from(profile.logical_block))));
    add("requests side by side", &|profile| Some(profile.model.channels.to_string()));
    add("sync", &|profile| Some(show_us(profile.model.sync_us)));
    add("reads at most, MB/s", &|profile| profile.model.read_mb_s.map(|rate| format!("{rate:.0}")));
    add("writes at most, MB/s", &|profile| profile.model.write_mb_s.map(|rate| format!("{rate:.0}")));
    add("sequential streams", &|profile| Some(profile.model.append_streams.to_string()));
    add("outlier writes", &|profile| {
        let writes = profile.model.outliers.iter().filter(|outliers| outliers.op == Op::Write);
        Some(format!("{:.3} %", writes.map(|outliers| outliers.share).sum::<f64>() * 100.0))
    });
    add("longest outlier write", &|profile| {
        let writes = profile.model.outliers.iter().filter(|outliers| outliers.op == Op::Write);
        writes.map(|outliers| outliers.to_us).reduce(f64::max).map(show_us)
    });
    type Shown = (&'static str, fn(&firndb_profile::Choices) -> Option<String>);
    let choices: [Shown; 6] = [
        ("log width", |choices| choices.log_width.as_ref().map(|choice| choice.value.to_string())),
        ("cache batch", |choices| choices.cache_batch_bytes.as_ref().map(|choice| size::show(choice.value))),
        ("reads at once", |choices| choices.read_batch.as_ref().map(|choice| choice.value.to_string())),
        ("outlier, times normal", |choices| {
            choices.outlier_threshold.as_ref().map(|choice| format!("{:.1}", choice.value))
        }),
        ("random : sequential read", |choices| {
            choices.random_to_sequential_read.as_ref().map(|choice| format!("{:.2}", choice.value))
        }),
        ("random : sequential write", |choices| {
            choices.random_to_sequential_write.as_ref().map(|choice| format!("{:.2}", choice.value))
        }),
    ];
    for (what, of) in choices {
        add(what, &|profile| profile.choices.as_ref().and_then(of));
    }
    all
}

/// Rows that both measured.
fn rows(a: &[MeasuredRow], b: &[MeasuredRow]) -> Table {
    let mut all = table::new(&["several at a time", "size", "depth x streams", "A per s", "B per s", "B/A"]);
    let same = |a: &MeasuredRow, b: &MeasuredRow| {
        let key = |row: &MeasuredRow| {
            let share = row.read_share.map(|share| (share * 100.0) as u32);
            (row.op, row.pattern, row.bytes, row.depth, row.streams, row.durable, share)
        };
        let purpose = |row: &MeasuredRow| row.note.split(';').next().map(str::to_owned);
        key(a) == key(b) && purpose(a) == purpose(b) && (a.area_bytes == b.area_bytes || !is_by_area(a))
    };
    for one in
        a.iter().filter(|row| row.depth * row.streams > 1 || row.read_share.is_some() || is_by_area(row))
    {
        if let Some(other) = b.iter().find(|other| same(one, other)) {
            all.add_row([
                describe(one),
                size::show(one.bytes),
                format!("{} x {}", one.depth, one.streams),
                format!("{:.0}", one.iops),
                format!("{:.0}", other.iops),
                ratio(Some(other.iops), Some(one.iops)),
            ]);
        }
    }
    all
}

fn is_by_area(row: &MeasuredRow) -> bool {
    row.note.starts_with("by_area")
}

fn describe(row: &MeasuredRow) -> String {
    let pattern = match row.pattern {
        Pattern::Sequential => "sequential",
        Pattern::Random => "random",
        Pattern::Overlapping => "over the last",
        Pattern::Unwritten => "unwritten",
        Pattern::Append => "append",
    };
    let op = match (row.read_share, row.op, row.durable) {
        (Some(share), ..) => format!("{:.0} % reads", share * 100.0),
        (None, Op::Read, _) => "read".to_owned(),
        (None, Op::Write, true) => "durable write".to_owned(),
        (None, Op::Write, false) => "write".to_owned(),
    };
    let area =
        if is_by_area(row) { format!(", area of {}", size::show(row.area_bytes)) } else { String::new() };
    format!("{op}, {pattern}{area}")
}
