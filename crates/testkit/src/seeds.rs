//! Random tests: many seeds, or the one that failed.

use crate::cases::case;

/// The number in an environment variable.
#[must_use]
pub fn number_from(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}; it must be a number")))
}

/// Runs `test` for `count` seeds, or as many as `FIRN_SEEDS` says, or for the one that `FIRN_SEED`
/// names; says which seed failed and how to run it again.
pub fn for_seeds(count: u64, test: impl Fn(u64)) {
    if let Some(seed) = number_from("FIRN_SEED") {
        return test(seed);
    }
    for seed in 0..number_from("FIRN_SEEDS").unwrap_or(count) {
        case(format!("seed {seed}; run it again with FIRN_SEED={seed}"), || test(seed));
    }
}
