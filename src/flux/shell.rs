//! The job shell: what it knows of the job, its options and environment, its
//! service, and its fate.

use std::cell::RefCell;
use std::ffi::CStr;
use std::ffi::CString;
use std::ffi::OsStr;
use std::ffi::OsString;
use std::ffi::c_char;
use std::ffi::c_int;
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::ptr::NonNull;
use std::rc::Rc;

use serde::Deserialize;
use serde_json::Value;

use super::cstr;
use super::cstr::MallocString;
use super::error::Context;
use super::error::Error;
use super::error::Result;
use super::error::check_ptr;
use super::error::check_rc;
use super::handle::Handle;
use super::job::JobId;
use super::log;
use super::log::Log;
use super::message::Request;
use super::plugin::Plugin;
use super::service;
use super::service::Method;
use super::task::Task;
use crate::errno::Errno;
use crate::ffi::host;
use crate::ffi::types::flux_shell_t;

/// The name under which the plugin logs.
const COMPONENT: &CStr = c"bcast";

/// A view of the shell that has loaded the plugin; copies refer to the same
/// one. The shell outlives everything of ours (F2).
///
/// ```compile_fail
/// fn is_send<T: Send>() {}
/// is_send::<flux_bcast::flux::shell::Shell>();
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Shell {
    raw: NonNull<flux_shell_t>,
    plugin: Plugin,
}

/// What the shell knows of its job.
#[derive(Clone, Debug, Deserialize)]
pub struct ShellInfo {
    /// The job.
    pub jobid: JobId,
    /// Rank of this shell in the job, from 0.
    pub rank: u32,
    /// Uid of the owner of the Flux instance.
    #[serde(default)]
    pub instance_owner: Option<u32>,
    /// Number of shells of the job.
    pub size: u32,
    /// Number of tasks of the job.
    pub ntasks: u32,
    /// Name of the shells' service, the same on every shell.
    pub service: String,
    /// The shell's own options.
    #[serde(default)]
    pub options: ShellOptions,
    /// The jobspec (RFC 14).
    pub jobspec: Value,
    /// The resource set (RFC 20).
    #[serde(rename = "R")]
    pub resources: Value,
}

/// Options of the shell itself.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct ShellOptions {
    /// How much to log.
    #[serde(default)]
    pub verbose: i32,
}

/// What the shell knows of one shell of the job.
#[derive(Clone, Debug, Deserialize)]
pub struct RankInfo {
    /// The shell's rank.
    #[serde(default)]
    pub id: u32,
    /// The name of its host.
    #[serde(default)]
    pub name: String,
    /// The rank of its broker.
    pub broker_rank: u32,
    /// Its number of tasks.
    pub ntasks: u32,
    /// The ranks of its tasks, an idset (RFC 22).
    #[serde(default)]
    pub taskids: String,
    /// Its cores and devices, as the shell describes them.
    #[serde(default)]
    pub resources: Value,
}

impl Shell {
    /// # Safety
    /// `raw` is the shell of `plugin`.
    pub(crate) unsafe fn new(raw: NonNull<flux_shell_t>, plugin: Plugin) -> Shell {
        Shell { raw, plugin }
    }

    fn raw(self) -> *mut flux_shell_t {
        self.raw.as_ptr()
    }

    /// The plugin through which the shell is seen.
    pub fn plugin(self) -> Plugin {
        self.plugin
    }

    /// The shell's connection to its broker.
    ///
    /// # Errors
    /// EINVAL, never seen.
    pub fn handle(self) -> Result<Handle> {
        let api = host::shell()?;
        // SAFETY: the shell exists.
        let h = check_ptr(unsafe { api.flux_shell_get_flux(self.raw()) })?;
        // SAFETY: closed after all plugins are gone (F2).
        unsafe { Handle::from_raw(h.as_ptr()) }
    }

    /// The value of a shell option (`-o name=…`); `None` if it is not given.
    ///
    /// # Errors
    /// As `flux_shell_getopt(3)`.
    pub fn getopt(self, name: &str) -> Result<Option<Value>> {
        let api = host::shell()?;
        let mut json = ptr::null_mut();
        let rc = cstr::with_cstr(name, |name| {
            // SAFETY: the shell exists; a place for the result.
            check_rc(unsafe { api.flux_shell_getopt(self.raw(), name.as_ptr(), &raw mut json) })
        })
        .with_context(|| format!("read shell option {name}"))?;
        // SAFETY: a malloc'd string that is ours, or still NULL.
        match unsafe { MallocString::from_raw(json) } {
            Some(json) if rc > 0 => json.json().map(Some),
            _ => Ok(None),
        }
    }

    /// What the shell knows of its job.
    ///
    /// # Errors
    /// EPROTO if the shell describes it in an unknown way; ENOMEM.
    pub fn info(self) -> Result<ShellInfo> {
        let api = host::shell()?;
        let mut json = ptr::null_mut();
        // SAFETY: the shell exists; a place for the result.
        check_rc(unsafe { api.flux_shell_get_info(self.raw(), &raw mut json) })
            .context("get shell info")?;
        // SAFETY: a malloc'd string that is ours.
        parsed(unsafe { MallocString::from_raw(json) }, "shell info")
    }

    /// What the shell knows of shell `rank`.
    ///
    /// # Errors
    /// EINVAL if there is no such shell; EPROTO as [`Shell::info`].
    pub fn rank_info(self, rank: u32) -> Result<RankInfo> {
        let api = host::shell()?;
        let rank = c_int::try_from(rank).map_err(|_| Errno::EINVAL)?;
        let mut json = ptr::null_mut();
        // SAFETY: the shell exists; a place for the result.
        check_rc(unsafe { api.flux_shell_get_rank_info(self.raw(), rank, &raw mut json) })
            .with_context(|| format!("get info of shell {rank}"))?;
        // SAFETY: a malloc'd string that is ours.
        parsed(unsafe { MallocString::from_raw(json) }, "shell rank info")
    }

    /// A variable of the job's environment; any bytes.
    ///
    /// # Errors
    /// EINVAL for a name with a NUL.
    pub fn getenv(self, name: &str) -> Result<Option<OsString>> {
        let api = host::shell()?;
        cstr::with_cstr(name, |name| {
            // SAFETY: the shell exists.
            let value = unsafe { api.flux_shell_getenv(self.raw(), name.as_ptr()) };
            // SAFETY: the value lives until the environment changes; it is
            // copied here.
            let value = unsafe { cstr::borrow(value) };
            Ok(value.map(|value| OsStr::from_bytes(value.to_bytes()).to_os_string()))
        })
    }

    /// Sets a variable in the environment of all tasks of this shell that have
    /// not been started yet. The shell keeps the environment as JSON, so the
    /// value must be UTF-8; [`Task::setenv`] takes any bytes.
    ///
    /// # Errors
    /// EILSEQ if the value is not UTF-8; EINVAL for a NUL; ENOMEM.
    pub fn setenv(self, name: &str, value: impl AsRef<OsStr>) -> Result<()> {
        let api = host::shell()?;
        let cname = cstr::cstring(name)?;
        let value = value.as_ref();
        let text = value.to_str().ok_or_else(|| {
            let shown = value.to_string_lossy();
            let text = format!("set environment variable {name}: \"{shown}\" is not UTF-8");
            Error::with_text(Errno::EILSEQ, text)
        })?;
        let value = cstr::cstring(text)?;
        // SAFETY: the shell exists; C strings, and a format that takes one.
        check_rc(unsafe {
            (api.flux_shell_setenvf)(
                self.raw(),
                1,
                cname.as_ptr(),
                c"%s".as_ptr(),
                value.as_ptr(),
            )
        })
        .map(drop)
        .with_context(|| format!("set environment variable {name}"))
    }

    /// Removes a variable from the environment of the tasks; no error if it
    /// is not set.
    ///
    /// # Errors
    /// EINVAL for a name with a NUL.
    pub fn unsetenv(self, name: &str) -> Result<()> {
        let api = host::shell()?;
        cstr::with_cstr(name, |cname| {
            // SAFETY: the shell exists.
            match check_rc(unsafe { api.flux_shell_unsetenv(self.raw(), cname.as_ptr()) }) {
                Err(error) if error.errno() != Errno::ENOENT => {
                    Err(error.context(format!("unset environment variable {name}")))
                }
                _ => Ok(()),
            }
        })
    }

    /// Renders a template with mustache tags for this shell; any bytes.
    ///
    /// # Errors
    /// EINVAL for a NUL or a broken template.
    pub fn render(self, template: impl AsRef<OsStr>) -> Result<OsString> {
        let api = host::shell()?;
        cstr::with_cstr(template.as_ref().as_bytes(), |ctemplate| {
            // SAFETY: the shell exists.
            let text = check_ptr::<c_char>(unsafe {
                api.flux_shell_mustache_render(self.raw(), ctemplate.as_ptr())
            })
            .with_context(|| format!("render {}", ctemplate.to_string_lossy()))?;
            // SAFETY: a malloc'd string that is ours.
            let text = unsafe { MallocString::from_raw(text.as_ptr()) };
            Ok(text.map(|text| text.to_os_string()).unwrap_or_default())
        })
    }

    /// Serves `SERVICE.method`. Anybody may send requests: check the sender.
    /// Requests that come while the handler is running (because it runs the
    /// reactor) wait until it returns, in order.
    ///
    /// # Errors
    /// EINVAL for a bad name; ENOMEM.
    pub fn service_register(
        self,
        method: &str,
        handler: impl FnMut(Request) + 'static,
    ) -> Result<()> {
        let api = host::shell()?;
        let cmethod = cstr::cstring(method)?;
        let registered = Rc::new(Method::new(handler));
        let arg = self.plugin.keep(&registered, Method::close)?;
        // SAFETY: the shell exists; arg is kept for ever, see Plugin::keep.
        check_rc(unsafe {
            api.flux_shell_service_register(
                self.raw(),
                cmethod.as_ptr(),
                Some(service::on_request),
                arg,
            )
        })
        .map(drop)
        .with_context(|| format!("register method {method}"))
    }

    /// Keeps the shell's main loop running, after the tasks have ended, until
    /// the reference is dropped.
    ///
    /// # Errors
    /// EINVAL for a name with a NUL; ENOMEM.
    pub fn completion_ref(self, name: &str) -> Result<CompletionRef> {
        let api = host::shell()?;
        let name = cstr::cstring(name)?;
        let id = HELD.with_borrow(|held| held.last().map_or(0, |last| last.id + 1));
        // SAFETY: the shell exists; a format that takes the string.
        check_rc(unsafe {
            (api.flux_shell_add_completion_ref)(self.raw(), c"%s".as_ptr(), name.as_ptr())
        })
        .context("add completion reference")?;
        let shell = self;
        HELD.with_borrow_mut(|held| held.push(Held { id, shell, name }));
        Ok(CompletionRef {
            id,
            thread: PhantomData,
        })
    }

    /// The task that the current `task.*` event is about.
    pub fn current_task(&self) -> Option<Task<'_>> {
        let api = host::shell().ok()?;
        // SAFETY: the shell exists.
        let task = NonNull::new(unsafe { api.flux_shell_current_task(self.raw()) })?;
        // SAFETY: a task of the shell, which keeps it until it is finished.
        Some(unsafe { Task::new(task) })
    }

    /// The tasks of this shell. Not inside a `task.*` event: the host walks the
    /// same list with the same cursor there (F9).
    ///
    /// # Errors
    /// EBUSY inside a `task.*` event.
    pub fn tasks(&self) -> Result<Vec<Task<'_>>> {
        let api = host::shell()?;
        if self.current_task().is_some() {
            let text = "the tasks cannot be listed inside the event of one";
            return Err(Error::with_text(Errno::EBUSY, text));
        }
        let mut tasks = Vec::new();
        // SAFETY: the shell exists.
        let mut next = unsafe { api.flux_shell_task_first(self.raw()) };
        while let Some(task) = NonNull::new(next) {
            // SAFETY: a task of the shell, which keeps it until it is finished.
            tasks.push(unsafe { Task::new(task) });
            // SAFETY: the shell exists.
            next = unsafe { api.flux_shell_task_next(self.raw()) };
        }
        Ok(tasks)
    }

    /// The shell's log, under the plugin's name.
    pub fn log(self) -> Log {
        Log::new(self, COMPONENT)
    }

    /// The shell's log, under another name.
    pub fn log_as(self, component: &'static CStr) -> Log {
        Log::new(self, component)
    }

    /// Raises a job exception of type `kind`; severity 0 ends the job.
    pub fn raise(self, kind: &CStr, severity: u8, text: &str) {
        log::raise(kind, severity, text);
    }

    /// Ends the job as if a task had ended with this `wait(2)` status, so that
    /// its exit code becomes the job's. Flux versions without that function
    /// end the job with an exception of type "exec".
    pub fn raise_exit_status(self, wait_status: i32, text: &str) {
        log::raise_exit_status(wait_status, text);
    }
}

fn parsed<T: serde::de::DeserializeOwned>(
    json: Option<MallocString>,
    what: &'static str,
) -> Result<T> {
    let json = json.ok_or_else(|| Error::new(Errno::EPROTO).context(what))?;
    json.json().context(what)
}

/// Keeps the shell's main loop running; see [`Shell::completion_ref`]. After a
/// panic all of them are released, for nobody would do it later.
#[derive(Debug)]
#[must_use = "dropping it lets the shell end"]
pub struct CompletionRef {
    id: u64,
    thread: PhantomData<*const ()>,
}

/// What is behind a [`CompletionRef`].
struct Held {
    id: u64,
    shell: Shell,
    name: CString,
}

thread_local! {
    /// In ascending order of their ids.
    static HELD: RefCell<Vec<Held>> = const { RefCell::new(Vec::new()) };
}

impl Drop for CompletionRef {
    fn drop(&mut self) {
        let _ = HELD.try_with(|held| held.borrow_mut().retain(|held| held.id != self.id));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Ok(api) = host::shell() {
            // SAFETY: the shell exists; a format that takes the string. It
            // fails only for an unknown name.
            let _ = unsafe {
                (api.flux_shell_remove_completion_ref)(
                    self.shell.raw(),
                    c"%s".as_ptr(),
                    self.name.as_ptr(),
                )
            };
        }
    }
}

/// Lets the shell end, whoever holds completion references.
pub(crate) fn release_completion_refs() {
    let _ = HELD.try_with(|held| held.take());
}
