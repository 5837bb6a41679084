//! From an option object to what a client is asked for: here it is known what
//! the options are for, so here those that have no meaning for it are refused.

use crate::bcast::message::PlanRequest;
use crate::bcast::message::Tuning;
use crate::bcast::message::VERSION;
use crate::bcast::name::RawName;
use crate::bcast::spec::Dest;
use crate::bcast::spec::Policy;
use crate::client::Send;
use crate::client::Target;
use crate::client::Terms;
use crate::client::gather::AT_ONCE;
use crate::client::gather::Gather;
use crate::client::remote::SendFrom;
use crate::elf::Libs;
use crate::errno::Errno;
use crate::file::Follow;
use crate::file::Input;
use crate::file::Origin;
use crate::file::SourceSpec;
use crate::flux::error::Result;

use super::options::Options;
use super::options::Source;
use super::options::duplicate;
use super::options::existing;
use super::options::flag;
use super::options::refuse;

/// What the options are for, by the function that was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Start,
    DryRun,
    Gather,
    List,
    Remove,
}

/// What is asked of a client.
#[derive(Debug)]
pub(super) enum Request {
    Send(Send),
    From(SendFrom),
    /// What would be found, if that were sent.
    Preview(Send),
    Gather(Gather),
    List(Terms),
    /// These paths, or everything.
    Remove(Terms, Option<Vec<RawName>>),
}

impl Options {
    /// What is asked for, as a thing of its own.
    ///
    /// # Errors
    /// `EINVAL` with a text for options that make no sense here; `EMFILE`,
    /// `ENOMEM`.
    pub(super) fn request(&self, task: Task, target: Target) -> Result<Request> {
        let terms = self.terms(target);
        Ok(match (task, self.from) {
            (Task::Start, None) => Request::Send(self.send(terms)?),
            (Task::Start, Some(rank)) => Request::From(self.send_from(terms, rank)?),
            (Task::DryRun, None) => {
                // Nothing is compared, and what it would say of a rank that has the
                // files already would be wrong.
                self.refuse_flags(!flag::CHECKSUM, "flux_bcast_dry_run")?;
                Request::Preview(self.send(terms)?)
            }
            (_, Some(_)) => {
                return Err(refuse(
                    "only a transfer to ranks has a rank that it is from",
                ));
            }
            (Task::Gather, None) => Request::Gather(self.gather(terms)?),
            (Task::List, None) => {
                self.about_ranks_only("a list")?;
                if !self.sources.is_empty() {
                    return Err(refuse("a list is of everything, not of some sources"));
                }
                Request::List(terms)
            }
            (Task::Remove, None) => {
                self.about_ranks_only("a removal")?;
                let paths = self.paths("a removal")?;
                Request::Remove(terms, (!paths.is_empty()).then_some(paths))
            }
        })
    }

    fn send(&self, terms: Terms) -> Result<Send> {
        self.need_sources()?;
        let is_stream = |(source, _): &(Source, _)| matches!(source, Source::Stream(_));
        if self.has(flag::CHECKSUM) && self.sources.iter().any(is_stream) {
            let text = "FLUX_BCAST_CHECKSUM reads the sources twice, which a stream cannot be";
            return Err(refuse(text));
        }
        let inputs = self.sources.iter().map(input).collect::<Result<_>>()?;
        let libs = || {
            let exclude = self.exclude_libs.as_ref().map(RawName::as_os_str);
            Libs::new(self.libs_dir.clone(), exclude).map_err(refuse)
        };
        Ok(Send {
            terms,
            source: SourceSpec {
                inputs,
                recursive: true,
                follow: Follow::default(),
                chunk: self.tuning.chunk,
            },
            dest: self.dest(),
            policy: self.policy()?,
            partial: self.has(flag::PARTIAL),
            checksum: self.has(flag::CHECKSUM),
            libs: self.has(flag::SEND_LIBS).then(libs).transpose()?,
        })
    }

    fn send_from(&self, terms: Terms, rank: u32) -> Result<SendFrom> {
        let what = "a transfer from a rank";
        self.need_sources()?;
        self.refuse_flags(!(flag::CHECKSUM | flag::SEND_LIBS), what)?;
        Ok(SendFrom {
            terms,
            rank,
            sources: self.paths(what)?,
            dest: self.dest(),
            policy: self.policy()?,
            partial: self.has(flag::PARTIAL),
        })
    }

    fn gather(&self, terms: Terms) -> Result<Gather> {
        self.need_sources()?;
        self.refuse_flags(flag::GATHER, "flux_bcast_gather")?;
        let Some(dir) = &self.dest else {
            let text = "flux_bcast_gather needs a directory (flux_bcast_opts_set_dest)";
            return Err(refuse(text));
        };
        let dir = std::path::absolute(dir.as_path()).map_err(|error| Errno::from(&error))?;
        Ok(Gather {
            at_once: terms.tuning.k.unwrap_or(AT_ONCE),
            terms,
            sources: self.paths("flux_bcast_gather")?,
            dir: RawName::from(dir),
            mkdir: self.has(flag::MKDIR),
            policy: self.policy()?,
            partial: self.has(flag::PARTIAL),
        })
    }

    fn terms(&self, target: Target) -> Terms {
        Terms {
            target: Target {
                no_wait: self.has(flag::NOWAIT),
                ..target
            },
            plan: PlanRequest {
                version: VERSION,
                ranks: self.ranks.clone(),
                hosts: self.hosts.clone(),
                exclude: self.exclude.clone(),
                exclude_hosts: self.exclude_hosts.clone(),
                k: self.tuning.k,
            },
            tuning: Tuning {
                compress: self.has(flag::COMPRESS),
                direct: self.has(flag::DIRECT),
                ..self.tuning.clone()
            },
            timeout: self.timeout,
        }
    }

    fn dest(&self) -> Dest {
        Dest {
            path: self.dest.clone(),
            directory: false,
            mkdir: self.has(flag::MKDIR),
            unique: self.has(flag::UNIQUE),
        }
    }

    fn policy(&self) -> Result<Policy> {
        Ok(Policy {
            existing: existing(self.flags)?,
            mode: self.mode,
            times: self.has(flag::TIMES),
            sync: self.has(flag::SYNC),
        })
    }

    fn need_sources(&self) -> Result<()> {
        if self.sources.is_empty() {
            return Err(refuse("there are no sources"));
        }
        Ok(())
    }

    fn refuse_flags(&self, allowed: i32, what: &str) -> Result<()> {
        match self.flag_besides(allowed) {
            Some(name) => Err(refuse(format!(
                "FLUX_BCAST_{name} has no meaning with {what}"
            ))),
            None => Ok(()),
        }
    }

    fn about_ranks_only(&self, what: &str) -> Result<()> {
        self.refuse_flags(flag::NOWAIT, what)?;
        if self.dest.is_some() {
            return Err(refuse(format!("a destination has no meaning with {what}")));
        }
        Ok(())
    }

    /// The sources, where they are paths on ranks.
    fn paths(&self, what: &str) -> Result<Vec<RawName>> {
        let path = |source: &(Source, Option<RawName>)| match source {
            (Source::Path(path), None) => Ok(RawName::from(path.as_path())),
            (Source::Path(path), Some(_)) => {
                let path = RawName::from(path.as_path());
                Err(refuse(format!("{path}: {what} takes no name for it")))
            }
            _ => Err(refuse(format!("{what} takes paths on the ranks only"))),
        };
        self.sources.iter().map(path).collect()
    }
}

fn input((source, name): &(Source, Option<RawName>)) -> Result<Input> {
    use std::os::fd::AsFd;
    let origin = match source {
        Source::Path(path) => Origin::Path(path.clone()),
        Source::Fd(fd) => Origin::Fd(duplicate(fd.as_fd())?),
        Source::Memory(data) => Origin::Memory(data.clone()),
        Source::Stream(fd) => Origin::Stream(duplicate(fd.as_fd())?),
    };
    Ok(Input::new(origin, name.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bcast::spec::Existing;
    use crate::flux::job::JobId;

    fn request(options: &Options, task: Task) -> Result<Request> {
        let target = Target {
            job: JobId(1),
            name: "1".into(),
            no_wait: false,
        };
        options.request(task, target)
    }

    fn refused(options: &Options, task: Task, word: &str) {
        let error = request(options, task).unwrap_err();
        assert_eq!(error.errno(), Errno::EINVAL);
        assert!(error.to_string().contains(word), "{word}: {error}");
    }

    fn send(options: &Options) -> Send {
        match request(options, Task::Start).unwrap() {
            Request::Send(send) => send,
            other => panic!("{other:?}"),
        }
    }

    fn of_path(flags: i32) -> Options {
        let mut options = Options::default();
        options.add_path("p".into(), None).unwrap();
        options.set_flags(flags).unwrap();
        options
    }

    #[test]
    fn flags_say_what_happens_to_a_file() {
        for (flags, wanted) in [
            (0, Existing::Refuse),
            (flag::EXCL, Existing::Refuse),
            (flag::TRUNC, Existing::Replace),
            (flag::TRUNC | flag::IN_PLACE, Existing::Truncate),
            (flag::APPEND, Existing::Append),
        ] {
            assert_eq!(send(&of_path(flags)).policy.existing, wanted);
        }
    }

    #[test]
    fn sources_can_be_used_again() {
        let mut options = Options::default();
        refused(&options, Task::Start, "no sources");
        let file = tempfile::tempfile().unwrap();
        options
            .add_fd(std::os::fd::AsFd::as_fd(&file), "f".into())
            .unwrap();
        drop(file);
        options.add_path("p".into(), None).unwrap();
        for _ in 0..2 {
            assert_eq!(send(&options).source.inputs.len(), 2);
        }
    }

    #[test]
    fn flags_reach_the_client() {
        let mut options = of_path(flag::CHECKSUM | flag::COMPRESS | flag::NOWAIT);
        let sent = send(&options);
        assert!(sent.checksum && sent.terms.tuning.compress && sent.terms.target.no_wait);
        assert_eq!(sent.libs, None);
        refused(&options, Task::DryRun, "FLUX_BCAST_CHECKSUM");
        options.set_flags(flag::COMPRESS | flag::SYNC).unwrap();
        let same = request(&options, Task::DryRun).unwrap();
        assert!(matches!(same, Request::Preview(send) if send.policy.sync));
        options.set_libs_dir(Some("d".into())).unwrap();
        options.set_flags(flag::SEND_LIBS).unwrap();
        let sent = send(&options);
        assert!(!sent.checksum && !sent.terms.tuning.compress);
        assert_eq!(sent.libs, Some(Libs::new(Some("d".into()), None).unwrap()));
    }

    #[test]
    fn a_stream_is_not_compared() {
        let mut options = of_path(flag::CHECKSUM);
        let file = tempfile::tempfile().unwrap();
        let fd = std::os::fd::AsFd::as_fd(&file);
        options.add_fd(fd, "fine".into()).unwrap();
        assert!(send(&options).checksum);
        options.add_stream(fd, "s".into()).unwrap();
        refused(&options, Task::Start, "FLUX_BCAST_CHECKSUM");
    }

    #[test]
    fn a_transfer_from_a_rank_has_paths_there() {
        let mut options = of_path(0);
        options.set_from(3).unwrap();
        let made = request(&options, Task::Start).unwrap();
        assert!(matches!(made, Request::From(from) if from.rank == 3 && !from.partial));
        for flags in [flag::CHECKSUM, flag::SEND_LIBS] {
            options.set_flags(flags).unwrap();
            refused(&options, Task::Start, "a transfer from a rank");
        }
        options.set_flags(0).unwrap();
        for task in [Task::DryRun, Task::Gather, Task::List, Task::Remove] {
            refused(&options, task, "from");
        }
        options.add_path("q".into(), Some("name".into())).unwrap();
        refused(&options, Task::Start, "q: ");
        options.set_from(-1).unwrap();
        assert_eq!(send(&options).source.inputs.len(), 2);
    }

    #[test]
    fn gathering_needs_a_directory_and_paths() {
        let mut options = of_path(flag::MKDIR | flag::TRUNC);
        refused(&options, Task::Gather, "directory");
        options.set_dest(Some("d".into())).unwrap();
        let made = request(&options, Task::Gather).unwrap();
        let Request::Gather(gather) = made else {
            panic!("{made:?}")
        };
        assert!(gather.dir.as_path().is_absolute() && gather.dir.as_path().ends_with("d"));
        assert!(gather.mkdir && gather.at_once == AT_ONCE);
        for (flags, name) in [
            (flag::APPEND, "APPEND"),
            (flag::TRUNC | flag::IN_PLACE, "IN_PLACE"),
            (flag::COMPRESS, "COMPRESS"),
            (flag::CHECKSUM, "CHECKSUM"),
        ] {
            options.set_flags(flags).unwrap();
            refused(&options, Task::Gather, name);
        }
        options.set_flags(0).unwrap();
        options.add_memory(b"x", "m".into()).unwrap();
        refused(&options, Task::Gather, "paths");
    }

    #[test]
    fn lists_and_removals_are_about_ranks() {
        let options = Options::default();
        let list = request(&options, Task::List).unwrap();
        assert!(matches!(list, Request::List(_)));
        let all = request(&options, Task::Remove).unwrap();
        assert!(matches!(all, Request::Remove(_, None)));
        let mut options = of_path(flag::NOWAIT);
        refused(&options, Task::List, "sources");
        let some = request(&options, Task::Remove).unwrap();
        assert!(matches!(some, Request::Remove(_, Some(paths)) if paths == ["p".into()]));
        options.set_flags(flag::TRUNC).unwrap();
        refused(&options, Task::Remove, "FLUX_BCAST_TRUNC");
        options.set_flags(0).unwrap();
        options.set_dest(Some("d".into())).unwrap();
        refused(&options, Task::Remove, "destination");
    }
}
