//! Sizes as people write them.

/// Parses `4096`, `64k`, `128M`, `2G`, with or without `iB` or `B`: powers of 1024.
pub fn parse(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = lower[digits.len()..].trim_end_matches("ib").trim_end_matches('b');
    let shift = match unit {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(format!("{text:?} is not a size; write for example 4096, 64k, 128M or 2G")),
    };
    let number: u64 =
        digits.trim().parse().map_err(|_| format!("{text:?} is not a size; write for example 128M"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text} is more than 2^64 bytes"))
}

/// Bytes in the largest unit that leaves at least one, with one decimal.
pub fn show(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        for (text, bytes) in
            [("512", 512), ("64k", 65536), ("64KiB", 65536), ("2G", 2 << 30), (" 3 MB", 3 << 20)]
        {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in ["", "k", "12x", "-1", "99999999999999G"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(show(512), "512 B");
        assert_eq!(show(1536), "1.5 KiB");
        assert_eq!(show(5 << 40), "5.0 TiB");
    }
}
