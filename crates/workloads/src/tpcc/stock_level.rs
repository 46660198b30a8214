//! The Stock-Level transaction (clause 2.8). Reads only.

use super::input::{Inputs, Terminal};
use super::keys;
use super::rows::{district, order_line, stock};
use super::tables::{self, need};
use crate::engine::{Outcome, Scan, Transaction, Visit};

/// Number of orders of which the lines are read.
const LAST_ORDERS: u32 = 20;

/// The input of a Stock-Level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StockLevelInput {
    /// W_ID.
    pub warehouse: u32,
    /// D_ID, always the terminal's own.
    pub district: u8,
    /// Quantities below this are low.
    pub threshold: i32,
}

/// Row buffers that are reused.
#[derive(Clone, Debug, Default)]
pub(super) struct StockLevelBuffers {
    row: Vec<u8>,
    items: Vec<u32>,
    keys: Vec<[u8; keys::STOCK_LEN]>,
}

impl StockLevelInput {
    /// Draws an input by clause 2.8.1.
    pub fn draw(inputs: &mut Inputs, terminal: Terminal) -> StockLevelInput {
        StockLevelInput {
            warehouse: terminal.warehouse,
            district: terminal.district,
            threshold: inputs.random.number(10, 20) as i32,
        }
    }
}

/// Runs a Stock-Level up to its commit (clause 2.8.2.2). Returns the number of different items of
/// the last 20 orders that are low in stock at the terminal's warehouse.
pub(super) fn run<T: Transaction>(
    txn: &mut T,
    input: &StockLevelInput,
    buffers: &mut StockLevelBuffers,
) -> Outcome<u32> {
    let StockLevelBuffers { row, items, keys } = buffers;
    need(txn, tables::DISTRICT, &keys::district(input.warehouse, input.district), row)?;
    let next = district::NEXT_ORDER.get(row);
    let low = keys::order(input.warehouse, input.district, next.saturating_sub(LAST_ORDERS));
    let high = keys::order(input.warehouse, input.district, next);
    items.clear();
    txn.scan(tables::ORDER_LINE, Scan::between(&low, &high), &mut |_key, row| {
        if tables::is_whole(tables::ORDER_LINE, row) {
            items.push(order_line::ITEM.get(row));
        }
        Visit::Continue
    })?;
    items.sort_unstable();
    items.dedup();
    keys.clear();
    keys.extend(items.iter().map(|item| keys::stock(input.warehouse, *item)));
    let all: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let mut low_stock = 0;
    tables::need_many(txn, tables::STOCK, &all, |row| {
        low_stock += u32::from(stock::QUANTITY.get(row) < input.threshold);
    })?;
    Ok(low_stock)
}
