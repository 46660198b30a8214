//! What a query is expected to do.

use firndb_query::planner::{Choice, Costs, Gathered, Origin, Pages, Request};
use std::fmt;

/// The plan of a query and what it is expected to cost, as [`fmt::Display`] shows it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    /// The plan's operators from the first table on.
    pub plan: String,
    /// Rows that it returns.
    pub rows: f64,
    /// Pages found in DRAM.
    pub dram_pages: f64,
    /// Pages read from the flash cache.
    pub cache_pages: f64,
    /// Pages read from the store.
    pub store_pages: f64,
    /// Time, in microseconds.
    pub us: f64,
    /// The next-best plans, at most two, each with its time in microseconds.
    pub next_best: Vec<(String, f64)>,
    /// Where the numbers are from, a sentence each.
    pub origins: Vec<String>,
}

impl Explanation {
    pub(super) fn of(choices: &[Choice], request: &Request, tables: &Gathered, costs: &Costs) -> Explanation {
        let best = &choices[0];
        let Pages { dram, cache, store } = best.pages;
        let mut origins: Vec<String> = tables
            .facts
            .iter()
            .map(|table| match table.origin {
                Origin::Analyzed => format!(
                    "table {}: statistics ({:.0} rows, {:.0} leaves; {:.0} % in DRAM, {:.0} % in the flash cache)",
                    table.name,
                    table.rows,
                    table.leaves,
                    100.0 * table.residency.dram,
                    100.0 * table.residency.cache
                ),
                Origin::Estimated => format!(
                    "table {}: about {:.0} rows by its tree, the rest is assumed, as that its rows lie anywhere and no page is in memory: analyze it",
                    table.name, table.rows
                ),
            })
            .collect();
        let device = |name: &str, is_assumed: bool| match is_assumed {
            true => format!("{name}: no profile; the times of a SATA SSD are assumed"),
            false => format!("{name}: its profile"),
        };
        origins.push(device("store", costs.store.is_assumed()));
        origins.extend(costs.cache.as_ref().map(|cache| device("flash cache", cache.is_assumed())));
        if best.lacks_spill {
            origins.push("its rows may not fit in its memory, and there is no spill device".to_owned());
        }
        Explanation {
            plan: best.describe(request),
            rows: best.rows,
            dram_pages: dram,
            cache_pages: cache,
            store_pages: store,
            us: best.us,
            next_best: choices[1..].iter().map(|choice| (choice.describe(request), choice.us)).collect(),
            origins,
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.plan)?;
        writeln!(
            f,
            "  {:.0} rows; pages: {:.0} in DRAM, {:.0} from the flash cache, {:.0} from the store; {:.3} ms",
            self.rows,
            self.dram_pages,
            self.cache_pages,
            self.store_pages,
            self.us / 1000.0
        )?;
        for (plan, us) in &self.next_best {
            writeln!(f, "next best: {plan}: {:.3} ms", us / 1000.0)?;
        }
        self.origins.iter().try_for_each(|origin| writeln!(f, "{origin}"))
    }
}
