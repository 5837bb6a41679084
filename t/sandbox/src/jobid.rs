//! Job ids and their spellings.

/// Digits of base 58, in order of value.
const DIGITS: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/// Prefix of base 58 where the locale is UTF-8.
const PREFIX: &str = "ƒ";
/// Longest run of base 58 digits.
const MAX_DIGITS: usize = 12;

/// A spelling of a job id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Decimal.
    Dec,
    /// `0x…`.
    Hex,
    /// Four groups of hex digits.
    DotHex,
    /// `job.` and four groups.
    Kvs,
    /// Base 58 with the prefix of the locale.
    F58,
    /// Base 58 with an ASCII prefix.
    F58Plain,
    /// Six English words.
    Words,
}

impl Form {
    /// The form of this name; names are compared without case.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "dec" => Self::Dec,
            "hex" => Self::Hex,
            "dothex" => Self::DotHex,
            "kvs" => Self::Kvs,
            "f58" => Self::F58,
            "f58plain" => Self::F58Plain,
            "words" => Self::Words,
            _ => return None,
        })
    }
}

/// Spells `id`.
pub fn encode(id: u64, form: Form) -> String {
    let group = |n: u32| (id >> (16 * n)) & 0xffff;
    let dothex = || {
        format!(
            "{:04x}.{:04x}.{:04x}.{:04x}",
            group(3),
            group(2),
            group(1),
            group(0)
        )
    };
    match form {
        Form::Dec => id.to_string(),
        Form::Hex => format!("{id:#x}"),
        Form::DotHex => dothex(),
        Form::Kvs => format!("job.{}", dothex()),
        Form::F58 if utf8_locale() => format!("{PREFIX}{}", base58(id)),
        Form::F58 | Form::F58Plain => format!("f{}", base58(id)),
        Form::Words => mnemonic::to_string(id.to_le_bytes()),
    }
}

/// The usual spelling.
pub fn f58(id: u64) -> String {
    encode(id, Form::F58)
}

/// Reads any spelling.
pub fn parse(text: &str) -> Option<u64> {
    let text = text.trim_start();
    let text = text.strip_prefix("job.").unwrap_or(text).trim_end();
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return u64::from_str_radix(hex, 16).ok();
    }
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().ok();
    }
    if let Some(id) = parse_dothex(text) {
        return Some(id);
    }
    let digits = text.strip_prefix(PREFIX).or_else(|| text.strip_prefix('f'));
    digits.and_then(parse_base58).or_else(|| parse_words(text))
}

fn parse_words(text: &str) -> Option<u64> {
    let mut bytes = Vec::new();
    mnemonic::decode(text, &mut bytes).ok()?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

fn parse_dothex(text: &str) -> Option<u64> {
    let groups: Vec<&str> = text.split('.').collect();
    if groups.len() != 4 {
        return None;
    }
    groups.iter().try_fold(0u64, |id, group| {
        if group.is_empty() || group.len() > 4 {
            return None;
        }
        Some(id << 16 | u64::from_str_radix(group, 16).ok()?)
    })
}

fn parse_base58(text: &str) -> Option<u64> {
    if text.is_empty() || text.len() > MAX_DIGITS {
        return None;
    }
    text.bytes().try_fold(0u64, |id, b| {
        let value = DIGITS.iter().position(|d| *d == b)? as u64;
        Some(id.wrapping_mul(58).wrapping_add(value))
    })
}

fn base58(mut id: u64) -> String {
    if id == 0 {
        return "1".to_owned();
    }
    let mut out = Vec::new();
    while id > 0 {
        out.push(DIGITS[(id % 58) as usize]);
        id /= 58;
    }
    out.reverse();
    String::from_utf8(out).unwrap_or_default()
}

/// What setlocale(3) and nl_langinfo(3) would say, from the environment.
fn utf8_locale() -> bool {
    if std::env::var_os("FLUX_F58_FORCE_ASCII").is_some() {
        return false;
    }
    ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .filter_map(|name| std::env::var(name).ok())
        .find(|value| !value.is_empty())
        .is_some_and(|value| {
            let value = value.to_ascii_lowercase();
            value.ends_with("utf-8") || value.ends_with("utf8")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_a_known_id() {
        // One id as Flux itself spells it.
        let id = 24_058_527_744;
        assert_eq!(encode(id, Form::F58Plain), "fdeyF7V");
        assert_eq!(encode(id, Form::Hex), "0x59a000000");
        assert_eq!(encode(id, Form::Kvs), "job.0000.0005.9a00.0000");
        let words = "amazon-laptop-podium--admiral-academy-academy";
        assert_eq!(encode(id, Form::Words), words);
        for text in [
            "fdeyF7V",
            "ƒdeyF7V",
            "24058527744",
            "0x59a000000",
            "job.0000.0005.9a00.0000",
            "0000.0005.9a00.0000",
            "amazon-laptop-podium--admiral-academy-academy",
        ] {
            assert_eq!(parse(text), Some(id), "{text}");
        }
    }

    #[test]
    fn what_is_no_id() {
        for text in [
            "", "xyz", "f", "f0", "fdeyF7V!", "1.2.3", "0x", "-1", "fIII",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn every_form_reads_back() {
        for id in [0, 1, 57, 58, u64::MAX / 58, 1 << 40] {
            for form in [
                Form::Dec,
                Form::Hex,
                Form::DotHex,
                Form::Kvs,
                Form::F58Plain,
                Form::Words,
            ] {
                assert_eq!(parse(&encode(id, form)), Some(id));
            }
        }
    }
}
