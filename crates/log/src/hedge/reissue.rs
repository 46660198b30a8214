//! Composing an overdue request once more, for another device's second stream.
//!
//! The blocks are those of the first time; only their owner and the section boundaries are new. A
//! reissue into an area may wrap around the area's end: then it is two writes, one after the other,
//! as it must not be cut.
//!
//! Space. Areas are no part of the free space by which `front` admits log: a full area only means
//! that nothing is hidden. The last quarter of an area is kept for stalls and for requests whose
//! device failed. A reissue into a main stream (the naive policy) takes only space that is left
//! beyond all admitted log and all reserves, so that admitted log still fits.

use crate::block::{self, BLOCK, Owner, STREAM_MAIN, u64_at};
use crate::write::front::{Composed, Front};
use crate::write::space::DeviceSpace;
use firndb_base::{Epoch, Lsn};

/// Why a request is written again, which decides what space it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// It takes longer than usual.
    Outlier,
    /// It takes much longer.
    Stall,
    /// Its device failed, and no other device has it.
    Loss,
}

impl Front {
    /// Composes the request that carries log from `from` on, whose blocks are in `block_bytes`,
    /// into `buf` for the stream of `owner` on device `device`. Returns `None` if its LSNs may not
    /// follow there, or there is no space for it.
    pub fn compose_again(
        &mut self,
        device: usize,
        owner: Owner,
        from: Lsn,
        block_bytes: &[u8],
        need: Need,
        buf: &mut [u8],
    ) -> Option<Composed> {
        let main = owner.stream == STREAM_MAIN;
        let spare = if main && need != Need::Loss { self.spare_bytes() } else { u64::MAX };
        let epoch = self.epoch();
        let space = if main { self.space_mut(device) } else { self.area_mut(device)? };
        let unit = space.unit_bytes();
        let blocks = block_bytes.chunks_exact(BLOCK).filter(|block| block::is_log(block)).count() as u64;
        let units = (blocks * BLOCK as u64).div_ceil(unit);
        let kept = if main || need != Need::Outlier { 0 } else { space.capacity_bytes() / 4 };
        let fits = units * unit <= spare
            && units * unit + kept <= space.free_bytes()
            && space.units_with_headers(units) * unit <= buf.len() as u64;
        if !fits || !space.may_follow(from) {
            return None;
        }
        let composed = place(space, epoch, owner, from, block_bytes, buf);
        match need {
            Need::Loss if main => self.overcommit(),
            _ if main => self.update_free(),
            _ => {}
        }
        Some(composed)
    }
}

/// Places the blocks of `block_bytes`; the caller has checked that they fit.
fn place(
    space: &mut DeviceSpace,
    epoch: Epoch,
    owner: Owner,
    from: Lsn,
    block_bytes: &[u8],
    buf: &mut [u8],
) -> Composed {
    let unit = space.unit_bytes() as usize;
    let mut blocks = block_bytes.chunks_exact(BLOCK).filter(|block| block::is_log(block)).peekable();
    let (mut offset, mut rest, mut len) = (None, None, 0);
    let mut end = from;
    while let Some(next) = blocks.peek() {
        let first = Lsn(u64_at(next, 24));
        if space.is_section_full() {
            let apart = len > 0 && space.wraps_next();
            let at = space.write_header(epoch, owner, first, &mut buf[len..len + unit]);
            if apart {
                assert!(rest.is_none(), "a request is shorter than the area");
                rest = Some((len, at));
            }
            offset.get_or_insert(at);
            len += unit;
        }
        offset.get_or_insert(space.offset());
        for out in buf[len..len + unit].chunks_exact_mut(BLOCK) {
            match blocks.next() {
                Some(block) => {
                    end = block::readdress(block, owner, out);
                }
                None => out.fill(0),
            }
        }
        space.take_unit(first, end);
        len += unit;
    }
    let offset = offset.expect("a request carries log");
    Composed { offset, len, rest, from, boundary: end }
}
