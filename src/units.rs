//! Durations and sizes as users of Flux write them.

#![forbid(unsafe_code)]

use std::time::Duration;

/// Longest duration that is accepted: beyond it timers lose their meaning.
const LONGEST: f64 = 10. * 365. * 86400.;

/// Parses a duration in Flux Standard Duration form (RFC 23): a decimal number
/// with an optional unit of `ms`, `s`, `m`, `h` or `d`; seconds without one.
///
/// # Errors
/// One line that names the text and the form.
pub fn parse_fsd(text: &str) -> Result<Duration, String> {
    let fail = || format!("'{text}' is not a duration such as 30s, 1.5m or 2h");
    let (number, unit) = match text.find(|c: char| c.is_ascii_alphabetic()) {
        Some(at) => text.split_at(at),
        None => (text, "s"),
    };
    let scale = match unit {
        "ms" => 0.001,
        "s" => 1.,
        "m" => 60.,
        "h" => 3600.,
        "d" => 86400.,
        _ => return Err(fail()),
    };
    // f64 would also take "1e3", "inf" and a sign.
    if !number.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Err(fail());
    }
    let seconds = number.parse::<f64>().map_err(|_| fail())? * scale;
    if seconds > LONGEST {
        return Err(format!("'{text}' is too long a duration"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Parses a number of bytes with an optional binary suffix `k`, `M` or `G`
/// (either case, an `iB` or `B` may follow).
///
/// # Errors
/// One line that names the text and the form.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let fail = || format!("'{text}' is not a size such as 4096, 64k or 1M");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = text.split_at(digits);
    let shift = match suffix.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return Err(fail()),
    };
    let number: u64 = number.parse().map_err(|_| fail())?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("'{text}' is too large a size"))
}

/// Prints a number of bytes for people: `1.5 MiB`.
pub fn show_size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut units = ["B", "KiB", "MiB", "GiB", "TiB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    for larger in units {
        if value < 1024. {
            break;
        }
        value /= 1024.;
        unit = larger;
    }
    if unit == "B" {
        format!("{bytes} B")
    } else {
        format!("{value:.1} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, ms) in [
            ("1", 1000),
            ("0.5s", 500),
            ("20ms", 20),
            ("1.5m", 90_000),
            ("1d", 86_400_000),
        ] {
            assert_eq!(parse_fsd(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in [
            "", "s", "-1", "+1", "1e3", "inf", "nan", "1 s", "1y", "1.2.3", "99999d",
        ] {
            assert!(parse_fsd(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4k", 4096),
            ("1M", 1 << 20),
            ("2GiB", 2 << 30),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "k",
            "-1",
            "1.5k",
            "1x",
            "99999999999999999999",
            "18446744073709551615k",
        ] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        assert_eq!(show_size(1536), "1.5 KiB");
        assert_eq!(show_size(12), "12 B");
    }
}
