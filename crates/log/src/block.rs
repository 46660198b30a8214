//! The 512-byte block: the unit in which the stream is framed on devices.
//!
//! ```text
//!  0  u32  CRC32C of bytes 4..512        20  u8   stream: 0 main, 1 reissued outliers
//!  4  u16  magic 0x4C46 ("FL")           21  u8   flags: bit 0 seal
//!  6  u8   type: 1 log block             22  u16  fill: payload bytes that are log
//!  7  u8   format version: 1             24  u64  LSN of the first payload byte; a multiple of 472
//!  8  u32  database tag                  32  u64  LSN known durable when the block was composed
//! 12  u32  member                        40       472 bytes of stream, zero past the fill
//! 16  u32  epoch
//! ```
//!
//! Invariants: within one epoch the payload of an LSN is the same in every copy of the block,
//! however often it was written; copies differ only in fill and in durable LSN.

use firndb_base::{DatabaseId, Epoch, Lsn, crc32c};

/// Bytes of a block, header included.
pub const BLOCK: usize = 512;
/// Bytes of a block's header.
pub(crate) const HEADER: usize = 40;
/// Bytes of stream that a block carries.
pub const PAYLOAD: usize = BLOCK - HEADER;
const _: () = assert!(PAYLOAD == 472);

pub(crate) const MAGIC: u16 = 0x4C46;
pub(crate) const VERSION: u8 = 1;
pub(crate) const TYPE_LOG: u8 = 1;
pub(crate) const TYPE_SECTION: u8 = 2;
pub(crate) const TYPE_MEMBER: u8 = 3;
/// Version of a member header with an area for reissued outliers. A program that knows only version
/// 1 must not read such a log, since it would miss part of it.
pub(crate) const VERSION_WITH_AREA: u8 = 2;
/// The stream to which every request is written first.
pub(crate) const STREAM_MAIN: u8 = 0;
/// The stream of the area for reissued outliers.
pub(crate) const STREAM_AREA: u8 = 1;
/// The block was written to record what is durable, not to add log.
pub(crate) const FLAG_SEAL: u8 = 1;

/// LSNs beyond this are damage: it keeps sums of LSNs and lengths from overflowing.
pub(crate) const LSN_MAX: u64 = 1 << 62;

/// 32 bits that stand for the database in every block.
pub(crate) fn database_tag(database: DatabaseId) -> u32 {
    crc32c(&database.0)
}

/// LSN of the first byte of the block that holds `lsn`.
pub(crate) fn base(lsn: Lsn) -> Lsn {
    Lsn(lsn.0 - lsn.0 % PAYLOAD as u64)
}

/// `lsn`, or the next block's first LSN if `lsn` lies inside a block.
pub(crate) fn next_base(lsn: Lsn) -> Lsn {
    Lsn(lsn.0.next_multiple_of(PAYLOAD as u64))
}

/// The fields that all blocks of one stream on one device share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub tag: u32,
    pub member: u32,
    /// [`STREAM_MAIN`] or [`STREAM_AREA`].
    pub stream: u8,
}

impl Owner {
    /// Owner of a device's main stream.
    pub fn main(tag: u32, member: u32) -> Owner {
        Owner { tag, member, stream: STREAM_MAIN }
    }

    /// Owner of the same device's area for reissued outliers.
    pub fn area(self) -> Owner {
        Owner { stream: STREAM_AREA, ..self }
    }
}

/// A log block's header, without the parts that its [`Owner`] fixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    pub epoch: Epoch,
    pub flags: u8,
    pub fill: u16,
    pub lsn: Lsn,
    pub durable: Lsn,
}

impl BlockHeader {
    /// Writes the header; the checksum follows in [`seal`].
    pub fn encode(&self, owner: Owner, block: &mut [u8]) {
        assert!(self.lsn.0.is_multiple_of(PAYLOAD as u64) && usize::from(self.fill) <= PAYLOAD);
        put_prefix(block, TYPE_LOG, owner, self.epoch);
        block[20] = owner.stream;
        block[21] = self.flags;
        block[22..24].copy_from_slice(&self.fill.to_le_bytes());
        block[24..32].copy_from_slice(&self.lsn.0.to_le_bytes());
        block[32..40].copy_from_slice(&self.durable.0.to_le_bytes());
    }

    /// Decodes a block of `owner`'s stream; `None` if it is anything else.
    pub fn decode(owner: Owner, block: &[u8]) -> Option<BlockHeader> {
        let epoch = check_prefix(block, TYPE_LOG, owner)?;
        let header = BlockHeader {
            epoch,
            flags: block[21],
            fill: u16_at(block, 22),
            lsn: Lsn(u64_at(block, 24)),
            durable: Lsn(u64_at(block, 32)),
        };
        let sound = block[20] == owner.stream
            && usize::from(header.fill) <= PAYLOAD
            && header.lsn.0.is_multiple_of(PAYLOAD as u64)
            && header.lsn.0 < LSN_MAX
            && header.durable.0 < LSN_MAX;
        sound.then_some(header)
    }
}

/// Writes the first 20 bytes, which all three types share, without the checksum.
pub(crate) fn put_prefix(block: &mut [u8], kind: u8, owner: Owner, epoch: Epoch) {
    block[4..6].copy_from_slice(&MAGIC.to_le_bytes());
    block[6] = kind;
    block[7] = VERSION;
    block[8..12].copy_from_slice(&owner.tag.to_le_bytes());
    block[12..16].copy_from_slice(&owner.member.to_le_bytes());
    block[16..20].copy_from_slice(&epoch.0.to_le_bytes());
}

/// Checks type, owner and checksum of a block. Returns its epoch.
pub(crate) fn check_prefix(block: &[u8], kind: u8, owner: Owner) -> Option<Epoch> {
    assert_eq!(block.len(), BLOCK);
    let known = block[7] == VERSION || (kind == TYPE_MEMBER && block[7] == VERSION_WITH_AREA);
    let ours = u16_at(block, 4) == MAGIC
        && block[6] == kind
        && known
        && u32_at(block, 8) == owner.tag
        && u32_at(block, 12) == owner.member;
    (ours && u32_at(block, 0) == crc32c(&block[4..])).then(|| Epoch(u32_at(block, 16)))
}

/// Whether a block that a writer composed carries log.
pub(crate) fn is_log(block: &[u8]) -> bool {
    u16_at(block, 4) == MAGIC && block[6] == TYPE_LOG
}

/// Copies a log block, made for another stream or device, for `owner`, without the checksum.
/// Returns the first LSN after its log.
pub(crate) fn readdress(block: &[u8], owner: Owner, out: &mut [u8]) -> Lsn {
    assert!(is_log(block) && u32_at(block, 8) == owner.tag);
    out.copy_from_slice(block);
    out[12..16].copy_from_slice(&owner.member.to_le_bytes());
    out[20] = owner.stream;
    Lsn(u64_at(block, 24) + u64::from(u16_at(block, 22)))
}

/// Writes the checksum of a block that is otherwise complete.
pub(crate) fn seal(block: &mut [u8]) {
    assert_eq!(block.len(), BLOCK);
    let crc = crc32c(&block[4..]);
    block[..4].copy_from_slice(&crc.to_le_bytes());
}

/// Writes the checksums of all blocks of a request; zero blocks (padding) stay zero.
pub(crate) fn seal_all(request: &mut [u8]) {
    for block in request.chunks_exact_mut(BLOCK) {
        if u16_at(block, 4) == MAGIC {
            seal(block);
        }
    }
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
