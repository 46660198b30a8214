//! Finding the customer of Payment and Order-Status, by id or by last name.

use super::input::CustomerChoice;
use super::{keys, tables};
use crate::engine::{EngineError, KeyRange, Outcome, Scan, Transaction, Visit};
use crate::schema::make_successor;

/// Buffers of the search by name.
#[derive(Clone, Debug, Default)]
pub(super) struct CustomerSearch {
    high: Vec<u8>,
    /// Keys of the customers with the name, end to end, by C_FIRST.
    found: Vec<u8>,
}

impl CustomerSearch {
    /// The key of the customer chosen. By name it is, of the n customers with that name in the
    /// order of C_FIRST, the one at n/2 rounded up (clause 2.5.2.2, case 2).
    pub(super) fn key<T: Transaction>(
        &mut self,
        txn: &mut T,
        (warehouse, district): (u32, u8),
        choice: CustomerChoice,
    ) -> Outcome<[u8; keys::CUSTOMER_LEN]> {
        let mut buffer = [0; 16];
        let name = match choice {
            CustomerChoice::Id(customer) => return Ok(keys::customer(warehouse, district, customer)),
            CustomerChoice::LastName(_) => choice.name(&mut buffer).expect("this choice has a name"),
        };
        let low = keys::customers_named(warehouse, district, name);
        self.high.clear();
        self.high.extend_from_slice(&low);
        make_successor(&mut self.high);
        self.found.clear();
        let range = KeyRange { low: &low, high: &self.high };
        let scan = Scan { range, reverse: false, limit: usize::MAX };
        let found = &mut self.found;
        txn.scan_index(tables::CUSTOMER, tables::CUSTOMER_BY_NAME, scan, &mut |key, _row| {
            found.extend_from_slice(key);
            Visit::Continue
        })?;
        let count = self.found.len() / keys::CUSTOMER_LEN;
        if count == 0 || !self.found.len().is_multiple_of(keys::CUSTOMER_LEN) {
            return Err(EngineError::Fatal(format!(
                "no customer of district {district} of warehouse {warehouse} is named {}, but every name \
                 is there: the index over names is incomplete",
                String::from_utf8_lossy(name)
            )));
        }
        let middle = count.div_ceil(2) - 1;
        let key = &self.found[middle * keys::CUSTOMER_LEN..][..keys::CUSTOMER_LEN];
        Ok(key.try_into().expect("a slice of the key's length"))
    }
}
