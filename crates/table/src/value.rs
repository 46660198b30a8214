//! Values and their types.
//!
//! Invariants:
//! * values of one type are totally ordered; NULL comes before every other value; text and bytes
//!   compare byte by byte (there are no collations: a caller that wants one stores its sort key);
//! * an `F64` is canonical wherever it is stored or compared: minus zero is zero, and every NaN is
//!   one NaN that comes after infinity. So equality, order and the key encoding agree.

use firndb_base::codec::Malformed;
use std::cmp::Ordering;
use std::fmt;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ColumnType {
    /// False or true; one byte.
    Bool,
    /// 32-bit signed integer.
    I32,
    /// 64-bit signed integer. Exact decimals (money) go here, in their smallest unit.
    I64,
    /// 64-bit unsigned integer.
    U64,
    /// IEEE 754 double, canonical (see the module).
    F64,
    /// Microseconds since the Unix epoch, UTC; may be negative.
    Timestamp,
    /// UTF-8.
    Text,
    /// Any bytes.
    Bytes,
}

impl ColumnType {
    /// Every type, in the order of its code.
    pub const ALL: [ColumnType; 8] = [
        ColumnType::Bool,
        ColumnType::I32,
        ColumnType::I64,
        ColumnType::U64,
        ColumnType::F64,
        ColumnType::Timestamp,
        ColumnType::Text,
        ColumnType::Bytes,
    ];

    /// Bytes that a value takes in a row; `None` if that varies.
    #[must_use]
    pub fn fixed_len(self) -> Option<usize> {
        match self {
            ColumnType::Bool => Some(1),
            ColumnType::I32 => Some(4),
            ColumnType::I64 | ColumnType::U64 | ColumnType::F64 | ColumnType::Timestamp => Some(8),
            ColumnType::Text | ColumnType::Bytes => None,
        }
    }

    /// Its number in definitions on disk.
    pub(crate) fn code(self) -> u8 {
        match self {
            ColumnType::Bool => 1,
            ColumnType::I32 => 2,
            ColumnType::I64 => 3,
            ColumnType::U64 => 4,
            ColumnType::F64 => 5,
            ColumnType::Timestamp => 6,
            ColumnType::Text => 7,
            ColumnType::Bytes => 8,
        }
    }

    pub(crate) fn from_code(code: u8) -> Result<ColumnType, Malformed> {
        ColumnType::ALL
            .into_iter()
            .find(|t| t.code() == code)
            .ok_or(Malformed { what: "unknown column type" })
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ColumnType::Bool => "bool",
            ColumnType::I32 => "i32",
            ColumnType::I64 => "i64",
            ColumnType::U64 => "u64",
            ColumnType::F64 => "f64",
            ColumnType::Timestamp => "timestamp",
            ColumnType::Text => "text",
            ColumnType::Bytes => "bytes",
        })
    }
}

/// A value that owns its bytes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Value {
    /// Nothing known.
    Null,
    Bool(bool),
    I32(i32),
    I64(i64),
    U64(u64),
    F64(f64),
    Timestamp(i64),
    Text(String),
    Bytes(Vec<u8>),
}

/// A value that borrows its bytes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum ValueRef<'a> {
    /// Nothing known.
    Null,
    Bool(bool),
    I32(i32),
    I64(i64),
    U64(u64),
    F64(f64),
    Timestamp(i64),
    Text(&'a str),
    Bytes(&'a [u8]),
}

/// The one bit pattern of each number that an `F64` may be stored as.
pub(crate) fn canonical(number: f64) -> f64 {
    if number.is_nan() {
        f64::from_bits(0x7ff8_0000_0000_0000)
    } else if number == 0.0 {
        0.0
    } else {
        number
    }
}

impl ValueRef<'_> {
    /// Its type; `None` for NULL, which has every type.
    #[must_use]
    pub fn column_type(self) -> Option<ColumnType> {
        Some(match self {
            ValueRef::Null => return None,
            ValueRef::Bool(_) => ColumnType::Bool,
            ValueRef::I32(_) => ColumnType::I32,
            ValueRef::I64(_) => ColumnType::I64,
            ValueRef::U64(_) => ColumnType::U64,
            ValueRef::F64(_) => ColumnType::F64,
            ValueRef::Timestamp(_) => ColumnType::Timestamp,
            ValueRef::Text(_) => ColumnType::Text,
            ValueRef::Bytes(_) => ColumnType::Bytes,
        })
    }
    #[must_use]
    pub fn is_null(self) -> bool {
        matches!(self, ValueRef::Null)
    }
    /// A copy that owns its bytes.
    #[must_use]
    pub fn to_value(self) -> Value {
        match self {
            ValueRef::Null => Value::Null,
            ValueRef::Bool(v) => Value::Bool(v),
            ValueRef::I32(v) => Value::I32(v),
            ValueRef::I64(v) => Value::I64(v),
            ValueRef::U64(v) => Value::U64(v),
            ValueRef::F64(v) => Value::F64(v),
            ValueRef::Timestamp(v) => Value::Timestamp(v),
            ValueRef::Text(v) => Value::Text(v.to_owned()),
            ValueRef::Bytes(v) => Value::Bytes(v.to_owned()),
        }
    }
    /// Its place in the order of types, for values of different types.
    fn rank(self) -> u8 {
        self.column_type().map_or(0, ColumnType::code)
    }
}

impl Value {
    /// The same value, borrowed.
    #[must_use]
    pub fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Value::Null => ValueRef::Null,
            Value::Bool(v) => ValueRef::Bool(*v),
            Value::I32(v) => ValueRef::I32(*v),
            Value::I64(v) => ValueRef::I64(*v),
            Value::U64(v) => ValueRef::U64(*v),
            Value::F64(v) => ValueRef::F64(*v),
            Value::Timestamp(v) => ValueRef::Timestamp(*v),
            Value::Text(v) => ValueRef::Text(v),
            Value::Bytes(v) => ValueRef::Bytes(v),
        }
    }
}

impl Ord for ValueRef<'_> {
    /// As the key encoding orders them. Values of different types compare by type.
    fn cmp(&self, other: &Self) -> Ordering {
        match (*self, *other) {
            (ValueRef::Bool(a), ValueRef::Bool(b)) => a.cmp(&b),
            (ValueRef::I32(a), ValueRef::I32(b)) => a.cmp(&b),
            (ValueRef::I64(a), ValueRef::I64(b)) | (ValueRef::Timestamp(a), ValueRef::Timestamp(b)) => {
                a.cmp(&b)
            }
            (ValueRef::U64(a), ValueRef::U64(b)) => a.cmp(&b),
            (ValueRef::F64(a), ValueRef::F64(b)) => canonical(a).total_cmp(&canonical(b)),
            (ValueRef::Text(a), ValueRef::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
            (ValueRef::Bytes(a), ValueRef::Bytes(b)) => a.cmp(b),
            (a, b) => a.rank().cmp(&b.rank()),
        }
    }
}
impl PartialOrd for ValueRef<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for ValueRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for ValueRef<'_> {}
impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_ref().cmp(&other.as_ref())
    }
}
impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.as_ref() == other.as_ref()
    }
}
impl Eq for Value {}

impl fmt::Display for ValueRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueRef::Null => f.write_str("NULL"),
            ValueRef::Bool(v) => write!(f, "{v}"),
            ValueRef::I32(v) => write!(f, "{v}"),
            ValueRef::I64(v) => write!(f, "{v}"),
            ValueRef::U64(v) => write!(f, "{v}"),
            ValueRef::F64(v) => write!(f, "{v}"),
            ValueRef::Timestamp(v) => write!(f, "{v} us"),
            ValueRef::Text(v) => write!(f, "{v:?}"),
            ValueRef::Bytes(v) => write!(f, "{}", crate::show::Bytes(v)),
        }
    }
}
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_ref().fmt(f)
    }
}

macro_rules! from_owned {
    ($($from:ty => $variant:ident),*) => {$(
        impl From<$from> for Value {
            fn from(value: $from) -> Value { Value::$variant(value) }
        }
    )*};
}
macro_rules! from_borrowed {
    ($($from:ty => $variant:ident),*) => {$(
        impl<'a> From<$from> for ValueRef<'a> {
            fn from(value: $from) -> ValueRef<'a> { ValueRef::$variant(value) }
        }
    )*};
}
from_owned!(bool => Bool, i32 => I32, i64 => I64, u64 => U64, f64 => F64, String => Text, Vec<u8> => Bytes);
from_borrowed!(bool => Bool, i32 => I32, i64 => I64, u64 => U64, f64 => F64, &'a str => Text, &'a [u8] => Bytes);

impl From<&str> for Value {
    fn from(value: &str) -> Value {
        Value::Text(value.to_owned())
    }
}
impl From<&[u8]> for Value {
    fn from(value: &[u8]) -> Value {
        Value::Bytes(value.to_owned())
    }
}
impl<'a> From<&'a Value> for ValueRef<'a> {
    fn from(value: &'a Value) -> ValueRef<'a> {
        value.as_ref()
    }
}
impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_pinned_and_read_back() {
        for (at, kind) in ColumnType::ALL.into_iter().enumerate() {
            assert_eq!(kind.code() as usize, at + 1);
            assert_eq!(ColumnType::from_code(kind.code()), Ok(kind));
        }
        assert!(ColumnType::from_code(0).is_err());
        assert!(ColumnType::from_code(9).is_err());
    }

    #[test]
    fn numbers_have_one_zero_and_one_nan_above_infinity() {
        assert_eq!(Value::F64(0.0), Value::F64(-0.0));
        assert_eq!(Value::F64(f64::NAN), Value::F64(-f64::NAN));
        assert!(Value::F64(f64::NAN) > Value::F64(f64::INFINITY));
        assert!(Value::Null < Value::F64(f64::NEG_INFINITY));
    }
}
