//! Names that a transfer of this process is about to create.
//!
//! Two transfers that may not replace anything can both find a name free; if
//! each then publishes first on another node, each fails on some and has put its
//! copy on the others. So a name is claimed before any data is taken: on every
//! node one of the two is refused while nothing is published yet.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use crate::errno::Errno;

use super::error::FileError;

/// Device and inode of the directory, and the name in it.
type Key = (u64, u64, OsString);

/// The transfer that has the claim, and how many sinks of it.
static CLAIMS: Mutex<BTreeMap<Key, (String, usize)>> = Mutex::new(BTreeMap::new());

/// The right to create a name; given up when dropped.
#[derive(Debug)]
pub(super) struct Claim(Key);

impl Claim {
    /// Claims `name` in the directory with that device and inode. Sinks of one
    /// transfer may share a claim: they publish the same contents.
    ///
    /// # Errors
    /// `EEXIST` if another transfer has it.
    pub(super) fn take(
        directory: (u64, u64),
        name: &OsStr,
        transfer: &str,
        shown: &Path,
    ) -> Result<Self, FileError> {
        let key = (directory.0, directory.1, name.to_os_string());
        let mut claims = claims();
        let (owner, sinks) = claims
            .entry(key.clone())
            .or_insert_with(|| (transfer.to_owned(), 0));
        if owner != transfer {
            let error = FileError::new(Errno::EEXIST, "open", shown);
            return Err(error.with_hint("another transfer is about to create it"));
        }
        *sinks += 1;
        Ok(Self(key))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut claims = claims();
        if let Some((_, sinks)) = claims.get_mut(&self.0) {
            *sinks -= 1;
            if *sinks == 0 {
                claims.remove(&self.0);
            }
        }
    }
}

fn claims() -> MutexGuard<'static, BTreeMap<Key, (String, usize)>> {
    // A panic elsewhere leaves the map as whole as any single step does.
    CLAIMS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_transfer_has_a_name_until_all_its_sinks_are_gone() {
        let take = |name: &str, transfer| {
            Claim::take((7, 7), OsStr::new(name), transfer, Path::new("/d/a"))
        };
        let first = take("a", "x").unwrap();
        let second = take("a", "x").unwrap();
        let error = take("a", "y").unwrap_err();
        assert_eq!(error.errno(), Errno::EEXIST);
        assert!(error.to_string().contains("another transfer"));
        assert!(take("b", "y").is_ok());
        drop(first);
        assert!(take("a", "y").is_err());
        drop(second);
        assert!(take("a", "y").is_ok());
    }
}
