//! Values for unit tests.

use firndb_base::rng::Rng;
use firndb_table::{ColumnType, Value};

pub(crate) fn random_value(rng: &mut Rng, column_type: ColumnType) -> Value {
    if rng.one_in(5) {
        return Value::Null;
    }
    let number = rng.below(20) as i64 - 10;
    match column_type {
        ColumnType::Bool => (number > 0).into(),
        ColumnType::I32 => (number as i32).into(),
        ColumnType::I64 => number.into(),
        ColumnType::U64 => (number as u64).into(),
        ColumnType::F64 => (number as f64 / 2.0).into(),
        ColumnType::Timestamp => Value::Timestamp(number),
        ColumnType::Text => format!("{number}").into(),
        _ => Value::Bytes(vec![number as u8; rng.below(9) as usize]),
    }
}
