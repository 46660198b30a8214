//! Detects requests that continue where earlier ones ended.

use crate::request::Request;

/// The position of a request relative to earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Course {
    /// It begins where a stream ended, or a little behind.
    Sequential,
    /// It overlaps the last request of a stream.
    Overlapping,
    /// It continues and overlaps no stream.
    Random,
}

/// The last request of a stream.
#[derive(Clone, Copy, Debug)]
struct Stream {
    start: u64,
    end: u64,
}

/// The streams that a device distinguishes: a short list, the most recently used first. A request
/// that belongs to none begins a new one in place of the one unused for longest, as a flash
/// controller closes an open erase unit to open another.
#[derive(Clone, Debug)]
pub(crate) struct Streams {
    streams: Vec<Stream>,
    most: usize,
}

/// A stream may skip this number of bytes and stays in its erase unit or read-ahead window: writers
/// skip headers and padding. Far less than an erase unit (128 to 512 KiB, FlashLogging section
/// 2.1).
const SKIPPED_AT_MOST: u64 = 16 << 10;

impl Streams {
    /// No streams yet; at most `most` at a time.
    pub fn new(most: u32) -> Streams {
        Streams { streams: Vec::new(), most: most as usize }
    }

    /// Classifies a request and remembers it.
    pub fn meet(&mut self, request: &Request) -> Course {
        let (start, end) = (request.offset, request.end());
        let goes_on = |s: &Stream| s.end <= start && start - s.end <= SKIPPED_AT_MOST;
        let overlaps = |s: &Stream| s.start <= start && start < s.end;
        // A stream that the request continues exactly is preferred to one that may have skipped
        // ahead.
        let found = (self.streams.iter().position(|s| s.end == start))
            .or_else(|| self.streams.iter().position(|s| overlaps(s) || goes_on(s)));
        let (course, met) = match found {
            Some(at) => {
                let stream = self.streams.remove(at);
                let course = if overlaps(&stream) { Course::Overlapping } else { Course::Sequential };
                (course, Stream { start, end: end.max(stream.end) })
            }
            None => (Course::Random, Stream { start, end }),
        };
        self.streams.insert(0, met);
        self.streams.truncate(self.most);
        course
    }
}

/// The area that random writes are spread over: from the lowest to the highest of the last 128 to
/// 256 of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkingArea {
    recent: Option<(u64, u64)>,
    before: Option<(u64, u64)>,
    counted: u32,
}

impl WorkingArea {
    /// Counts a random write and returns the area in bytes.
    pub fn meet(&mut self, request: &Request) -> u64 {
        if self.counted == 128 {
            self.before = self.recent.take();
            self.counted = 0;
        }
        self.counted += 1;
        let join = |a: (u64, u64), b: (u64, u64)| (a.0.min(b.0), a.1.max(b.1));
        let this = (request.offset, request.end());
        let recent = self.recent.map_or(this, |recent| join(recent, this));
        self.recent = Some(recent);
        let (low, high) = self.before.map_or(recent, |before| join(before, recent));
        high - low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset: u64, bytes: u64) -> Request {
        Request::durable_write(offset, bytes)
    }

    #[test]
    fn a_stream_goes_on_skips_a_little_and_is_overlapped() {
        let mut streams = Streams::new(1);
        let courses: Vec<Course> =
            [(0, 4096), (4096, 4096), (12_288, 512), (12_288, 1024), (13_312, 512), (1 << 30, 512)]
                .map(|(offset, bytes)| streams.meet(&write(offset, bytes)))
                .into();
        use Course::{Overlapping, Random, Sequential};
        assert_eq!(courses, [Random, Sequential, Sequential, Overlapping, Sequential, Random]);
    }

    #[test]
    fn one_stream_more_than_told_apart_makes_all_of_them_random() {
        let courses = |told_apart: u32| {
            let mut streams = Streams::new(told_apart);
            let round = |i: u64| (0..3).map(move |s| write((s << 30) + i * 4096, 4096));
            (0..10).flat_map(round).skip(3).map(|request| streams.meet(&request)).collect::<Vec<_>>()
        };
        assert!(courses(2)[3..].iter().all(|&course| course == Course::Random));
        assert!(courses(3)[3..].iter().all(|&course| course == Course::Sequential));
    }

    #[test]
    fn the_area_follows_the_recent_writes_and_forgets_old_ones() {
        let mut area = WorkingArea::default();
        area.meet(&write(0, 512));
        assert_eq!(area.meet(&write(1 << 20, 512)), (1 << 20) + 512);
        let last = (0..300).map(|_| area.meet(&write(1 << 20, 512))).last();
        assert_eq!(last, Some(512));
    }
}
