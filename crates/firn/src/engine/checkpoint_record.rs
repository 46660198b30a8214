//! A checkpoint in the log: its record, and the records before it with the parts of a long list.

use crate::engine::Engine;
use crate::error::Error;
use firndb_base::Lsn;
use firndb_base::codec::{Malformed, Reader, Writer};
use firndb_log::{Appended, Kind, LogClass, Record};
use firndb_txn::CheckpointState;

/// Longest part of a list in bytes, approximately.
const PART_MAX: u64 = 64 << 10;

/// A checkpoint as it is read back.
pub(crate) struct Checkpoint {
    pub redo_start: Lsn,
    /// Without the parts of its list that have not been added.
    state: CheckpointState,
    /// Number of transactions in the list.
    pub open: u64,
    /// Number of parts that have not been added, and the LSN where the records with them begin.
    missing: Option<(u64, Lsn)>,
    /// The part in the checkpoint record itself, which comes last.
    last: Vec<u8>,
}

impl Checkpoint {
    /// Decodes a checkpoint record's body.
    pub fn decode(body: &[u8]) -> Result<Checkpoint, Malformed> {
        let mut reader = Reader::new(body);
        let redo_start = Lsn(reader.u64()?);
        let missing = match reader.varint()? {
            0 => None,
            parts => Some((parts, Lsn(reader.u64()?))),
        };
        let (state, open) = CheckpointState::decode(&mut reader)?;
        Ok(Checkpoint { redo_start, state, open, missing, last: reader.rest().to_vec() })
    }

    /// Where the records of the missing parts begin: the caller hands each record from there to
    /// [`Checkpoint::add`].
    pub fn missing_from(&self) -> Option<Lsn> {
        self.missing.map(|(_, from)| from)
    }

    /// Adds a part, if the record is one; returns whether any is still missing.
    pub fn add(&mut self, record: Record<'_>) -> Result<bool, Malformed> {
        let Some((parts, from)) = self.missing else { return Ok(false) };
        if record.kind == Kind::CHECKPOINT_LIST {
            self.state.add_part(record.body)?;
            self.missing = (parts > 1).then_some((parts - 1, from));
        }
        Ok(self.missing.is_some())
    }

    /// The complete state.
    pub fn state(mut self) -> Result<CheckpointState, Malformed> {
        self.state.add_part(&self.last)?;
        if self.missing.is_some() || self.state.active.len() as u64 != self.open {
            return Err(Malformed { what: "a checkpoint's list of open transactions is not whole" });
        }
        Ok(self.state)
    }
}

impl Engine {
    pub fn append_checkpoint(&self, redo_start: Lsn, state: &CheckpointState) -> Result<Appended, Error> {
        let part_len = (self.log.group_max() / 4).min(PART_MAX) as usize;
        write(redo_start, state, part_len, |record| Ok(self.log.append(LogClass::System, record)?))
    }
}

/// Appends the checkpoint record, and the parts of a long list before it: however many transactions
/// are open, no record is longer than a group of the log may be.
fn write(
    redo_start: Lsn,
    state: &CheckpointState,
    part_len: usize,
    mut append: impl FnMut(Record<'_>) -> Result<Appended, Error>,
) -> Result<Appended, Error> {
    let mut parts = state.list(part_len);
    let last = parts.pop().expect("a list has one part at least");
    let mut body = Vec::new();
    body.put_u64(redo_start.0);
    body.put_varint(parts.len() as u64);
    let mut first = None;
    for part in &parts {
        let appended = append(Record { kind: Kind::CHECKPOINT_LIST, body: part })?;
        first.get_or_insert(appended.first);
    }
    if let Some(first) = first {
        body.put_u64(first.0);
    }
    state.encode(&mut body);
    body.put(&last);
    append(Record { kind: Kind::CHECKPOINT, body: &body })
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::{TreeId, TxnId};
    use firndb_txn::OpenTransaction;

    #[test]
    fn a_checkpoint_is_read_back_whatever_lies_between_its_parts() {
        let open = |id: u64| {
            let prepared =
                id.is_multiple_of(3).then(|| (id.to_be_bytes().to_vec(), vec![(TreeId(16), vec![7; 20])]));
            OpenTransaction { id: TxnId(id), entries: 1 + id as u32, prepared }
        };
        for (count, part_len) in [(0, 100), (3, 100), (200, 100), (200, 1 << 20)] {
            let state = CheckpointState {
                next_txn: TxnId(1000),
                next_tree: TreeId(17),
                active: (1..=count).map(open).collect(),
                ghosts: None,
            };
            let mut log: Vec<(Kind, Vec<u8>)> = Vec::new();
            let appended = write(Lsn(4711), &state, part_len, |record| {
                let first = Lsn(log.len() as u64);
                log.push((record.kind, record.body.to_vec()));
                log.push((Kind::COMMIT, vec![1, 2]));
                Ok(Appended { first, end: Lsn(first.0 + 1) })
            });
            let at = appended.expect("appended").first.0 as usize;
            assert!(log.iter().all(|(_, body)| body.len() <= part_len + 64), "no record is long");
            assert_eq!(log[at].0, Kind::CHECKPOINT);
            let mut found = Checkpoint::decode(&log[at].1).expect("well-formed");
            assert_eq!((found.redo_start, found.open), (Lsn(4711), count));
            if let Some(from) = found.missing_from() {
                let mut parts = log[from.0 as usize..].iter();
                let mut next = || parts.next().map(|(kind, body)| Record { kind: *kind, body });
                while found.add(next().expect("a part")).expect("well-formed") {}
                let mut short = Checkpoint::decode(&log[at].1).expect("well-formed");
                short
                    .add(Record { kind: Kind::CHECKPOINT_LIST, body: &log[from.0 as usize].1 })
                    .expect("well-formed");
                assert!(short.state().is_err(), "a part is missing");
            }
            assert_eq!(found.state(), Ok(state));
        }
        assert!(Checkpoint::decode(&[1, 2, 3]).is_err());
    }
}
