//! The option object: what a C caller has said so far, checked as it is said.
//!
//! Every setter either takes its value or changes nothing.

use std::cell::RefCell;
use std::ffi::CString;
use std::ffi::c_char;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use crate::bcast::message::Tuning;
use crate::bcast::name::RawName;
use crate::bcast::spec::Existing;
use crate::elf::Libs;
use crate::errno::Errno;
use crate::flux::error::Error;
use crate::flux::error::Result;
use crate::hostlist;
use crate::idset::IdSet;

/// The flags of the header, by the same names.
pub(super) mod flag {
    pub(in crate::capi) const EXCL: i32 = 1;
    pub(in crate::capi) const TRUNC: i32 = 2;
    pub(in crate::capi) const APPEND: i32 = 4;
    pub(in crate::capi) const IN_PLACE: i32 = 8;
    pub(in crate::capi) const MKDIR: i32 = 16;
    pub(in crate::capi) const SYNC: i32 = 32;
    pub(in crate::capi) const TIMES: i32 = 64;
    pub(in crate::capi) const PARTIAL: i32 = 128;
    pub(in crate::capi) const UNIQUE: i32 = 256;
    pub(in crate::capi) const NOWAIT: i32 = 512;
    pub(in crate::capi) const CHECKSUM: i32 = 1024;
    pub(in crate::capi) const COMPRESS: i32 = 2048;
    pub(in crate::capi) const SEND_LIBS: i32 = 4096;
    pub(in crate::capi) const DIRECT: i32 = 8192;
    /// What is said about a file that exists.
    pub(super) const EXISTING: i32 = EXCL | TRUNC | APPEND | IN_PLACE;
    /// What has a meaning where files are fetched.
    pub(in crate::capi) const GATHER: i32 =
        EXCL | TRUNC | MKDIR | SYNC | TIMES | PARTIAL | NOWAIT;
    pub(super) const NAMES: [(i32, &str); 14] = [
        (EXCL, "EXCL"),
        (TRUNC, "TRUNC"),
        (APPEND, "APPEND"),
        (IN_PLACE, "IN_PLACE"),
        (MKDIR, "MKDIR"),
        (SYNC, "SYNC"),
        (TIMES, "TIMES"),
        (PARTIAL, "PARTIAL"),
        (UNIQUE, "UNIQUE"),
        (NOWAIT, "NOWAIT"),
        (CHECKSUM, "CHECKSUM"),
        (COMPRESS, "COMPRESS"),
        (SEND_LIBS, "SEND_LIBS"),
        (DIRECT, "DIRECT"),
    ];
}

/// A source, in a form that can be used again and again.
#[derive(Debug)]
pub(super) enum Source {
    Path(PathBuf),
    Fd(OwnedFd),
    Memory(Vec<u8>),
    Stream(OwnedFd),
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub(super) sources: Vec<(Source, Option<RawName>)>,
    pub(super) from: Option<u32>,
    pub(super) dest: Option<RawName>,
    pub(super) ranks: Option<IdSet>,
    pub(super) hosts: Option<String>,
    pub(super) exclude: Option<IdSet>,
    pub(super) exclude_hosts: Option<String>,
    pub(super) flags: i32,
    pub(super) mode: Option<u32>,
    pub(super) libs_dir: Option<RawName>,
    pub(super) exclude_libs: Option<RawName>,
    pub(super) tuning: Tuning,
    pub(super) timeout: Option<Duration>,
    /// Why the last call that failed did. Readers have a shared reference.
    error: RefCell<CString>,
}

impl Options {
    /// Keeps the text of an error for the caller.
    pub(super) fn note<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| {
            self.error.replace(c_text(&error.to_string()));
        })
    }

    /// What [`Options::note`] has kept last; lives until it keeps another one.
    pub(super) fn error(&self) -> *const c_char {
        self.error.borrow().as_ptr()
    }

    pub(super) fn add_path(&mut self, path: RawName, name: Option<RawName>) -> Result<()> {
        if path.is_empty() {
            return Err(refuse("a path is empty"));
        }
        name.as_ref().map_or(Ok(()), check_name)?;
        let source = Source::Path(path.as_path().to_path_buf());
        self.sources.push((source, name));
        Ok(())
    }

    pub(super) fn add_fd(&mut self, fd: BorrowedFd<'_>, name: RawName) -> Result<()> {
        check_name(&name)?;
        self.sources.push((Source::Fd(duplicate(fd)?), Some(name)));
        Ok(())
    }

    pub(super) fn add_memory(&mut self, data: &[u8], name: RawName) -> Result<()> {
        check_name(&name)?;
        let mut copy = Vec::new();
        copy.try_reserve_exact(data.len())
            .map_err(|_| Errno::ENOMEM)?;
        copy.extend_from_slice(data);
        self.sources.push((Source::Memory(copy), Some(name)));
        Ok(())
    }

    pub(super) fn add_stream(&mut self, fd: BorrowedFd<'_>, name: RawName) -> Result<()> {
        check_name(&name)?;
        self.sources
            .push((Source::Stream(duplicate(fd)?), Some(name)));
        Ok(())
    }

    pub(super) fn set_from(&mut self, rank: i64) -> Result<()> {
        self.from = match rank {
            -1 => None,
            rank => {
                let refused = |_| refuse(format!("{rank} is not a rank"));
                Some(u32::try_from(rank).map_err(refused)?)
            }
        };
        Ok(())
    }

    pub(super) fn set_dest(&mut self, dest: Option<RawName>) -> Result<()> {
        if let Some(dest) = &dest {
            if dest.is_empty() {
                return Err(refuse("a destination is empty"));
            }
            if self.has(flag::UNIQUE) {
                return Err(refuse(
                    "FLUX_BCAST_UNIQUE is set, which chooses the directory",
                ));
            }
        }
        self.dest = dest;
        Ok(())
    }

    pub(super) fn set_ranks(&mut self, ranks: Option<String>) -> Result<()> {
        self.ranks = ranks.map(|text| rank_set(&text)).transpose()?;
        Ok(())
    }

    pub(super) fn set_hosts(&mut self, hosts: Option<String>) -> Result<()> {
        self.hosts = hosts.map(|text| host_list(&text)).transpose()?;
        Ok(())
    }

    pub(super) fn set_exclude_ranks(&mut self, ranks: Option<String>) -> Result<()> {
        self.exclude = ranks.map(|text| rank_set(&text)).transpose()?;
        Ok(())
    }

    pub(super) fn set_exclude_hosts(&mut self, hosts: Option<String>) -> Result<()> {
        self.exclude_hosts = hosts.map(|text| host_list(&text)).transpose()?;
        Ok(())
    }

    pub(super) fn set_flags(&mut self, flags: i32) -> Result<()> {
        let known = flag::NAMES.iter().fold(0, |all, (flag, _)| all | flag);
        if flags & !known != 0 {
            return Err(refuse(format!("unknown flags {:#x}", flags & !known)));
        }
        if flags & flag::UNIQUE != 0 && self.dest.is_some() {
            return Err(refuse(
                "FLUX_BCAST_UNIQUE chooses the directory, and one is set",
            ));
        }
        existing(flags)?;
        self.flags = flags;
        Ok(())
    }

    pub(super) fn set_mode(&mut self, mode: u32) -> Result<()> {
        if mode > 0o777 {
            return Err(refuse(format!("mode {mode:#o} is not within 0 and 0777")));
        }
        self.mode = Some(mode);
        Ok(())
    }

    pub(super) fn set_libs_dir(&mut self, dir: Option<RawName>) -> Result<()> {
        Libs::new(dir.clone(), None).map_err(refuse)?;
        self.libs_dir = dir;
        Ok(())
    }

    pub(super) fn set_exclude_libs(&mut self, paths: Option<RawName>) -> Result<()> {
        self.exclude_libs = paths;
        Ok(())
    }

    pub(super) fn set_fanout(&mut self, k: u32) -> Result<()> {
        self.tune(|tuning| tuning.k = (k != 0).then_some(k))
    }

    pub(super) fn set_chunk(&mut self, bytes: u32) -> Result<()> {
        self.tune(|tuning| {
            tuning.chunk = bytes;
            tuning.batch = tuning.batch.max(bytes);
        })
    }

    pub(super) fn set_batch(&mut self, bytes: u32) -> Result<()> {
        self.tune(|tuning| tuning.batch = bytes)
    }

    pub(super) fn set_window(&mut self, bytes: u64) -> Result<()> {
        self.tune(|tuning| tuning.window = bytes)
    }

    pub(super) fn set_pace(&mut self, bytes_per_second: u64) -> Result<()> {
        self.tune(|tuning| tuning.pace = (bytes_per_second != 0).then_some(bytes_per_second))
    }

    pub(super) fn set_timeout(&mut self, seconds: f64) -> Result<()> {
        self.timeout = if seconds == 0.0 {
            None
        } else {
            let refused = |_| refuse(format!("{seconds} is not a number of seconds"));
            Some(Duration::try_from_secs_f64(seconds).map_err(refused)?)
        };
        Ok(())
    }

    pub(super) fn has(&self, flag: i32) -> bool {
        self.flags & flag != 0
    }

    /// Name of a flag that is set, but not among these.
    pub(super) fn flag_besides(&self, allowed: i32) -> Option<&'static str> {
        let mut names = flag::NAMES.iter();
        let other = names.find(|(flag, _)| self.flags & !allowed & flag != 0)?;
        Some(other.1)
    }

    fn tune(&mut self, change: impl FnOnce(&mut Tuning)) -> Result<()> {
        let mut tuning = self.tuning.clone();
        change(&mut tuning);
        tuning.check().map_err(refuse)?;
        self.tuning = tuning;
        Ok(())
    }
}

/// What the flags say about a file that exists.
pub(super) fn existing(flags: i32) -> Result<Existing> {
    const IN_PLACE: i32 = flag::TRUNC | flag::IN_PLACE;
    match flags & flag::EXISTING {
        0 | flag::EXCL => Ok(Existing::Refuse),
        flag::TRUNC => Ok(Existing::Replace),
        IN_PLACE => Ok(Existing::Truncate),
        flag::APPEND => Ok(Existing::Append),
        _ => Err(refuse("the flags say two things about a file that exists")),
    }
}

/// EINVAL with a text.
pub(super) fn refuse(text: impl Into<String>) -> Error {
    Error::with_text(Errno::EINVAL, text)
}

pub(super) fn duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, 0).map_err(Errno::from)?)
}

/// The name of a copy is a single component of a path.
fn check_name(name: &RawName) -> Result<()> {
    let bytes = name.as_bytes();
    if matches!(bytes, b"" | b"." | b"..") || bytes.contains(&b'/') {
        return Err(refuse(format!("'{name}' is not the name of a copy")));
    }
    Ok(())
}

fn rank_set(text: &str) -> Result<IdSet> {
    match text.parse::<IdSet>() {
        Ok(set) if !set.is_empty() => Ok(set),
        _ => Err(refuse(format!("'{text}' is not a set of ranks"))),
    }
}

fn host_list(text: &str) -> Result<String> {
    match hostlist::expand(text) {
        Ok(hosts) if !hosts.is_empty() => Ok(text.to_owned()),
        _ => Err(refuse(format!("'{text}' is not a list of hosts"))),
    }
}

/// A string for C; a NUL inside cannot be told and is shown as "\0".
pub(super) fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "\\0")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bcast::message::PACE_MAX;

    fn refused(result: Result<()>) {
        let error = result.unwrap_err();
        assert_eq!(error.errno(), Errno::EINVAL);
        assert!(error.text().is_some_and(|text| !text.is_empty()));
    }

    #[test]
    fn flags_that_contradict_each_other_change_nothing() {
        let mut options = Options::default();
        options.set_flags(flag::TRUNC | flag::SYNC).unwrap();
        let bad = [
            flag::EXCL | flag::TRUNC,
            flag::EXCL | flag::APPEND,
            flag::EXCL | flag::TRUNC | flag::IN_PLACE,
            flag::EXCL | flag::IN_PLACE,
            flag::TRUNC | flag::APPEND,
            flag::APPEND | flag::IN_PLACE,
            flag::IN_PLACE,
            1 << 14,
            -1,
        ];
        for flags in bad {
            refused(options.set_flags(flags));
            assert_eq!(options.flags, flag::TRUNC | flag::SYNC);
        }
    }

    #[test]
    fn a_unique_directory_excludes_a_destination() {
        let mut options = Options::default();
        options.set_dest(Some("d/".into())).unwrap();
        refused(options.set_flags(flag::UNIQUE));
        options.set_dest(None).unwrap();
        options.set_flags(flag::UNIQUE).unwrap();
        refused(options.set_dest(Some("d/".into())));
        refused(options.set_dest(Some("".into())));
    }

    #[test]
    fn targets_are_ranks_and_hosts() {
        let mut options = Options::default();
        options.set_ranks(Some("0,2-3".into())).unwrap();
        options.set_hosts(Some("a[1-2]".into())).unwrap();
        for bad in ["", "x", "3-1"] {
            refused(options.set_ranks(Some(bad.into())));
        }
        for bad in ["", "a[1", ","] {
            refused(options.set_hosts(Some(bad.into())));
        }
        assert_eq!(options.hosts.as_deref(), Some("a[1-2]"));
        assert!(options.ranks.is_some());
        options.set_ranks(None).unwrap();
        assert_eq!(options.ranks, None);
    }

    #[test]
    fn numbers_have_limits_and_keep_their_old_value() {
        let mut options = Options::default();
        refused(options.set_mode(0o1000));
        refused(options.set_chunk(0));
        refused(options.set_chunk((1 << 20) + 1));
        refused(options.set_batch(4095));
        refused(options.set_window(0));
        refused(options.set_pace(PACE_MAX + 1));
        for bad in [-1.0, f64::NAN, f64::INFINITY, -f64::INFINITY] {
            refused(options.set_timeout(bad));
        }
        assert_eq!(options.tuning, Tuning::default());
        assert_eq!((options.mode, options.timeout), (None, None));
        options.set_chunk(1 << 20).unwrap();
        assert_eq!(options.tuning.batch, 1 << 20);
        options.set_fanout(3).unwrap();
        options.set_fanout(0).unwrap();
        assert_eq!(options.tuning.k, None);
        options.set_pace(1).unwrap();
        assert_eq!(options.tuning.pace, Some(1));
        options.set_pace(0).unwrap();
        assert_eq!(options.tuning.pace, None);
        options.set_timeout(1.5).unwrap();
        assert_eq!(options.timeout, Some(Duration::from_millis(1500)));
        options.set_timeout(0.0).unwrap();
        assert_eq!(options.timeout, None);
    }

    #[test]
    fn sources_need_names() {
        let mut options = Options::default();
        refused(options.add_path("".into(), None));
        for bad in ["", ".", "..", "a/b", "/"] {
            let name = || RawName::from(bad);
            refused(options.add_memory(b"", name()));
            refused(options.add_path("p".into(), Some(name())));
            refused(options.set_libs_dir(Some(name())));
        }
        assert!(options.sources.is_empty());
    }

    #[test]
    fn the_rank_of_the_sources() {
        let mut options = Options::default();
        options.set_from(7).unwrap();
        for bad in [-2, 1 << 32, i64::MIN] {
            refused(options.set_from(bad));
        }
        assert_eq!(options.from, Some(7));
        options.set_from(-1).unwrap();
        assert_eq!(options.from, None);
    }

    #[test]
    fn the_last_error_is_kept() {
        let options = Options::default();
        let read = || options.error.borrow().to_str().unwrap().to_owned();
        assert_eq!(read(), "");
        assert!(options.note(Err::<(), _>(refuse("because"))).is_err());
        options.note(Ok(())).unwrap();
        assert_eq!(read(), "because");
    }
}
