//! Queries: filters, joins, sorting, over typed tables.
//!
//! ```
//! use firndb::query::col;
//! use firndb::{Column, ColumnType, IndexSpec, KeyColumn, Schema, TableSpec};
//! # let dir = tempfile::tempdir()?;
//! # let db = firndb::Database::open(dir.path().join("db"))?;
//! let customers = Schema::with_key(
//!     vec![Column::new("c_id", ColumnType::I64), Column::new("c_name", ColumnType::Text)],
//!     &["c_id"],
//! )?;
//! let orders = Schema::with_key(
//!     vec![Column::new("o_id", ColumnType::I64), Column::new("o_customer", ColumnType::I64)],
//!     &["o_id"],
//! )?;
//! let by_customer = IndexSpec::columns("by_customer", false, vec![KeyColumn::ascending(1)]);
//! let customer = db.create_table_with("customer", TableSpec::typed(customers))?.typed()?;
//! let orders = TableSpec::typed(orders).with_index(by_customer);
//! let order = db.create_table_with("orders", orders)?.typed()?;
//! db.transact(|tx| {
//!     customer.insert(tx, &[1i64.into(), "Ada".into()])?;
//!     order.insert(tx, &[10i64.into(), 1i64.into()])
//! })?;
//!
//! let query = db
//!     .query("customer")
//!     .filter(col("c_id").lt(1500))
//!     .join("orders", col("c_id").eq(col("o_customer")))
//!     .select(["c_name", "o_id"])
//!     .sort(["o_id"]);
//! let mut tx = db.snapshot();
//! println!("{}", query.explain()?);
//! let mut rows = query.run(&mut tx)?;
//! while let Some(row) = rows.next(&mut tx)? {
//!     println!("{} ordered {}", row.get("c_name")?, row.get("o_id")?);
//! }
//! println!("{}", rows.report());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The planner chooses how each table is read, in which order tables are joined, and how, by the
//! times of the devices (their profiles), by what of the tables is in memory, and by the tables'
//! statistics ([`Database::analyze`]). Without those it assumes, which [`Query::explain`] says.
//! What it assumes wrongly makes a query slow, never wrong. [`Hint`]s force a plan.

mod condition;
mod explanation;
mod names;
mod rows;

pub use condition::{Col, Condition, OtherSide, col};
pub use explanation::Explanation;
pub use firndb_query::planner::{AccessKind, JoinMethod};
pub use firndb_query::{Computing, Counts};
pub use rows::{Row, Rows};

use crate::database::Database;
use crate::error::Error;
use crate::transaction::Transaction;
use firndb_base::clock::{self, Moment};
use firndb_base::sync::Arc;
use firndb_query::planner::{self, Costs, Gathered, Hints, Request};
use firndb_query::{Plan, QueryOptions, SortColumn};
use firndb_table::Value;
use firndb_txn::CancelToken;
use names::Names;
use std::collections::VecDeque;
use std::time::Duration;

/// A query that is being put together; it reads nothing before [`Query::run`].
#[derive(Clone)]
#[must_use]
pub struct Query {
    db: Database,
    /// Each table's name, its name in the query, and how it is joined.
    tables: Vec<(String, String, Joined)>,
    filters: Vec<Condition>,
    select: Option<Vec<String>>,
    order: Vec<(String, bool)>,
    limit: Option<u64>,
    hints: Vec<Hint>,
    memory: usize,
    cancel: Option<CancelToken>,
    deadline: Option<Duration>,
    charged: Option<Computing>,
    /// How many times too high its estimates of rows are made.
    misjudged: f64,
}

#[derive(Clone)]
enum Joined {
    Inner,
    Left(Condition),
}

/// What a plan must do, whatever it is expected to cost. Tables are named as in the query.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hint {
    /// How a table is read; with the name of an index unless it is [`AccessKind::TableScan`].
    Access(String, AccessKind, Option<String>),
    /// By which operator a table is joined to those before it.
    Join(String, JoinMethod),
    /// In which order tables are joined: all of them.
    Order(Vec<String>),
}

impl Database {
    /// Begins a query of a typed table; `"table as name"` gives it another name in the query.
    pub fn query(&self, table: &str) -> Query {
        let query = Query {
            db: self.clone(),
            tables: Vec::new(),
            filters: Vec::new(),
            select: None,
            order: Vec::new(),
            limit: None,
            hints: Vec::new(),
            memory: QueryOptions::default().memory,
            cancel: None,
            deadline: None,
            charged: None,
            misjudged: 1.0,
        };
        query.with_table(table, Joined::Inner)
    }
}

impl Query {
    fn with_table(mut self, table: &str, joined: Joined) -> Query {
        let (name, alias) = table.split_once(" as ").unwrap_or((table, table));
        self.tables.push((name.trim().to_owned(), alias.trim().to_owned(), joined));
        self
    }

    /// Only the rows for which the condition is true, besides those of earlier calls. It may name
    /// columns of all tables, those joined later, too.
    pub fn filter(mut self, condition: Condition) -> Query {
        self.filters.push(condition);
        self
    }
    /// Pairs of rows with those of another table for which the condition is true. At most four
    /// tables are joined.
    pub fn join(self, table: &str, on: Condition) -> Query {
        self.with_table(table, Joined::Inner).filter(on)
    }
    /// As [`Query::join`], and each row without such a pair once, with NULL for the other table's
    /// columns. The condition names columns of this table and of earlier ones.
    pub fn left_join(self, table: &str, on: Condition) -> Query {
        self.with_table(table, Joined::Left(on))
    }
    /// Only these columns, in this order. Without it: all columns of all tables.
    pub fn select<N: Into<String>>(mut self, columns: impl IntoIterator<Item = N>) -> Query {
        self.select = Some(columns.into_iter().map(Into::into).collect());
        self
    }
    /// In the ascending order of these columns, the first above all; NULL comes first. A name that
    /// begins with `-` descends.
    pub fn sort<N: Into<String>>(mut self, columns: impl IntoIterator<Item = N>) -> Query {
        let part = |name: String| match name.strip_prefix('-') {
            Some(rest) => (rest.to_owned(), true),
            None => (name, false),
        };
        self.order = columns.into_iter().map(|name| part(name.into())).collect();
        self
    }
    /// At most this many rows: the first ones of a sorted query, any ones of another.
    pub fn limit(mut self, rows: u64) -> Query {
        self.limit = Some(rows);
        self
    }
    /// Forces a part of the plan.
    pub fn hint(mut self, hint: Hint) -> Query {
        self.hints.push(hint);
        self
    }
    /// Bytes of memory for its rows; at least 64 KiB, by default 64 MiB. Pages that it reads are in
    /// the buffer pool and do not count. What does not fit goes to [`crate::Options::spill_path`].
    pub fn memory(mut self, bytes: usize) -> Query {
        self.memory = bytes;
        self
    }
    /// Ends it from outside, between two batches of rows or while it waits for a lock. The token of
    /// its transaction does, too.
    pub fn cancel(mut self, token: CancelToken) -> Query {
        self.cancel = Some(token);
        self
    }
    /// Ends it with `Timeout` this long after it was run, between two batches of rows or while it
    /// waits for a lock.
    pub fn deadline(mut self, time: Duration) -> Query {
        self.deadline = Some(time);
        self
    }

    /// In a simulation, what it computes takes this time, and is planned to.
    #[cfg(feature = "testing")]
    pub fn charged(mut self, computing: Computing) -> Query {
        self.charged = Some(computing);
        self
    }

    /// Conditions are taken to hold for this many times as many rows as they are estimated to.
    #[cfg(feature = "testing")]
    pub fn misjudged(mut self, factor: f64) -> Query {
        self.misjudged = factor;
        self
    }

    /// Its plan, and what that is expected to do. Reads some nodes of the tables' trees.
    ///
    /// Errors: `BadArgument` for names that there are not (the error lists those there are) or that
    /// mean several columns, for values of other types, and for hints that no plan satisfies;
    /// `NotFound` for a table; those of reading.
    pub fn explain(&self) -> Result<Explanation, Error> {
        Ok(self.planned(None, false)?.explanation)
    }

    /// Begins to run it in a transaction, with which its rows are then read.
    ///
    /// Errors: as [`Query::explain`], and `BadArgument` for too little memory.
    pub fn run(&self, tx: &mut Transaction) -> Result<Rows, Error> {
        tx.check_open()?;
        self.begin(self.planned(Some(tx), false)?)
    }

    /// How many rows it has.
    ///
    /// Errors: as [`Query::run`] and [`Rows::next`].
    pub fn count(&self, tx: &mut Transaction) -> Result<u64, Error> {
        tx.check_open()?;
        let mut planned = self.planned(Some(tx), true)?;
        planned.plan = planned.plan.count();
        planned.names = Arc::from(["count".to_owned()]);
        match self.begin(planned)?.next(tx)?.map(Row::into_values).as_deref() {
            Some([Value::U64(rows)]) => Ok(*rows),
            other => unreachable!("a count is one row of one number, not {other:?}"),
        }
    }

    fn begin(&self, planned: Planned) -> Result<Rows, Error> {
        let after = |time| clock::now().after(time).unwrap_or(Moment::from_nanos(u64::MAX));
        let options = QueryOptions {
            memory: self.memory,
            spill: self.db.engine().queries.spill.get().cloned(),
            cancel: self.cancel.clone(),
            deadline: self.deadline.map(after),
            charged: self.charged,
        };
        Ok(Rows {
            running: firndb_query::Query::new(&planned.plan, &options)?,
            names: planned.names,
            waiting: VecDeque::new(),
            explanation: planned.explanation,
            returned: 0,
            spent: Duration::ZERO,
            pool: self.db.engine().pool.clone(),
            missed: 0,
        })
    }

    /// The plan for a transaction, or for one that is begun now.
    fn planned(&self, tx: Option<&Transaction>, is_count: bool) -> Result<Planned, Error> {
        let engine = self.db.engine();
        engine.check_open()?;
        let least = QueryOptions::MEMORY_MIN;
        if self.memory < least {
            let message = format!("a query needs at least {least} bytes of memory, not {}", self.memory);
            return Err(Error::bad_argument(message));
        }
        let tables =
            self.tables.iter().map(|(name, alias, _)| Ok((alias.clone(), engine.catalog.table(name)?)));
        let (tables, tx) = (tables.collect::<Result<Vec<_>, Error>>()?, tx.map(|tx| &tx.inner));
        let gathered = planner::gather(&engine.catalog, &tables, tx)?;
        let named = self.tables.iter().map(|table| table.1.clone()).zip(&gathered.schemas);
        let names = Names::of(&named.collect::<Vec<_>>())?;
        let request = self.request(&gathered, &names, is_count)?;
        let costs = self.costs();
        let knowledge = planner::Misjudged::new(&gathered, self.misjudged);
        let choices = planner::plan(&request, &knowledge, &costs)?;
        let plan = choices[0].lower(&request, &gathered)?;
        let explanation = Explanation::of(&choices, &request, &gathered, &costs);
        let columns = match &self.select {
            Some(select) if !is_count => select.clone(),
            _ => request.output.iter().map(|column| names.name(*column)).collect(),
        };
        Ok(Planned { plan, names: columns.into(), explanation })
    }

    fn request(&self, gathered: &Gathered, names: &Names, is_count: bool) -> Result<Request, Error> {
        let conjuncts = |condition: &Condition| Ok::<_, Error>(condition.resolve(names)?.conjuncts());
        let mut conditions = Vec::new();
        for filter in &self.filters {
            conditions.append(&mut conjuncts(filter)?);
        }
        let outer = self.tables.iter().map(|(_, _, joined)| match joined {
            Joined::Inner => Ok(None),
            Joined::Left(on) => conjuncts(on).map(Some),
        });
        let outer: Vec<_> = outer.collect::<Result<_, Error>>()?;
        let output = match &self.select {
            // Names are looked at all the same.
            Some(select) => {
                let found = select.iter().map(|name| names.column(name)).collect::<Result<Vec<_>, _>>()?;
                if is_count { Vec::new() } else { found }
            }
            None if is_count => Vec::new(),
            None => (0..names.len()).collect(),
        };
        let by = |(name, descending): &(String, bool)| {
            Ok::<_, Error>(SortColumn { column: names.column(name)?, descending: *descending })
        };
        let mut order = self.order.iter().map(by).collect::<Result<Vec<_>, _>>()?;
        if is_count {
            order.clear();
        }
        let hints = self.resolved_hints(gathered, names)?;
        let (tables, limit) = (gathered.facts.clone(), self.limit);
        Ok(Request { tables, conditions, outer, output, order, limit, hints })
    }

    fn resolved_hints(&self, gathered: &Gathered, names: &Names) -> Result<Hints, Error> {
        let mut hints = Hints::default();
        for hint in &self.hints {
            match hint {
                Hint::Access(table, kind, index) => {
                    let table = names.table(table)?;
                    let paths = &gathered.facts[table].paths;
                    let path = paths.iter().position(|path| path.name == index.as_deref().unwrap_or(""));
                    let Some(path) = path.filter(|path| (*path == 0) == (*kind == AccessKind::TableScan))
                    else {
                        let all: Vec<&str> = paths[1..].iter().map(|path| path.name.as_str()).collect();
                        return Err(Error::bad_argument(format!(
                            "a hint asks for an {kind} by {index:?}: a table scan names no index, the others name one of [{}]",
                            all.join(", ")
                        )));
                    };
                    hints.access.push((table, *kind, path));
                }
                Hint::Join(table, method) => hints.joins.push((names.table(table)?, *method)),
                Hint::Order(order) => {
                    let order: Vec<usize> =
                        order.iter().map(|name| names.table(name)).collect::<Result<_, _>>()?;
                    hints.order = Some(order);
                }
            }
        }
        Ok(hints)
    }

    fn costs(&self) -> Costs {
        let engine = self.db.engine();
        let [store, cache] = &engine.queries.times;
        let page_bytes = engine.pool.page_size() as u64;
        Costs {
            store: store.clone(),
            cache: engine.tier.cache().map(|_| cache.clone()),
            // It lies beside the store, as far as is known.
            spill: engine.queries.spill.get().map(|_| store.clone()),
            page_bytes,
            pool_pages: engine.pool.frame_count() as f64,
            memory_bytes: self.memory as f64,
            computing: self.charged.unwrap_or(Computing::FIRN),
        }
    }
}

struct Planned {
    plan: Plan,
    names: Arc<[String]>,
    explanation: Explanation,
}

impl std::fmt::Debug for Query {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tables: Vec<&str> = self.tables.iter().map(|table| table.0.as_str()).collect();
        write!(f, "Query of {}", tables.join(", "))
    }
}
