//! Tests of `frame.rs`.

use super::*;

/// Small enough for Miri, which checks that holds keep references to the bytes apart:
/// `cargo +nightly miri test -p firndb-buffer --lib frame`.
#[test]
fn holds_of_many_threads_never_see_half_a_change() {
    const THREADS: usize = 3;
    const ROUNDS: usize = 40;
    let (frames, page) = (Frames::all(2, 64), PageId(7));
    let id = FrameId(1);
    frames.try_exclusive(id).expect("free").frame().set_page(Some(page));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    let mut hold = frames.exclusive(id, page).expect("it keeps its page");
                    let next = hold.bytes()[0].wrapping_add(1);
                    hold.bytes_mut().fill(next);
                    if round % 2 == 0 {
                        let hold = hold.downgrade();
                        assert!(hold.bytes().iter().all(|byte| *byte == next));
                    } else {
                        drop(hold);
                    }
                    let hold = frames.shared(id, page).expect("it keeps its page");
                    assert!(hold.bytes().iter().all(|byte| *byte == hold.bytes()[0]));
                }
            });
        }
    });
    assert!(frames.shared(id, PageId(8)).is_none());
    let hold = frames.try_exclusive(id).expect("no thread holds it any more");
    assert_eq!(usize::from(hold.bytes()[0]), THREADS * ROUNDS);
    assert!(frames.try_shared(id).is_none() && frames.try_exclusive(id).is_none());
    assert!(frames.try_exclusive(FrameId(0)).expect("another frame").bytes().iter().all(|byte| *byte == 0));
}
