//! The loader's own list of libraries, `/etc/ld.so.cache`.
//!
//! Its present form begins with a text (behind the whole of an older form, in
//! files of some years ago), followed by numbers in the machine's byte order:
//!
//! | at | size | meaning                                                        |
//! |----|------|----------------------------------------------------------------|
//! | 0  | 20   | `glibc-ld.so.cache1.1`                                         |
//! | 20 | 4    | number of entries                                              |
//! | 24 | 24   | not needed here                                                |
//! | 48 | 24 … | entries: flags, name, path (4 each), 4 and 8 more; the latter  |
//! |    |      | is not zero for a variant that only some processors can run    |
//!
//! Names and paths are offsets from the beginning of the text to strings that
//! end with NUL.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::path::PathBuf;

const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const ENTRIES: usize = 48;
const ENTRY: usize = 24;

/// Paths by name, in the order of the file.
#[derive(Clone, Debug, Default)]
pub(super) struct Cache {
    paths: HashMap<Vec<u8>, Vec<PathBuf>>,
}

impl Cache {
    /// Reads the system's; empty where there is none.
    pub(super) fn system() -> Self {
        let bytes = std::fs::read("/etc/ld.so.cache").unwrap_or_default();
        Self::parse(&bytes).unwrap_or_default()
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let start = bytes
            .windows(MAGIC.len())
            .position(|window| window == MAGIC)?;
        let bytes = &bytes[start..];
        let count = usize::try_from(number(bytes, 20)?).ok()?;
        let mut cache = Self::default();
        for index in 0..count {
            let at = ENTRIES + index.checked_mul(ENTRY)?;
            let entry = bytes.get(at..at.checked_add(ENTRY)?)?;
            let name = string(bytes, number(entry, 4)?)?;
            let path = string(bytes, number(entry, 8)?)?;
            if entry[16..] == [0; 8] {
                let paths = cache.paths.entry(name.to_vec()).or_default();
                paths.push(PathBuf::from(OsStr::from_bytes(path)));
            }
        }
        Some(cache)
    }

    /// Where a library may be.
    pub(super) fn lookup(&self, name: &[u8]) -> impl Iterator<Item = &Path> {
        let paths = self.paths.get(name).map_or(&[][..], Vec::as_slice);
        paths.iter().map(PathBuf::as_path)
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

fn string(bytes: &[u8], at: u32) -> Option<&[u8]> {
    let rest = bytes.get(usize::try_from(at).ok()?..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    Some(&rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(entries: &[(&str, &str, u64)]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(u32::try_from(entries.len()).unwrap().to_ne_bytes());
        bytes.extend([0; 24]);
        let mut strings = Vec::new();
        let base = ENTRIES + entries.len() * ENTRY;
        for (name, path, variant) in entries {
            bytes.extend(3_u32.to_ne_bytes());
            for text in [name, path] {
                let at = u32::try_from(base + strings.len()).unwrap();
                bytes.extend(at.to_ne_bytes());
                strings.extend(text.as_bytes());
                strings.push(0);
            }
            bytes.extend(0_u32.to_ne_bytes());
            bytes.extend(variant.to_ne_bytes());
        }
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn entries_are_found_but_for_variants() {
        let bytes = file(&[
            ("liba.so.1", "/v3/liba.so.1", 1 << 62),
            ("liba.so.1", "/x/liba.so.1", 0),
            ("libb.so", "/y/libb.so", 0),
        ]);
        let old = [b"ld.so-1.7.0\0 old form ".to_vec(), bytes.clone()].concat();
        for bytes in [bytes, old] {
            let cache = Cache::parse(&bytes).unwrap();
            let paths: Vec<_> = cache.lookup(b"liba.so.1").collect();
            assert_eq!(paths, [Path::new("/x/liba.so.1")]);
            assert_eq!(cache.lookup(b"libc").count(), 0);
        }
    }

    #[test]
    fn a_damaged_file_is_no_cache() {
        let bytes = file(&[("liba.so.1", "/x/liba.so.1", 0)]);
        for cut in 0..bytes.len() {
            assert!(Cache::parse(&bytes[..cut]).is_none(), "{cut}");
        }
    }
}
