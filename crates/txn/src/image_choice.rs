//! Whether an image becomes a shadow or is logged: a pure function, with a table of cases.

use crate::page_images::PageImage;

/// How whole pages of page files become durable at commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PageRecovery {
    /// Their content is logged, and written to its place later.
    #[default]
    Log,
    /// Their content is written to free places before the commit record, and is in no log.
    Shadow,
    /// Pages that were put whole as with `Shadow`, and those of which parts were written as with
    /// `Log`.
    Hybrid,
}

/// The images that are logged, and those that are to be shadows.
pub(crate) fn choose(recovery: PageRecovery, images: Vec<PageImage>) -> (Vec<PageImage>, Vec<PageImage>) {
    images.into_iter().partition(|image| match recovery {
        PageRecovery::Log => true,
        PageRecovery::Shadow => false,
        PageRecovery::Hybrid => !image.whole,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::{Lsn, PageId};

    #[test]
    fn the_kind_of_recovery_decides_which_images_are_logged() {
        let image =
            |page: u64, whole| PageImage { page: PageId(page), version: Lsn(page), bytes: vec![1], whole };
        for (recovery, logged, shadows) in [
            (PageRecovery::Log, &[1, 2, 3][..], &[][..]),
            (PageRecovery::Shadow, &[], &[1, 2, 3]),
            (PageRecovery::Hybrid, &[2], &[1, 3]),
        ] {
            let chosen = choose(recovery, vec![image(1, true), image(2, false), image(3, true)]);
            let pages = |images: &[PageImage]| images.iter().map(|image| image.page.0).collect::<Vec<_>>();
            assert_eq!(
                (pages(&chosen.0), pages(&chosen.1)),
                (logged.to_vec(), shadows.to_vec()),
                "{recovery:?}"
            );
        }
    }
}
