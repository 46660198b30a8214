//! Tests of `schema.rs`.

use super::*;
use crate::testing::{random_type, random_value};
use firndb_base::rng::Rng;

fn random_schema(rng: &mut Rng) -> Schema {
    let key_columns = rng.between(1, 3) as usize;
    let count = key_columns + rng.below(12) as usize;
    let columns = (0..count)
        .map(|at| {
            let column = Column::new(format!("c{at}"), random_type(rng));
            let column = if at >= key_columns && rng.one_in(2) { column.nullable() } else { column };
            let default = random_value(rng, column.column_type, true);
            if rng.one_in(3) { column.with_default(default) } else { column }
        })
        .collect();
    let mut places: Vec<usize> = (0..key_columns).collect();
    if rng.one_in(2) {
        places.reverse();
    }
    let key = places.into_iter().map(|column| KeyColumn { column, descending: rng.one_in(2) }).collect();
    Schema::new(columns, key).unwrap()
}

#[test]
fn schemas_and_rows_round_trip() {
    let mut rng = Rng::new(1);
    for _ in 0..3000 {
        let schema = random_schema(&mut rng);
        let mut bytes = Vec::new();
        schema.write(&mut bytes);
        let mut reader = Reader::new(&bytes);
        assert_eq!(Schema::read(&mut reader).as_ref(), Ok(&schema));
        assert!(reader.is_empty());

        let values: Vec<Value> =
            schema.columns().iter().map(|c| random_value(&mut rng, c.column_type, c.nullable)).collect();
        let borrowed: Vec<ValueRef<'_>> = values.iter().map(Value::as_ref).collect();
        let (mut key, mut row, mut back) = (Vec::new(), Vec::new(), Vec::new());
        schema.encode(&borrowed, &mut key, &mut row).unwrap();
        schema.decode(&key, &row, &mut back).unwrap();
        assert_eq!(back, values);
    }
}

#[test]
fn rows_written_before_a_column_was_added_read_its_default() {
    let mut rng = Rng::new(2);
    for _ in 0..2000 {
        let wide = random_schema(&mut rng);
        let keep = rng.between(wide.key().len() as u64, wide.columns().len() as u64) as usize;
        let narrow = Schema::new(wide.columns()[..keep].to_vec(), wide.key().to_vec()).unwrap();
        let values: Vec<Value> =
            narrow.columns().iter().map(|c| random_value(&mut rng, c.column_type, c.nullable)).collect();
        let borrowed: Vec<ValueRef<'_>> = values.iter().map(Value::as_ref).collect();
        let (mut key, mut row, mut back) = (Vec::new(), Vec::new(), Vec::new());
        narrow.encode(&borrowed, &mut key, &mut row).unwrap();
        wide.decode(&key, &row, &mut back).unwrap();
        assert_eq!(back[..keep], values);
        for (column, value) in wide.columns()[keep..].iter().zip(&back[keep..]) {
            assert_eq!(*value, column.default);
        }
    }
}

#[test]
fn damaged_schemas_and_rows_are_refused_without_panic() {
    let mut rng = Rng::new(3);
    for _ in 0..3000 {
        let schema = random_schema(&mut rng);
        let values: Vec<Value> =
            schema.columns().iter().map(|c| random_value(&mut rng, c.column_type, c.nullable)).collect();
        let borrowed: Vec<ValueRef<'_>> = values.iter().map(Value::as_ref).collect();
        let (mut key, mut row, mut back) = (Vec::new(), Vec::new(), Vec::new());
        schema.encode(&borrowed, &mut key, &mut row).unwrap();
        let mut bytes = Vec::new();
        schema.write(&mut bytes);
        for target in [&mut bytes, &mut row, &mut key] {
            match rng.below(3) {
                0 => target.truncate(rng.below(target.len() as u64 + 1) as usize),
                1 => target.push(rng.next_u64() as u8),
                _ if target.is_empty() => {}
                _ => {
                    let at = rng.below(target.len() as u64) as usize;
                    target[at] = rng.next_u64() as u8;
                }
            }
        }
        let _ = Schema::read(&mut Reader::new(&bytes));
        let _ = schema.decode(&key, &row, &mut back);
    }
}

#[test]
fn broken_schemas_are_refused() {
    let id = || Column::new("id", ColumnType::I64);
    let refused: &[(Vec<Column>, Vec<KeyColumn>)] = &[
        (vec![], vec![]),
        (vec![id()], vec![]),
        (vec![id(), id()], vec![KeyColumn::ascending(0)]),
        (vec![id().nullable()], vec![KeyColumn::ascending(0)]),
        (vec![id()], vec![KeyColumn::ascending(1)]),
        (vec![id()], vec![KeyColumn::ascending(0), KeyColumn::descending(0)]),
        (vec![id().with_default("text")], vec![KeyColumn::ascending(0)]),
        (vec![Column::new("", ColumnType::Bool)], vec![KeyColumn::ascending(0)]),
    ];
    for (columns, key) in refused {
        assert!(Schema::new(columns.clone(), key.clone()).is_err(), "{columns:?} {key:?}");
    }
    assert!(Schema::with_key(vec![id()], &["nowhere"]).is_err());
}

#[test]
fn values_that_do_not_fit_are_refused_by_column_name() {
    let schema = Schema::with_key(
        vec![Column::new("id", ColumnType::I64), Column::new("name", ColumnType::Text)],
        &["id"],
    )
    .unwrap();
    let (mut key, mut row) = (Vec::new(), Vec::new());
    let mut error = |values: &[ValueRef<'_>]| schema.encode(values, &mut key, &mut row).unwrap_err().message;
    assert!(error(&[1i64.into()]).contains("2 columns"));
    assert!(error(&[1i64.into(), 2i64.into()]).contains("\"name\""));
    assert!(error(&[1i64.into(), ValueRef::Null]).contains("may not be NULL"));
    let long = "x".repeat(crate::row::MAX_VALUE_LEN + 1);
    assert!(error(&[1i64.into(), long.as_str().into()]).contains("67108864"));
}
