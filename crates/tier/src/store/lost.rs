//! Pages of which the newest version is lost for good: a cache above had the only copy, and its
//! device cannot read it any more.
//!
//! Such a page gets a *notice*: an image with a message that describes the loss. It is written,
//! logged and mapped as the lost version like any image, but under a checksum that no image of the
//! page has, the inverse of the right one. So every read of the page, now or after a restart,
//! returns the message; none returns the older version that the store had, since its place is free.
//! A write that replaces the whole page replaces the notice: a version that was still in DRAM, or
//! the page's next incarnation.

use super::entry::{Entry, image_checksum};
use super::state::Store;
use super::write::Seal;
use crate::error::{TierError, TierErrorKind};
use crate::page_tier::{PageTier, PageWrite};
use firndb_base::{Lsn, PageId};
use firndb_device::AlignedBuf;

/// First bytes of a notice; then a length (u16) and the message.
const MAGIC: &[u8; 16] = b"FIRN LOST PAGE: ";
const TEXT_AT: usize = MAGIC.len() + 2;

/// The checksum under which a notice is mapped.
fn notice_checksum(page: PageId, version: Lsn, image: &[u8]) -> u32 {
    !image_checksum(page, version, image)
}

fn notice(page_size: usize, sentence: &str) -> AlignedBuf {
    let mut image = AlignedBuf::zeroed(page_size);
    let mut len = sentence.len().min(page_size - TEXT_AT);
    while !sentence.is_char_boundary(len) {
        len -= 1;
    }
    image[..MAGIC.len()].copy_from_slice(MAGIC);
    image[MAGIC.len()..TEXT_AT].copy_from_slice(&(len as u16).to_le_bytes());
    image[TEXT_AT..TEXT_AT + len].copy_from_slice(&sentence.as_bytes()[..len]);
    image
}

/// Whether an image begins as notices do. Pages may, too.
pub(crate) fn may_be_notice(image: &[u8]) -> bool {
    image.starts_with(MAGIC)
}

/// The message of the image that was read, if it is a notice.
pub(crate) fn sentence_of(page: PageId, version: Lsn, checksum: u32, image: &[u8]) -> Option<String> {
    if !may_be_notice(image) || notice_checksum(page, version, image) != checksum {
        return None;
    }
    let len = usize::from(u16::from_le_bytes([image[TEXT_AT - 2], image[TEXT_AT - 1]]));
    Some(String::from_utf8_lossy(image.get(TEXT_AT..TEXT_AT + len)?).into_owned())
}

impl Store {
    /// Notes that `version` of `page` is lost, unless the store has this version or a newer one,
    /// perhaps since just now. Returns whether it was noted.
    pub(crate) fn write_notice(&self, page: PageId, version: Lsn, sentence: &str) -> Result<bool, TierError> {
        let image = notice(self.page_size(), sentence);
        // There is nothing to redo.
        let mut writes = [PageWrite::back(page, version, Lsn::MAX, &image)];
        self.write_sealed(&mut writes, Seal { checksum: notice_checksum, replaces_same: false });
        let [PageWrite { outcome, .. }] = writes;
        match outcome {
            Ok(written) => Ok(written.is_taken()),
            Err(error) if error.kind == TierErrorKind::NotAllocated => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the store's image of the page is a notice that it is lost.
    pub(crate) fn has_lost(&self, page: PageId) -> bool {
        let Ok(Entry::Placed { version, place, checksum }) = self.entry_of(page) else { return false };
        let mut image = AlignedBuf::zeroed(self.page_size());
        let offset = self.geometry.place_offset(place);
        let is_notice = |image: &[u8]| sentence_of(page, version, checksum, image).is_some();
        self.device.read(offset, &mut image).is_ok() && is_notice(&image)
            || self.device.read_otherwise(offset, &mut image, &mut { is_notice })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_told_from_pages_and_from_notices_of_others() {
        let (page, version) = (PageId(7), Lsn(4711));
        let image = notice(512, "lost: ä".repeat(90).as_str());
        let checksum = notice_checksum(page, version, &image);
        let sentence = sentence_of(page, version, checksum, &image).expect("a notice");
        assert!(sentence.starts_with("lost: ä") && sentence.len() <= 512 - TEXT_AT);
        assert_eq!(sentence_of(page, version, !checksum, &image), None, "a page that looks like one");
        assert_eq!(sentence_of(PageId(8), version, checksum, &image), None);
        assert_eq!(sentence_of(page, Lsn(4712), checksum, &image), None);
        let mut spoilt = image.to_vec();
        spoilt[100] ^= 1;
        assert_eq!(sentence_of(page, version, checksum, &spoilt), None);
        spoilt[16..18].copy_from_slice(&u16::MAX.to_le_bytes());
        let checksum = notice_checksum(page, version, &spoilt);
        assert_eq!(sentence_of(page, version, checksum, &spoilt), None, "a length that cannot be");
    }
}
