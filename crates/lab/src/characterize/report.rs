//! What was measured, as text and as JSON.

use super::Characterize;
use super::measuring::{KINDS, Measured, PAGE, Row, sizes};
use super::thesis::Table;
use firndb_console::{Failure, commit_of_source, table};
use firndb_workloads::results::Conditions;
use serde_json::{Value, json};

/// How far a ratio may lie off the printed one.
const TOLERANCE: f64 = 0.05;

/// All tables: figure 3-1 of each device, figure 3-2, and the ratios.
pub fn text(devices: &[Measured], tables: &[Table]) -> String {
    let mut parts: Vec<String> = devices.iter().map(by_size).collect();
    parts.push(at_page(devices));
    parts.extend(tables.iter().map(ratios));
    parts.push(inputs(tables));
    parts.join("\n\n")
}

/// The size as the thesis writes it.
pub fn kilobytes(bytes: usize) -> String {
    if bytes < 1 << 20 { format!("{} KB", bytes >> 10) } else { format!("{} MB", bytes >> 20) }
}

/// Three digits or more.
fn digits(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 1.0 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

fn pair(row: Option<&Row>) -> [String; 2] {
    row.map_or_else(|| ["-".to_owned(), "-".to_owned()], |row| [digits(row.mb_s), digits(row.mean_ms)])
}

/// Figure 3-1 of one device.
fn by_size(device: &Measured) -> String {
    let kinds = KINDS.iter().flat_map(|(kind, ..)| [format!("{kind}\nMB/s"), "\nms".to_owned()]);
    let headers: Vec<String> = std::iter::once("size".to_owned()).chain(kinds).collect();
    let mut rows = table::new(&headers.iter().map(String::as_str).collect::<Vec<_>>());
    for bytes in sizes() {
        let cells = (0..KINDS.len()).flat_map(|kind| pair(device.row(kind, bytes)));
        rows.add_row(std::iter::once(kilobytes(bytes)).chain(cells));
    }
    format!("Figure 3-1, {} ({}):\n\n{}", device.name, device.profile.title, table::text(rows, 0))
}

/// Figure 3-2.
fn at_page(devices: &[Measured]) -> String {
    let headers: Vec<String> =
        std::iter::once("4 KB, MB/s".to_owned()).chain(devices.iter().map(|it| it.name.clone())).collect();
    let mut rows = table::new(&headers.iter().map(String::as_str).collect::<Vec<_>>());
    for (kind, (name, ..)) in KINDS.iter().enumerate() {
        let cells = devices.iter().map(|device| pair(device.row(kind, PAGE))[0].clone());
        rows.add_row(std::iter::once((*name).to_owned()).chain(cells));
    }
    format!("Figure 3-2:\n\n{}", table::text(rows, 1))
}

fn ratios(of: &Table) -> String {
    let mut rows = table::new(&["device", "operation", "measured", "printed", "off"]);
    for ratio in &of.ratios {
        rows.add_row([
            ratio.device.clone(),
            ratio.of.to_owned(),
            format!("{:.2}", ratio.measured),
            ratio.printed.map_or_else(|| "-".to_owned(), |printed| format!("{printed:.2}")),
            ratio.off().map_or_else(|| "-".to_owned(), |off| format!("{:+.2} %", 100.0 * off)),
        ]);
    }
    format!("{}:\n\n{}", of.title, table::text(rows, 2))
}

/// Which printed values confirm nothing.
fn inputs(tables: &[Table]) -> String {
    let mut sentences = Vec::new();
    for table in tables {
        let mut names: Vec<&str> =
            table.ratios.iter().filter(|it| it.input.is_some()).map(|it| it.device.as_str()).collect();
        names.dedup();
        if !names.is_empty() {
            sentences.push(format!("{} is an input of {}", table.result, names.join(", ")));
        }
    }
    match sentences.is_empty() {
        true => "The thesis prints nothing of these devices.".to_owned(),
        false => format!(
            "{}: what is printed was computed into the profile, and equality confirms the emulation and the procedure, \
             not the device.",
            sentences.join("; ")
        ),
    }
}

pub fn json(args: &Characterize, devices: &[Measured], tables: &[Table]) -> Result<Value, Failure> {
    let config = json!({
        "profiles": devices.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), "against": args.against,
        "seconds": args.seconds,
    });
    let mut head = Conditions::now("firn-bench/1", commit_of_source(), config, args.seed);
    head.simulated = true;
    head.seconds = args.seconds;
    let mut all = serde_json::to_value(&head).map_err(|error| Failure::new(error.to_string()))?;
    all["bench"] = json!("characterize");
    all["devices"] = devices.iter().map(of_device).collect();
    all["tables"] = tables.iter().map(of_table).collect();
    all["targets"] = tables.iter().filter_map(target).collect();
    Ok(all)
}

fn of_device(device: &Measured) -> Value {
    let rows = device.rows.iter().map(|row| {
        json!({"operation": KINDS[row.kind].0, "bytes": row.bytes, "requests": row.requests, "mb_s": row.mb_s,
               "mean_ms": row.mean_ms})
    });
    json!({"name": device.name, "title": device.profile.title, "rows": rows.collect::<Vec<_>>()})
}

fn of_table(table: &Table) -> Value {
    let ratios = table.ratios.iter().map(|ratio| {
        json!({"device": ratio.device, "operation": ratio.of, "measured": ratio.measured, "printed": ratio.printed,
               "off": ratio.off(), "input": ratio.input})
    });
    json!({"result": table.result, "title": table.title, "ratios": ratios.collect::<Vec<_>>()})
}

fn target(table: &Table) -> Option<Value> {
    let worst = table.ratios.iter().filter_map(|it| it.off()).map(f64::abs).reduce(f64::max)?;
    let name = format!("{}: largest deviation", table.result);
    let input = table.ratios.iter().all(|ratio| ratio.printed.is_none() || ratio.input.is_some());
    Some(json!({"name": name, "value": worst, "target": TOLERANCE, "better": "lower",
                "met": worst <= TOLERANCE, "input": input}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::characterize::measuring::measured;
    use crate::characterize::thesis::tables;

    #[test]
    fn the_thesis_tables_come_out_and_every_row_is_printed() {
        let devices: Vec<Measured> = ["myers-a", "myers-b", "myers-disk"]
            .iter()
            .map(|name| measured(name, 1.0, 1).expect("measured"))
            .collect();
        let tables = tables(&devices, "myers-disk");
        let counts: Vec<usize> = tables.iter().map(|table| table.ratios.len()).collect();
        assert_eq!(counts, [8, 6, 2], "tables 3.1 and 3.2, chapter 6");
        for ratio in tables.iter().flat_map(|table| &table.ratios) {
            let off = ratio.off().expect("printed");
            assert!(off.abs() < TOLERANCE, "{} {}: {off}", ratio.device, ratio.of);
            assert!(ratio.input.is_some(), "{} {}", ratio.device, ratio.of);
        }
        for device in &devices {
            assert_eq!(device.rows.len(), 44, "four kinds, 1 KB to 1 MB");
            for row in &device.rows {
                let rate = row.bytes as f64 / 1000.0 / row.mean_ms;
                assert!((row.mb_s / rate - 1.0).abs() < 0.01, "{rate} MB/s by latency, {}", row.mb_s);
            }
        }
        let text = text(&devices, &tables);
        for bytes in sizes() {
            let rows = text.lines().filter(|line| line.trim_start().starts_with(&kilobytes(bytes)));
            let whole = rows.filter(|line| line.split_whitespace().count() == 10).count();
            assert_eq!(whole, 3, "{} in:\n{text}", kilobytes(bytes));
        }
        assert_eq!(text.matches(" %").count(), 16, "{text}");
    }

    #[test]
    fn a_wrong_profile_is_noticed_and_one_that_the_thesis_does_not_know_has_no_printed_values() {
        let mut devices: Vec<Measured> = ["x25-e", "myers-a", "myers-disk"]
            .iter()
            .map(|name| measured(name, 0.5, 1).expect("measured"))
            .collect();
        for row in devices[1].rows.iter_mut().filter(|row| row.kind == 2) {
            row.mb_s *= 0.94;
            row.mean_ms /= 0.94;
        }
        let tables = tables(&devices, "myers-disk");
        let of = |name: &'static str| {
            tables.iter().flat_map(|table| &table.ratios).filter(move |ratio| ratio.device == name)
        };
        assert_eq!(of("x25-e").filter(|ratio| ratio.printed.is_none()).count(), 6);
        let wrong = of("myers-a").filter(|ratio| ratio.off().is_some_and(|off| off.abs() > TOLERANCE));
        assert_eq!(wrong.count(), 3, "tables 3.1, 3.2 and chapter 6");
        assert!(tables.iter().filter_map(target).all(|target| target["met"] == false), "each holds one");
    }
}
