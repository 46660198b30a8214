//! Log blocks that an epoch's beginning carries, since too few devices had them.
//!
//! A crash leaves requests that some of their devices had written and others had not. Recovery takes them for log, since
//! they may have been acknowledged; then it must not depend on the one device that has them, which might be lost before
//! the next checkpoint. So the new epoch begins with copies of such blocks, and recovery goes on once these are
//! durable on as many devices as all log is. An epoch that does not hold all the copies that its first record
//! announces is void: nothing was built on it.

use crate::block::PAYLOAD;
use firn_base::codec::{Reader, Writer};
use firn_base::{Epoch, Lsn};
use std::collections::BTreeMap;

/// A block of which there are too few copies, as far as it is log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Thin {
    pub epoch: Epoch,
    /// Of its first byte.
    pub lsn: Lsn,
    pub bytes: Vec<u8>,
}

impl Thin {
    /// The body of the record that carries it.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(12 + self.bytes.len());
        body.put_u32(self.epoch.0);
        body.put_u64(self.lsn.0);
        body.put(&self.bytes);
        body
    }

    pub fn decode(body: &[u8]) -> Option<Thin> {
        let mut reader = Reader::new(body);
        let (epoch, lsn) = (Epoch(reader.u32().ok()?), Lsn(reader.u64().ok()?));
        let bytes = reader.rest().to_vec();
        let sound = bytes.len() <= PAYLOAD && lsn.0.is_multiple_of(PAYLOAD as u64);
        sound.then_some(Thin { epoch, lsn, bytes })
    }
}

/// The copies found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Patches {
    blocks: BTreeMap<(Epoch, Lsn), Vec<u8>>,
}

impl Patches {
    pub fn get(&self, epoch: Epoch, lsn: Lsn) -> Option<&[u8]> {
        self.blocks.get(&(epoch, lsn)).map(Vec::as_slice)
    }

    pub fn insert(&mut self, thin: Thin) {
        let held = self.blocks.entry((thin.epoch, thin.lsn)).or_default();
        if held.len() < thin.bytes.len() {
            *held = thin.bytes;
        }
    }
}
