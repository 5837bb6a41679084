//! The plugin with callbacks added that panic: what is installed has no defect
//! that a test could call on, and no switch for one.
//!
//! Everything but those callbacks is the plugin's own, its entry and its guard
//! included. Option `fault` of the job says where its shell 1 panics, and option
//! `fault-when` names the file that the panic in a timer waits for.

#![expect(unsafe_code, reason = "called by C")]
#![expect(clippy::panic, reason = "that is what it is for")]

use std::ffi::c_int;
use std::ffi::c_void;
use std::path::PathBuf;
use std::time::Duration;

use flux_bcast::flux::error::Result;
use flux_bcast::flux::plugin::Plugin;
use flux_bcast::flux::reactor::TimerWatcher;
use flux_bcast::flux::shell::Shell;

/// What the host would call `flux_plugin_init`, a name that the library has
/// taken already (see `t/src/faulty.c`).
///
/// # Safety
/// As for `flux_plugin_init`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faulty_plugin_init(p: *mut c_void) -> c_int {
    // SAFETY: as the caller vouches.
    unsafe { flux_bcast::plugin::load(p.cast(), add_faults) }
}

fn add_faults(plugin: Plugin) -> Result<()> {
    let shell = plugin.shell()?;
    if shell.info()?.rank != 1 {
        return Ok(());
    }
    let option = shell.getopt("fault")?.unwrap_or_default();
    let fault = option.as_str().unwrap_or_default();
    shell.service_register("bcast.fault", |_| panic!("a fault in a request"))?;
    // Not a topic that the plugin has a handler of its own for.
    match fault {
        "timer" => plugin.add_handler("shell.start", move |_| when_told(shell)),
        "task.fork" | "shell.finish" => {
            plugin.add_handler(fault, |call| panic!("a fault in {}", call.topic()))
        }
        _ => Ok(()),
    }
}

fn when_told(shell: Shell) -> Result<()> {
    let reactor = shell.handle()?.reactor()?;
    let file = shell.getopt("fault-when")?.unwrap_or_default();
    let file = PathBuf::from(file.as_str().unwrap_or_default());
    let often = Duration::from_millis(20);
    let timer = TimerWatcher::new(reactor, often, Some(often), move || {
        if file.exists() {
            panic!("a fault in a timer")
        }
    })?;
    std::mem::forget(timer);
    Ok(())
}
