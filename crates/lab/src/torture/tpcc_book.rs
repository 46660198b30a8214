//! What TPC-C's tables must hold, as far as acknowledgements say it: New-Orders and Payments leave
//! a trace each, so their numbers are known exactly.

use firndb_adapter::FirnEngine;
use firndb_console::Failure;
use firndb_workloads::tpcc::{self, DISTRICTS, KINDS, Population, When, keys, rows, tables};
use firndb_workloads::{Access, Engine, EngineError, Outcome, Scan, Session, Transaction, Visit};

/// Transactions that are known to be in the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TpccBook {
    new_orders: u64,
    payments: u64,
}

impl TpccBook {
    /// Compares a database with what was acknowledged since the last verification; up to
    /// `in_flight` transactions may be there beyond. Returns how many were.
    pub fn verify(
        &mut self,
        engine: &FirnEngine,
        acknowledged: &[u64; KINDS.len()],
        in_flight: u64,
    ) -> Result<u64, Failure> {
        let Some(population) = Population::of(engine)? else {
            return Err(Failure::new("LOST: the population of TPC-C, which was loaded and acknowledged"));
        };
        let found = TpccBook::count(engine, population)?;
        let known = TpccBook {
            new_orders: self.new_orders + acknowledged[0],
            payments: self.payments + acknowledged[1],
        };
        let mut unacknowledged = 0;
        for (what, known, found) in
            [("New-Orders", known.new_orders, found.new_orders), ("Payments", known.payments, found.payments)]
        {
            if found < known {
                return Err(Failure::new(format!(
                    "LOST: {known} {what} were acknowledged, and the database has {found}"
                )));
            }
            unacknowledged += found - known;
        }
        if unacknowledged > in_flight {
            return Err(Failure::new(format!(
                "there are {unacknowledged} New-Orders and Payments that were not acknowledged; at most {in_flight} \
                 were in flight"
            )));
        }
        *self = found;
        let broken = tpcc::check(engine, When::AfterRun)?.into_iter().find(|condition| !condition.holds());
        match broken {
            None => Ok(unacknowledged),
            Some(condition) => Err(Failure::new(format!("TORN: TPC-C's condition {condition}"))),
        }
    }

    fn count(engine: &FirnEngine, population: Population) -> Outcome<TpccBook> {
        let scale = population.scale;
        let mut found = TpccBook::default();
        let mut session = engine.session()?;
        let mut txn = session.begin(Access::Read)?;
        let mut row = Vec::new();
        for warehouse in 1..=scale.warehouses {
            for district in 1..=DISTRICTS {
                if !txn.get(tables::DISTRICT, &keys::district(warehouse, district), &mut row)?
                    || row.len() != rows::district::LEN
                {
                    return Err(EngineError::Fatal(format!("district {warehouse}-{district} is not whole")));
                }
                // Orders are numbered from 1; the load makes one for each customer.
                let next = u64::from(rows::district::NEXT_ORDER.get(&row));
                found.new_orders += next.saturating_sub(1 + u64::from(scale.customers));
            }
        }
        let mut payments = 0u64;
        txn.scan(tables::HISTORY, Scan::all(), &mut |_, _| {
            payments += 1;
            Visit::Continue
        })?;
        let loaded = u64::from(scale.warehouses) * u64::from(DISTRICTS) * u64::from(scale.customers);
        found.payments = payments.saturating_sub(loaded);
        txn.rollback()?;
        Ok(found)
    }
}
