use super::space::{Finds, SegmentOptions};
use super::*;
use crate::firn::policy::RentOrBuy;
use firndb_base::rng::Rng;

fn firn(pages: u64, buffer_bytes: u64, read_cost: f64) -> (Firn, Medium<'static>) {
    placed(pages, buffer_bytes, read_cost, Placement::Threaded)
}

fn placed(pages: u64, buffer_bytes: u64, read_cost: f64, placement: Placement) -> (Firn, Medium<'static>) {
    let start = Start { page_size: 4096, pages };
    let policy = Box::new(RentOrBuy { read_cost });
    (Firn::new(start, FirnOptions { buffer_bytes, policy, placement }), Medium::new(4096))
}

fn segments(kib: u64, classes: usize, finds: Finds) -> Placement {
    Placement::Segments(SegmentOptions { bytes: kib << 10, classes, deltas_apart: classes > 1, finds })
}

fn range(from: usize, len: usize) -> Option<Changes> {
    Some(crate::granules(from..from + len))
}

impl Firn {
    /// What the head of the file promises.
    fn check(&mut self) {
        let pages = self.pages.len() as u64;
        let mut bytes = 0;
        for page in 0..pages {
            let found = self.pages[page as usize];
            let delta = self.deltas.of(page);
            assert!(found.base > 0 || delta.is_none() && found.buffered == 0, "page {page}: {found:?}");
            if found.buffered > 0 {
                assert_eq!(self.buffer[&found.buffered], page);
                bytes += BUFFERED_BYTES + bytes_of(found.changed, self.page_size);
            }
            let differs = !found.changed.is_none();
            assert_eq!(differs, found.buffered > 0 || delta.is_some(), "page {page}: {found:?} {delta:?}");
        }
        assert_eq!(bytes, self.buffer_bytes);
        let based = self.pages.iter().filter(|page| page.base > 0).count() as u64;
        assert_eq!(based, self.allocated);
        let delta_pages = self.deltas.len();
        let bases: Vec<(u64, u64)> = (0..).zip(&self.pages).map(|(page, found)| (page, found.base)).collect();
        let Some(segments) = self.space.segments() else { return };
        segments.check(based + delta_pages);
        for (page, base) in bases.into_iter().filter(|(_, base)| *base > 0) {
            assert_eq!(self.page_at[base as usize - 1], page + 1, "page {page} is known by its place");
        }
    }
}

#[test]
fn a_buffered_page_is_read_with_one_request_and_a_flushed_one_with_two() {
    let (mut firn, mut medium) = firn(100, 1 << 20, 0.0);
    firn.write(7, range(0, 3), &mut medium);
    firn.end_batch(&mut medium);
    assert_eq!((firn.read(7, &mut medium), medium.counts().written.all()), (0, 0));
    firn.checkpoint(&mut medium);
    assert_eq!(firn.read(7, &mut medium), 1);
    let written = medium.counts().written;
    assert_eq!((written.images, written.deltas, written.map), (0, 4096, 4096));
    // What changed before is in the next delta, without a read.
    let reads = medium.counts().read;
    firn.write(7, range(10, 1), &mut medium);
    firn.end_batch(&mut medium);
    assert_eq!(firn.pages[7].changed.count(), 4);
    assert_eq!(firn.read(7, &mut medium), 0);
    assert_eq!(medium.counts().read.deltas, reads.deltas);
    firn.check();
}

#[test]
fn deltas_that_add_up_to_a_page_are_replaced_by_an_image() {
    let (mut firn, mut medium) = firn(100, 0, 0.0);
    let mut writes = 0;
    while medium.counts().written.images == 0 {
        firn.write(7, range(writes, 4), &mut medium);
        firn.end_batch(&mut medium);
        writes += 4;
    }
    // 128 bytes more each time, and 28 beside: the eighth would bring it above 4,096.
    assert_eq!(writes / 4, 8);
    assert_eq!((firn.read(7, &mut medium), firn.deltas.len()), (0, 0));
    firn.check();
}

#[test]
fn a_page_that_is_read_with_its_delta_again_and_again_is_written_whole_when_it_leaves_clean() {
    let (mut firn, mut medium) = firn(100, 0, 0.3);
    firn.write(7, range(0, 2), &mut medium);
    firn.end_batch(&mut medium);
    for reads in 1..=4 {
        assert_eq!(medium.counts().written.images, 0, "{reads}");
        assert_eq!(firn.read(7, &mut medium), 1);
        firn.clean(7, &mut medium);
        firn.end_batch(&mut medium);
    }
    assert_eq!(medium.counts().written.images, 4096);
    assert_eq!(firn.read(7, &mut medium), 0);
    firn.check();
}

/// Every page keeps what it had, whatever is flushed, cleaned, moved, merged and freed, and delta
/// pages stay within their share.
#[test]
fn random_pages_keep_base_and_delta_through_flushes_and_cleaning() {
    let by_page = Finds::ByPage { share: 0.06 };
    for (seed, buffer, read_cost, placement) in [
        (1, 0, 0.0, Placement::Threaded),
        (2, 20_000, 0.0, Placement::Threaded),
        (3, 20_000, 0.2, Placement::Threaded),
        (4, 20_000, 0.2, segments(64, 1, Finds::ByPlace)),
        (5, 0, 0.0, segments(64, 3, Finds::ByPlace)),
        (6, 20_000, 0.2, segments(64, 1, by_page)),
        (7, 20_000, 1.0, segments(128, 2, by_page)),
    ] {
        let (mut firn, mut medium) = placed(2000, buffer, read_cost, placement);
        let mut rng = Rng::new(seed);
        for step in 0..6000 {
            for _ in 0..rng.below(24) {
                let page = rng.below(2100);
                let has_base = firn.pages.get(page as usize).is_some_and(|page| page.base > 0);
                match rng.below(10) {
                    0 if has_base => firn.free(page),
                    1 if has_base => firn.clean(page, &mut medium),
                    2..5 if has_base => {
                        firn.read(page, &mut medium);
                    }
                    _ => {
                        let from = rng.below(120) as usize;
                        let changes = if has_base { range(from, 1 + rng.below(8) as usize) } else { None };
                        firn.write(page, changes, &mut medium);
                    }
                }
            }
            firn.end_batch(&mut medium);
            if step % 500 == 499 {
                firn.checkpoint(&mut medium);
                firn.check();
                assert!(firn.deltas.len() <= firn.space.places() / DELTA_SHARE);
            }
        }
        assert!(medium.counts().written.deltas > 0 && medium.counts().written.images > 0);
    }
}

/// Pages that change often and pages that never do: the cleaner moves less than it would with the
/// oldest segments first, and all that is written for a batch is one run.
#[test]
fn whole_segments_make_long_runs_and_the_cleaner_moves_the_sparse_ones() {
    let (mut firn, mut medium) = placed(4000, 0, 0.0, segments(64, 1, Finds::ByPlace));
    firn.options.policy = Box::new(Off);
    let mut rng = Rng::new(9);
    for _ in 0..2000 {
        for _ in 0..16 {
            let among = if rng.below(10) < 9 { 400 } else { 4000 };
            firn.write(rng.below(among), range(0, 1), &mut medium);
        }
        firn.end_batch(&mut medium);
    }
    firn.check();
    let counts = medium.counts();
    let writes = counts.requests.iter().filter(|(kind, _)| kind.direction == crate::medium::Direction::Write);
    let pages = counts.written.images / 4096;
    let run = pages as f64 / writes.map(|(_, count)| count).sum::<u64>() as f64;
    let moved = counts.moved as f64 / (counts.written.images - counts.moved) as f64;
    assert!(run > 5.0, "{run} pages in a write");
    // With a fifth free, and no regard to what changes, 1.7 would be moved for each written.
    assert!(moved < 1.0, "{moved} moved for each written");
}
