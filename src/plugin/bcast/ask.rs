//! Questions about this node: what a transfer would find, what is there
//! already, what was put there; and its removal.
//!
//! Every answer may have to wait for a disk, so each question has a thread of
//! its own.

use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;
use std::rc::Rc;

use serde::Deserialize;
use serde::Serialize;
use serde_json::Map;
use serde_json::Value;

use super::Bcast;
use super::service::refuse;
use crate::bcast::message::VERSION;
use crate::bcast::name::RawName;
use crate::bcast::report::Failure;
use crate::bcast::spec::Dest;
use crate::bcast::spec::Policy;
use crate::errno::Errno;
use crate::file;
use crate::file::FileError;
use crate::flux::error::Error;
use crate::flux::error::Result;
use crate::flux::message::Request;
use crate::flux::wakeup::WakeReceiver;
use crate::transfer::ask::Had;
use crate::transfer::ask::Has;
use crate::transfer::ask::Inspect;
use crate::transfer::ask::Listed;
use crate::transfer::ask::Listing;
use crate::transfer::ask::Remove;
use crate::transfer::ask::Removed;
use crate::transfer::told::told;
use crate::transfer::told::told_text;
use crate::transfer::worker;

/// Questions that are being answered. Dropped, they are answered with ECANCELED.
#[derive(Debug, Default)]
pub(super) struct Errands {
    last: u64,
    open: BTreeMap<u64, Errand>,
}

impl Errands {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }
}

#[derive(Debug)]
struct Errand {
    request: Request,
    _answer: WakeReceiver,
}

/// The version of a request, readable whatever else it holds.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// Checks the version of a request before anything else of it is read.
///
/// # Errors
/// EPROTO, with both versions.
pub(super) fn check_version(request: &Request) -> Result<()> {
    let Versioned { version } = request.json()?;
    if version != VERSION {
        let text = format!("the sender speaks protocol {version}, this shell speaks {VERSION}");
        return Err(Error::with_text(Errno::EPROTO, text));
    }
    Ok(())
}

impl Bcast {
    /// `bcast.inspect`: what would a transfer find?
    pub(super) fn serve_inspect(self: &Rc<Self>, request: Request) {
        let asked = check_version(&request).and_then(|()| {
            let inspect: Inspect = self.access.asked(&request, "inspect")?;
            Ok((self.tmpdir()?, self.render(&inspect.dest)?, inspect))
        });
        match asked {
            Ok((base, dest, inspect)) => self.run_errand(request, move || {
                let mut found = file::inspect(
                    &base,
                    &dest,
                    &inspect.policy,
                    &inspect.names,
                    &inspect.dirs,
                )?;
                for (_, text) in found.copies.iter_mut().filter_map(|c| c.refused.as_mut()) {
                    *text = told_text(&base, text);
                }
                Ok(found)
            }),
            Err(error) => refuse(request, &error),
        }
    }

    /// `bcast.has`: are these files there already?
    pub(super) fn serve_has(self: &Rc<Self>, request: Request) {
        let asked = check_version(&request).and_then(|()| {
            let has: Has = self.access.asked(&request, "has")?;
            Ok((self.tmpdir()?, self.render(&has.dest)?, has))
        });
        match asked {
            Ok((base, dest, has)) => {
                self.run_errand(request, move || had(&base, &dest, &has));
            }
            Err(error) => refuse(request, &error),
        }
    }

    /// `bcast.list`: what was put here?
    pub(super) fn serve_list(self: &Rc<Self>, request: Request) {
        // Whatever is in it, so that a later version may ask for less.
        let asked = self.access.asked::<Map<String, Value>>(&request, "list");
        if let Err(error) = asked {
            return refuse(request, &error);
        }
        let registry = self.registry.clone();
        self.run_errand(request, move || {
            let copies = registry.with(|registry| {
                let copies = registry.list();
                copies.map(|copy| Listed::from(&copy)).collect()
            });
            Ok(Listing { copies })
        });
    }

    /// `bcast.remove`: takes back what was put here.
    pub(super) fn serve_remove(self: &Rc<Self>, request: Request) {
        let asked = self
            .access
            .asked(&request, "remove")
            .and_then(check_remove)
            .and_then(|remove| Ok((self.tmpdir()?, remove)));
        match asked {
            Ok((base, Remove { paths, all })) => {
                let (registry, rank) = (self.registry.clone(), self.info.rank);
                self.run_errand(request, move || {
                    let done = registry.with(|registry| match all {
                        true => registry.remove_all(),
                        false => paths
                            .iter()
                            .map(|path| at(&base, path))
                            .map(|path| (path.clone(), registry.remove(&path)))
                            .collect(),
                    });
                    Ok(removed(rank, &base, done))
                });
            }
            Err(error) => refuse(request, &error),
        }
    }

    /// The job's temporary directory on this node.
    pub(super) fn tmpdir(&self) -> Result<PathBuf> {
        let dir = self.shell.getenv("FLUX_JOB_TMPDIR")?;
        Ok(dir.map(PathBuf::from).unwrap_or_default())
    }

    /// Answers `request` with what `job` returns, which runs in a thread.
    fn run_errand<T: Serialize + Send + 'static>(
        self: &Rc<Self>,
        request: Request,
        job: impl FnOnce() -> std::result::Result<T, FileError> + Send + 'static,
    ) {
        if let Err(error) = self.admit_errand() {
            return refuse(request, &error);
        }
        let id = {
            let mut errands = self.errands.borrow_mut();
            errands.last += 1;
            errands.last
        };
        let this = Rc::downgrade(self);
        let base = self.tmpdir().unwrap_or_default();
        let done = move |answer: std::result::Result<T, FileError>| {
            let Some(this) = this.upgrade() else { return };
            let errand = this.errands.borrow_mut().open.remove(&id);
            let Some(Errand { request, .. }) = errand else {
                return;
            };
            let _ = match answer {
                Ok(answer) => request.respond_json(&answer),
                Err(error) => {
                    let text = told_text(&base, &error.to_string());
                    request.fail(error.errno(), Some(&text))
                }
            };
        };
        let started = worker::aside(self.handle, "bcast-errand", "files", job, done);
        match started {
            Ok(receiver) => {
                let errand = Errand {
                    request,
                    _answer: receiver,
                };
                self.errands.borrow_mut().open.insert(id, errand);
            }
            Err(error) => refuse(request, &error),
        }
    }

    /// Gives all questions up.
    pub(super) fn drop_errands(&self) {
        let open = std::mem::take(&mut self.errands.borrow_mut().open);
        drop(open);
    }
}

fn check_remove(remove: Remove) -> Result<Remove> {
    if remove.all == remove.paths.is_empty() {
        return Ok(remove);
    }
    let text = "name what is to be removed, or say all, and not both";
    Err(Error::with_text(Errno::EPROTO, text))
}

fn had(base: &Path, dest: &Dest, has: &Has) -> std::result::Result<Had, FileError> {
    for known in &has.files {
        if !file::already_has(base, dest, &known.name, known.size, &known.digest)? {
            return Ok(Had { paths: None });
        }
    }
    let names: Vec<RawName> = has.files.iter().map(|known| known.name.clone()).collect();
    let found = file::inspect(base, dest, &Policy::default(), &names, &[])?;
    let paths = found.copies.into_iter().map(|copy| copy.path).collect();
    Ok(Had { paths: Some(paths) })
}

/// A path as the user says it, made absolute as the registry knows it.
fn at(base: &Path, path: &RawName) -> RawName {
    // The registry has paths as the kernel resolved them.
    let real = |dir: &Path| std::fs::canonicalize(dir);
    let whole = base.join(path.as_path());
    if let (Some(Ok(dir)), Some(name)) = (whole.parent().map(real), whole.file_name()) {
        return RawName::from(dir.join(name));
    }
    let base = real(base).unwrap_or_else(|_| base.to_path_buf());
    RawName::from(base.join(path.as_path()))
}

fn removed(
    rank: u32,
    base: &Path,
    done: Vec<(RawName, std::result::Result<(), FileError>)>,
) -> Removed {
    let mut removed = Removed {
        gone: Vec::new(),
        failed: Vec::new(),
    };
    for (path, result) in done {
        match result {
            Ok(()) => removed.gone.push(path),
            Err(error) => {
                let failure = Failure::on(rank, error.errno().raw(), error.to_string());
                removed.failed.push(told(base, failure));
            }
        }
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_as_the_registry_knows_them() {
        let dir = tempfile::tempdir().unwrap();
        let real = std::fs::canonicalize(dir.path()).unwrap();
        let link = real.join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert_eq!(at(&link, &"a/b".into()), RawName::from(real.join("a/b")));
        assert_eq!(at(&link, &"/x".into()), RawName::from("/x"));
        std::fs::create_dir(real.join("a")).unwrap();
        std::os::unix::fs::symlink("a", real.join("b")).unwrap();
        for path in ["a/f", "b/f", "b/f/", "./b/./f"] {
            assert_eq!(at(&link, &path.into()), RawName::from(real.join("a/f")));
        }
        let absolute = RawName::from(link.join("b/f"));
        assert_eq!(at(&real, &absolute), RawName::from(real.join("a/f")));
    }

    #[test]
    fn nothing_is_removed_unasked() {
        let says = |json: &str| check_remove(serde_json::from_str(json).unwrap()).is_ok();
        assert!(says(r#"{"all":true}"#));
        assert!(says(r#"{"paths":["f"]}"#));
        assert!(!says("{}"));
        assert!(!says(r#"{"paths":[]}"#));
        assert!(!says(r#"{"all":false}"#));
        assert!(!says(r#"{"paths":["f"],"all":true}"#));
    }
}
