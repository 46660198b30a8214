//! Rows of a run, as an operator.

use crate::batch::Batch;
use crate::context::Context;
use crate::error::QueryError;
use crate::operator::{Input, Operator};
use crate::row::Row;
use firndb_base::sync::Arc;
use firndb_spill::{Run, RunReader};
use firndb_table::ColumnType;
use firndb_txn::Transaction;

pub(crate) struct RunScan {
    run: Arc<Run>,
    /// From the first row on: until then it takes no memory.
    reader: Option<RunReader>,
    types: Arc<[ColumnType]>,
}

impl RunScan {
    /// The rows of a run, which have columns of these types.
    pub(crate) fn input(
        run: Arc<Run>,
        types: Arc<[ColumnType]>,
        context: &Context,
    ) -> Result<Input, QueryError> {
        let batch = Batch::new(types.clone(), context);
        Ok(Input::new(Box::new(RunScan { run, reader: None, types }), batch))
    }
}

impl Operator for RunScan {
    fn next(&mut self, _: &mut Transaction, context: &Context, out: &mut Batch) -> Result<bool, QueryError> {
        if self.reader.is_none() {
            let buffer = context.spill()?.sizes(context.share).scan();
            self.reader = Some(RunReader::new(self.run.clone(), buffer, &context.memory)?);
        }
        let reader = self.reader.as_mut().expect("made just now");
        while !out.is_full() && reader.advance()? {
            // What was on the spill device is not trusted to be a row.
            Row::new(&self.types, reader.row())?;
            out.push(reader.row())?;
        }
        Ok(!out.is_empty())
    }
}
