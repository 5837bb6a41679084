//! Base 64, for task output that is no text.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes with padding.
pub fn encode(data: &[u8]) -> String {
    let mut out = String::with_capacity(data.len().div_ceil(3) * 4);
    for chunk in data.chunks(3) {
        let byte = |n: usize| u32::from(chunk.get(n).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for n in 0..4 {
            if n <= chunk.len() {
                let digit = (bits >> (18 - 6 * n)) & 63;
                out.push(char::from(DIGITS[digit as usize]));
            } else {
                out.push('=');
            }
        }
    }
    out
}

/// Decodes; `None` for anything that [`encode`] does not produce.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    for chunk in text.as_bytes().chunks(4) {
        let pad = chunk.iter().rev().take_while(|b| **b == b'=').count();
        if pad > 2 {
            return None;
        }
        let mut bits = 0u32;
        for b in &chunk[..4 - pad] {
            let value = DIGITS.iter().position(|d| d == b)?;
            bits = bits << 6 | u32::try_from(value).ok()?;
        }
        bits <<= 6 * pad;
        out.extend_from_slice(&bits.to_be_bytes()[1..4 - pad]);
    }
    Some(out)
}

/// Data as event logs have it: text as it is, anything else encoded.
pub fn to_json(data: &[u8]) -> (serde_json::Value, bool) {
    match std::str::from_utf8(data) {
        Ok(text) => (text.into(), false),
        Err(_) => (encode(data).into(), true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        for n in 0..70u8 {
            let data: Vec<u8> = (0..n).map(|b| b.wrapping_mul(37) ^ 0xa5).collect();
            assert_eq!(decode(&encode(&data)), Some(data));
        }
        assert_eq!(encode(b"hi\n"), "aGkK");
        assert_eq!(encode(b"h"), "aA==");
        assert_eq!(decode("a"), None);
        assert_eq!(decode("===="), None);
    }
}
