//! Under-replicated log blocks: those of which too few devices have a copy. The next epoch begins
//! with copies of them.
//!
//! A crash leaves requests that some of their devices had written and others had not. Recovery
//! takes them for log, since they may have been acknowledged. It must then not depend on the one
//! device that has them, which might be lost before the next checkpoint. So the new epoch begins
//! with copies of such blocks, and recovery continues once these are durable on as many devices as
//! all log is. An epoch that does not hold all the copies that its first record announces is void:
//! nothing depends on it.

use crate::block::PAYLOAD;
use firndb_base::codec::{Reader, Writer};
use firndb_base::{Epoch, Lsn};
use std::collections::BTreeMap;

/// A block of which there are too few copies, as far as it is log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnderReplicated {
    pub epoch: Epoch,
    /// LSN of the block's first byte.
    pub lsn: Lsn,
    pub bytes: Vec<u8>,
}

impl UnderReplicated {
    /// The body of the record that carries the block.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(12 + self.bytes.len());
        body.put_u32(self.epoch.0);
        body.put_u64(self.lsn.0);
        body.put(&self.bytes);
        body
    }

    pub fn decode(body: &[u8]) -> Option<UnderReplicated> {
        let mut reader = Reader::new(body);
        let (epoch, lsn) = (Epoch(reader.u32().ok()?), Lsn(reader.u64().ok()?));
        let bytes = reader.rest().to_vec();
        let sound = bytes.len() <= PAYLOAD && lsn.0.is_multiple_of(PAYLOAD as u64);
        sound.then_some(UnderReplicated { epoch, lsn, bytes })
    }
}

/// The copies that were found at the beginning of epochs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CopiedBlocks {
    blocks: BTreeMap<(Epoch, Lsn), Vec<u8>>,
}

impl CopiedBlocks {
    pub fn get(&self, epoch: Epoch, lsn: Lsn) -> Option<&[u8]> {
        self.blocks.get(&(epoch, lsn)).map(Vec::as_slice)
    }

    pub fn insert(&mut self, thin: UnderReplicated) {
        let held = self.blocks.entry((thin.epoch, thin.lsn)).or_default();
        if held.len() < thin.bytes.len() {
            *held = thin.bytes;
        }
    }
}
