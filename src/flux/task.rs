//! One task of this shell: who it is, and its environment.

use std::ffi::OsStr;
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::ptr::NonNull;

use serde::Deserialize;

use super::cstr;
use super::cstr::MallocString;
use super::error::Context;
use super::error::Error;
use super::error::Result;
use super::error::check_ptr;
use super::error::check_rc;
use crate::errno::Errno;
use crate::ffi::host;
use crate::ffi::types::flux_cmd_t;
use crate::ffi::types::flux_shell_task_t;

/// A view of a task, for the time of a handler.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    raw: NonNull<flux_shell_task_t>,
    shell: PhantomData<&'a ()>,
}

/// What the shell knows of a task.
#[derive(Clone, Debug, Deserialize)]
pub struct TaskInfo {
    /// Rank among the tasks of this shell.
    pub localid: u32,
    /// Rank in the job.
    pub rank: u32,
    /// "Init", "Running" or "Exited".
    #[serde(default)]
    pub state: String,
    /// Its process, once it has been started.
    #[serde(default)]
    pub pid: Option<i32>,
    /// Its `wait(2)` status, once it has ended.
    #[serde(default)]
    pub wait_status: Option<i32>,
}

impl Task<'_> {
    /// # Safety
    /// The task exists for the lifetime of the view.
    pub(crate) unsafe fn new(raw: NonNull<flux_shell_task_t>) -> Self {
        Task {
            raw,
            shell: PhantomData,
        }
    }

    /// What the shell knows of the task.
    ///
    /// # Errors
    /// EPROTO if the shell describes it in an unknown way; ENOMEM.
    pub fn info(self) -> Result<TaskInfo> {
        let api = host::shell()?;
        let mut json = ptr::null_mut();
        // SAFETY: the task exists (new); a place for the result.
        check_rc(unsafe { api.flux_shell_task_get_info(self.raw.as_ptr(), &raw mut json) })
            .context("get task info")?;
        // SAFETY: a malloc'd string that is ours.
        let json = unsafe { MallocString::from_raw(json) };
        json.ok_or_else(|| Error::new(Errno::EPROTO))
            .and_then(|json| json.json())
            .context("task info")
    }

    /// Sets a variable in the environment of this task, which must not have
    /// been started yet; any bytes but NUL.
    ///
    /// # Errors
    /// EINVAL for a NUL; ENOMEM.
    pub fn setenv(self, name: &str, value: impl AsRef<OsStr>) -> Result<()> {
        let api = host::shell()?;
        let cmd = self.cmd()?;
        let cname = cstr::cstring(name)?;
        let value = cstr::cstring(value.as_ref().as_bytes())?;
        // SAFETY: the task's command; C strings, and a format that takes one.
        check_rc(unsafe {
            (api.flux_cmd_setenvf)(
                cmd.as_ptr(),
                1,
                cname.as_ptr(),
                c"%s".as_ptr(),
                value.as_ptr(),
            )
        })
        .map(drop)
        .with_context(|| format!("set environment variable {name}"))
    }

    /// Removes a variable from the environment of this task; no error if it is
    /// not set.
    ///
    /// # Errors
    /// EINVAL for a name with a NUL.
    pub fn unsetenv(self, name: &str) -> Result<()> {
        let api = host::shell()?;
        let cmd = self.cmd()?;
        cstr::with_cstr(name, |name| {
            // SAFETY: the task's command and a C string.
            unsafe { api.flux_cmd_unsetenv(cmd.as_ptr(), name.as_ptr()) };
            Ok(())
        })
    }

    fn cmd(self) -> Result<NonNull<flux_cmd_t>> {
        let api = host::shell()?;
        // SAFETY: the task exists (new).
        check_ptr(unsafe { api.flux_shell_task_cmd(self.raw.as_ptr()) })
            .context("get task command")
    }
}
