//! What a log record does to one page, and its bytes.
//!
//! The format is described in `docs/format/tree.md`. An operation is encoded once, appended and
//! applied; redo decodes it and applies it likewise. Where run time applies it without decoding
//! it, debug builds compare it with what its bytes decode to.

use crate::node::edit::Level;
use crate::node::layout::malformed;
use crate::node::pack::{EntryList, Packer, push_list, repack};
use crate::node::{Node, Shape, edit};
use firndb_base::codec::{Malformed, Reader, Writer};
use firndb_base::{Lsn, PageId, TreeId};
use firndb_buffer::Changed;
use firndb_log::Kind;

const FORMAT_OPEN: u8 = 1;
const FORMAT_CONDEMNED: u8 = 2;
/// Slots of a page never pass this number, and neither do lengths within it.
const HALF_MAX: usize = u16::MAX as usize;

/// A change of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op<'a> {
    Insert {
        slot: usize,
        stored: &'a [u8],
        value: &'a [u8],
    },
    Replace {
        slot: usize,
        value: &'a [u8],
    },
    Patch {
        slot: usize,
        patches: Patches<'a>,
    },
    Remove {
        slot: usize,
    },
    Sweep {
        slots: &'a [u8],
    },
    Format {
        shape: Shape<'a>,
        list: &'a [u8],
    },
    Trim {
        keep: usize,
        high: Option<&'a [u8]>,
    },
    Absorb {
        high: Option<&'a [u8]>,
        list: &'a [u8],
    },
    InsertChild {
        slot: usize,
        stored: &'a [u8],
        child: PageId,
    },
    RemoveChild {
        slot: usize,
    },
    SetChild {
        index: usize,
        child: PageId,
    },
    Condemn,
    Drop,
    /// The page is no node: it gets these bytes, and zeros behind them.
    Image {
        bytes: &'a [u8],
    },
}

/// Encoded patches, checked when decoded: ascending and disjoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patches<'a> {
    rest: Reader<'a>,
    end: usize,
    /// Where the last of them ends.
    last_end: usize,
}

impl<'a> Patches<'a> {
    /// Those of a change that is being made.
    pub(crate) fn of(patches: &'a crate::change::Patches) -> Patches<'a> {
        Patches { rest: Reader::new(patches.encoded()), end: 0, last_end: patches.end() }
    }
    /// Where the last of them ends.
    pub(crate) fn last_end(&self) -> usize {
        self.last_end
    }
    fn read(&mut self) -> Result<edit::Patch<'a>, Malformed> {
        let offset = self.end + self.rest.varint_max(HALF_MAX)?;
        let bytes = self.rest.blob()?;
        self.end = offset + bytes.len();
        match self.end <= HALF_MAX {
            true => Ok((offset, bytes)),
            false => malformed("a patch beyond every value"),
        }
    }
    fn check(self) -> Result<Patches<'a>, Malformed> {
        let mut all = self;
        while !all.rest.is_empty() {
            all.read()?;
        }
        Ok(Patches { last_end: all.end, ..self })
    }
}
impl<'a> Iterator for Patches<'a> {
    type Item = edit::Patch<'a>;
    fn next(&mut self) -> Option<edit::Patch<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        self.read().ok()
    }
}

impl<'a> Op<'a> {
    pub(crate) fn decode(kind: Kind, mut body: Reader<'a>) -> Result<Op<'a>, Malformed> {
        let op = match kind {
            Kind::TREE_INSERT => {
                let (slot, stored) = (body.varint_max(HALF_MAX)?, body.blob()?);
                return Ok(Op::Insert { slot, stored, value: body.rest() });
            }
            Kind::TREE_REPLACE => {
                let slot = body.varint_max(HALF_MAX)?;
                return Ok(Op::Replace { slot, value: body.rest() });
            }
            Kind::TREE_PATCH => {
                let slot = body.varint_max(HALF_MAX)?;
                let patches = Patches { rest: body, end: 0, last_end: 0 }.check()?;
                return Ok(Op::Patch { slot, patches });
            }
            Kind::TREE_SWEEP => return Ok(Op::Sweep { slots: body.rest() }),
            Kind::TREE_FORMAT => return decode_format(body),
            Kind::TREE_ABSORB => {
                let high = read_high(&mut body)?;
                return Ok(Op::Absorb { high, list: body.rest() });
            }
            Kind::TREE_IMAGE => return Ok(Op::Image { bytes: body.rest() }),
            Kind::TREE_REMOVE => Op::Remove { slot: body.varint_max(HALF_MAX)? },
            Kind::TREE_TRIM => Op::Trim { keep: body.varint_max(HALF_MAX)?, high: read_high(&mut body)? },
            Kind::TREE_INSERT_CHILD => {
                let (slot, stored) = (body.varint_max(HALF_MAX)?, body.blob()?);
                Op::InsertChild { slot, stored, child: read_page(&mut body)? }
            }
            Kind::TREE_REMOVE_CHILD => Op::RemoveChild { slot: body.varint_max(HALF_MAX)? },
            Kind::TREE_SET_CHILD => {
                Op::SetChild { index: body.varint_max(HALF_MAX)?, child: read_page(&mut body)? }
            }
            Kind::TREE_CONDEMN => Op::Condemn,
            Kind::TREE_DROP_PAGE => Op::Drop,
            _ => return malformed("a record of a kind that trees do not write"),
        };
        match body.is_empty() {
            true => Ok(op),
            false => malformed("bytes after a tree's record"),
        }
    }

    /// Changes the page. On an error its bytes are undefined.
    pub(crate) fn apply(&self, page: &mut [u8]) -> Result<Changed, Malformed> {
        match *self {
            Op::Insert { slot, stored, value } => edit::insert(page, Level::Leaf, slot, stored, value),
            Op::Replace { slot, value } => edit::replace(page, slot, value),
            Op::Patch { slot, patches } => edit::patch(page, slot, patches),
            Op::Remove { slot } => edit::remove(page, Level::Leaf, slot),
            Op::RemoveChild { slot } => edit::remove(page, Level::Inner, slot),
            Op::Sweep { slots } => edit::sweep(page, &decode_slots(slots)?),
            Op::Format { ref shape, list } => {
                let mut packer = Packer::start(page, shape)?;
                push_list(&mut packer, list)?;
                packer.finish().map(|()| Changed::Most)
            }
            Op::Trim { keep, high } => repack(page, high, keep, None).map(|()| Changed::Most),
            Op::Absorb { high, list } => {
                let count = Node::new(page)?.count();
                repack(page, high, count, Some(list)).map(|()| Changed::Most)
            }
            Op::InsertChild { slot, stored, child } => {
                edit::insert(page, Level::Inner, slot, stored, &child.0.to_le_bytes())
            }
            Op::SetChild { index, child } => edit::set_child(page, index, child),
            Op::Condemn => edit::condemn(page),
            Op::Drop => {
                page.fill(0);
                Ok(Changed::Most)
            }
            Op::Image { bytes } => {
                let Some((head, tail)) = page.split_at_mut_checked(bytes.len()) else {
                    return malformed("an image longer than its page");
                };
                head.copy_from_slice(bytes);
                tail.fill(0);
                Ok(Changed::Most)
            }
        }
    }

    /// Makes sure that [`Op::apply`] will succeed, without changing the page, so that the record
    /// may be appended. Constant time where the change is in place; else a trial on a copy.
    pub(crate) fn rehearse(&self, page: &[u8]) -> Result<(), Malformed> {
        match self {
            Op::Format { .. } | Op::Drop => self.rehearse_on_copy(page),
            Op::Image { bytes } if bytes.len() <= page.len() => Ok(()),
            Op::Image { .. } => malformed("an image longer than its page"),
            _ => self.rehearse_on(&Node::new(page)?),
        }
    }

    /// As [`Op::rehearse`], for a page whose header was checked already.
    pub(crate) fn rehearse_on(&self, node: &Node<'_>) -> Result<(), Malformed> {
        let in_place = match *self {
            Op::Insert { slot, stored, value } => {
                Level::Leaf.check(node)?;
                !edit::check_insert(node, slot, stored, value.len())?.0
            }
            Op::InsertChild { slot, stored, .. } => {
                Level::Inner.check(node)?;
                !edit::check_insert(node, slot, stored, 8)?.0
            }
            Op::Replace { slot, value } => {
                Level::Leaf.check(node)?;
                !edit::check_replace(node, slot, value.len())?
            }
            Op::Patch { slot, patches } => {
                Level::Leaf.check(node)?;
                edit::check_patch(node, slot, patches.last_end()).map(|()| true)?
            }
            Op::Remove { slot } => {
                Level::Leaf.check(node)?;
                edit::check_remove(node, slot).map(|()| true)?
            }
            Op::RemoveChild { slot } => {
                Level::Inner.check(node)?;
                edit::check_remove(node, slot).map(|()| true)?
            }
            Op::SetChild { index, .. } => edit::check_set_child(node, index).map(|()| true)?,
            Op::Condemn => true,
            _ => false,
        };
        match in_place {
            true => Ok(()),
            false => self.rehearse_on_copy(node.bytes()),
        }
    }

    fn rehearse_on_copy(&self, page: &[u8]) -> Result<(), Malformed> {
        match self {
            Op::Drop => Ok(()),
            _ => self.apply(&mut page.to_vec()).map(drop),
        }
    }

    /// Whether the page is rewritten whole: its image is as good as the operation then.
    pub(crate) fn rewrites(&self) -> bool {
        matches!(self, Op::Format { .. } | Op::Trim { .. } | Op::Absorb { .. })
    }
}

fn decode_format(mut body: Reader<'_>) -> Result<Op<'_>, Malformed> {
    let Ok(tree) = u32::try_from(body.varint()?) else {
        return malformed("a tree id over its limit");
    };
    let (level, flags) = (body.u8()?, body.u8()?);
    if flags & !(FORMAT_OPEN | FORMAT_CONDEMNED) != 0 {
        return malformed("unknown flags of a node");
    }
    let low = body.blob()?;
    let high = if flags & FORMAT_OPEN == 0 { Some(body.blob()?) } else { None };
    let first_child = if level > 0 { read_page(&mut body)?.0 } else { 0 };
    let condemned = flags & FORMAT_CONDEMNED != 0;
    let shape = Shape { tree: TreeId(tree), level, condemned, low, high, first_child };
    Ok(Op::Format { shape, list: body.rest() })
}

fn read_page(body: &mut Reader<'_>) -> Result<PageId, Malformed> {
    match body.varint()? {
        0 => malformed("page 0 as a child"),
        page => Ok(PageId(page)),
    }
}

/// A high fence: 0 for none, else 1 and the key.
fn read_high<'a>(body: &mut Reader<'a>) -> Result<Option<&'a [u8]>, Malformed> {
    match body.u8()? {
        0 => Ok(None),
        1 => body.blob().map(Some),
        _ => malformed("a fence that is neither there nor not"),
    }
}

fn decode_slots(bytes: &[u8]) -> Result<Vec<usize>, Malformed> {
    let (mut reader, mut slots, mut next) = (Reader::new(bytes), Vec::new(), 0);
    while !reader.is_empty() {
        let slot = next + reader.varint_max(HALF_MAX)?;
        if slot > HALF_MAX {
            return malformed("a slot beyond every node");
        }
        slots.push(slot);
        next = slot + 1;
    }
    Ok(slots)
}

/// Starts a body: the page, its version before the change, and the attachment.
pub(crate) fn begin(body: &mut Vec<u8>, page: PageId, previous: Lsn, attachment: &[u8]) {
    body.clear();
    body.put_varint(page.0);
    body.put_varint(previous.0);
    body.put_blob(attachment);
}

/// Continues a body: a change of an entry.
pub(crate) fn insert(body: &mut Vec<u8>, slot: usize, stored: &[u8], value: &[u8]) -> Kind {
    body.put_varint(slot as u64);
    body.put_blob(stored);
    body.put(value);
    Kind::TREE_INSERT
}

pub(crate) fn replace(body: &mut Vec<u8>, slot: usize, value: &[u8]) -> Kind {
    body.put_varint(slot as u64);
    body.put(value);
    Kind::TREE_REPLACE
}

pub(crate) fn patch(body: &mut Vec<u8>, slot: usize, patches: &crate::change::Patches) -> Kind {
    body.put_varint(slot as u64);
    body.put(patches.encoded());
    Kind::TREE_PATCH
}

pub(crate) fn remove(body: &mut Vec<u8>, slot: usize) -> Kind {
    body.put_varint(slot as u64);
    Kind::TREE_REMOVE
}

/// Slots must ascend.
pub(crate) fn sweep(body: &mut Vec<u8>, slots: &[usize]) -> Kind {
    let mut next = 0;
    for &slot in slots {
        body.put_varint((slot - next) as u64);
        next = slot + 1;
    }
    Kind::TREE_SWEEP
}

pub(crate) fn format(body: &mut Vec<u8>, shape: &Shape<'_>, list: &EntryList) -> Kind {
    body.put_varint(u64::from(shape.tree.0));
    body.put_u8(shape.level);
    body.put_u8(
        if shape.high.is_none() { FORMAT_OPEN } else { 0 }
            | if shape.condemned { FORMAT_CONDEMNED } else { 0 },
    );
    body.put_blob(shape.low);
    if let Some(high) = shape.high {
        body.put_blob(high);
    }
    if shape.level > 0 {
        body.put_varint(shape.first_child);
    }
    list.encode(body);
    Kind::TREE_FORMAT
}

fn put_high(body: &mut Vec<u8>, high: Option<&[u8]>) {
    body.put_u8(u8::from(high.is_some()));
    if let Some(high) = high {
        body.put_blob(high);
    }
}

pub(crate) fn trim(body: &mut Vec<u8>, keep: usize, high: Option<&[u8]>) -> Kind {
    body.put_varint(keep as u64);
    put_high(body, high);
    Kind::TREE_TRIM
}

pub(crate) fn absorb(body: &mut Vec<u8>, high: Option<&[u8]>, list: &EntryList) -> Kind {
    put_high(body, high);
    list.encode(body);
    Kind::TREE_ABSORB
}

pub(crate) fn insert_child(body: &mut Vec<u8>, slot: usize, stored: &[u8], child: PageId) -> Kind {
    body.put_varint(slot as u64);
    body.put_blob(stored);
    body.put_varint(child.0);
    Kind::TREE_INSERT_CHILD
}

/// Zeros at the image's end are left out.
pub(crate) fn image(body: &mut Vec<u8>, image: &[u8]) -> Kind {
    let len = image.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    body.put(&image[..len]);
    Kind::TREE_IMAGE
}

pub(crate) fn remove_child(body: &mut Vec<u8>, slot: usize) -> Kind {
    body.put_varint(slot as u64);
    Kind::TREE_REMOVE_CHILD
}

/// Child 0 is the first, child n that of slot n - 1.
pub(crate) fn set_child(body: &mut Vec<u8>, index: usize, child: PageId) -> Kind {
    body.put_varint(index as u64);
    body.put_varint(child.0);
    Kind::TREE_SET_CHILD
}
