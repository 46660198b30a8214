//! Keys of the nine tables: fixed-length, big-endian, so that they sort as their columns do.

/// W_ID.
pub const WAREHOUSE_LEN: usize = 4;
/// W_ID, D_ID: also the prefix of every key that belongs to a district.
pub const DISTRICT_LEN: usize = WAREHOUSE_LEN + 1;
/// W_ID, D_ID, C_ID.
pub const CUSTOMER_LEN: usize = DISTRICT_LEN + 4;
/// W_ID, D_ID, O_ID: of ORDER and NEW-ORDER, and the prefix of an order's lines.
pub const ORDER_LEN: usize = DISTRICT_LEN + 4;
/// W_ID, D_ID, O_ID, OL_NUMBER.
pub const ORDER_LINE_LEN: usize = ORDER_LEN + 1;
/// W_ID, D_ID, H_DATE, client.
pub const HISTORY_LEN: usize = DISTRICT_LEN + 8 + 4;
/// I_ID.
pub const ITEM_LEN: usize = 4;
/// W_ID, I_ID.
pub const STOCK_LEN: usize = WAREHOUSE_LEN + 4;
/// The only row of the population table.
pub const POPULATION: [u8; 1] = [0];

fn joined<const N: usize>(parts: &[&[u8]]) -> [u8; N] {
    let mut key = [0; N];
    let mut rest = key.as_mut_slice();
    for part in parts {
        let (head, tail) = rest.split_at_mut(part.len());
        head.copy_from_slice(part);
        rest = tail;
    }
    assert!(rest.is_empty());
    key
}

/// The key of WAREHOUSE.
#[must_use]
pub fn warehouse(warehouse: u32) -> [u8; WAREHOUSE_LEN] {
    warehouse.to_be_bytes()
}
/// The key of DISTRICT.
#[must_use]
pub fn district(warehouse: u32, district: u8) -> [u8; DISTRICT_LEN] {
    joined(&[&warehouse.to_be_bytes(), &[district]])
}
/// The key of CUSTOMER.
#[must_use]
pub fn customer(warehouse: u32, district: u8, customer: u32) -> [u8; CUSTOMER_LEN] {
    joined(&[&warehouse.to_be_bytes(), &[district], &customer.to_be_bytes()])
}
/// The key of ORDER and NEW-ORDER.
#[must_use]
pub fn order(warehouse: u32, district: u8, order: u32) -> [u8; ORDER_LEN] {
    joined(&[&warehouse.to_be_bytes(), &[district], &order.to_be_bytes()])
}
/// The key of ORDER-LINE.
#[must_use]
pub fn order_line(warehouse: u32, district: u8, order: u32, line: u8) -> [u8; ORDER_LINE_LEN] {
    joined(&[&warehouse.to_be_bytes(), &[district], &order.to_be_bytes(), &[line]])
}
/// The key of HISTORY. No client writes two rows with one date.
#[must_use]
pub fn history(warehouse: u32, district: u8, date_us: u64, client: u32) -> [u8; HISTORY_LEN] {
    joined(&[&warehouse.to_be_bytes(), &[district], &date_us.to_be_bytes(), &client.to_be_bytes()])
}
/// The key of ITEM.
#[must_use]
pub fn item(item: u32) -> [u8; ITEM_LEN] {
    item.to_be_bytes()
}
/// The key of STOCK.
#[must_use]
pub fn stock(warehouse: u32, item: u32) -> [u8; STOCK_LEN] {
    joined(&[&warehouse.to_be_bytes(), &item.to_be_bytes()])
}

/// Prefix of the index over customers' names: W_ID, D_ID, C_LAST.
#[must_use]
pub fn customers_named(warehouse: u32, district: u8, last: &[u8]) -> [u8; DISTRICT_LEN + 16] {
    assert!(last.len() <= 16, "C_LAST has at most 16 characters");
    let mut padded = [b' '; 16];
    padded[..last.len()].copy_from_slice(last);
    joined(&[&warehouse.to_be_bytes(), &[district], &padded])
}
/// Prefix of the index over orders: W_ID, D_ID, O_C_ID.
#[must_use]
pub fn orders_of(warehouse: u32, district: u8, customer: u32) -> [u8; CUSTOMER_LEN] {
    self::customer(warehouse, district, customer)
}

fn u32_at(key: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(key[at..at + 4].try_into().expect("four bytes"))
}

/// W_ID of any key but an item's.
#[must_use]
pub fn warehouse_of(key: &[u8]) -> u32 {
    u32_at(key, 0)
}
/// D_ID of any key that belongs to a district.
#[must_use]
pub fn district_of(key: &[u8]) -> u8 {
    key[WAREHOUSE_LEN]
}
/// C_ID of a customer's key.
#[must_use]
pub fn customer_of(key: &[u8]) -> u32 {
    u32_at(key, DISTRICT_LEN)
}
/// O_ID of the key of an order, new order or order line.
#[must_use]
pub fn order_of(key: &[u8]) -> u32 {
    u32_at(key, DISTRICT_LEN)
}
/// OL_NUMBER of an order line's key.
#[must_use]
pub fn line_of(key: &[u8]) -> u8 {
    key[ORDER_LEN]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_their_columns_and_give_them_back() {
        assert!(order_line(1, 2, 255, 9) < order_line(1, 2, 256, 1));
        assert!(district(255, 10) < district(256, 1));
        let key = order_line(70_000, 10, 3_000_000, 15);
        assert_eq!(
            (warehouse_of(&key), district_of(&key), order_of(&key), line_of(&key)),
            (70_000, 10, 3_000_000, 15)
        );
        assert_eq!(customer_of(&customer(1, 2, 3)), 3);
    }
}
