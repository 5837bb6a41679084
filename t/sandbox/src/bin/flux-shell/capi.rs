//! The functions of `include/flux_abi.h` that only a flux-shell has, and what
//! the variadic ones of `csrc/variadic.c` come down to.

use std::ffi::{c_char, c_int, c_void};
use std::rc::Rc;

use flux_sandbox::capi::{borrow, bytes, fail, malloc_string, text};
use flux_sandbox::export;
use flux_sandbox::host::handle::Handle;
use flux_sandbox::host::plugin::Plugin;
use flux_sandbox::wire::Message;

use crate::log::Record;
use crate::render;
use crate::shell::Shell;
use crate::task::{Cmd, Task};
use crate::{log, shell as current};

/// Serves one method of a plugin.
type Serve = unsafe extern "C" fn(
    h: *const Handle,
    mh: *const c_void,
    msg: *const Message,
    arg: *mut c_void,
);

/// An object pointer that stays valid until the process ends or the tasks do.
fn lend<T>(object: Option<&Rc<T>>) -> *const T {
    object.map_or(std::ptr::null(), Rc::as_ptr)
}

export! {
    fn flux_plugin_get_shell(p: *const Plugin) -> *const c_void {
        match borrow(p) {
            Some(p) => p.shell.get(),
            None => fail(libc::EINVAL, std::ptr::null()),
        }
    }

    fn flux_shell_get_flux(shell: *const Shell) -> *const Handle {
        match borrow(shell) {
            Some(s) => Rc::as_ptr(&s.handle),
            None => fail(libc::EINVAL, std::ptr::null()),
        }
    }

    fn flux_shell_getopt(
        shell: *const Shell,
        name: *const c_char,
        json_str: *mut *mut c_char,
    ) -> c_int {
        let (Some(shell), Some(name)) = (borrow(shell), text(name)) else {
            return fail(libc::EINVAL, -1);
        };
        match shell.option(&name) {
            Some(value) => {
                if !json_str.is_null() {
                    *json_str = malloc_string(&value.to_string());
                }
                1
            }
            None => 0,
        }
    }

    fn flux_shell_setopt(
        shell: *const Shell,
        name: *const c_char,
        json_str: *const c_char,
    ) -> c_int {
        let (Some(shell), Some(name)) = (borrow(shell), text(name)) else {
            return fail(libc::EINVAL, -1);
        };
        let mut options = shell.options.borrow_mut();
        match text(json_str) {
            None => match options.remove(&name) {
                Some(_) => 0,
                None => -1,
            },
            Some(json) => match serde_json::from_str(&json) {
                Ok(value) => {
                    options.insert(name, value);
                    0
                }
                Err(_) => -1,
            },
        }
    }

    fn flux_shell_getenv(shell: *const Shell, name: *const c_char) -> *const c_char {
        let (Some(shell), Some(name)) = (borrow(shell), text(name)) else {
            return fail(libc::EINVAL, std::ptr::null());
        };
        let env = shell.env.borrow();
        env.get(&name).map_or(std::ptr::null(), |v| v.as_ptr())
    }

    fn flux_shell_unsetenv(shell: *const Shell, name: *const c_char) -> c_int {
        let (Some(shell), Some(name)) = (borrow(shell), text(name)) else {
            return fail(libc::EINVAL, -1);
        };
        if shell.getenv(&name).is_none() {
            return fail(libc::ENOENT, -1);
        }
        shell.unsetenv(&name);
        0
    }

    fn flux_shell_get_info(shell: *const Shell, json_str: *mut *mut c_char) -> c_int {
        let Some(shell) = borrow(shell).filter(|_| !json_str.is_null()) else {
            return fail(libc::EINVAL, -1);
        };
        *json_str = malloc_string(&shell.info.to_json());
        0
    }

    fn flux_shell_get_rank_info(
        shell: *const Shell,
        shell_rank: c_int,
        json_str: *mut *mut c_char,
    ) -> c_int {
        let Some(shell) = borrow(shell).filter(|_| !json_str.is_null()) else {
            return fail(libc::EINVAL, -1);
        };
        let rank = if shell_rank == -1 {
            Some(shell.info.rank)
        } else {
            usize::try_from(shell_rank).ok()
        };
        match rank.and_then(|r| shell.info.rank_to_json(r)) {
            Some(json) => {
                *json_str = malloc_string(&json.to_string());
                0
            }
            None => fail(libc::EINVAL, -1),
        }
    }

    fn flux_shell_mustache_render(
        shell: *const Shell,
        fmt: *const c_char,
    ) -> *mut c_char {
        let (Some(shell), Some(fmt)) = (borrow(shell), bytes(fmt)) else {
            return fail(libc::EINVAL, std::ptr::null_mut());
        };
        malloc_string(&render::render(&shell, fmt.to_bytes()))
    }

    fn flux_shell_service_register(
        shell: *const Shell,
        method: *const c_char,
        cb: Option<Serve>,
        arg: *mut c_void,
    ) -> c_int {
        let (Some(shell), Some(method), Some(cb)) = (borrow(shell), text(method), cb) else {
            return fail(libc::EINVAL, -1);
        };
        let registered = shell.serve(&method, move |shell, msg| {
            // The message handler is opaque and no function of ours takes one.
            let mh = std::ptr::from_ref(&shell.info).cast::<c_void>();
            cb(Rc::as_ptr(&shell.handle), mh, Rc::as_ptr(msg), arg);
        });
        flux_sandbox::capi::status(registered)
    }

    fn flux_shell_current_task(shell: *const Shell) -> *const Task {
        match borrow(shell) {
            Some(s) => lend(s.current.borrow().as_ref()),
            None => fail(libc::EINVAL, std::ptr::null()),
        }
    }

    fn flux_shell_task_first(shell: *const Shell) -> *const Task {
        let Some(shell) = borrow(shell) else {
            return fail(libc::EINVAL, std::ptr::null());
        };
        shell.cursor.set(0);
        match &*shell.tasks.borrow() {
            Some(tasks) => lend(tasks.first()),
            None => fail(libc::EAGAIN, std::ptr::null()),
        }
    }

    fn flux_shell_task_next(shell: *const Shell) -> *const Task {
        let Some(shell) = borrow(shell) else {
            return fail(libc::EINVAL, std::ptr::null());
        };
        let at = shell.cursor.get() + 1;
        shell.cursor.set(at);
        match &*shell.tasks.borrow() {
            Some(tasks) => lend(tasks.get(at)),
            None => fail(libc::EAGAIN, std::ptr::null()),
        }
    }

    fn flux_shell_task_get_info(task: *const Task, json_str: *mut *mut c_char) -> c_int {
        let Some(task) = borrow(task).filter(|_| !json_str.is_null()) else {
            return fail(libc::EINVAL, -1);
        };
        *json_str = malloc_string(&task.to_json().to_string());
        0
    }

    fn flux_shell_task_cmd(task: *const Task) -> *const Cmd {
        if task.is_null() {
            return fail(libc::EINVAL, std::ptr::null());
        }
        &raw const (*task).cmd
    }

    fn flux_cmd_unsetenv(cmd: *const Cmd, name: *const c_char) {
        if let (false, Some(name)) = (cmd.is_null(), text(name)) {
            (*cmd).unsetenv(&name);
        }
    }

    fn sandbox_cmd_setenv(
        cmd: *const Cmd,
        overwrite: c_int,
        name: *const c_char,
        value: *const c_char,
    ) -> c_int {
        let (Some(name), Some(value)) = (text(name), bytes(value)) else {
            return fail(libc::EINVAL, -1);
        };
        if overwrite == 0 && (*cmd).has(&name) {
            return fail(libc::EEXIST, -1);
        }
        (*cmd).setenv(&name, value.to_bytes());
        0
    }

    fn sandbox_shell_setenv(
        shell: *const Shell,
        overwrite: c_int,
        name: *const c_char,
        value: *const c_char,
    ) -> c_int {
        let (Some(shell), Some(name), Some(value)) =
            (borrow(shell), text(name), bytes(value))
        else {
            return fail(libc::EINVAL, -1);
        };
        // Flux keeps it as JSON, which cannot hold other bytes.
        let Ok(value) = value.into_string() else {
            return fail(libc::ENOMEM, -1);
        };
        if overwrite != 0 || shell.getenv(&name).is_none() {
            shell.setenv(&name, &value);
        }
        0
    }

    fn sandbox_shell_add_ref(shell: *const Shell, name: *const c_char) -> c_int {
        let (Some(shell), Some(name)) = (borrow(shell), text(name)) else {
            return fail(libc::EINVAL, -1);
        };
        c_int::try_from(shell.add_ref(&name)).unwrap_or(c_int::MAX)
    }

    fn sandbox_shell_remove_ref(shell: *const Shell, name: *const c_char) -> c_int {
        let (Some(shell), Some(name)) = (borrow(shell), text(name)) else {
            return fail(libc::EINVAL, -1);
        };
        flux_sandbox::capi::status(shell.remove_ref(&name))
    }

    fn sandbox_shell_log(
        component: *const c_char,
        level: c_int,
        file: *const c_char,
        line: c_int,
        message: *const c_char,
    ) {
        let (component, file) = (text(component), text(file));
        log::write(&Record {
            component: component.as_deref(),
            level,
            file: file.as_deref(),
            line,
            text: &text(message).unwrap_or_default(),
        });
    }

    fn sandbox_shell_fatal(
        component: *const c_char,
        _file: *const c_char,
        _line: c_int,
        errnum: c_int,
        exit_code: c_int,
        message: *const c_char,
    ) {
        let mut message = text(message).unwrap_or_default();
        if errnum != 0 {
            let e = flux_sandbox::errno::Errno(errnum);
            message = format!("{message}: {e}");
        }
        log::die(exit_code, text(component).as_deref(), &message);
    }

    fn sandbox_shell_raise(
        kind: *const c_char,
        severity: c_int,
        wait_status: c_int,
        message: *const c_char,
    ) {
        if let (Some(shell), Some(kind)) = (current::current(), text(kind)) {
            let message = text(message).unwrap_or_default();
            shell.raise(&kind, severity, wait_status, &message);
        }
    }
}
