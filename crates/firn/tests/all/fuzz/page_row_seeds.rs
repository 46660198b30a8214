//! Seeds of the fuzzer of a page file's rows.

use super::seeds::Seed;
use firndb_base::codec::Writer;

/// A row: the seed's name, the page, the flag, the rest of the key, the payload.
type Script = (&'static str, u8, u8, &'static [u8], &'static [u8]);

pub(super) fn page_row_seeds() -> Vec<Seed> {
    let scripts: [Script; 10] = [
        ("a-page-of-zeros", 5, 0, &[], &[]),
        ("a-granule", 0, 0, &[0, 3], &[10, 1, 2, 3]),
        ("a-granule-of-no-page", 4, 0, &[0, 3], &[10, 1, 2, 3]),
        ("a-granule-beyond-its-page", 0, 0, &[0, 200], &[10, 1, 2, 3]),
        ("a-granule-beyond-its-bytes", 1, 0, &[0, 1], &[126, 1, 2, 3]),
        ("a-granule-without-bytes", 1, 0, &[0, 1], &[126]),
        ("a-key-too-long", 0, 0, &[0, 3, 1], &[10, 1]),
        ("a-key-of-half-a-granule", 1, 0, &[3], &[10, 1]),
        ("a-page-that-is-not-allocated", 2, 1, &[], &[0, 0, 1, 0, 0, 0, 0, 0]),
        ("a-name-too-short", 3, 1, &[], &[1, 2, 3]),
    ];
    let encode = |(name, page, flag, rest, payload): Script| {
        let mut seed = vec![page, flag];
        seed.put_blob(rest);
        seed.put_blob(payload);
        (name.to_owned(), seed)
    };
    scripts.into_iter().map(encode).collect()
}
