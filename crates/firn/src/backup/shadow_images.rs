//! Copying the images of shadows beside the log that names them, into the archive or a backup.

use crate::backup::archive_survey::archive_error;
use crate::engine::Engine;
use crate::error::Error;
use firndb_base::clock;
use firndb_device::AlignedBuf;
use firndb_log::Piece;
use firndb_log::archive::{ArchiveWriter, Image};
use firndb_tier::TierError;
use firndb_tier::store::ShadowImage;

/// Bytes of images that are read at once.
const READ_BYTES: usize = 512 << 10;

/// The image as an archive names it.
pub(crate) fn archived_as(image: &ShadowImage) -> Image {
    Image { page: image.page, version: image.version, checksum: image.checksum }
}

/// The images that the records of a piece of log name, before the piece itself is written.
#[derive(Debug, Default)]
pub(crate) struct ShadowImages {
    left: Vec<ShadowImage>,
    buf: Option<AlignedBuf>,
}

impl ShadowImages {
    /// Begins with the held images of `records`, which were appended to the log.
    pub fn begin(&mut self, engine: &Engine, records: std::ops::Range<firndb_base::Lsn>) {
        self.left = engine.store.held_shadows(records);
        self.left.reverse();
    }

    /// Whether nothing is left to be copied.
    pub fn are_copied(&self) -> bool {
        self.left.is_empty()
    }

    /// Copies some of them to `writer`. `leaves_out` is given the error of an image that cannot be
    /// read, and decides whether that ends the copying. After an error the same images are copied
    /// again.
    ///
    /// Errors: the writer's; `Damaged`; `Unusable` if the images are not held any more.
    pub fn copy_some(
        &mut self,
        engine: &Engine,
        writer: &mut ArchiveWriter,
        piece: Piece,
        leaves_out: &dyn Fn(TierError) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let page_size = engine.options.page_size;
        let most = (READ_BYTES / page_size).max(1);
        let buf = self.buf.get_or_insert_with(|| AlignedBuf::zeroed(most * page_size));
        let some: Vec<ShadowImage> = self.left.iter().rev().take(most).copied().collect();
        let outcomes = engine.store.read_held_shadows(&some, &mut buf[..some.len() * page_size]);
        let mut whole = Vec::with_capacity(some.len());
        for (index, (image, outcome)) in some.iter().zip(outcomes).enumerate() {
            match outcome {
                Ok(()) => {
                    let at = index * page_size;
                    buf.copy_within(at..at + page_size, whole.len() * page_size);
                    whole.push(archived_as(image));
                }
                Err(error) if error.concerns_the_page() => leaves_out(error)?,
                Err(error) if error.kind == firndb_tier::TierErrorKind::NotAllocated => {
                    return Err(Error::unusable("the images of pages that no log has are not held any more"));
                }
                Err(error) => return Err(error.into()),
            }
        }
        let mut done = 0;
        while done < whole.len() {
            let bytes = &buf[done * page_size..whole.len() * page_size];
            let now = clock::unix_time_us();
            done += writer.append_images(piece, &whole[done..], bytes, now).map_err(archive_error)?;
        }
        self.left.truncate(self.left.len() - some.len());
        Ok(())
    }
}
