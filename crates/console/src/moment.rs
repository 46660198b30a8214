//! Moments as people write them, in UTC.

use firndb_workloads::wall;

/// Parses `2026-11-20T10:12:00Z`, with or without a fraction of a second, as microseconds since
/// 1970.
pub fn parse(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix('Z')?.split_once(['T', ' '])?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
    let numbers = |text: &str, separator: char, lengths: [usize; 3]| -> Option<[u64; 3]> {
        let mut parts = text.split(separator);
        let mut found = [0; 3];
        for (number, length) in found.iter_mut().zip(lengths) {
            let part = parts.next()?;
            let digits = part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit());
            *number = part.parse().ok().filter(|_| digits)?;
        }
        parts.next().is_none().then_some(found)
    };
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_of_month = match month {
        2 => 28 + u64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let in_range = year >= 1970
        && (1..=12).contains(&month)
        && (1..=days_of_month).contains(&day)
        && hour < 24
        && minute < 60
        && second < 61;
    let micros_known = fraction.len() <= 6 && fraction.bytes().all(|byte| byte.is_ascii_digit());
    if !in_range || !micros_known || text.ends_with(".Z") {
        return None;
    }
    // Days since 1970, by Howard Hinnant's `days_from_civil`.
    let shifted = if month > 2 { year } else { year - 1 };
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    let days = shifted / 400 * 146_097 + shifted % 400 * 365 + shifted % 400 / 4 - shifted % 400 / 100
        + day_of_year
        - 719_468;
    let micros: u64 = format!("{fraction:0<6}").parse().ok()?;
    Some(((days * 24 + hour) * 60 + minute) * 60_000_000 + second * 1_000_000 + micros)
}

/// As `2026-11-20T10:12:00.123456Z`; a dash for 0, which stands for no moment.
pub fn show(us: u64) -> String {
    if us == 0 {
        return "-".to_owned();
    }
    let text = wall::iso8601(us);
    format!("{}.{:06}Z", text.trim_end_matches('Z'), us % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_read_again_and_nonsense_is_not() {
        let mut us = 1;
        for step in 0..4000u64 {
            assert_eq!(parse(&show(us)), Some(us), "{}", show(us));
            us += 86_400_000_000 / 2 * 3 + step * 1_000_003;
        }
        assert_eq!(parse("2000-02-29T00:00:00Z"), Some(951_782_400_000_000));
        assert_eq!(parse("2000-02-29 00:00:00.5Z"), Some(951_782_400_500_000));
        for text in [
            "2001-02-29T00:00:00Z",
            "2000-02-29T00:00:00",
            "2000-13-01T00:00:00Z",
            "12",
            "",
            "Z",
            "2000-02-29T24:00:00Z",
            "1969-12-31T23:59:59Z",
            "2000-02-29T00:00:00.Z",
            "2000-2-29T00:00:00Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
