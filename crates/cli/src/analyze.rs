//! `firn analyze`: statistics of tables, for planning.

use crate::caches;
use crate::json::print_json;
use clap::Args;
use firndb::{
    AnalyzeProgress, CancelToken, Database, ErrorKind, STATISTICS_WINDOWS, Table, TableStatistics,
    TransactionOptions,
};
use firndb_console::{Failure, interrupt, progress, say, table};
use firndb_workloads::wall;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// `firn analyze`.
#[derive(Args, Clone, Debug)]
pub struct Analyze {
    /// The database's directory
    pub dir: PathBuf,
    /// A table; all of them if none is named
    pub table: Option<String>,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// Reads the tables and keeps their statistics. A table that cannot be analyzed keeps none of the
/// others from it.
pub fn run(args: &Analyze) -> Result<(), Failure> {
    let options = caches::options().create(false).on_recovery(progress::recovery());
    let db = options.open(&args.dir)?;
    let stop = interrupt::install()?;
    let names = args.table.as_ref().map_or_else(|| db.table_names(), |name| vec![name.clone()]);
    let mut analyzed = Vec::new();
    let mut failures = Vec::new();
    for name in &names {
        let found = db.table(name).and_then(|table| {
            let statistics = analyze(&db, name, &table, stop)?;
            Ok((statistics, table))
        });
        match found {
            Ok((statistics, table)) => {
                analyzed.push((name.clone(), named_indexes(&table, &statistics)?, statistics))
            }
            Err(error) if error.kind() == ErrorKind::Cancelled => break,
            Err(error) => failures.push(format!("table {name:?}: {error}")),
        }
    }
    if args.json {
        let tables: serde_json::Map<String, Value> =
            analyzed.iter().map(|(name, indexes, found)| (name.clone(), to_json(found, indexes))).collect();
        print_json(&Value::Object(tables))?;
    } else if !analyzed.is_empty() {
        print(&analyzed);
    }
    db.close()?;
    if stop.load(Ordering::SeqCst) && analyzed.len() < names.len() {
        let done = analyzed.len();
        return Err(Failure::interrupted(format!(
            "stopped: of {} tables {done} were analyzed; the others keep the statistics that they had",
            names.len()
        )));
    }
    if failures.is_empty() { Ok(()) } else { Err(Failure::new(failures.join("; "))) }
}

/// Errors: `Cancelled` after Ctrl-C; those of reading.
fn analyze(
    db: &Database,
    name: &str,
    table: &Table,
    stop: &AtomicBool,
) -> Result<TableStatistics, firndb::Error> {
    let bar = progress::bar(&format!("analyzing {name}"), 0);
    let cancel = CancelToken::default();
    let options = TransactionOptions { cancel: Some(cancel.clone()), ..TransactionOptions::default() };
    let statistics = db.analyze_with(table, options, &mut |at| {
        if stop.load(Ordering::SeqCst) {
            cancel.cancel();
        }
        match at {
            AnalyzeProgress::Rows(read, expected) => {
                bar.set_length(expected);
                bar.set_position(read);
                bar.set_message("rows");
            }
            AnalyzeProgress::Indexes(..) => bar.set_message("indexes"),
            _ => {}
        }
    });
    bar.finish_and_clear();
    statistics
}

/// The names of the indexes that there are statistics of, in their order.
pub fn named_indexes(table: &Table, statistics: &TableStatistics) -> Result<Vec<String>, firndb::Error> {
    let trees = table.index_trees()?;
    let name = |tree| trees.iter().find(|(_, of)| *of == tree).map_or("dropped", |(name, _)| name).to_owned();
    Ok(statistics.indexes.iter().map(|index| name(index.tree)).collect())
}

fn print(analyzed: &[(String, Vec<String>, TableStatistics)]) {
    let windows = STATISTICS_WINDOWS.map(|window| format!("leaves of {window}"));
    let heads = ["table", "index", "rows", "leaves", "height", "sampled"].map(str::to_owned);
    let heads: Vec<String> = heads.into_iter().chain(windows).collect();
    let mut shown = table::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    for (name, indexes, found) in analyzed {
        let mut row = vec![
            name.clone(),
            String::new(),
            found.rows.to_string(),
            found.leaves.to_string(),
            found.height.to_string(),
            found.sample.len().to_string(),
        ];
        row.resize(heads.len(), String::new());
        shown.add_row(row);
        for (index_name, index) in indexes.iter().zip(&found.indexes) {
            let mut row = vec![String::new(), index_name.clone(), String::new()];
            row.extend([index.leaves.to_string(), index.height.to_string(), String::new()]);
            row.extend(index.table_leaves.map(|leaves| format!("{leaves:.1}")));
            shown.add_row(row);
        }
    }
    say!("{}", table::text(shown, 2));
    say!("leaves of n: of the table, holding the rows of n consecutive entries of the index");
}

/// The statistics of one table, without the sampled rows.
pub fn to_json(found: &TableStatistics, indexes: &[String]) -> Value {
    let indexes = indexes.iter().zip(&found.indexes).map(|(name, index)| {
        json!({"name": name, "leaves": index.leaves, "height": index.height, "table_leaves": index.table_leaves})
    });
    json!({
        "rows": found.rows, "row_bytes": found.row_bytes, "leaves": found.leaves, "height": found.height,
        "at": wall::iso8601(found.unix_us),
        "sampled": found.sample.len(), "sampled_too_long": found.sample_left_out,
        "windows": STATISTICS_WINDOWS, "indexes": indexes.collect::<Vec<_>>(),
    })
}
