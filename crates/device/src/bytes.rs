//! Sparse bytes that copies share until they are changed.
//!
//! Crash tests make an image of every device at every event; sharing makes an image cost what
//! differs.
//!
//! Invariant: `chunks.len() == len.div_ceil(CHUNK_BYTES)`, and the bytes of the last chunk past
//! `len` are zero, so that growing never shows what was cut off.

use firndb_base::sync::Arc;

/// Bytes shared and copied as one.
const CHUNK_BYTES: usize = 16 << 10;

type Chunk = [u8; CHUNK_BYTES];

/// Bytes; `None` chunks are zeros.
#[derive(Clone, Default)]
pub(crate) struct SharedBytes {
    chunks: Vec<Option<Arc<Chunk>>>,
    len: u64,
}

impl SharedBytes {
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes of memory that `len` bytes take when all are zeros.
    pub(crate) fn table_bytes(len: u64) -> u64 {
        len.div_ceil(CHUNK_BYTES as u64).saturating_mul(size_of::<Option<Arc<Chunk>>>() as u64)
    }

    /// Cuts, or adds zeros.
    pub(crate) fn resize(&mut self, len: u64) {
        let chunks = usize::try_from(len.div_ceil(CHUNK_BYTES as u64))
            .expect("a device in memory fits the address space");
        if len < self.len {
            let cut_end = self.len.min(len.next_multiple_of(CHUNK_BYTES as u64));
            self.zero(len, cut_end - len);
        }
        self.chunks.resize(chunks, None);
        self.len = len;
        self.check_in_debug();
    }

    /// In debug builds, asserts the invariant that the module's head states.
    fn check_in_debug(&self) {
        if cfg!(debug_assertions) {
            assert_eq!(self.chunks.len() as u64, self.len.div_ceil(CHUNK_BYTES as u64));
            let past = (self.len % CHUNK_BYTES as u64) as usize;
            if let (Some(Some(last)), true) = (self.chunks.last(), past > 0) {
                assert!(last[past..].iter().all(|byte| *byte == 0), "growing shows zeros");
            }
        }
    }

    /// Fills `buf` from `offset` on; the range must lie inside.
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) {
        assert!(offset + buf.len() as u64 <= self.len);
        let mut rest = buf;
        for (index, start, len) in pieces(offset, rest.len() as u64) {
            let (part, tail) = rest.split_at_mut(len);
            match &self.chunks[index] {
                Some(chunk) => part.copy_from_slice(&chunk[start..start + len]),
                None => part.fill(0),
            }
            rest = tail;
        }
    }

    /// Replaces the bytes from `offset` on; the range must lie inside.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        assert!(offset + data.len() as u64 <= self.len);
        let mut rest = data;
        for (index, start, len) in pieces(offset, data.len() as u64) {
            let (part, tail) = rest.split_at(len);
            let chunk = self.chunks[index].get_or_insert_with(|| Arc::new([0; CHUNK_BYTES]));
            Arc::make_mut(chunk)[start..start + len].copy_from_slice(part);
            rest = tail;
        }
    }

    /// Makes the range zeros; it must lie inside.
    pub(crate) fn zero(&mut self, offset: u64, len: u64) {
        assert!(offset + len <= self.len);
        for (index, start, len) in pieces(offset, len) {
            match &mut self.chunks[index] {
                whole if len == CHUNK_BYTES => *whole = None,
                Some(chunk) => Arc::make_mut(chunk)[start..start + len].fill(0),
                None => {}
            }
        }
    }
}

/// The range chunk by chunk: index, first byte in the chunk, bytes.
fn pieces(offset: u64, len: u64) -> impl Iterator<Item = (usize, usize, usize)> {
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let start = (at % CHUNK_BYTES as u64) as usize;
        let len = (end - at).min((CHUNK_BYTES - start) as u64) as usize;
        let index = (at / CHUNK_BYTES as u64) as usize;
        at += len as u64;
        Some((index, start, len))
    })
}

impl std::fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedBytes({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::rng::Rng;

    #[test]
    fn behaves_as_a_vector_and_copies_stay_as_they_were() {
        let mut rng = Rng::new(11);
        let (mut real, mut model) = (SharedBytes::default(), Vec::new());
        let mut kept: Option<(SharedBytes, Vec<u8>)> = None;
        for round in 0..2000u32 {
            match rng.below(8) {
                0 => {
                    let len = rng.below(6 * CHUNK_BYTES as u64);
                    real.resize(len);
                    model.resize(len as usize, 0);
                }
                1 => {
                    if let Some((copy, was)) = kept.replace((real.clone(), model.clone())) {
                        let mut bytes = vec![1; was.len()];
                        copy.read(0, &mut bytes);
                        assert_eq!(bytes, was, "round {round}");
                    }
                }
                draw => {
                    let offset = rng.below(model.len() as u64 + 1) as usize;
                    let len = rng.below((model.len() - offset) as u64 + 1) as usize;
                    if draw == 2 {
                        real.zero(offset as u64, len as u64);
                        model[offset..offset + len].fill(0);
                    } else {
                        let data: Vec<u8> = (0..len).map(|i| (i as u32 ^ round) as u8).collect();
                        real.write(offset as u64, &data);
                        model[offset..offset + len].copy_from_slice(&data);
                    }
                }
            }
            assert_eq!(real.len(), model.len() as u64);
            assert_eq!(real.chunks.len() as u64, real.len().div_ceil(CHUNK_BYTES as u64));
        }
        let mut bytes = vec![1; model.len()];
        real.read(0, &mut bytes);
        assert_eq!(bytes, model);
    }
}
