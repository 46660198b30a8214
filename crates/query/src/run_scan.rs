//! Rows of a run, as an operator.

use crate::batch::Batch;
use crate::context::Context;
use crate::error::QueryError;
use crate::operator::{Input, Operator};
use crate::row::Row;
use crate::spill::{Run, RunReader};
use firndb_base::sync::Arc;
use firndb_table::ColumnType;
use firndb_txn::Transaction;

pub(crate) struct RunScan {
    reader: RunReader,
    types: Arc<[ColumnType]>,
}

impl RunScan {
    /// The rows of a run, which have columns of these types.
    pub(crate) fn input(
        run: Arc<Run>,
        types: Arc<[ColumnType]>,
        context: &Context,
    ) -> Result<Input, QueryError> {
        let reader = RunReader::new(run, &context.memory)?;
        let batch = Batch::new(types.clone(), context);
        Ok(Input::new(Box::new(RunScan { reader, types }), batch))
    }
}

impl Operator for RunScan {
    fn next(&mut self, _: &mut Transaction, _: &Context, out: &mut Batch) -> Result<bool, QueryError> {
        while !out.is_full() && self.reader.advance()? {
            // What was on the spill device is not trusted to be a row.
            Row::new(&self.types, self.reader.row())?;
            out.push(self.reader.row())?;
        }
        Ok(!out.is_empty())
    }
}
