//! File names as bytes, with a JSON form that survives any of them.
//!
//! Names on Linux are bytes, not text. A name that is valid UTF-8 travels as a
//! JSON string; any other one as `{"hex":"…"}`, so that nothing is mangled.

use std::ffi::OsStr;
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::path::PathBuf;

use serde::Deserialize;
use serde::Deserializer;
use serde::Serialize;
use serde::Serializer;
use serde::de;

/// A path or file name: any bytes but NUL.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RawName(Vec<u8>);

impl RawName {
    /// Takes the bytes as they are.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The name as a path.
    pub fn as_path(&self) -> &Path {
        Path::new(self.as_os_str())
    }

    /// The name as the operating system's string.
    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }

    /// True for a name without bytes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&Path> for RawName {
    fn from(path: &Path) -> Self {
        Self(path.as_os_str().as_bytes().to_vec())
    }
}

impl From<PathBuf> for RawName {
    fn from(path: PathBuf) -> Self {
        Self(path.into_os_string().into_vec())
    }
}

impl From<OsString> for RawName {
    fn from(name: OsString) -> Self {
        Self(name.into_vec())
    }
}

impl From<&str> for RawName {
    fn from(name: &str) -> Self {
        Self(name.as_bytes().to_vec())
    }
}

/// Prints the name for people: bytes that are not UTF-8 and control characters
/// are shown escaped, so that a name cannot disturb a terminal or a log line.
impl fmt::Display for RawName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c.is_control() {
                    write!(f, "{}", c.escape_default())?;
                } else {
                    write!(f, "{c}")?;
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for RawName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Form {
    Text(String),
    Hex { hex: String },
}

impl Serialize for RawName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => Form::Hex {
                hex: self.0.iter().map(|b| format!("{b:02x}")).collect(),
            }
            .serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for RawName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = match Form::deserialize(deserializer)? {
            Form::Text(text) => text.into_bytes(),
            Form::Hex { hex } => {
                decode_hex(&hex).ok_or_else(|| de::Error::custom("name is not valid hex"))?
            }
        };
        if bytes.contains(&0) {
            return Err(de::Error::custom("name contains a NUL byte"));
        }
        Ok(Self(bytes))
    }
}

/// Decodes lower- or upper-case hex; `None` when it is not hex.
pub(crate) fn decode_hex(hex: &str) -> Option<Vec<u8>> {
    let digits = hex.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits
        .chunks_exact(2)
        .map(|pair| {
            let high = char::from(pair[0]).to_digit(16)?;
            let low = char::from(pair[1]).to_digit(16)?;
            u8::try_from(high * 16 + low).ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_round_trip_keeps_every_byte() {
        for bytes in [
            &b"plain"[..],
            b"with \n newline",
            b"\xff\xfe",
            "jobtmp-0-\u{192}x".as_bytes(),
        ] {
            let name = RawName::new(bytes);
            let json = serde_json::to_string(&name).unwrap();
            assert_eq!(serde_json::from_str::<RawName>(&json).unwrap(), name);
        }
    }

    #[test]
    fn nul_and_bad_hex_are_refused() {
        for json in [
            r#""a\u0000b""#,
            r#"{"hex":"0"}"#,
            r#"{"hex":"zz"}"#,
            r#"{"hex":"00"}"#,
            "1",
        ] {
            assert!(serde_json::from_str::<RawName>(json).is_err(), "{json}");
        }
    }

    #[test]
    fn display_escapes_what_could_disturb_a_terminal() {
        assert_eq!(
            RawName::new(&b"a\x1b[31m\xff\n"[..]).to_string(),
            r"a\u{1b}[31m\xff\n"
        );
    }
}
