//! The Delivery transaction (clause 2.7): the oldest open order of each of ten districts.
//!
//! The specification lets it be queued and run in the background, in up to ten database
//! transactions. Here it is one transaction, which the client waits for: its latency is that of the
//! delivery itself.

use super::input::{Inputs, Terminal};
use super::keys;
use super::rows::{customer, order, order_line};
use super::scale::DISTRICTS;
use super::tables::{self, change};
use crate::engine::{EngineError, Outcome, Retry, Scan, Transaction, Visit};

/// The input of a Delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryInput {
    /// W_ID.
    pub warehouse: u32,
    /// O_CARRIER_ID.
    pub carrier: u8,
    /// OL_DELIVERY_D, in microseconds since the Unix epoch.
    pub delivery_date_us: u64,
}

/// Row buffers that are reused.
#[derive(Clone, Debug, Default)]
pub(super) struct DeliveryBuffers {
    row: Vec<u8>,
    /// Lines of the order, end to end.
    lines: Vec<u8>,
    key: Vec<u8>,
}

impl DeliveryInput {
    /// Draws an input by clause 2.7.1.
    pub fn draw(inputs: &mut Inputs, terminal: Terminal, now_us: u64) -> DeliveryInput {
        DeliveryInput {
            warehouse: terminal.warehouse,
            carrier: inputs.random.number(1, 10) as u8,
            delivery_date_us: now_us,
        }
    }
}

/// Runs a Delivery up to its commit (clause 2.7.4.2). Returns the number of districts that had an
/// order to deliver; the others are skipped.
pub(super) fn run<T: Transaction>(
    txn: &mut T,
    input: &DeliveryInput,
    buffers: &mut DeliveryBuffers,
) -> Outcome<u8> {
    let mut delivered = 0;
    for district in 1..=DISTRICTS {
        if let Some(number) = take_oldest(txn, input.warehouse, district, buffers)? {
            deliver(txn, input, district, number, buffers)?;
            delivered += 1;
        }
    }
    Ok(delivered)
}

/// Deletes the oldest row of NEW-ORDER of a district; returns its O_ID.
fn take_oldest<T: Transaction>(
    txn: &mut T,
    warehouse: u32,
    district: u8,
    buffers: &mut DeliveryBuffers,
) -> Outcome<Option<u32>> {
    let low = keys::district(warehouse, district);
    let high = keys::district(warehouse, district + 1);
    let oldest = &mut buffers.key;
    oldest.clear();
    txn.scan(tables::NEW_ORDER, Scan::between(&low, &high).first(1), &mut |key, _row| {
        oldest.extend_from_slice(key);
        Visit::Stop
    })?;
    if oldest.is_empty() {
        return Ok(None);
    }
    // Another delivery may have taken it between the scan and now, where the isolation level allows
    // that.
    if !txn.delete(tables::NEW_ORDER, oldest)? {
        return Err(EngineError::Retry(Retry::Conflict));
    }
    Ok(Some(keys::order_of(oldest)))
}

fn deliver<T: Transaction>(
    txn: &mut T,
    input: &DeliveryInput,
    district: u8,
    number: u32,
    buffers: &mut DeliveryBuffers,
) -> Outcome<()> {
    let row = &mut buffers.row;
    let key = keys::order(input.warehouse, district, number);
    change(txn, tables::ORDER, &key, row, |row| order::CARRIER.set(row, input.carrier))?;
    let buyer = order::CUSTOMER.get(row);

    let amount_cents = deliver_lines(txn, input, (district, number), &mut buffers.lines)?;

    let key = keys::customer(input.warehouse, district, buyer);
    change(txn, tables::CUSTOMER, &key, row, |row| {
        customer::BALANCE.change(row, |balance| balance + amount_cents);
        customer::DELIVERY_COUNT.change(row, |count| count.wrapping_add(1));
    })
}

/// Sets the delivery date of an order's lines; returns the sum of OL_AMOUNT.
fn deliver_lines<T: Transaction>(
    txn: &mut T,
    input: &DeliveryInput,
    (district, number): (u8, u32),
    lines: &mut Vec<u8>,
) -> Outcome<i64> {
    const ENTRY: usize = keys::ORDER_LINE_LEN + order_line::LEN;
    let low = keys::order(input.warehouse, district, number);
    let high = keys::order(input.warehouse, district, number + 1);
    lines.clear();
    txn.scan(tables::ORDER_LINE, Scan::between(&low, &high), &mut |key, row| {
        if key.len() + row.len() == ENTRY {
            lines.extend_from_slice(key);
            lines.extend_from_slice(row);
        }
        Visit::Continue
    })?;
    let mut amount_cents = 0;
    for line in lines.chunks_exact_mut(ENTRY) {
        let (key, row) = line.split_at_mut(keys::ORDER_LINE_LEN);
        amount_cents += order_line::AMOUNT.get(row);
        order_line::DELIVERY_DATE.set(row, input.delivery_date_us);
        txn.put(tables::ORDER_LINE, key, row)?;
    }
    Ok(amount_cents)
}
