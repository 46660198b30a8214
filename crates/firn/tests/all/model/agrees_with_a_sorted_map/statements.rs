//! Statements of the transaction that writes, and of one beside it.

use super::compare::{compare_indexes, within};
use super::{INDEXED, Run, TABLES, UNIQUE};
use crate::support::small::scan;
use firndb::{Direction, ErrorKind, KeyRange};
use std::ops::Bound;

impl Run {
    pub fn write(&mut self) {
        let which = self.rng.below(3) as usize;
        let key = self.key();
        let value = self.value(which, &key);
        let kind = self.rng.below(4);
        let table = self.tables[which].clone();
        let writer = self.writer();
        writer.exposed = true;
        let rows = &mut writer.model[which];
        let existed = rows.contains_key(&key);
        let writes = match kind {
            0 => !existed,
            2 => existed,
            _ => true,
        };
        let taken = which == INDEXED
            && kind != 3
            && writes
            && rows.iter().any(|(other, row)| *other != key && row[UNIQUE] == value[UNIQUE]);
        let tx = &mut writer.tx;
        let answer = match kind {
            0 => tx.insert(&table, &key, &value).map(|()| false),
            1 => tx.put(&table, &key, &value),
            2 => tx.update(&table, &key, &value),
            _ => tx.delete(&table, &key),
        };
        let show = format!("statement {kind} on {}: {} = {answer:?}", TABLES[which], key.escape_ascii());
        if taken || (kind == 0 && existed) {
            let error = answer.expect_err("a duplicate");
            assert_eq!(error.kind(), ErrorKind::Duplicate, "{show}");
            return;
        }
        assert_eq!(answer, Ok(existed), "{show}");
        match kind {
            3 => drop(rows.remove(&key)),
            _ if writes => drop(rows.insert(key, value)),
            _ => {}
        }
        self.tell(|| show);
    }

    pub fn read(&mut self) {
        let which = self.rng.below(3) as usize;
        let key = self.key();
        let lock = self.rng.one_in(3);
        let table = self.tables[which].clone();
        let writer = self.writer();
        writer.exposed = true;
        let found = if lock { writer.tx.get_for_update(&table, &key) } else { writer.tx.get(&table, &key) };
        assert_eq!(found.as_ref(), Ok(&writer.model[which].get(&key).cloned()));
        if which == INDEXED {
            let index = table.index("unique").expect("there");
            let wanted = [b'0' + (key[0] % 10), b'0' + (key[1] % 5)];
            let (mut primary, mut row) = (Vec::new(), Vec::new());
            let found = writer.tx.get_by_index(&index, &wanted, &mut primary, &mut row).expect("readable");
            let expected = writer.model[which].iter().find(|(_, row)| row[UNIQUE] == wanted);
            assert_eq!(found.then_some((&primary, &row)), expected);
        }
    }

    pub fn scan(&mut self) {
        let which = self.rng.below(3) as usize;
        let (range, low, high) = self.range();
        let direction = self.direction();
        let table = self.tables[which].clone();
        let writer = self.writer();
        writer.exposed = true;
        let found = scan(&mut writer.tx, &table, range, direction);
        let mut expected = within(&writer.model[which], low.as_deref(), high.as_deref());
        if direction == Direction::Backward {
            expected.reverse();
        }
        assert_eq!(found, expected);
        if which == INDEXED {
            compare_indexes(&mut writer.tx, &table, &writer.model[which], direction);
        }
    }

    /// A cursor that its own transaction writes around, refreshed after each write.
    pub fn scan_while_writing(&mut self) {
        let which = self.rng.below(2) as usize;
        let direction = self.direction();
        let table = self.tables[which].clone();
        let mut cursor = self.writer().tx.scan(&table, KeyRange::all(), direction);
        let mut last: Option<Vec<u8>> = None;
        for _ in 0..self.rng.between(1, 12) {
            let writer = self.writer();
            let rows = &writer.model[which];
            let expected = match (&last, direction) {
                (None, Direction::Forward) => rows.first_key_value(),
                (None, Direction::Backward) => rows.last_key_value(),
                (Some(last), Direction::Forward) => {
                    rows.range::<[u8], _>((Bound::Excluded(&last[..]), Bound::Unbounded)).next()
                }
                (Some(last), Direction::Backward) => {
                    rows.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(&last[..]))).next_back()
                }
            };
            let found = cursor.next(&mut writer.tx).expect("readable");
            assert_eq!(found, expected.map(|(key, value)| (&key[..], &value[..])));
            match found {
                Some((key, _)) => last = Some(key.to_vec()),
                None => return,
            }
            if self.rng.one_in(2) {
                self.write();
                cursor.refresh();
            }
        }
    }

    /// Rows that the writer has changed cannot be written or locked by another; all others can.
    pub fn second_writer_is_refused(&mut self) {
        let which = self.rng.below(2) as usize;
        let key = self.key();
        let table = self.tables[which].clone();
        let committed = self.committed[which].get(&key).cloned();
        let writer = self.writer();
        let changed = writer.model[which].get(&key) != committed.as_ref();
        let locks_nothing = writer.tx.id().is_none();
        let isolation = writer.isolation;
        let mut other = self.db.begin();
        let answer = other.get_for_update(&table, &key);
        if changed {
            assert_eq!(answer.expect_err("it is locked").kind(), ErrorKind::Timeout);
        } else if locks_nothing {
            assert_eq!(answer, Ok(committed), "{isolation:?}");
        }
        let answer = other.put(&table, &key, b"other");
        if changed {
            assert_eq!(answer.expect_err("it is locked").kind(), ErrorKind::Timeout);
        }
        other.rollback().expect("rolled back");
    }
}
