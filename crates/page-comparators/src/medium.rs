//! The device that methods read from and write to: it counts, and another may watch.

use std::collections::BTreeMap;

/// What a request carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Content {
    /// Images of pages.
    Image,
    /// Pages of deltas or logs.
    Delta,
    /// Pages of a page map.
    Map,
    /// The first of two copies, in a double-write area.
    Copy,
}

/// Direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// From the device.
    Read,
    /// To the device.
    Write,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its direction.
    pub direction: Direction,
    /// Where, in bytes.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
}

/// Requests of one kind, for their cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// Their direction.
    pub direction: Direction,
    /// Whether each begins where the one before it of its direction ended.
    pub sequential: bool,
    /// Bytes of each.
    pub bytes: u64,
}

/// Bytes of requests, by content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// Of images.
    pub images: u64,
    /// Of pages of deltas or logs.
    pub deltas: u64,
    /// Of a page map.
    pub map: u64,
    /// Of first copies.
    pub copies: u64,
}

impl Bytes {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.images + self.deltas + self.map + self.copies
    }

    fn of(&mut self, content: Content) -> &mut u64 {
        match content {
            Content::Image => &mut self.images,
            Content::Delta => &mut self.deltas,
            Content::Map => &mut self.map,
            Content::Copy => &mut self.copies,
        }
    }
}

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes read.
    pub read: Bytes,
    /// Bytes written.
    pub written: Bytes,
    /// Requests, by kind.
    pub requests: BTreeMap<Kind, u64>,
    /// Pages whose deltas were brought into their image, each with a read of the image for it.
    pub merges: u64,
    /// Bytes moved by cleaning: images of append-and-pack, slots of delta pages.
    pub moved: u64,
    /// Bytes of slots in the delta pages written: less than those have.
    pub packed: u64,
}

/// Sees what is asked of a medium, in order.
pub trait Watch {
    /// A request.
    fn request(&mut self, request: Request);
    /// From here on it is measured.
    fn restart(&mut self);
}

/// Where contents lie, in bytes: regions that never meet.
pub mod region {
    /// Images.
    pub const IMAGES: u64 = 0;
    /// Pages of logs.
    pub const LOGS: u64 = 1 << 45;
    /// The page map.
    pub const MAP: u64 = 2 << 45;
    /// The double-write area.
    pub const COPIES: u64 = 3 << 45;
}

/// See the head of the file.
pub struct Medium<'a> {
    page_size: u64,
    counts: Counts,
    /// Where the last request of each direction ended: reads, writes.
    ends: [u64; 2],
    watch: Option<&'a mut dyn Watch>,
}

impl<'a> Medium<'a> {
    /// One that counts only.
    #[must_use]
    pub fn new(page_size: u64) -> Medium<'a> {
        Medium { page_size, counts: Counts::default(), ends: [u64::MAX; 2], watch: None }
    }

    /// One whose requests are seen by another, too.
    pub fn watched(page_size: u64, watch: &'a mut dyn Watch) -> Medium<'a> {
        Medium { watch: Some(watch), ..Medium::new(page_size) }
    }

    /// Bytes of a page.
    #[must_use]
    pub fn page_size(&self) -> u64 {
        self.page_size
    }

    /// What was counted since the beginning, or since [`Medium::restart`].
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Counts from zero.
    pub fn restart(&mut self) {
        self.counts = Counts::default();
        if let Some(watch) = &mut self.watch {
            watch.restart();
        }
    }

    fn request(&mut self, direction: Direction, offset: u64, bytes: u64) {
        assert!(bytes > 0, "a request of no bytes");
        let end = &mut self.ends[direction as usize];
        let kind = Kind { direction, sequential: *end == offset, bytes };
        *end = offset + bytes;
        *self.counts.requests.entry(kind).or_default() += 1;
        if let Some(watch) = &mut self.watch {
            watch.request(Request { direction, offset, bytes });
        }
    }

    /// Reads bytes.
    pub fn read(&mut self, content: Content, offset: u64, bytes: u64) {
        *self.counts.read.of(content) += bytes;
        self.request(Direction::Read, offset, bytes);
    }

    /// Writes bytes.
    pub fn write(&mut self, content: Content, offset: u64, bytes: u64) {
        *self.counts.written.of(content) += bytes;
        self.request(Direction::Write, offset, bytes);
    }

    /// Reads the page at a place of a region.
    pub fn read_page(&mut self, content: Content, region: u64, place: u64) {
        self.read(content, region + place * self.page_size, self.page_size);
    }

    /// Writes pages to places of a region: adjacent ones, in the order given, with one request.
    pub fn write_runs(&mut self, content: Content, region: u64, places: impl IntoIterator<Item = u64>) {
        let mut run: Option<(u64, u64)> = None;
        for place in places {
            run = match run {
                Some((start, len)) if start + len == place => Some((start, len + 1)),
                Some((start, len)) => {
                    self.write(content, region + start * self.page_size, len * self.page_size);
                    Some((place, 1))
                }
                None => Some((place, 1)),
            };
        }
        if let Some((start, len)) = run {
            self.write(content, region + start * self.page_size, len * self.page_size);
        }
    }

    /// Counts a merge.
    pub fn merged(&mut self) {
        self.counts.merges += 1;
    }

    /// Counts bytes put into delta pages.
    pub fn packed(&mut self, bytes: u64) {
        self.counts.packed += bytes;
    }

    /// Counts bytes moved by cleaning.
    pub fn moved(&mut self, bytes: u64) {
        self.counts.moved += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Seen(Vec<(u64, u64)>);

    impl Watch for Seen {
        fn request(&mut self, request: Request) {
            self.0.push((request.offset, request.bytes));
        }
        fn restart(&mut self) {
            self.0.clear();
        }
    }

    #[test]
    fn adjacent_places_are_one_request_and_requests_that_go_on_are_sequential() {
        let mut seen = Seen::default();
        let mut medium = Medium::watched(4096, &mut seen);
        medium.write_runs(Content::Image, region::IMAGES, [1]);
        medium.restart();
        medium.write_runs(Content::Image, region::IMAGES, [3, 4, 5, 9]);
        medium.write_runs(Content::Image, region::IMAGES, [10]);
        medium.read_page(Content::Image, region::IMAGES, 3);
        let counts = medium.counts().clone();
        let kind = |direction, sequential, pages: u64| Kind { direction, sequential, bytes: pages * 4096 };
        let expected = [
            (kind(Direction::Read, false, 1), 1),
            (kind(Direction::Write, false, 1), 1),
            (kind(Direction::Write, false, 3), 1),
            (kind(Direction::Write, true, 1), 1),
        ];
        assert_eq!(counts.requests, BTreeMap::from(expected));
        assert_eq!((counts.written.images, counts.read.all()), (5 * 4096, 4096));
        assert_eq!(seen.0, [(3 * 4096, 3 * 4096), (9 * 4096, 4096), (10 * 4096, 4096), (3 * 4096, 4096)]);
    }
}
