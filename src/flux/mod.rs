//! Safe wrappers of the parts of Flux that this project uses.
//!
//! Stability: the public functions of this module are what `plugin`, `client`
//! and `capi` are built on; they change only together with those.
//!
//! # Rules
//!
//! - Whoever owns a C object is a struct whose `Drop` releases it. What the
//!   host owns is a `Copy` view without `Drop`.
//! - Nothing here is `Send` or `Sync`, except [`wakeup::WakeSender`]: Flux's
//!   objects belong to the thread that runs their reactor.
//! - Callbacks are `FnMut + 'static` closures. A closure that is running is
//!   never entered again; what came meanwhile is handled afterwards or refused.
//!   Any owner may be dropped inside the callback that it owns.
//! - No panic reaches C; see [`guard`].
//! - errno is read right after the call (`check_rc`, `check_ptr`) and written
//!   by the last statement of the guard.
//! - C formats are the literal "%s". JSON crosses as text.
//! - Before anything else, [`host::init_plugin`](crate::ffi::host::init_plugin)
//!   or [`host::init_client`](crate::ffi::host::init_client) must succeed;
//!   until then all calls fail with ENOSYS.
//!
//! # Host facts
//!
//! What the `SAFETY` comments lean on, observed on Flux 0.58 to 0.88:
//!
//! - **F1, symbols.** A function of the given name has the signature that
//!   `include/flux_abi.h` declares; the header check compares them. Loading
//!   libflux-core has no side effects.
//! - **F2, teardown.** At its end the shell destroys its tasks; then, plugin by
//!   plugin, the handlers, the plugin's attached objects, and the mapping of
//!   the code; then its service, reactor and handle. So a plugin's attached
//!   object is destroyed while shell, handle and reactor still work, and no
//!   handler or service is called afterwards. Handles and futures that end
//!   later may still call *destructors* of ours: the library is linked so that
//!   it stays mapped.
//! - **F3, threads.** The host calls us on the one thread that runs its
//!   reactor, and none of its functions may be used on another. Topic
//!   `task.exec` is called in a forked child of that thread.
//! - **F4, attached objects.** When attaching an object fails, the host does
//!   not call its destructor; handlers, services, watchers and continuations
//!   take a pointer without any destructor.
//! - **F5, futures.** A future may be destroyed inside its continuation, keeps
//!   a reference to its handle, has one continuation (a later one replaces
//!   it), and calls neither continuation nor init function once destroyed. On
//!   destruction, attached objects go first, its results and reactors after
//!   them. A stream of responses calls the continuation once per reset.
//! - **F6, payloads.** The payload of a message does not move or change as
//!   long as the message is referenced; that of a response as long as its
//!   future is neither reset nor destroyed.
//! - **F7, watchers.** A watcher may be destroyed inside its own callback, and
//!   keeps the reactor that it was made for alive.
//! - **F8, signals.** A reactor that watches a signal blocks it in its own
//!   thread only and reads it from a signalfd; see [`thread`].
//! - **F9, task list.** The shell has one cursor for its tasks; walking them
//!   inside a `task.*` event makes it start the same task again.
//! - **F10, environment.** The shell keeps the job's environment as JSON, hence
//!   as UTF-8; a task's own environment holds any bytes.

pub mod error;
pub mod future;
pub mod guard;
pub mod handle;
pub mod job;
pub mod log;
pub mod message;
pub mod plugin;
pub mod promise;
pub mod reactor;
pub mod security;
pub mod shell;
pub mod task;
pub mod thread;
pub mod wakeup;

pub(crate) mod cstr;
mod lease;
mod service;
mod sigpipe;
mod slot;
mod userdata;

pub use error::Context;
pub use error::Error;
pub use error::Result;
