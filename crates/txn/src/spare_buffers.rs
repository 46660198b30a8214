//! The memory of a transaction's buffers, which its thread keeps for the next one: short
//! transactions are frequent, and growing three buffers for each would be a noticeable part of
//! what it costs.

use std::cell::Cell;

/// Buffers of more bytes together are freed.
const KEPT_BYTES_MAX: usize = 16 << 10;

thread_local! {
    static SPARE: Cell<[Vec<u8>; 3]> = const { Cell::new([const { Vec::new() }; 3]) };
}

/// Empty buffers, with the memory of those returned last.
pub(crate) fn take() -> [Vec<u8>; 3] {
    SPARE.try_with(Cell::take).unwrap_or_default()
}

/// Returns the buffers of a transaction that ends.
pub(crate) fn keep(mut buffers: [Vec<u8>; 3]) {
    if buffers.iter().map(Vec::capacity).sum::<usize>() <= KEPT_BYTES_MAX {
        buffers.iter_mut().for_each(Vec::clear);
        // A thread that is ending keeps nothing.
        let _ = SPARE.try_with(|spare| spare.set(buffers));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_empty_unless_they_are_large() {
        keep([vec![1; 100], vec![2; 10], Vec::new()]);
        let buffers = take();
        assert!(buffers.iter().all(Vec::is_empty) && buffers[0].capacity() >= 100);
        assert!(take().iter().all(|buffer| buffer.capacity() == 0), "lent once");
        keep([vec![1; KEPT_BYTES_MAX], vec![2], Vec::new()]);
        assert!(take().iter().all(|buffer| buffer.capacity() == 0));
    }
}
