//! The entry point of the plugin and its handlers.

use std::ffi::c_int;
use std::rc::Rc;

use super::bcast::Bcast;
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
        match init(plugin) {
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
    plugin.set_name(NAME)?;
    let shell = plugin.shell()?;
    guard::on_panic(move |report| {
        shell.raise(c"exec", 0, &format!("flux-bcast: {report}"));
    });
    let bcast = Bcast::new(shell).context("bcast")?;
    on(plugin, "shell.init", &bcast, Bcast::init)?;
    on(plugin, "shell.post-init", &bcast, Bcast::post_init)?;
    on(plugin, "task.init", &bcast, Bcast::task_init)?;
    on(plugin, "shell.exit", &bcast, Bcast::exit)?;
    let lost = Rc::clone(&bcast);
    plugin.add_handler("shell.lost", move |call| {
        lost.shell_lost(call.input()?.unwrap_or_default());
        Ok(())
    })?;
    plugin.attach(bcast)
}

/// Calls a method of `bcast` for an event.
fn on(
    plugin: Plugin,
    topic: &str,
    bcast: &Rc<Bcast>,
    method: fn(&Rc<Bcast>) -> Result<()>,
) -> Result<()> {
    let bcast = Rc::clone(bcast);
    plugin.add_handler(topic, move |_| method(&bcast))
}
