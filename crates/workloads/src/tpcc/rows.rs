//! Rows of the nine tables (clause 1.3), with the full sizes that the specification gives them.
//!
//! A row holds the columns that are not in its key ([`super::keys`]). Money is in cents, rates in
//! ten-thousandths, dates in microseconds since the Unix epoch. Zero stands for null in the two
//! columns that may be null (O_CARRIER_ID, OL_DELIVERY_D), which no real value is.

use crate::layout::{Number, Text};

/// Street, city, state and zip of a warehouse, district or customer.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    /// W_STREET_1, D_STREET_1, C_STREET_1.
    pub street_1: Text<20>,
    /// W_STREET_2, D_STREET_2, C_STREET_2.
    pub street_2: Text<20>,
    /// W_CITY, D_CITY, C_CITY.
    pub city: Text<20>,
    /// W_STATE, D_STATE, C_STATE.
    pub state: Text<2>,
    /// W_ZIP, D_ZIP, C_ZIP.
    pub zip: Text<9>,
}

impl Address {
    const fn at(at: usize) -> Address {
        let street_1 = Text::at(at);
        let street_2 = Text::at(street_1.end());
        let city = Text::at(street_2.end());
        let state = Text::at(city.end());
        Address { street_1, street_2, city, state, zip: Text::at(state.end()) }
    }
    const fn end(self) -> usize {
        self.zip.end()
    }
}

/// WAREHOUSE, by W_ID.
#[allow(missing_docs)]
pub mod warehouse {
    use super::*;
    pub const NAME: Text<10> = Text::at(0);
    pub const ADDRESS: Address = Address::at(NAME.end());
    pub const TAX: Number<i32> = Number::at(ADDRESS.end());
    pub const YTD: Number<i64> = Number::at(TAX.end());
    pub const LEN: usize = YTD.end();
}

/// DISTRICT, by D_W_ID, D_ID.
#[allow(missing_docs)]
pub mod district {
    use super::*;
    pub const NAME: Text<10> = Text::at(0);
    pub const ADDRESS: Address = Address::at(NAME.end());
    pub const TAX: Number<i32> = Number::at(ADDRESS.end());
    pub const YTD: Number<i64> = Number::at(TAX.end());
    pub const NEXT_ORDER: Number<u32> = Number::at(YTD.end());
    pub const LEN: usize = NEXT_ORDER.end();
}

/// CUSTOMER, by C_W_ID, C_D_ID, C_ID.
#[allow(missing_docs)]
pub mod customer {
    use super::*;
    pub const FIRST: Text<16> = Text::at(0);
    pub const MIDDLE: Text<2> = Text::at(FIRST.end());
    pub const LAST: Text<16> = Text::at(MIDDLE.end());
    pub const ADDRESS: Address = Address::at(LAST.end());
    pub const PHONE: Text<16> = Text::at(ADDRESS.end());
    pub const SINCE: Number<u64> = Number::at(PHONE.end());
    pub const CREDIT: Text<2> = Text::at(SINCE.end());
    pub const CREDIT_LIMIT: Number<i64> = Number::at(CREDIT.end());
    pub const DISCOUNT: Number<i32> = Number::at(CREDIT_LIMIT.end());
    pub const BALANCE: Number<i64> = Number::at(DISCOUNT.end());
    pub const YTD_PAYMENT: Number<i64> = Number::at(BALANCE.end());
    pub const PAYMENT_COUNT: Number<u32> = Number::at(YTD_PAYMENT.end());
    pub const DELIVERY_COUNT: Number<u32> = Number::at(PAYMENT_COUNT.end());
    pub const DATA: Text<500> = Text::at(DELIVERY_COUNT.end());
    pub const LEN: usize = DATA.end();
}

/// HISTORY, by H_W_ID, H_D_ID, H_DATE and the client that wrote it (the table has no key of its
/// own).
#[allow(missing_docs)]
pub mod history {
    use super::*;
    pub const CUSTOMER: Number<u32> = Number::at(0);
    pub const CUSTOMER_DISTRICT: Number<u8> = Number::at(CUSTOMER.end());
    pub const CUSTOMER_WAREHOUSE: Number<u32> = Number::at(CUSTOMER_DISTRICT.end());
    pub const AMOUNT: Number<i64> = Number::at(CUSTOMER_WAREHOUSE.end());
    pub const DATA: Text<24> = Text::at(AMOUNT.end());
    pub const LEN: usize = DATA.end();
}

/// NEW-ORDER, by NO_W_ID, NO_D_ID, NO_O_ID. All its columns are in the key; the row is one byte,
/// since not every engine takes empty rows.
#[allow(missing_docs)]
pub mod new_order {
    pub const LEN: usize = 1;
    pub const ROW: [u8; LEN] = [0];
}

/// ORDER, by O_W_ID, O_D_ID, O_ID.
#[allow(missing_docs)]
pub mod order {
    use super::*;
    pub const CUSTOMER: Number<u32> = Number::at(0);
    pub const ENTRY_DATE: Number<u64> = Number::at(CUSTOMER.end());
    pub const CARRIER: Number<u8> = Number::at(ENTRY_DATE.end());
    pub const LINE_COUNT: Number<u8> = Number::at(CARRIER.end());
    pub const ALL_LOCAL: Number<u8> = Number::at(LINE_COUNT.end());
    pub const LEN: usize = ALL_LOCAL.end();
    /// O_CARRIER_ID of an order not delivered yet.
    pub const NO_CARRIER: u8 = 0;
}

/// ORDER-LINE, by OL_W_ID, OL_D_ID, OL_O_ID, OL_NUMBER.
#[allow(missing_docs)]
pub mod order_line {
    use super::*;
    pub const ITEM: Number<u32> = Number::at(0);
    pub const SUPPLY_WAREHOUSE: Number<u32> = Number::at(ITEM.end());
    pub const DELIVERY_DATE: Number<u64> = Number::at(SUPPLY_WAREHOUSE.end());
    pub const QUANTITY: Number<u8> = Number::at(DELIVERY_DATE.end());
    pub const AMOUNT: Number<i64> = Number::at(QUANTITY.end());
    pub const DISTRICT_INFO: Text<24> = Text::at(AMOUNT.end());
    pub const LEN: usize = DISTRICT_INFO.end();
    /// OL_DELIVERY_D of a line not delivered yet.
    pub const NOT_DELIVERED: u64 = 0;
}

/// ITEM, by I_ID.
#[allow(missing_docs)]
pub mod item {
    use super::*;
    pub const IMAGE: Number<u32> = Number::at(0);
    pub const NAME: Text<24> = Text::at(IMAGE.end());
    pub const PRICE: Number<i64> = Number::at(NAME.end());
    pub const DATA: Text<50> = Text::at(PRICE.end());
    pub const LEN: usize = DATA.end();
}

/// STOCK, by S_W_ID, S_I_ID.
#[allow(missing_docs)]
pub mod stock {
    use super::*;
    pub const QUANTITY: Number<i32> = Number::at(0);
    const DISTRICTS_AT: usize = QUANTITY.end();
    pub const YTD: Number<i64> = Number::at(district_info(11).range().start);
    pub const ORDER_COUNT: Number<u32> = Number::at(YTD.end());
    pub const REMOTE_COUNT: Number<u32> = Number::at(ORDER_COUNT.end());
    pub const DATA: Text<50> = Text::at(REMOTE_COUNT.end());
    pub const LEN: usize = DATA.end();

    /// S_DIST_01 to S_DIST_10.
    #[must_use]
    pub const fn district_info(district: u8) -> Text<24> {
        Text::at(DISTRICTS_AT + (district as usize - 1) * 24)
    }
}

/// What a population was loaded with, as one row beside the nine tables: runs need it, and a run
/// against a database of another scale would break its conditions.
#[allow(missing_docs)]
pub mod population {
    use super::*;
    pub const WAREHOUSES: Number<u32> = Number::at(0);
    pub const ITEMS: Number<u32> = Number::at(WAREHOUSES.end());
    pub const CUSTOMERS: Number<u32> = Number::at(ITEMS.end());
    /// The constant C of NURand for C_LAST during the load (clause 2.1.6.1).
    pub const LAST_NAME_C: Number<u32> = Number::at(CUSTOMERS.end());
    pub const SEED: Number<u64> = Number::at(LAST_NAME_C.end());
    pub const LEN: usize = SEED.end();
}

// The specification's sizes (clause 4.2.2), key columns and row together. Ours differ by the widths
// of binary numbers only, and by less than a twentieth where rows are large.
const _: () = {
    assert!(warehouse::LEN + 4 == 97); // 89 in the specification.
    assert!(district::LEN + 5 == 102); // 95.
    assert!(customer::LEN + 9 == 676); // 655.
    assert!(stock::LEN + 8 == 318); // 306.
    assert!(order_line::LEN + 10 == 59); // 54.
    assert!(item::LEN + 4 == 90); // 82.
};
