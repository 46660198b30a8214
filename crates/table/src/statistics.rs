//! What is known of a table for planning, as of some snapshot: advice, never more. A plan made from
//! statistics that are wrong, old or missing is slow, not wrong.
//!
//! The bytes (see `docs/format/rows.md`) begin with a format version and end with a CRC32C, have
//! [`MAX_BYTES`] at most, and stand in the catalog in chunks, as a definition's do.

use crate::error::{TableError, TableErrorKind};
use crate::index::MAX_INDEXES;
use firndb_base::codec::{Malformed, Reader, Writer};
use firndb_base::{TreeId, crc32c};

/// Version of the format that this code writes and reads.
const FORMAT: u8 = 2;
/// Bytes of a table's statistics, at most.
pub(crate) const MAX_BYTES: usize = 64 << 10;
/// Rows that are drawn for the sample.
pub const SAMPLE_ROWS: usize = 1000;
/// Windows of consecutive index entries whose table leaves are counted.
pub const WINDOWS: [usize; 4] = [1, 100, 1000, 10_000];

/// A table as it was when it was analyzed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableStatistics {
    /// Rows in the snapshot.
    pub rows: u64,
    /// Bytes of their keys and payloads; of a large value only the reference.
    pub row_bytes: u64,
    /// Leaves of the table's tree.
    pub leaves: u64,
    /// Levels of it; 1 if the root is a leaf.
    pub height: u8,
    /// How many rows the tree's shape let expect: what it lets expect later tells how it has grown.
    pub estimate: u64,
    /// When that was: microseconds since the beginning of 1970.
    pub unix_us: u64,
    /// The indexes that were ready.
    pub indexes: Vec<IndexStatistics>,
    /// Rows drawn uniformly from all rows, or all of them if there are no more than
    /// [`SAMPLE_ROWS`]; in no particular order.
    pub sample: Vec<SampledRow>,
    /// Rows drawn besides, which are too long to be kept.
    pub sample_left_out: u32,
}

/// An index as it was when its table was analyzed.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexStatistics {
    /// Its tree.
    pub tree: TreeId,
    /// Leaves of the tree.
    pub leaves: u64,
    /// Levels of it.
    pub height: u8,
    /// For each of [`WINDOWS`]: leaves of the table that hold the rows of that many consecutive
    /// entries, in the mean over windows that begin at rows drawn uniformly. Of an index with fewer
    /// entries than that: of all its entries.
    pub table_leaves: [f64; 4],
}

/// A row of the sample, as it stands in the table's tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampledRow {
    /// Its primary key.
    pub key: Vec<u8>,
    /// Its bytes.
    pub row: Vec<u8>,
}

impl TableStatistics {
    /// The share of the sampled rows, by their numbers, that `accepts` holds of, and how many rows
    /// that is a share of; `None` without a sample.
    #[must_use]
    pub fn share(&self, mut accepts: impl FnMut(usize) -> bool) -> Option<(f64, usize)> {
        let accepted = (0..self.sample.len()).filter(|row| accepts(*row)).count();
        let of = self.sample.len();
        (of > 0).then(|| (accepted as f64 / of as f64, of))
    }

    /// The statistics of one of the table's indexes.
    #[must_use]
    pub fn index(&self, tree: TreeId) -> Option<&IndexStatistics> {
        self.indexes.iter().find(|index| index.tree == tree)
    }

    /// The bytes that are kept for the table of `tree`.
    pub(crate) fn encode(&self, tree: TreeId) -> Vec<u8> {
        let mut out = self.encode_counts(tree);
        out.put_varint(u64::from(self.sample_left_out));
        out.put_varint(self.sample.len() as u64);
        for sampled in &self.sample {
            out.put_blob(&sampled.key);
            out.put_blob(&sampled.row);
        }
        let checksum = crc32c(&out);
        out.put_u32(checksum);
        assert!(out.len() <= MAX_BYTES, "the sample was cut to what fits");
        out
    }

    /// The bytes before the sample.
    fn encode_counts(&self, tree: TreeId) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u8(FORMAT);
        out.put_u32(tree.0);
        out.put_u64(self.rows);
        out.put_u64(self.row_bytes);
        out.put_u64(self.leaves);
        out.put_u8(self.height);
        out.put_u64(self.estimate);
        out.put_u64(self.unix_us);
        out.put_varint(self.indexes.len() as u64);
        for index in &self.indexes {
            out.put_u32(index.tree.0);
            out.put_u64(index.leaves);
            out.put_u8(index.height);
            for leaves in index.table_leaves {
                out.put_u64(leaves.to_bits());
            }
        }
        out
    }

    /// Cuts the sample to what fits: the first rows, so the caller has them in a random order.
    pub(crate) fn cut_sample(&mut self) {
        let counts = self.encode_counts(TreeId(0)).len();
        let mut left = MAX_BYTES - counts - FRAME_BYTES;
        let fit = self.sample.iter().take_while(|sampled| {
            let needed = blob_bytes(&sampled.key) + blob_bytes(&sampled.row);
            let fits = needed <= left;
            left = left.saturating_sub(needed);
            fits
        });
        let fit = fit.count();
        self.sample.truncate(fit);
    }

    /// Reads the bytes kept for the table of `tree`, checking all of them.
    pub(crate) fn decode(bytes: &[u8], tree: TreeId) -> Result<TableStatistics, TableError> {
        let damaged = |what: &str| TableError::damaged(format!("the statistics of {tree}: {what}"));
        if bytes.len() > MAX_BYTES {
            return Err(damaged("they are longer than statistics can be"));
        }
        let Some((body, checksum)) = bytes.split_last_chunk::<4>() else {
            return Err(damaged("they end early"));
        };
        if crc32c(body) != u32::from_le_bytes(*checksum) {
            return Err(damaged("their checksum does not match their bytes"));
        }
        let mut reader = Reader::new(body);
        let format = reader.u8()?;
        if format != FORMAT {
            let message = format!("the statistics of {tree} have format {format}; analyze the table again");
            return Err(TableError::new(TableErrorKind::TooNew, message));
        }
        TableStatistics::decode_body(&mut reader, tree).map_err(|malformed| damaged(malformed.what))
    }

    fn decode_body(reader: &mut Reader<'_>, tree: TreeId) -> Result<TableStatistics, Malformed> {
        if TreeId(reader.u32()?) != tree {
            return Err(Malformed { what: "they are another table's" });
        }
        let (rows, row_bytes, leaves, height) = (reader.u64()?, reader.u64()?, reader.u64()?, reader.u8()?);
        let (estimate, unix_us) = (reader.u64()?, reader.u64()?);
        let mut indexes = Vec::new();
        for _ in 0..reader.varint_max(MAX_INDEXES)? {
            indexes.push(IndexStatistics::decode(reader)?);
        }
        let sample_left_out = reader.varint_max(SAMPLE_ROWS)?;
        let sampled = reader.varint_max(SAMPLE_ROWS - sample_left_out)?;
        let mut sample = Vec::new();
        for _ in 0..sampled {
            sample.push(SampledRow { key: reader.blob()?.to_vec(), row: reader.blob()?.to_vec() });
        }
        if !reader.is_empty() {
            return Err(Malformed { what: "there are bytes past their end" });
        }
        let sample_left_out = sample_left_out as u32;
        Ok(TableStatistics {
            rows,
            row_bytes,
            leaves,
            height,
            estimate,
            unix_us,
            indexes,
            sample,
            sample_left_out,
        })
    }
}

/// At most what follows the indexes beside the rows of the sample: two counts and the checksum.
const FRAME_BYTES: usize = 3 + 3 + 4;

/// Bytes of a blob with its length, which is below two to the power of 21.
fn blob_bytes(bytes: &[u8]) -> usize {
    3 + bytes.len()
}

impl IndexStatistics {
    fn decode(reader: &mut Reader<'_>) -> Result<IndexStatistics, Malformed> {
        let (tree, leaves, height) = (TreeId(reader.u32()?), reader.u64()?, reader.u8()?);
        let mut table_leaves = [0.0; WINDOWS.len()];
        for (value, window) in table_leaves.iter_mut().zip(WINDOWS) {
            *value = f64::from_bits(reader.u64()?);
            // No row is in more than one leaf.
            if !(0.0..=window as f64).contains(value) {
                return Err(Malformed { what: "a window of entries has an impossible number of leaves" });
            }
        }
        Ok(IndexStatistics { tree, leaves, height, table_leaves })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::rng::Rng;

    fn statistics() -> TableStatistics {
        let index = |tree, leaves| IndexStatistics {
            tree: TreeId(tree),
            leaves,
            height: 2,
            table_leaves: [1.0, 3.5, 20.0, 150.25],
        };
        let sampled = |key: &[u8], row: &[u8]| SampledRow { key: key.to_vec(), row: row.to_vec() };
        TableStatistics {
            rows: 300_000,
            row_bytes: 30_000_000,
            leaves: 8000,
            height: 3,
            estimate: 310_000,
            unix_us: 1_000_000,
            indexes: vec![index(8, 700), index(9, 900)],
            sample: vec![sampled(b"k1", b"one"), sampled(b"k2", b""), sampled(b"", b"x")],
            sample_left_out: 2,
        }
    }

    #[test]
    fn statistics_round_trip_and_every_damaged_byte_is_seen() {
        let mut rng = Rng::new(5);
        let statistics = statistics();
        let bytes = statistics.encode(TreeId(7));
        assert_eq!(TableStatistics::decode(&bytes, TreeId(7)).as_ref(), Ok(&statistics));
        assert!(TableStatistics::decode(&bytes, TreeId(8)).is_err(), "another table's");
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= rng.between(1, 255) as u8;
            assert!(TableStatistics::decode(&damaged, TreeId(7)).is_err());
            assert!(TableStatistics::decode(&bytes[..at], TreeId(7)).is_err());
        }
    }

    #[test]
    fn bytes_with_a_good_checksum_are_still_checked() {
        let mut rng = Rng::new(6);
        let whole = statistics().encode(TreeId(7));
        let mut refused = 0;
        for _ in 0..20_000 {
            let mut body = whole[..whole.len() - 4].to_vec();
            for _ in 0..rng.between(1, 3) {
                let at = rng.below(body.len() as u64) as usize;
                body[at] = rng.next_u64() as u8;
            }
            if rng.one_in(4) {
                body.truncate(rng.below(body.len() as u64) as usize);
            }
            let checksum = crc32c(&body);
            body.put_u32(checksum);
            match TableStatistics::decode(&body, TreeId(7)) {
                // What is accepted is what would be written.
                Ok(accepted) => assert_eq!(accepted.encode(TreeId(7)), body),
                Err(_) => refused += 1,
            }
        }
        assert!(refused > 5000, "{refused}");
    }

    #[test]
    fn a_count_past_its_bytes_takes_no_memory() {
        let mut body = statistics().encode(TreeId(7));
        body.truncate(1 + 4 + 3 * 8 + 1 + 2 * 8);
        body.put_varint(u64::MAX);
        let checksum = crc32c(&body);
        body.put_u32(checksum);
        assert!(TableStatistics::decode(&body, TreeId(7)).is_err());
        let long = vec![0; MAX_BYTES + 1];
        assert!(TableStatistics::decode(&long, TreeId(7)).is_err());
    }

    #[test]
    fn a_sample_of_long_rows_is_cut_to_what_fits() {
        let mut statistics = statistics();
        let row = |n: usize| SampledRow { key: vec![n as u8; 8], row: vec![1; 500] };
        statistics.sample = (0..900).map(row).collect();
        statistics.sample_left_out = 0;
        statistics.cut_sample();
        let bytes = statistics.encode(TreeId(7));
        assert!(bytes.len() <= MAX_BYTES && bytes.len() > MAX_BYTES - 600, "{}", bytes.len());
        assert!((100..140).contains(&statistics.sample.len()), "{}", statistics.sample.len());
        assert_eq!(TableStatistics::decode(&bytes, TreeId(7)), Ok(statistics));
    }

    #[test]
    fn predicates_are_evaluated_on_the_sample() {
        let mut statistics = statistics();
        assert_eq!(statistics.share(|row| statistics.sample[row].row.is_empty()), Some((1.0 / 3.0, 3)));
        statistics.sample.clear();
        assert_eq!(statistics.share(|_| true), None);
    }

    #[test]
    fn the_bytes_of_statistics_are_pinned() {
        let mut statistics = statistics();
        statistics.indexes.truncate(1);
        let bytes = statistics.encode(TreeId(7));
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let head = "02 07000000 e093040000000000 80c3c90100000000 401f000000000000 03 \
                    f0ba040000000000 40420f0000000000";
        let index = "01 08000000 bc02000000000000 02 \
                     000000000000f03f 0000000000000c40 0000000000003440 0000000000c86240";
        let sample = "02 03 026b31 036f6e65 026b32 00 00 0178";
        let expected = [head, index, sample, "1e25dda5"].concat().replace(' ', "");
        assert_eq!(hex, expected);
    }
}
