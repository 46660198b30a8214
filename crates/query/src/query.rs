//! Running a plan.

use crate::batch::Batch;
use crate::compile::compile;
use crate::context::{Adapted, Context, QueryOptions};
use crate::error::{QueryError, QueryErrorKind};
use crate::operator::{Operator, pull};
use crate::plan::Plan;
use crate::work::Counts;
use firndb_table::{IndexState, TableErrorKind};
use firndb_txn::{StatementView, Transaction, TxnErrorKind, TxnToken};

/// A plan that runs. Owned; holds no latch between calls.
///
/// It is one statement, and sees one state: its transaction's snapshot; under read committed a
/// snapshot of its own, which is kept until its end; under serializable isolation the current rows,
/// of which none that it has read changes before the transaction ends. What the transaction itself
/// wrote before the query is seen; a transaction that has written since gets an error instead of
/// the next batch.
pub struct Query {
    context: Context,
    /// `None`: it has ended.
    running: Option<Running>,
    batch: Batch,
    rows: u64,
}

struct Running {
    root: Box<dyn Operator>,
    view: StatementView,
    /// The transaction that it is used with.
    owner: Option<TxnToken>,
    plan: Plan,
}

impl Query {
    /// Prepares a plan; reads nothing.
    ///
    /// Errors: `BadArgument` if its parts do not fit each other, or the memory not the plan.
    pub fn new(plan: &Plan, options: &QueryOptions) -> Result<Query, QueryError> {
        let types = plan.types()?;
        let (nodes, shares) = size_of_plan(plan);
        let context = Context::new(options, nodes, shares)?;
        let root = compile(plan, &context)?;
        let batch = Batch::new(types, &context);
        let running = Running { root, view: StatementView::default(), owner: None, plan: plan.clone() };
        Ok(Query { context, running: Some(running), batch, rows: 0 })
    }

    /// The next rows; `None` at the end. After an error the query has ended.
    ///
    /// Errors: [`QueryErrorKind`] says what a caller can do.
    pub fn next(&mut self, txn: &mut Transaction) -> Result<Option<&Batch>, QueryError> {
        let Query { context, running, batch, rows } = self;
        batch.clear();
        let Some(run) = running else { return Ok(None) };
        match run.next(txn, context, batch) {
            Ok(true) => {
                *rows += batch.len() as u64;
                Ok(Some(batch))
            }
            Ok(false) => {
                *running = None;
                context.work.settle();
                Ok(None)
            }
            Err(error) => {
                *running = None;
                batch.clear();
                Err(error)
            }
        }
    }

    /// Rows returned.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The most memory that it used at once, in bytes.
    #[must_use]
    pub fn peak_memory(&self) -> usize {
        self.context.memory.peak()
    }

    /// What it has computed so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.context.work.counts()
    }

    /// How its adaptive joins ran, as far as that is known.
    #[must_use]
    pub fn adapted(&self) -> Vec<Adapted> {
        self.context.adapted.borrow().clone()
    }

    /// Bytes that it has written to the spill device.
    #[must_use]
    pub fn spilled_bytes(&self) -> u64 {
        self.context.memory.spilled()
    }
}

impl Running {
    fn next(
        &mut self,
        txn: &mut Transaction,
        context: &mut Context,
        batch: &mut Batch,
    ) -> Result<bool, QueryError> {
        if self.owner.is_none() {
            // Before the snapshot: one that is taken once an index is complete sees all of it.
            check_indexes(&self.plan)?;
            context.begin(txn);
        }
        if *self.owner.get_or_insert(txn.token()) != txn.token() {
            return Err(QueryError::bad_argument(
                "the query belongs to the transaction that it was first used with",
            ));
        }
        let Running { root, view, .. } = self;
        let outcome = txn.limited(context.limit(), |txn| {
            txn.in_statement(view, |txn| pull(&mut **root, txn, context, batch))
        });
        // If a lock was not free by the query's own deadline, the error says that.
        let is_ended = |error: &QueryError| {
            matches!(
                error.kind,
                QueryErrorKind::Cancelled
                    | QueryErrorKind::Table(TableErrorKind::Transaction(TxnErrorKind::Timeout))
            )
        };
        match outcome {
            Err(error) if is_ended(&error) => context.check(txn).and(Err(error)),
            outcome => outcome,
        }
    }
}

/// How many operators a plan has, and into how many parts their memory for rows is divided.
fn size_of_plan(plan: &Plan) -> (usize, usize) {
    plan.inputs()
        .into_iter()
        .map(size_of_plan)
        .fold((1, plan.shares()), |(nodes, shares), (more_nodes, more_shares)| {
            (nodes + more_nodes, shares + more_shares)
        })
}

/// Fails with kind `Stale` if an index of the plan is still being built.
fn check_indexes(plan: &Plan) -> Result<(), QueryError> {
    for index in plan.indexes() {
        let definition = index.definition()?;
        if definition.state != IndexState::Ready {
            return Err(QueryError::new(
                QueryErrorKind::Table(TableErrorKind::Stale),
                format!("index {:?} is still being built; read the table itself", definition.spec.name),
            ));
        }
    }
    plan.inputs().into_iter().try_for_each(check_indexes)
}
