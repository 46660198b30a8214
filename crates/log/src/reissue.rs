//! Composing a late request once more, for another device's second stream.
//!
//! The blocks are those of the first time; only whose they are and where sections begin is new. A re-issue into an area
//! may go round the area's end: then it is two writes, one after the other, as it must not be cut.
//!
//! Space. Areas are no part of the room that `front` admits log by: a full one only means that nothing is hidden. The
//! last quarter of an area is kept for stalls and for requests whose device failed. A re-issue into a main stream (the naive policy) is done only
//! from what is left beyond all admitted log and all reserves, so that what was admitted still finds its place.

use crate::block::{self, BLOCK, Owner, STREAM_MAIN, u64_at};
use crate::front::{Composed, Front};
use crate::space::DeviceSpace;
use firn_base::{Epoch, Lsn};

/// Why a request is written again, which decides what room it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// It takes longer than usual.
    Outlier,
    /// It takes much longer.
    Stall,
    /// Its device failed, and it is nowhere else.
    Loss,
}

impl Front {
    /// Composes the request that carries log from `from` on, whose blocks lie in `late`, into `buf` for the stream of
    /// `owner` on device `device`. `None` if its LSNs may not follow there, or it finds no room.
    pub fn compose_again(
        &mut self,
        device: usize,
        owner: Owner,
        from: Lsn,
        late: &[u8],
        need: Need,
        buf: &mut [u8],
    ) -> Option<Composed> {
        let main = owner.stream == STREAM_MAIN;
        let spare = if main && need != Need::Loss { self.room_to_spare() } else { u64::MAX };
        let epoch = self.epoch();
        let space = if main { self.space_mut(device) } else { self.area_mut(device)? };
        let unit = space.unit_bytes();
        let blocks = late.chunks_exact(BLOCK).filter(|block| block::is_log(block)).count() as u64;
        let units = (blocks * BLOCK as u64).div_ceil(unit);
        let kept = if main || need != Need::Outlier { 0 } else { space.capacity_bytes() / 4 };
        let fits = units * unit <= spare
            && units * unit + kept <= space.room_bytes()
            && space.units_with_headers(units) * unit <= buf.len() as u64;
        if !fits || !space.may_follow(from) {
            return None;
        }
        let composed = place(space, epoch, owner, from, late, buf);
        match need {
            Need::Loss if main => self.take_what_there_is(),
            _ if main => self.note_room(),
            _ => {}
        }
        Some(composed)
    }
}

/// Places the blocks of `late`, for which there is room.
fn place(
    space: &mut DeviceSpace,
    epoch: Epoch,
    owner: Owner,
    from: Lsn,
    late: &[u8],
    buf: &mut [u8],
) -> Composed {
    let unit = space.unit_bytes() as usize;
    let mut blocks = late.chunks_exact(BLOCK).filter(|block| block::is_log(block)).peekable();
    let (mut offset, mut rest, mut len) = (None, None, 0);
    let mut end = from;
    while let Some(next) = blocks.peek() {
        let first = Lsn(u64_at(next, 24));
        if space.is_section_full() {
            let apart = len > 0 && space.wraps_next();
            let out = &mut buf[len..len + unit];
            out.fill(0);
            space.begin_section(epoch, first).encode(owner, &mut out[..BLOCK]);
            let at = space.offset() - unit as u64;
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
