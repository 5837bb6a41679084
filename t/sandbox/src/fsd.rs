//! Durations as Flux has them: a number with an optional unit.

/// Seconds of `text`: `30`, `1.5m`, `10ms`, `2h`, `1d`, `infinity`.
pub fn parse(text: &str) -> Option<f64> {
    let text = text.trim();
    let split = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    if number.is_empty() {
        let unit = unit.to_ascii_lowercase();
        return matches!(unit.as_str(), "inf" | "infinity").then_some(f64::INFINITY);
    }
    let scale = match unit {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return None,
    };
    let seconds = number.parse::<f64>().ok()? * scale;
    seconds.is_finite().then_some(seconds)
}

/// Writes a duration: in seconds up to a minute, unless it is very short.
pub fn format(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s < 0.1 && s != 0.0 => (s * 1000.0, "ms"),
        s if s < 60.0 => (s, "s"),
        s if s < 3600.0 => (s / 60.0, "m"),
        s if s < 86400.0 => (s / 3600.0, "h"),
        s => (s / 86400.0, "d"),
    };
    format!("{}{unit}", significant(value))
}

/// Up to six significant digits, no trailing zeros.
fn significant(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        assert_eq!(parse("30"), Some(30.0));
        assert_eq!(parse("1.5m"), Some(90.0));
        assert_eq!(parse("10ms"), Some(0.01));
        assert_eq!(parse("inf"), Some(f64::INFINITY));
        assert_eq!(parse("1x"), None);
        assert_eq!(parse(""), None);
        assert_eq!(format(30.0), "30s");
        assert_eq!(format(90.0), "1.5m");
        assert_eq!(format(0.25), "0.25s");
        assert_eq!(format(0.025), "25ms");
    }
}
