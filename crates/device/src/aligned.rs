//! Memory aligned for direct I/O.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// A zeroed, fixed-size byte buffer aligned to [`AlignedBuf::ALIGNMENT`].
pub struct AlignedBuf {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the buffer owns its memory alone, as a `Box<[u8]>` does.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared references give shared access only, as with `Box<[u8]>`.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// Bytes; what any block device in use asks for direct I/O, and the size of a memory page.
    pub const ALIGNMENT: usize = 4096;

    /// `len` zeroed bytes. `len` must be positive.
    #[must_use]
    pub fn zeroed(len: usize) -> AlignedBuf {
        assert!(len > 0, "an aligned buffer holds at least one byte");
        let layout = Self::layout(len);
        // SAFETY: the layout has a positive size.
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start) {
            Some(start) => AlignedBuf { start, len },
            None => handle_alloc_error(layout),
        }
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, Self::ALIGNMENT).expect("a buffer's size is far below isize::MAX")
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with the same layout, and not freed before.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.len)) }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `start` is valid for `len` initialised bytes, owned by self.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}
impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}
impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_every_size_are_aligned_zeroed_and_writable_to_the_last_byte() {
        for len in [1, 511, 512, 4095, 4096, 4097, 1 << 20] {
            let mut bytes = AlignedBuf::zeroed(len);
            assert!((bytes.as_ptr() as usize).is_multiple_of(AlignedBuf::ALIGNMENT));
            assert!(bytes.len() == len && bytes.iter().all(|&byte| byte == 0));
            bytes[len - 1] = 1;
            assert_eq!(bytes[len - 1], 1);
        }
    }
}
