//! The wall clock, for dates in rows and reports.

/// Microseconds since the Unix epoch; inside a simulation, of its own time.
#[must_use]
pub fn now_us() -> u64 {
    firndb_base::clock::unix_time_us()
}

/// A moment as `2026-11-20T10:12:00Z` (proleptic Gregorian, by Howard Hinnant's `civil_from_days`).
#[must_use]
pub fn iso8601(us: u64) -> String {
    let seconds = us / 1_000_000;
    let days = seconds / 86_400 + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(iso8601(0), "1970-01-01T00:00:00Z");
        assert_eq!(iso8601(951_782_400_000_000), "2000-02-29T00:00:00Z");
        assert_eq!(iso8601(1_763_633_787_000_000), "2025-11-20T10:16:27Z");
    }
}
