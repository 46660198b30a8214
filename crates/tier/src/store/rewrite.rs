//! Writing pages whole again, in the version that the store holds: a page with a delta, or one that
//! has to leave its place.

use super::segments::Stream;
use super::state::Store;
use super::write::Seal;
use crate::error::{TierError, TierErrorKind};
use crate::page_tier::{PageRead, PageWrite, Written};
use firndb_base::{Lsn, PageId};
use firndb_device::AlignedBuf;
use firndb_log::Kind;

/// What came of rewriting pages.
#[derive(Debug)]
pub(crate) struct Rewritten {
    /// Images written.
    pub written: usize,
    /// Pages of which a newer version was taken meanwhile. If that one waits as a delta, the image
    /// is where it was.
    pub declined: Vec<PageId>,
    /// The first error; what it concerns stays as it is.
    pub outcome: Result<(), TierError>,
}

impl Store {
    /// Reads pages and writes what was read to other places, under the version that it has. A
    /// page that is freed or written meanwhile is left as it is. All of it is tried.
    pub(crate) fn rewrite(&self, pages: &[PageId], stream: Stream) -> Rewritten {
        self.rewrite_if(pages, stream, &|_, _| true)
    }

    /// As [`Store::rewrite`], those of which the image is to be moved.
    pub(crate) fn rewrite_if(
        &self,
        pages: &[PageId],
        stream: Stream,
        is_to_move: &dyn Fn(PageId, &[u8]) -> bool,
    ) -> Rewritten {
        let (mut written, mut declined, mut outcome) = (0, Vec::new(), Ok(()));
        if pages.is_empty() {
            return Rewritten { written, declined, outcome };
        }
        let page_size = self.geometry.page_size;
        let mut bytes = AlignedBuf::zeroed(self.policy.batch_pages.min(pages.len()) * page_size);
        for pages in pages.chunks(self.policy.batch_pages) {
            let reads = pages.iter().zip(bytes.chunks_mut(page_size));
            let mut reads: Vec<PageRead<'_>> = reads
                .map(|(page, buf)| PageRead { page: *page, buf, outcome: Err(TierError::unset()) })
                .collect();
            self.read_for_itself(&mut reads);
            let mut writes = Vec::with_capacity(pages.len());
            for read in &reads {
                match &read.outcome {
                    // What waits in the write buffer and is in this image holds the log until the
                    // record of the image is durable (`State::waits_from`).
                    Ok(_) if !is_to_move(read.page, read.buf) => {}
                    Ok(found) => writes.push(PageWrite::back(read.page, found.version, Lsn::MAX, read.buf)),
                    // Freed meanwhile.
                    Err(error) if error.kind == TierErrorKind::NotAllocated => {}
                    Err(error) => outcome = outcome.and(Err(error.clone())),
                }
            }
            let all: Vec<usize> = (0..writes.len()).collect();
            self.write_chunk(&mut writes, &all, Kind::PAGES_MOVED, stream, Seal::IMAGE);
            for write in writes {
                match write.outcome {
                    Ok(Written::Taken { .. }) => written += 1,
                    Ok(Written::Declined) => declined.push(write.page),
                    Err(error) if error.kind == TierErrorKind::NotAllocated => {}
                    Err(error) => outcome = outcome.and(Err(error)),
                }
            }
        }
        Rewritten { written, declined, outcome }
    }
}
