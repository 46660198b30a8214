//! The size of a population, and how a run reads it.

use super::draw::{LAST_NAME_A, RunConstants, nurand};
use super::{keys, rows, tables};
use crate::engine::{Access, Engine, EngineError, Outcome, Session, Transaction};
use crate::random::Random;

/// Districts of a warehouse (clause 1.2.1).
pub const DISTRICTS: u8 = 10;
/// A unit of money: amounts are in hundredths.
pub(super) const CENTS: u64 = 100;
/// What one customer has paid when loaded: W_YTD and D_YTD are sums of these.
pub(super) const FIRST_PAYMENT_CENTS: i64 = 10 * CENTS as i64;

/// Cardinalities of a population. [`Scale::full`] is the specification's; smaller ones are for
/// tests, and their figures are not TPC-C's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Warehouses, numbered from 1.
    pub warehouses: u32,
    /// Rows of ITEM, and of STOCK for each warehouse.
    pub items: u32,
    /// Customers of a district, and orders that it is loaded with.
    pub customers: u32,
}

impl Scale {
    /// The full population of clause 4.3.3.1: 100,000 items and 3,000 customers a district.
    #[must_use]
    pub fn full(warehouses: u32) -> Scale {
        Scale { warehouses, items: 100_000, customers: 3_000 }
    }

    /// A population of a few hundred rows a warehouse.
    #[must_use]
    pub fn tiny(warehouses: u32) -> Scale {
        Scale { warehouses, items: 100, customers: 30 }
    }

    /// Whether the cardinalities are those of the specification.
    #[must_use]
    pub fn is_full(&self) -> bool {
        *self == Scale::full(self.warehouses)
    }

    /// Orders of a district that are loaded as delivered: 2,100 of 3,000.
    #[must_use]
    pub fn delivered_orders(&self) -> u32 {
        self.customers / 10 * 7
    }

    /// Different last names in a district: 1,000, or as many as there are customers.
    #[must_use]
    pub fn last_names(&self) -> u32 {
        self.customers.min(1000)
    }

    /// Terminals: ten a warehouse, one at each district.
    #[must_use]
    pub fn terminals(&self) -> u32 {
        self.warehouses * u32::from(DISTRICTS)
    }

    /// Panics unless the load can make such a population.
    pub fn assert_possible(&self) {
        assert!(self.warehouses >= 1 && self.warehouses <= u32::MAX / 16, "{self:?}: warehouses");
        assert!(self.items >= 20 && self.items < 1 << 31, "{self:?}: an order has up to 15 items");
        assert!(
            self.customers >= 10 && self.customers.is_multiple_of(10) && self.customers < 1 << 24,
            "{self:?}: customers come in tens, since a tenth have bad credit and seven tenths a delivery"
        );
    }
}

/// A loaded population.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Population {
    /// Its size.
    pub scale: Scale,
    /// The seed it was made from.
    pub seed: u64,
    /// The constant C of NURand for C_LAST it was loaded with.
    pub last_name_c: u32,
}

impl Population {
    /// The population that `seed` makes.
    #[must_use]
    pub fn new(scale: Scale, seed: u64) -> Population {
        scale.assert_possible();
        let last_name_c = Random::stream(seed, 0).number(0, LAST_NAME_A);
        Population { scale, seed, last_name_c }
    }

    /// The population an engine holds; `None` if it was not loaded to the end.
    pub fn of<E: Engine>(engine: &E) -> Outcome<Option<Population>> {
        let mut session = engine.session()?;
        let mut txn = session.begin(Access::Read)?;
        let mut row = Vec::new();
        let found = txn.get(tables::POPULATION, &keys::POPULATION, &mut row)?;
        txn.rollback()?;
        if !found {
            return Ok(None);
        }
        if !tables::is_whole(tables::POPULATION, &row) {
            return Err(EngineError::Fatal("the population's own row is of another length".into()));
        }
        Ok(Some(Population {
            scale: Scale {
                warehouses: rows::population::WAREHOUSES.get(&row),
                items: rows::population::ITEMS.get(&row),
                customers: rows::population::CUSTOMERS.get(&row),
            },
            seed: rows::population::SEED.get(&row),
            last_name_c: rows::population::LAST_NAME_C.get(&row),
        }))
    }

    /// The row that records the population.
    #[must_use]
    pub fn row(&self) -> [u8; rows::population::LEN] {
        let mut row = [0; rows::population::LEN];
        rows::population::WAREHOUSES.set(&mut row, self.scale.warehouses);
        rows::population::ITEMS.set(&mut row, self.scale.items);
        rows::population::CUSTOMERS.set(&mut row, self.scale.customers);
        rows::population::LAST_NAME_C.set(&mut row, self.last_name_c);
        rows::population::SEED.set(&mut row, self.seed);
        row
    }

    /// The number of a last name, drawn as the load does for customers past the first thousand.
    pub(super) fn loaded_last_name(&self, random: &mut Random) -> u32 {
        nurand(random, LAST_NAME_A, 0, self.scale.last_names() - 1, self.last_name_c)
    }

    /// Constants of a run.
    pub fn run_constants(&self, run_seed: u64) -> RunConstants {
        RunConstants::draw(&mut Random::stream(run_seed, u64::MAX), self.last_name_c)
    }
}
