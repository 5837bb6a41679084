//! The entry point of the plugin and its handlers.

use std::cell::OnceCell;
use std::ffi::c_int;
use std::rc::Rc;

use serde::Deserialize;

use super::bcast::Bcast;
use super::bcast::tags;
use super::pmi::Pmi;
use super::upmi;
use crate::errno::Errno;
use crate::ffi::host;
use crate::ffi::types::flux_plugin_t;
use crate::flux::error::Context;
use crate::flux::error::Result;
use crate::flux::guard;
use crate::flux::plugin::Plugin;

/// Name of the plugin, for logs and for replacing it.
const NAME: &str = "bcast";

/// What the host calls once it has loaded the plugin (flux-shell-plugins(7)).
///
/// Returns 0, or -1 with errno set; then the job does not start.
///
/// # Safety
/// `p` is the handle of the plugin being loaded, or NULL.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported to C by name")]
pub unsafe extern "C" fn flux_plugin_init(p: *mut flux_plugin_t) -> c_int {
    // SAFETY: as the caller vouches.
    unsafe { load(p, |_| Ok(())) }
}

/// Makes `p` this plugin, which `more` may then add to. Returns 0, or -1 with
/// errno set.
///
/// # Safety
/// As for [`flux_plugin_init`].
pub unsafe fn load(p: *mut flux_plugin_t, more: impl FnOnce(Plugin) -> Result<()>) -> c_int {
    guard::guard(|| -> std::result::Result<c_int, Errno> {
        guard::install_panic_hook();
        if let Err(error) = host::init_plugin() {
            // There is no host function to log with.
            let _ = std::io::Write::write_fmt(
                &mut std::io::stderr(),
                format_args!("flux-bcast: ERROR: {error}\n"),
            );
            return Err(Errno::ENOSYS);
        }
        // SAFETY: the host passes the handle of this plugin, and destroys it
        // only after its handlers and its state are gone.
        let plugin = unsafe { Plugin::from_raw(p) }.map_err(|error| error.errno())?;
        match init(plugin).and_then(|()| more(plugin)) {
            Ok(()) => Ok(0),
            Err(error) => {
                if let Ok(shell) = plugin.shell() {
                    shell.log().error(format_args!("{error}"));
                }
                Err(error.errno())
            }
        }
    })
}

fn init(plugin: Plugin) -> Result<()> {
    if !host::is_shell() {
        // A broker, or `flux pmi`: it looks for a way to bootstrap.
        return upmi::init(plugin);
    }
    plugin.set_name(NAME)?;
    let shell = plugin.shell()?;
    guard::on_panic(move |report| {
        shell.raise(c"exec", 0, &format!("flux-bcast: {report}"));
    });
    let bcast = Bcast::new(shell).context("bcast")?;
    let pmi = Rc::new(OnceCell::new());

    let (b, p) = (Rc::clone(&bcast), Rc::clone(&pmi));
    plugin.add_handler("shell.init", move |_| {
        b.init()?;
        if let Some(pmi) = Pmi::init(shell)? {
            let _ = p.set(pmi);
        }
        Ok(())
    })?;
    let b = Rc::clone(&bcast);
    plugin.add_handler("shell.post-init", move |_| b.post_init())?;
    for topic in tags::TOPICS {
        let b = Rc::clone(&bcast);
        plugin.add_handler(topic, move |call| b.fill_in(call))?;
    }
    let (b, p) = (Rc::clone(&bcast), Rc::clone(&pmi));
    plugin.add_handler("task.init", move |_| {
        b.task_init()?;
        p.get().map_or(Ok(()), Pmi::task_init)
    })?;
    let p = Rc::clone(&pmi);
    plugin.add_handler("task.exit", move |_| p.get().map_or(Ok(()), Pmi::task_exit))?;
    let (b, p) = (Rc::clone(&bcast), Rc::clone(&pmi));
    plugin.add_handler("shell.lost", move |call| {
        let lost: LostShell = call.input()?.unwrap_or_default();
        if let Some(rank) = lost.shell_rank {
            b.shell_lost(rank);
            if let Some(pmi) = p.get() {
                pmi.shell_lost(rank);
            }
        }
        Ok(())
    })?;
    let (b, p) = (Rc::clone(&bcast), Rc::clone(&pmi));
    plugin.add_handler("shell.exit", move |_| {
        if let Some(pmi) = p.get() {
            pmi.exit();
        }
        b.exit()
    })?;
    plugin.attach((bcast, pmi))
}

/// What topic `shell.lost` tells.
#[derive(Default, Deserialize)]
struct LostShell {
    shell_rank: Option<u32>,
}
