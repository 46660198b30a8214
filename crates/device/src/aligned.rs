//! Memory aligned for direct I/O.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// A zeroed, fixed-size byte buffer aligned to [`AlignedBuf::ALIGNMENT`].
///
/// A large one ([`AlignedBuf::MAPPED_MIN`]) is mapped: the system hands out its memory, zeroed, as
/// it is touched, in huge pages where it can. So making it takes no time and no memory, however
/// large it is.
pub struct AlignedBuf {
    start: NonNull<u8>,
    len: usize,
    /// The mapping that the bytes lie in, if they are mapped: its start and length.
    mapping: Option<(NonNull<u8>, usize)>,
}

// SAFETY: the buffer owns its memory alone, as a `Box<[u8]>` does.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared references give shared access only, as with `Box<[u8]>`.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// Bytes; what any block device in use asks for direct I/O, and the size of a memory page.
    pub const ALIGNMENT: usize = 4096;
    /// Bytes from which on a buffer is mapped. Below, the allocator's reuse is worth more than what
    /// mapping saves.
    pub const MAPPED_MIN: usize = 4 << 20;
    /// Bytes of a huge page on the machines that matter; elsewhere the alignment does no harm.
    const HUGE: usize = 2 << 20;

    /// `len` zeroed bytes. `len` must be positive.
    #[must_use]
    pub fn zeroed(len: usize) -> AlignedBuf {
        assert!(len > 0, "an aligned buffer holds at least one byte");
        // Miri interprets the allocator, and knows nothing of mappings.
        if len >= Self::MAPPED_MIN && !cfg!(miri) {
            return Self::mapped(len);
        }
        let layout = Self::layout(len);
        // SAFETY: the layout has a positive size.
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start) {
            Some(start) => AlignedBuf { start, len, mapping: None },
            None => handle_alloc_error(layout),
        }
    }

    fn mapped(len: usize) -> AlignedBuf {
        use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
        let layout = Self::layout(len);
        // One huge page more, so that its boundary lies within; memory that is never touched costs
        // addresses only.
        let Some(mapped_len) = len.checked_add(Self::HUGE) else { handle_alloc_error(layout) };
        // SAFETY: a private mapping at an address that the system chooses overlaps nothing that
        // exists.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                mapped_len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let Some(base) = base.ok().and_then(|base| NonNull::new(base.cast::<u8>())) else {
            handle_alloc_error(layout)
        };
        let skip = base.as_ptr().align_offset(Self::HUGE);
        assert!(skip < Self::HUGE, "an address below the next boundary has a distance to it");
        // SAFETY: `skip` is less than what was mapped beyond `len`: `len` bytes follow within the
        // mapping.
        let start = unsafe { base.add(skip) };
        // SAFETY: the range is part of the mapping, which is owned here; the advice changes no
        // contents. Refused where the system has no huge pages, which is no loss.
        let _ = unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxHugepage) };
        AlignedBuf { start, len, mapping: Some((base, mapped_len)) }
    }

    /// Gives the memory under `bytes` back to the system, which hands it out again, zeroed, if the
    /// bytes are touched: what they hold is lost. Returns false, with all as it was, if they are no
    /// whole pages of the system's or it refuses.
    pub fn give_back(bytes: &mut [u8]) -> bool {
        // The system would round the length up, into what lies behind the slice.
        let page = rustix::param::page_size();
        let is_whole = (bytes.as_ptr() as usize).is_multiple_of(page) && bytes.len().is_multiple_of(page);
        if !is_whole || bytes.is_empty() || cfg!(miri) {
            return false;
        }
        // SAFETY: the range is whole pages, borrowed exclusively, and any bytes that it reads as
        // afterwards are valid.
        let advised = unsafe {
            rustix::mm::madvise(bytes.as_mut_ptr().cast(), bytes.len(), rustix::mm::Advice::LinuxDontNeed)
        };
        advised.is_ok()
    }

    /// Keeps the system from putting huge pages under the bytes from `from` on: it would fill up
    /// what was given back there.
    pub fn use_small_pages(&self, from: usize) {
        let from = from.next_multiple_of(rustix::param::page_size());
        if self.mapping.is_none() || from >= self.len {
            return;
        }
        // SAFETY: the range is part of the mapping, which is owned here and reaches a page further
        // than `len`; the advice changes no contents.
        let _ = unsafe {
            let start = self.start.as_ptr().add(from);
            rustix::mm::madvise(start.cast(), self.len - from, rustix::mm::Advice::LinuxNoHugepage)
        };
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, Self::ALIGNMENT).expect("a buffer's size is far below isize::MAX")
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        match self.mapping {
            // SAFETY: allocated in `zeroed` with the same layout, and not freed before.
            None => unsafe { dealloc(self.start.as_ptr(), Self::layout(self.len)) },
            Some((base, len)) => {
                // SAFETY: mapped in `mapped` with this length, not unmapped before, and no borrow
                // of it is left.
                let unmapped = unsafe { rustix::mm::munmap(base.as_ptr().cast(), len) };
                debug_assert!(unmapped.is_ok(), "a whole mapping can be given back");
            }
        }
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
    fn memory_given_back_is_zeroed_if_it_is_whole_pages() {
        for len in [16 << 16, AlignedBuf::MAPPED_MIN] {
            let page = rustix::param::page_size();
            let mut bytes = AlignedBuf::zeroed(len);
            bytes.fill(1);
            bytes.use_small_pages(5 * page + 1);
            let first = bytes.as_ptr().align_offset(page);
            for (from, to) in [(1, page), (0, page - 1), (0, 0)] {
                assert!(!AlignedBuf::give_back(&mut bytes[first + from..first + to]), "no whole page");
            }
            assert!(bytes.iter().all(|&byte| byte == 1));
            let gone = first + page..first + 3 * page;
            let is_gone = AlignedBuf::give_back(&mut bytes[gone.clone()]);
            assert_eq!(is_gone, !cfg!(miri));
            let expected = |at: usize| u8::from(!(is_gone && gone.contains(&at)));
            assert!(bytes.iter().enumerate().all(|(at, &byte)| byte == expected(at)));
            bytes[gone].fill(2);
            assert_eq!(bytes.iter().filter(|&&byte| byte == 2).count(), 2 * page, "and can be used again");
        }
    }

    #[test]
    fn buffers_of_every_size_are_aligned_zeroed_and_writable_to_the_last_byte() {
        for len in
            [1, 511, 512, 4095, 4096, 4097, 1 << 20, AlignedBuf::MAPPED_MIN, AlignedBuf::MAPPED_MIN + 1]
        {
            let mut bytes = AlignedBuf::zeroed(len);
            assert!((bytes.as_ptr() as usize).is_multiple_of(AlignedBuf::ALIGNMENT));
            assert!(bytes.len() == len && bytes.iter().all(|&byte| byte == 0));
            bytes[len - 1] = 1;
            assert_eq!(bytes[len - 1], 1);
        }
    }

    /// Bytes of this process in memory.
    #[cfg(not(miri))]
    fn resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("Linux tells of its memory");
        let kib = line.split_whitespace().nth(1).and_then(|kib| kib.parse::<usize>().ok());
        kib.expect("in kB") << 10
    }

    #[cfg(not(miri))]
    #[test]
    fn a_large_buffer_takes_memory_as_it_is_touched_and_gives_it_back() {
        const LEN: usize = 1 << 30;
        const TOUCHED: usize = 64 << 20;
        const SLACK: usize = 32 << 20;
        let before = resident();
        let mut buf = AlignedBuf::zeroed(LEN);
        assert!(resident() < before + SLACK, "nothing was touched");
        buf[..TOUCHED].fill(1);
        let touched = resident();
        assert!(touched > before + TOUCHED - SLACK && touched < before + TOUCHED + SLACK, "{touched}");
        assert_eq!(buf[LEN - 1], 0);
        drop(buf);
        assert!(resident() < before + SLACK, "it is given back");
    }
}
