//! Durations as whole nanoseconds, the only unit inside the model.

/// Nanoseconds from microseconds; a profile's times are bounded to a day, sums of them saturate.
pub(crate) fn ns(us: f64) -> u64 {
    (us * 1000.0).round() as u64
}

/// Time to transfer `bytes` at `mb_s` times 10^6 bytes a second.
pub(crate) fn transfer_ns(bytes: u64, mb_s: f64) -> u64 {
    (bytes as f64 * 1000.0 / mb_s).round() as u64
}
