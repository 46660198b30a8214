//! The key encoding: byte order of encodings is the order of values.
//!
//! A key is the encodings of its columns, one after the other; see `docs/format/rows.md`.
//! Invariants:
//! * for two tuples of one shape, comparing encodings as bytes gives the order of the tuples,
//!   column by column, with each descending column turned round;
//! * no encoding of a tuple is a prefix of another tuple's of the same shape, so what is appended
//!   to a key (a primary key, in non-unique indexes) can be separated from it again;
//! * decoding is the exact inverse, and refuses bytes that no value encodes to.

use crate::value::{ColumnType, Value, ValueRef, canonical};
use firndb_base::codec::{Malformed, Reader};

/// How one column of a key is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyForm {
    pub(crate) column_type: ColumnType,
    pub(crate) nullable: bool,
    pub(crate) descending: bool,
}

/// First byte of a nullable column that is NULL.
const NULL: u8 = 0;
/// First byte of a nullable column that is not.
const PRESENT: u8 = 1;
/// A zero byte within text or bytes is written as itself and this.
const ESCAPED: u8 = 0xff;
/// Text and bytes end with a zero byte and this.
const END: u8 = 0;

const SIGN_32: u32 = 1 << 31;
const SIGN_64: u64 = 1 << 63;

/// Appends `value`'s encoding to `key`. The value's type has been checked against the form's.
pub(crate) fn encode(form: KeyForm, value: ValueRef<'_>, key: &mut Vec<u8>) {
    let start = key.len();
    if form.nullable {
        key.push(if value.is_null() { NULL } else { PRESENT });
    }
    match value {
        ValueRef::Null => assert!(form.nullable, "NULL was refused before it came to be a key"),
        ValueRef::Bool(v) => key.push(u8::from(v)),
        ValueRef::I32(v) => key.extend_from_slice(&(v as u32 ^ SIGN_32).to_be_bytes()),
        ValueRef::I64(v) | ValueRef::Timestamp(v) => {
            key.extend_from_slice(&(v as u64 ^ SIGN_64).to_be_bytes())
        }
        ValueRef::U64(v) => key.extend_from_slice(&v.to_be_bytes()),
        ValueRef::F64(v) => key.extend_from_slice(&order_bits(v).to_be_bytes()),
        ValueRef::Text(v) => escape(v.as_bytes(), key),
        ValueRef::Bytes(v) => escape(v, key),
    }
    if form.descending {
        key[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
    if cfg!(debug_assertions) {
        let mut encoded = Reader::new(&key[start..]);
        let decoded = decode(form, &mut encoded);
        assert_eq!(decoded.as_ref().map(Value::as_ref), Ok(value), "decoding is the inverse of encoding");
        assert!(encoded.is_empty(), "an encoding ends where decoding does");
    }
}

pub(crate) fn decode(form: KeyForm, reader: &mut Reader<'_>) -> Result<Value, Malformed> {
    let turn = if form.descending { 0xff } else { 0 };
    if form.nullable {
        match reader.u8()? ^ turn {
            NULL => return Ok(Value::Null),
            PRESENT => {}
            _ => return Err(Malformed { what: "a key column is neither NULL nor present" }),
        }
    }
    Ok(match form.column_type {
        ColumnType::Bool => match reader.u8()? ^ turn {
            0 => Value::Bool(false),
            1 => Value::Bool(true),
            _ => return Err(Malformed { what: "a bool in a key is neither 0 nor 1" }),
        },
        ColumnType::I32 => {
            let bits = u32::from_be_bytes(turned(reader.array()?, turn));
            Value::I32((bits ^ SIGN_32) as i32)
        }
        ColumnType::I64 => Value::I64((u64::from_be_bytes(turned(reader.array()?, turn)) ^ SIGN_64) as i64),
        ColumnType::Timestamp => {
            Value::Timestamp((u64::from_be_bytes(turned(reader.array()?, turn)) ^ SIGN_64) as i64)
        }
        ColumnType::U64 => Value::U64(u64::from_be_bytes(turned(reader.array()?, turn))),
        ColumnType::F64 => Value::F64(number(u64::from_be_bytes(turned(reader.array()?, turn)))?),
        ColumnType::Text => {
            let bytes = unescape(reader, turn)?;
            Value::Text(
                String::from_utf8(bytes).map_err(|_| Malformed { what: "text in a key is not UTF-8" })?,
            )
        }
        ColumnType::Bytes => Value::Bytes(unescape(reader, turn)?),
    })
}

/// Skips one column; returns whether it is NULL. Checks lengths only.
pub(crate) fn skip(form: KeyForm, reader: &mut Reader<'_>) -> Result<bool, Malformed> {
    let turn = if form.descending { 0xff } else { 0 };
    if form.nullable && reader.u8()? ^ turn == NULL {
        return Ok(true);
    }
    match form.column_type.fixed_len() {
        Some(len) => {
            reader.bytes(len)?;
        }
        None => while next_escaped(reader, turn)?.is_some() {},
    }
    Ok(false)
}

fn turned<const N: usize>(bytes: [u8; N], turn: u8) -> [u8; N] {
    bytes.map(|byte| byte ^ turn)
}

/// Bits whose unsigned order is the order of numbers: positive ones get the sign bit, negative ones
/// are inverted whole.
fn order_bits(number: f64) -> u64 {
    let bits = canonical(number).to_bits();
    if bits & SIGN_64 == 0 { bits | SIGN_64 } else { !bits }
}

fn number(order_bits: u64) -> Result<f64, Malformed> {
    let bits = if order_bits & SIGN_64 == 0 { !order_bits } else { order_bits ^ SIGN_64 };
    let number = f64::from_bits(bits);
    if canonical(number).to_bits() != bits {
        return Err(Malformed { what: "a number in a key is not canonical" });
    }
    Ok(number)
}

fn escape(bytes: &[u8], key: &mut Vec<u8>) {
    key.reserve(bytes.len() + 2);
    for &byte in bytes {
        key.push(byte);
        if byte == 0 {
            key.push(ESCAPED);
        }
    }
    key.extend_from_slice(&[0, END]);
}

fn unescape(reader: &mut Reader<'_>, turn: u8) -> Result<Vec<u8>, Malformed> {
    let mut bytes = Vec::new();
    while let Some(byte) = next_escaped(reader, turn)? {
        bytes.push(byte);
    }
    Ok(bytes)
}

/// The next byte of escaped text; `None` at its end.
fn next_escaped(reader: &mut Reader<'_>, turn: u8) -> Result<Option<u8>, Malformed> {
    match reader.u8()? ^ turn {
        0 => match reader.u8()? ^ turn {
            END => Ok(None),
            ESCAPED => Ok(Some(0)),
            _ => Err(Malformed { what: "an unknown escape in a key" }),
        },
        byte => Ok(Some(byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{random_type, random_value};
    use firndb_base::rng::Rng;
    use std::cmp::Ordering;

    fn encoded(forms: &[KeyForm], values: &[Value]) -> Vec<u8> {
        let mut key = Vec::new();
        for (form, value) in forms.iter().zip(values) {
            encode(*form, value.as_ref(), &mut key);
        }
        key
    }

    fn compare(forms: &[KeyForm], a: &[Value], b: &[Value]) -> Ordering {
        forms
            .iter()
            .zip(a.iter().zip(b))
            .map(|(form, (a, b))| if form.descending { b.cmp(a) } else { a.cmp(b) })
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }

    #[test]
    fn byte_order_is_value_order_and_decoding_inverts() {
        let mut rng = Rng::new(0x6b65_7973);
        for _ in 0..20_000 {
            let forms: Vec<KeyForm> = (0..rng.between(1, 3))
                .map(|_| KeyForm {
                    column_type: random_type(&mut rng),
                    nullable: rng.one_in(2),
                    descending: rng.one_in(2),
                })
                .collect();
            let mut tuple = || -> Vec<Value> {
                forms.iter().map(|f| random_value(&mut rng, f.column_type, f.nullable)).collect()
            };
            let (a, b) = (tuple(), tuple());
            let (key_a, key_b) = (encoded(&forms, &a), encoded(&forms, &b));
            assert_eq!(key_a.cmp(&key_b), compare(&forms, &a, &b), "{forms:?} {a:?} {b:?}");
            assert!(key_a == key_b || !key_b.starts_with(&key_a), "{forms:?} {a:?} is a prefix of {b:?}");
            let mut reader = Reader::new(&key_a);
            let mut skipper = Reader::new(&key_a);
            for (form, value) in forms.iter().zip(&a) {
                assert_eq!(decode(*form, &mut reader).as_ref(), Ok(value));
                assert_eq!(skip(*form, &mut skipper), Ok(*value == Value::Null));
            }
            assert!(reader.is_empty() && skipper.is_empty());
        }
    }

    #[test]
    fn random_bytes_are_refused_or_encode_to_themselves() {
        let mut rng = Rng::new(99);
        for _ in 0..20_000 {
            let form = KeyForm {
                column_type: random_type(&mut rng),
                nullable: rng.one_in(2),
                descending: rng.one_in(2),
            };
            let bytes: Vec<u8> =
                (0..rng.below(20)).map(|_| [0, 1, 0xff, 0x61][rng.below(4) as usize]).collect();
            let mut reader = Reader::new(&bytes);
            let mut skipper = reader;
            let _ = skip(form, &mut skipper);
            if let Ok(value) = decode(form, &mut reader) {
                let read = bytes.len() - reader.rest().len();
                assert_eq!(encoded(&[form], &[value]), &bytes[..read]);
            }
        }
    }

    #[test]
    fn encodings_are_pinned() {
        let form = |column_type, nullable, descending| KeyForm { column_type, nullable, descending };
        let cases: &[(KeyForm, Value, &[u8])] = &[
            (form(ColumnType::Bool, false, false), true.into(), &[1]),
            (form(ColumnType::I32, false, false), (-1i32).into(), &[0x7f, 0xff, 0xff, 0xff]),
            (form(ColumnType::I64, true, false), 1i64.into(), &[1, 0x80, 0, 0, 0, 0, 0, 0, 1]),
            (form(ColumnType::I64, true, false), Value::Null, &[0]),
            (form(ColumnType::I64, true, true), Value::Null, &[0xff]),
            (
                form(ColumnType::U64, false, true),
                2u64.into(),
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfd],
            ),
            (form(ColumnType::F64, false, false), 1.0.into(), &[0xbf, 0xf0, 0, 0, 0, 0, 0, 0]),
            (
                form(ColumnType::F64, false, false),
                (-1.0).into(),
                &[0x40, 0x0f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            ),
            (form(ColumnType::Text, false, false), "ab".into(), b"ab\0\0"),
            (form(ColumnType::Bytes, false, false), (&b"a\0b"[..]).into(), b"a\0\xffb\0\0"),
            (form(ColumnType::Bytes, false, true), (&b"\0"[..]).into(), &[0xff, 0, 0xff, 0xff]),
        ];
        for (form, value, bytes) in cases {
            assert_eq!(encoded(&[*form], std::slice::from_ref(value)), *bytes, "{form:?} {value:?}");
        }
    }
}
