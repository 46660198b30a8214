//! The circular buffer: log that no request holds yet, addressed by LSN.

use firndb_base::Lsn;

/// The newest part of the stream; byte `lsn` lies at index `lsn % capacity`.
pub(crate) struct Ring {
    bytes: Box<[u8]>,
}

impl Ring {
    pub fn new(capacity: usize) -> Ring {
        Ring { bytes: vec![0; capacity].into_boxed_slice() }
    }

    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// Copies `data` to `lsn`. The caller ensures that the bytes it replaces are not needed.
    pub fn put(&mut self, lsn: Lsn, data: &[u8]) {
        debug_assert!(data.len() <= self.capacity(), "the ring holds what is put into it");
        let at = (lsn.0 % self.bytes.len() as u64) as usize;
        let head = data.len().min(self.bytes.len() - at);
        self.bytes[at..at + head].copy_from_slice(&data[..head]);
        self.bytes[..data.len() - head].copy_from_slice(&data[head..]);
    }

    /// Copies the bytes from `lsn` on into `out`.
    pub fn get(&self, lsn: Lsn, out: &mut [u8]) {
        let at = (lsn.0 % self.bytes.len() as u64) as usize;
        let head = out.len().min(self.bytes.len() - at);
        let rest = out.len() - head;
        out[..head].copy_from_slice(&self.bytes[at..at + head]);
        out[head..].copy_from_slice(&self.bytes[..rest]);
    }
}
