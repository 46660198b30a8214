//! Seeds of the fuzzer of delta pages.

use super::seeds::Seed;
use firndb_base::codec::Writer;

/// Bytes laid over a delta page of three slots. The table of ends begins at 12, the first slot at
/// 18: checksum, page (22), version (23), version since the base (25), checksum of the base, runs
/// (30), and two runs (31).
pub(super) fn delta_seeds() -> Vec<Seed> {
    let scripts: [(&str, u16, &[u8]); 11] = [
        ("untouched", 0, &[]),
        ("no-delta-page", 0, &[0]),
        ("no-slots", 8, &[0]),
        ("more-slots", 8, &[4]),
        ("ends-that-fall", 14, &[10, 0]),
        ("an-end-beyond", 16, &[255, 255]),
        ("another-page", 22, &[77]),
        ("a-base-before-all-log", 23, &[0x85, 0]),
        ("a-run-of-nothing", 32, &[0]),
        ("more-bytes-than-runs", 32, &[1]),
        ("runs-that-touch", 33, &[0]),
    ];
    let encode = |(name, at, piece): (&str, u16, &[u8])| {
        let mut seed = Vec::new();
        seed.put_u16(at);
        seed.put_blob(piece);
        (name.to_owned(), seed)
    };
    scripts.into_iter().map(encode).collect()
}
