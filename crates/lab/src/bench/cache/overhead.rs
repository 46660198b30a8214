//! What a flash cache costs where it cannot help: instructions of the processor for a transaction,
//! everything in DRAM.
//!
//! Virtual time has none of the cache's own work in it. So the yardstick (the example `hotpath` of
//! `firndb-adapter`) counts it under valgrind: all threads of the engine, with the default options,
//! automatic checkpoints among them.

use crate::bench::cells::{Cells, Cellular, Judged};
use crate::bench::figure::{Better, Figure, Panel, Point};
use firndb_console::Failure;
use firndb_profile::VariantName;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::process::Command;

const TARGET: &str = "instructions a transaction with a cache that cannot help over without, more, %";
const LIMIT: f64 = 2.0;
/// How the yardstick is built.
const BUILD: &str = "cargo build --release -p firndb-adapter --example hotpath";

/// The yardstick's count.
#[derive(Clone, Debug)]
struct Instructions;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Counted {
    without_cache: f64,
    with_cache: f64,
    /// Why nothing was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl Cellular for Instructions {
    type Found = Counted;

    fn name(&self) -> String {
        "instructions a transaction, everything in DRAM".into()
    }

    fn at_end(&self, _: VariantName) -> Option<Instructions> {
        None
    }
}

impl Counted {
    fn not(reason: String) -> Counted {
        Counted { reason: Some(reason), ..Counted::default() }
    }

    /// What the yardstick printed: a line for each database, its name and the count.
    fn parse(text: &str) -> Counted {
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse::<f64>().ok().filter(|count| *count > 0.0)
        };
        match (value("without_cache "), value("with_cache ")) {
            (Some(without_cache), Some(with_cache)) => Counted { without_cache, with_cache, reason: None },
            _ => Counted::not(text.trim().to_owned()),
        }
    }
}

/// The yardstick beside this program, where cargo puts it.
fn yardstick() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe()?;
    let dir = program.parent().ok_or_else(|| Failure::new("this program lies in no directory"))?;
    Ok(dir.join("examples").join("hotpath"))
}

fn count() -> Result<Counted, Failure> {
    let path = yardstick()?;
    if !path.is_file() {
        return Ok(Counted::not(format!("{} is not there: {BUILD}", path.display())));
    }
    let output = Command::new(&path).arg("--cache").output()?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::new(format!("{} --cache: {text}", path.display())));
    }
    Ok(Counted::parse(&String::from_utf8_lossy(&output.stdout)))
}

/// The figure.
pub fn overhead(cells: &Cells) -> Result<Figure, Failure> {
    let mut figure = Figure::new("overhead", "what a cache costs where everything fits into DRAM");
    let counted = cells.of(&Instructions, Judged::No, |_, _| count())?;
    if let Some(reason) = &counted.first().reason {
        figure.not_measured(TARGET, LIMIT, Better::Lower, reason);
        return Ok(figure);
    }
    let mut panel = Panel::of_bars(
        "face-overhead",
        "Instructions of the processor, everything in DRAM",
        "flash cache",
        "instructions a transaction",
    );
    let (without, with) = (counted.value(|it| it.without_cache), counted.value(|it| it.with_cache));
    panel.add("all of the engine's threads", Point::new(0.0, "none", &without));
    panel.add("all of the engine's threads", Point::new(1.0, "32 MiB", &with));
    panel.drawn = false;
    figure.panels.push(panel);
    figure.at_most(TARGET, &with.over(&without).map(|ratio| (ratio - 1.0) * 100.0), LIMIT);
    Ok(figure)
}

#[cfg(test)]
mod tests {
    use super::Counted;

    #[test]
    fn counts_are_read_and_anything_else_is_a_reason() {
        let counted = Counted::parse("without_cache 200000\nwith_cache 210000\n");
        assert_eq!((counted.without_cache, counted.with_cache), (200_000.0, 210_000.0));
        assert_eq!(counted.reason, None);
        let skipped = Counted::parse("hotpath: skipped, since valgrind is not installed\n");
        assert_eq!(skipped.reason.as_deref(), Some("hotpath: skipped, since valgrind is not installed"));
        assert!(Counted::parse("without_cache 200000\n").reason.is_some());
    }
}
