//! Random values for the tests of this crate.

use crate::value::{ColumnType, Value};
use firndb_base::rng::Rng;

pub(crate) fn random_type(rng: &mut Rng) -> ColumnType {
    ColumnType::ALL[rng.below(ColumnType::ALL.len() as u64) as usize]
}

/// A value of the type; edges and near-equal values are frequent.
pub(crate) fn random_value(rng: &mut Rng, column_type: ColumnType, nullable: bool) -> Value {
    if nullable && rng.one_in(5) {
        return Value::Null;
    }
    let number = random_number(rng);
    match column_type {
        ColumnType::Bool => Value::Bool(rng.one_in(2)),
        ColumnType::I32 => Value::I32(number as i32),
        ColumnType::I64 => Value::I64(number as i64),
        ColumnType::Timestamp => Value::Timestamp(number as i64),
        ColumnType::U64 => Value::U64(number),
        ColumnType::F64 => Value::F64(random_f64(rng)),
        ColumnType::Text => {
            let len = rng.below(6);
            Value::Text(
                (0..len)
                    .map(|_| ['\0', '\u{1}', 'a', 'b', 'é', '\u{10ffff}'][rng.below(6) as usize])
                    .collect(),
            )
        }
        ColumnType::Bytes => {
            let len = rng.below(6);
            Value::Bytes((0..len).map(|_| [0, 1, 2, 0x7f, 0xfe, 0xff][rng.below(6) as usize]).collect())
        }
    }
}

fn random_number(rng: &mut Rng) -> u64 {
    let edges =
        [0, 1, u64::MAX, i64::MAX as u64, i64::MIN as u64, i32::MAX as u64, i32::MIN as u64, 255, 256];
    match rng.below(3) {
        0 => edges[rng.below(edges.len() as u64) as usize],
        1 => rng.below(10).wrapping_sub(5),
        _ => rng.next_u64(),
    }
}

fn random_f64(rng: &mut Rng) -> f64 {
    let edges = [
        0.0,
        -0.0,
        f64::NAN,
        -f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MIN_POSITIVE,
        f64::MAX,
        f64::MIN,
        1.5,
    ];
    match rng.below(3) {
        0 => edges[rng.below(edges.len() as u64) as usize],
        1 => rng.below(10) as f64 - 5.0,
        _ => f64::from_bits(rng.next_u64()),
    }
}
