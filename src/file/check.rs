//! Looking at a destination without changing anything.

use std::os::fd::AsFd;
use std::path::Path;
use std::path::PathBuf;

use rustix::fs::FileType;
use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::io::retry_on_intr;
use serde::Deserialize;
use serde::Serialize;

use crate::bcast::item::Digest;
use crate::bcast::item::EntryKind;
use crate::bcast::name::RawName;
use crate::bcast::spec::Dest;
use crate::bcast::spec::Policy;
use crate::errno::Errno;

use super::at;
use super::error::FileError;
use super::error::On;
use super::place::Missing;
use super::place::Place;
use super::sink;
use super::space;

/// What a transfer would find.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inspection {
    /// The directory that the copies would go into, absolute; of a unique one,
    /// the directory it would be made in.
    pub directory: RawName,
    /// The directory is missing and would be made.
    pub make: bool,
    /// Copies can be made there, as far as permissions tell.
    pub writable: bool,
    /// Bytes that can be written there.
    pub free: u64,
    /// What is at the places of the copies, in the order of the names.
    pub copies: Vec<Found>,
}

/// What is at the place of one copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Where the copy would be.
    pub path: RawName,
    /// Something is there.
    pub exists: bool,
    /// Its size in bytes.
    pub size: u64,
    /// Why the policy does not let the copy go there: number and text.
    pub refused: Option<(Errno, String)>,
}

/// Tells what [`super::Sink::open`] would find for sources of these `names`.
///
/// # Errors
/// Those of [`super::Sink::open`] that concern the destination itself.
pub fn inspect(
    base: &Path,
    dest: &Dest,
    policy: &Policy,
    names: &[RawName],
    dirs: &[RawName],
) -> Result<Inspection, FileError> {
    let (place, missing) = find(base, dest)?;
    let make = missing.is_some();
    let directory = place.real.join(missing.unwrap_or_default());
    let copies = names.iter().map(|name| {
        let kind = match dirs.contains(name) {
            true => EntryKind::Dir,
            false => EntryKind::File,
        };
        let name = place.name.as_deref().unwrap_or(name.as_os_str());
        let path = RawName::from(directory.join(name));
        if make || dest.unique {
            return Found {
                path,
                exists: false,
                size: 0,
                refused: None,
            };
        }
        let there = at::lstat_opt(place.fd(), Path::new(name)).unwrap_or(None);
        let allowed = sink::check_existing(&place, name, kind, policy);
        Found {
            path,
            exists: there.is_some(),
            size: there.map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0)),
            refused: allowed
                .err()
                .map(|error| (error.errno(), error.to_string())),
        }
    });
    Ok(Inspection {
        make,
        writable: space::check_writable(place.fd(), &place.shown).is_ok(),
        free: space::free(place.fd()).on("statvfs", &place.shown)?,
        copies: copies.collect(),
        directory: RawName::from(directory.clone()),
    })
}

/// Finds the destination, or what there is of it, and what is missing below.
fn find(base: &Path, dest: &Dest) -> Result<(Place, Option<PathBuf>), FileError> {
    let whole = Place::find(base, dest, "", Missing::Refuse);
    let failed = match whole {
        Ok(place) => return Ok((place, None)),
        Err(error) => error,
    };
    let Some(path) = dest.path.as_ref().filter(|_| dest.mkdir) else {
        return Err(failed);
    };
    if failed.errno() != Errno::ENOENT {
        return Err(failed);
    }
    let path = path.as_path();
    let is_dir = dest.directory || path.as_os_str().as_encoded_bytes().ends_with(b"/");
    let wanted = if is_dir {
        path
    } else {
        path.parent().unwrap_or(path)
    };
    for parent in wanted.ancestors().skip(1) {
        let shorter = Dest {
            path: (!parent.as_os_str().is_empty()).then(|| RawName::from(parent)),
            directory: true,
            ..Dest::default()
        };
        match Place::find(base, &shorter, "", Missing::Refuse) {
            Ok(mut place) => {
                let missing = wanted.strip_prefix(parent).unwrap_or(wanted);
                place.name = path.file_name().filter(|_| !is_dir).map(Into::into);
                return Ok((place, Some(missing.to_path_buf())));
            }
            Err(error) if error.errno() == Errno::ENOENT => {}
            Err(error) => return Err(error),
        }
    }
    Err(failed)
}

/// Whether the copy of the source `name` is there already: a regular file of
/// this size and digest. Reads all of it only if the size is right.
///
/// # Errors
/// What reading it says; that it or its directory is missing is no error.
pub fn already_has(
    base: &Path,
    dest: &Dest,
    name: &RawName,
    size: u64,
    digest: &Digest,
) -> Result<bool, FileError> {
    // The directory would be a new one. The one around it does not count.
    if dest.unique {
        return Ok(false);
    }
    let place = match Place::find(base, dest, "", Missing::Refuse) {
        Err(error) if error.errno() == Errno::ENOENT => return Ok(false),
        found => found?,
    };
    let name = Path::new(place.name.as_deref().unwrap_or(name.as_os_str()));
    let shown = place.shown.join(name);
    let there = at::lstat_opt(place.fd(), name).on("stat", &shown)?;
    let is_file = there.is_some_and(|stat| {
        at::kind_of(&stat) == FileType::RegularFile
            && u64::try_from(stat.st_size).is_ok_and(|there| there == size)
    });
    if !is_file {
        return Ok(false);
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let open = || rustix::fs::openat(place.fd(), name, flags, Mode::empty());
    let file = retry_on_intr(open).on("open", &shown)?;
    Ok(sink::digest_of(file.as_fd()).on("read", &shown)? == *digest)
}
