//! Measures what queries compute, for `Computing::FIRN`: all data in memory, no background threads.
//!
//! Instructions are counted by Valgrind's callgrind for some queries, each run a few times more
//! than in another child process, so that opening and planning cancel; and become time at a stated
//! rate. A query says how often it did what; the constants are the least squares of what these
//! counts leave, relative to each query's instructions, none below zero.
//!
//! ```sh
//! cargo run --release -p firndb-lab --example query_costs      # needs valgrind; some minutes
//! ```

use firndb::query::{AccessKind, Counts, Hint, JoinMethod, Query, col};
use firndb::{Column, ColumnType, Database, IndexSpec, KeyColumn, Options, Schema, TableSpec, Value};
use std::path::Path;
use std::process::Command;

type Error = Box<dyn std::error::Error>;

/// How often a query is run in the two children.
const TIMES: [u64; 2] = [1, 4];
/// Instructions a nanosecond: the stated rate, as of the cost model of transactions.
const RATE: f64 = 5.0;
const ROWS: i64 = 20_000;
const NAMES: [&str; 8] = ["page", "row", "entry", "lookup", "probe", "keep", "compare", "return"];

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => measure(),
        ["run", dir, number, times] => run(Path::new(dir), number.parse()?, times.parse()?),
        _ => Err("usage: query_costs".into()),
    }
}

fn open(dir: &Path) -> Result<Database, Error> {
    Ok(Options::new().buffer_bytes(128 << 20).background_threads(false).open(dir)?)
}

/// A table NAME of columns NAME_id (its key), NAME_k (all values once, indexed), and bytes.
fn load(db: &Database, name: &str, pad: usize) -> Result<(), Error> {
    let column = |end: &str, kind| Column::new(format!("{name}_{end}"), kind);
    let columns =
        vec![column("id", ColumnType::I64), column("k", ColumnType::I64), column("pad", ColumnType::Bytes)];
    let by_k = IndexSpec::columns("by_k", false, vec![KeyColumn::ascending(1)]);
    let schema = Schema::with_key(columns, &[&format!("{name}_id")])?;
    let table = db.create_table_with(name, TableSpec::typed(schema).with_index(by_k))?.typed()?;
    let pad = Value::Bytes(vec![b'x'; pad]);
    for from in (0..ROWS).step_by(500) {
        db.transact(|tx| {
            (from..from + 500).try_for_each(|id| {
                let row = [Value::I64(id), Value::I64(id * 7919 % ROWS), pad.clone()];
                table.insert(tx, &row.each_ref().map(Value::as_ref))
            })
        })?;
    }
    db.analyze(&db.table(name)?)?;
    Ok(())
}

fn access(table: &str, kind: AccessKind) -> Hint {
    let index = (kind != AccessKind::TableScan).then(|| "by_k".to_owned());
    Hint::Access(table.into(), kind, index)
}

/// The queries, each with a name.
fn queries(db: &Database) -> Vec<(&'static str, Query)> {
    use AccessKind::{IndexFetch, IndexOnly, IndexScan, TableScan};
    let of = |table: &str, k: i64| db.query(table).filter(col(format!("{table}_k")).lt(k));
    let join = |method, k: i64, select: [&str; 2]| {
        let both = of("a", k).join("b", col("a_k").eq(col("b_k"))).select(select);
        both.hint(Hint::Join("b".into(), method)).hint(Hint::Order(vec!["a".into(), "b".into()]))
    };
    vec![
        ("scan of short rows, none wanted", of("a", 0).hint(access("a", TableScan))),
        ("scan of long rows, none wanted", of("c", 0).hint(access("c", TableScan))),
        ("scan of short rows, all wanted", of("a", ROWS).hint(access("a", TableScan))),
        ("scan of long rows, all wanted", of("c", ROWS).hint(access("c", TableScan))),
        ("index only", of("a", ROWS).select(["a_k"]).hint(access("a", IndexOnly))),
        ("index scan", of("a", ROWS / 4).hint(access("a", IndexScan))),
        ("index fetch of a quarter", of("a", ROWS / 4).hint(access("a", IndexFetch))),
        ("index fetch, long rows", of("c", ROWS / 4).hint(access("c", IndexFetch))),
        ("sort", of("a", ROWS).sort(["a_pad", "a_k"]).hint(access("a", TableScan))),
        ("hash join", join(JoinMethod::Hash, ROWS, ["a_id", "b_id"]).hint(access("b", TableScan))),
        ("sort-merge join", join(JoinMethod::SortMerge, ROWS, ["a_id", "b_id"]).hint(access("b", TableScan))),
        ("index nested loops", join(JoinMethod::IndexNestedLoops, ROWS / 4, ["a_id", "b_id"])),
        ("index sort-merge", join(JoinMethod::IndexSortMerge, ROWS / 4, ["a_pad", "b_pad"])),
        ("block nested loops", join(JoinMethod::BlockNestedLoops, 1000, ["a_id", "b_id"])),
    ]
}

fn run(dir: &Path, number: usize, times: u64) -> Result<(), Error> {
    let db = open(dir)?;
    let queries = queries(&db);
    let (mut explained, mut counts) = (0.0, Counts::default());
    if let Some((_, query)) = queries.get(number) {
        let found = query.explain()?;
        explained = found.dram_pages + found.cache_pages + found.store_pages;
        let mut tx = db.snapshot();
        // The pages come into memory.
        query.run(&mut tx)?.all(&mut tx)?;
        for _ in 0..times {
            let mut rows = query.run(&mut tx)?;
            while rows.next(&mut tx)?.is_some() {}
            counts = rows.counts();
        }
    } else {
        let query = match number - queries.len() {
            0 => db.query("a").filter(col("a_k").lt(7)),
            _ => db.query("a").filter(col("a_k").lt(7)).join("b", col("a_k").eq(col("b_k"))),
        };
        for _ in 0..=times {
            query.explain()?;
        }
    }
    let Counts { rows, entries, lookups, probes, kept, compared, returned } = counts;
    println!("{explained} {rows} {entries} {lookups} {probes} {kept} {compared} {returned}");
    drop(queries);
    Ok(db.close()?)
}

/// Instructions of a child, and the counts that it prints.
fn child(dir: &Path, number: usize, times: u64) -> Result<(f64, Vec<f64>), Error> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args(["run", &dir.display().to_string(), &number.to_string(), &times.to_string()])
        .output()?;
    let (printed, messages) =
        (String::from_utf8(output.stdout)?, String::from_utf8_lossy(&output.stderr).into_owned());
    let collected = messages.lines().find_map(|line| line.split_once("Collected : "));
    let (_, collected) = collected.ok_or_else(|| format!("no count in: {messages}"))?;
    let counts = printed.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>()?;
    Ok((collected.trim().parse()?, counts))
}

fn measure() -> Result<(), Error> {
    let scratch = tempfile::tempdir()?;
    let dir = scratch.path().join("db");
    let db = open(&dir)?;
    for (name, pad) in [("a", 40), ("b", 40), ("c", 900)] {
        load(&db, name, pad)?;
    }
    let names: Vec<&str> = queries(&db).into_iter().map(|(name, _)| name).collect();
    db.close()?;
    let each = |number: usize| -> Result<(f64, Vec<f64>), Error> {
        let (short, _) = child(&dir, number, TIMES[0])?;
        let (long, counts) = child(&dir, number, TIMES[1])?;
        Ok(((long - short) / (TIMES[1] - TIMES[0]) as f64, counts))
    };
    let plannings = [each(names.len())?.0, each(names.len() + 1)?.0];
    let mut all = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let (instructions, counts) = each(number)?;
        // A run plans first.
        let planning =
            plannings[usize::from(name.contains("join") || name.contains("loops") || name.contains("merge"))];
        all.push((*name, instructions - planning, counts));
    }
    let costs = fitted(&all);
    println!("{:<34}{:>14}{:>10}", "query", "instructions", "fit off %");
    for (name, instructions, counts) in &all {
        let fit: f64 = costs.iter().zip(counts).map(|(cost, count)| cost * count).sum();
        println!("{name:<34}{instructions:>14.0}{:>10.1}", 100.0 * (fit / instructions - 1.0));
    }
    println!("\nconstants, us:");
    for (name, instructions) in NAMES.iter().zip(costs) {
        println!("  {name:<8}{:>9.4}", instructions / RATE / 1000.0);
    }
    for (what, instructions) in ["one table", "two tables"].iter().zip(plannings) {
        println!("planning {what}: {instructions:.0} instructions, {:.0} us", instructions / RATE / 1000.0);
    }
    Ok(())
}

/// Least squares of relative errors, no constant below zero: one after the other, many times.
fn fitted(all: &[(&str, f64, Vec<f64>)]) -> [f64; 8] {
    let mut costs = [0.0; 8];
    for _ in 0..20_000 {
        for at in 0..costs.len() {
            let (mut over, mut under) = (0.0, 0.0);
            for (_, instructions, counts) in all {
                let others: f64 = (0..costs.len())
                    .filter(|other| *other != at)
                    .map(|other| costs[other] * counts[other])
                    .sum();
                let (count, rest) = (counts[at] / instructions, 1.0 - others / instructions);
                over += count * rest;
                under += count * count;
            }
            costs[at] = if under > 0.0 { f64::max(0.0, over / under) } else { 0.0 };
        }
    }
    costs
}
