//! The option object: what a C caller has said so far, checked as it is said.
//!
//! Every setter either takes its value or changes nothing.

use std::ffi::CString;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use crate::bcast::message::PlanRequest;
use crate::bcast::message::Tuning;
use crate::bcast::message::VERSION;
use crate::bcast::name::RawName;
use crate::bcast::spec::Dest;
use crate::bcast::spec::Existing;
use crate::bcast::spec::Policy;
use crate::client::Send;
use crate::client::Target;
use crate::client::Terms;
use crate::errno::Errno;
use crate::file::Follow;
use crate::file::Input;
use crate::file::Origin;
use crate::file::SourceSpec;
use crate::flux::job::JobId;
use crate::hostlist;
use crate::idset::IdSet;

/// The flags of the header, by the same names.
mod flag {
    pub(super) const EXCL: i32 = 1;
    pub(super) const TRUNC: i32 = 2;
    pub(super) const APPEND: i32 = 4;
    pub(super) const IN_PLACE: i32 = 8;
    pub(super) const MKDIR: i32 = 16;
    pub(super) const SYNC: i32 = 32;
    pub(super) const TIMES: i32 = 64;
    pub(super) const PARTIAL: i32 = 128;
    pub(super) const UNIQUE: i32 = 256;
    pub(super) const NOWAIT: i32 = 512;
    pub(super) const EXISTING: i32 = EXCL | TRUNC | APPEND | IN_PLACE;
    pub(super) const ALL: i32 = EXISTING | MKDIR | SYNC | TIMES | PARTIAL | UNIQUE | NOWAIT;
}

/// A source, in a form that can be used again and again.
#[derive(Debug)]
enum Source {
    Path(PathBuf),
    Fd(OwnedFd),
    Memory(Vec<u8>),
    Stream(OwnedFd),
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Options {
    sources: Vec<(Source, Option<RawName>)>,
    dest: Option<RawName>,
    ranks: Option<IdSet>,
    hosts: Option<String>,
    exclude: Option<IdSet>,
    exclude_hosts: Option<String>,
    flags: i32,
    mode: Option<u32>,
    tuning: Tuning,
    timeout: Option<Duration>,
}

impl Options {
    pub(super) fn add_path(
        &mut self,
        path: RawName,
        name: Option<RawName>,
    ) -> Result<(), Errno> {
        if path.is_empty() {
            return Err(Errno::EINVAL);
        }
        name.as_ref().map_or(Ok(()), check_name)?;
        self.sources
            .push((Source::Path(path.as_path().to_path_buf()), name));
        Ok(())
    }

    pub(super) fn add_fd(&mut self, fd: BorrowedFd<'_>, name: RawName) -> Result<(), Errno> {
        check_name(&name)?;
        self.sources.push((Source::Fd(duplicate(fd)?), Some(name)));
        Ok(())
    }

    pub(super) fn add_memory(&mut self, data: &[u8], name: RawName) -> Result<(), Errno> {
        check_name(&name)?;
        let mut copy = Vec::new();
        copy.try_reserve_exact(data.len())
            .map_err(|_| Errno::ENOMEM)?;
        copy.extend_from_slice(data);
        self.sources.push((Source::Memory(copy), Some(name)));
        Ok(())
    }

    pub(super) fn add_stream(
        &mut self,
        fd: BorrowedFd<'_>,
        name: RawName,
    ) -> Result<(), Errno> {
        check_name(&name)?;
        self.sources
            .push((Source::Stream(duplicate(fd)?), Some(name)));
        Ok(())
    }

    pub(super) fn set_dest(&mut self, dest: Option<RawName>) -> Result<(), Errno> {
        if let Some(dest) = &dest
            && (dest.is_empty() || self.has(flag::UNIQUE))
        {
            return Err(Errno::EINVAL);
        }
        self.dest = dest;
        Ok(())
    }

    pub(super) fn set_ranks(&mut self, ranks: Option<&str>) -> Result<(), Errno> {
        let ranks = ranks.map(rank_set).transpose()?;
        if ranks.is_some() && self.hosts.is_some() {
            return Err(Errno::EINVAL);
        }
        self.ranks = ranks;
        Ok(())
    }

    pub(super) fn set_hosts(&mut self, hosts: Option<&str>) -> Result<(), Errno> {
        let hosts = hosts.map(host_list).transpose()?;
        if hosts.is_some() && self.ranks.is_some() {
            return Err(Errno::EINVAL);
        }
        self.hosts = hosts;
        Ok(())
    }

    pub(super) fn set_exclude_ranks(&mut self, ranks: Option<&str>) -> Result<(), Errno> {
        self.exclude = ranks.map(rank_set).transpose()?;
        Ok(())
    }

    pub(super) fn set_exclude_hosts(&mut self, hosts: Option<&str>) -> Result<(), Errno> {
        self.exclude_hosts = hosts.map(host_list).transpose()?;
        Ok(())
    }

    pub(super) fn set_flags(&mut self, flags: i32) -> Result<(), Errno> {
        let unknown = flags & !flag::ALL != 0;
        let misplaced = flags & flag::UNIQUE != 0 && self.dest.is_some();
        if unknown || misplaced {
            return Err(Errno::EINVAL);
        }
        existing(flags)?;
        self.flags = flags;
        Ok(())
    }

    pub(super) fn set_mode(&mut self, mode: u32) -> Result<(), Errno> {
        if mode > 0o777 {
            return Err(Errno::EINVAL);
        }
        self.mode = Some(mode);
        Ok(())
    }

    pub(super) fn set_fanout(&mut self, k: u32) -> Result<(), Errno> {
        self.tune(|tuning| tuning.k = (k != 0).then_some(k))
    }

    pub(super) fn set_chunk(&mut self, bytes: u32) -> Result<(), Errno> {
        self.tune(|tuning| {
            tuning.chunk = bytes;
            tuning.batch = tuning.batch.max(bytes);
        })
    }

    pub(super) fn set_batch(&mut self, bytes: u32) -> Result<(), Errno> {
        self.tune(|tuning| tuning.batch = bytes)
    }

    pub(super) fn set_window(&mut self, bytes: u64) -> Result<(), Errno> {
        self.tune(|tuning| tuning.window = bytes)
    }

    pub(super) fn set_timeout(&mut self, seconds: f64) -> Result<(), Errno> {
        self.timeout = if seconds == 0.0 {
            None
        } else {
            let limit = Duration::try_from_secs_f64(seconds).map_err(|_| Errno::EINVAL)?;
            Some(limit)
        };
        Ok(())
    }

    /// True if the caller does not want to wait for a pending job.
    pub(super) fn nowait(&self) -> bool {
        self.has(flag::NOWAIT)
    }

    /// What is to be sent, as a thing of its own.
    ///
    /// # Errors
    /// `EINVAL` without a source; `EMFILE`, `ENOMEM`.
    pub(super) fn send(&self, job: JobId, job_name: String) -> Result<Send, Errno> {
        if self.sources.is_empty() {
            return Err(Errno::EINVAL);
        }
        let inputs = self.sources.iter().map(input).collect::<Result<_, _>>()?;
        Ok(Send {
            terms: self.terms(Target {
                job,
                name: job_name,
                no_wait: self.nowait(),
            }),
            source: SourceSpec {
                inputs,
                recursive: true,
                follow: Follow::default(),
                chunk: self.tuning.chunk,
            },
            dest: Dest {
                path: self.dest.clone(),
                directory: false,
                mkdir: self.has(flag::MKDIR),
                unique: self.has(flag::UNIQUE),
            },
            policy: Policy {
                existing: existing(self.flags)?,
                mode: self.mode,
                times: self.has(flag::TIMES),
                sync: self.has(flag::SYNC),
            },
            partial: self.has(flag::PARTIAL),
            checksum: false,
            libs: None,
        })
    }

    fn terms(&self, target: Target) -> Terms {
        Terms {
            target,
            plan: PlanRequest {
                version: VERSION,
                ranks: self.ranks.clone(),
                hosts: self.hosts.clone(),
                exclude: self.exclude.clone(),
                exclude_hosts: self.exclude_hosts.clone(),
                k: self.tuning.k,
            },
            tuning: self.tuning.clone(),
            timeout: self.timeout,
        }
    }

    fn has(&self, flag: i32) -> bool {
        self.flags & flag != 0
    }

    fn tune(&mut self, change: impl FnOnce(&mut Tuning)) -> Result<(), Errno> {
        let mut tuning = self.tuning.clone();
        change(&mut tuning);
        tuning.check().map_err(|_| Errno::EINVAL)?;
        self.tuning = tuning;
        Ok(())
    }
}

/// What the flags say about a file that exists.
fn existing(flags: i32) -> Result<Existing, Errno> {
    const IN_PLACE: i32 = flag::TRUNC | flag::IN_PLACE;
    match flags & flag::EXISTING {
        0 | flag::EXCL => Ok(Existing::Refuse),
        flag::TRUNC => Ok(Existing::Replace),
        IN_PLACE => Ok(Existing::Truncate),
        flag::APPEND => Ok(Existing::Append),
        _ => Err(Errno::EINVAL),
    }
}

fn input((source, name): &(Source, Option<RawName>)) -> Result<Input, Errno> {
    let origin = match source {
        Source::Path(path) => Origin::Path(path.clone()),
        Source::Fd(fd) => Origin::Fd(duplicate(fd.as_fd())?),
        Source::Memory(data) => Origin::Memory(data.clone()),
        Source::Stream(fd) => Origin::Stream(duplicate(fd.as_fd())?),
    };
    Ok(Input::new(origin, name.clone()))
}

fn duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, 0)?)
}

/// The name of a copy is a single component of a path.
fn check_name(name: &RawName) -> Result<(), Errno> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.contains(&b'/') {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

fn rank_set(text: &str) -> Result<IdSet, Errno> {
    let set: IdSet = text.parse().map_err(|_| Errno::EINVAL)?;
    if set.is_empty() {
        return Err(Errno::EINVAL);
    }
    Ok(set)
}

fn host_list(text: &str) -> Result<String, Errno> {
    let hosts = hostlist::expand(text).map_err(|_| Errno::EINVAL)?;
    if hosts.is_empty() {
        return Err(Errno::EINVAL);
    }
    Ok(text.to_owned())
}

/// A string for C; a NUL inside cannot be told and is shown as "\0".
pub(super) fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "\\0")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(options: &Options) -> Result<Send, Errno> {
        options.send(JobId(1), "1".into())
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
            1024,
            -1,
        ];
        for flags in bad {
            assert_eq!(options.set_flags(flags), Err(Errno::EINVAL), "{flags}");
            assert_eq!(options.flags, flag::TRUNC | flag::SYNC);
        }
        let good = [
            (0, Existing::Refuse),
            (flag::EXCL, Existing::Refuse),
            (flag::TRUNC, Existing::Replace),
            (flag::TRUNC | flag::IN_PLACE, Existing::Truncate),
            (flag::APPEND, Existing::Append),
        ];
        options.add_memory(b"x", "x".into()).unwrap();
        for (flags, wanted) in good {
            options.set_flags(flags).unwrap();
            assert_eq!(send(&options).unwrap().policy.existing, wanted);
        }
    }

    #[test]
    fn a_unique_directory_excludes_a_destination() {
        let mut options = Options::default();
        options.set_dest(Some("d/".into())).unwrap();
        assert_eq!(options.set_flags(flag::UNIQUE), Err(Errno::EINVAL));
        options.set_dest(None).unwrap();
        options.set_flags(flag::UNIQUE).unwrap();
        assert_eq!(options.set_dest(Some("d/".into())), Err(Errno::EINVAL));
        assert_eq!(options.set_dest(Some("".into())), Err(Errno::EINVAL));
    }

    #[test]
    fn targets_are_ranks_or_hosts() {
        let mut options = Options::default();
        for bad in ["", "x", "3-1"] {
            assert_eq!(options.set_ranks(Some(bad)), Err(Errno::EINVAL), "{bad}");
        }
        options.set_ranks(Some("0,2-3")).unwrap();
        assert_eq!(options.set_hosts(Some("a[1-2]")), Err(Errno::EINVAL));
        options.set_ranks(None).unwrap();
        options.set_hosts(Some("a[1-2]")).unwrap();
        assert_eq!(options.set_ranks(Some("0")), Err(Errno::EINVAL));
        for bad in ["", "a[1", ","] {
            assert_eq!(options.set_hosts(Some(bad)), Err(Errno::EINVAL), "{bad}");
        }
        options.add_memory(b"", "x".into()).unwrap();
        let plan = send(&options).unwrap().terms.plan;
        assert_eq!((plan.hosts.as_deref(), plan.ranks), (Some("a[1-2]"), None));
    }

    #[test]
    fn numbers_have_limits_and_keep_their_old_value() {
        let mut options = Options::default();
        assert_eq!(options.set_mode(0o1000), Err(Errno::EINVAL));
        assert_eq!(options.set_chunk(0), Err(Errno::EINVAL));
        assert_eq!(options.set_chunk((1 << 20) + 1), Err(Errno::EINVAL));
        assert_eq!(options.set_batch(4095), Err(Errno::EINVAL));
        assert_eq!(options.set_window(0), Err(Errno::EINVAL));
        for bad in [-1.0, f64::NAN, f64::INFINITY, -f64::INFINITY] {
            assert_eq!(options.set_timeout(bad), Err(Errno::EINVAL), "{bad}");
        }
        assert_eq!(options.tuning, Tuning::default());
        assert_eq!((options.mode, options.timeout), (None, None));
        options.set_chunk(1 << 20).unwrap();
        assert_eq!(options.tuning.batch, 1 << 20);
        options.set_fanout(3).unwrap();
        options.set_fanout(0).unwrap();
        assert_eq!(options.tuning.k, None);
        options.set_timeout(1.5).unwrap();
        assert_eq!(options.timeout, Some(Duration::from_millis(1500)));
        options.set_timeout(0.0).unwrap();
        assert_eq!(options.timeout, None);
    }

    #[test]
    fn sources_need_names_and_can_be_used_again() {
        let mut options = Options::default();
        assert_eq!(send(&options).unwrap_err(), Errno::EINVAL);
        assert_eq!(options.add_path("".into(), None), Err(Errno::EINVAL));
        for bad in ["", ".", "..", "a/b", "/"] {
            let name = || RawName::from(bad);
            assert_eq!(options.add_memory(b"", name()), Err(Errno::EINVAL));
            let path = options.add_path("p".into(), Some(name()));
            assert_eq!(path, Err(Errno::EINVAL), "{bad}");
        }
        let file = tempfile::tempfile().unwrap();
        options.add_fd(file.as_fd(), "f".into()).unwrap();
        drop(file);
        options.add_path("p".into(), None).unwrap();
        for _ in 0..2 {
            assert_eq!(send(&options).unwrap().source.inputs.len(), 2);
        }
    }
}
