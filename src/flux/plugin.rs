//! The plugin as its host sees it: a name, handlers by topic, and one state
//! object that goes with it.
//!
//! Everything that the plugin keeps hangs off one object of the host's plugin
//! handle, because that is the last thing destroyed while the rest of Flux is
//! still there (F2): first the handlers' and services' closures, then the
//! state given to [`Plugin::attach`].

use std::any::Any;
use std::cell::RefCell;
use std::ffi::CStr;
use std::ffi::c_char;
use std::ffi::c_int;
use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::ptr::NonNull;
use std::rc::Rc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::cstr;
use super::cstr::MallocString;
use super::error::Context;
use super::error::Error;
use super::error::Result;
use super::error::check_ptr;
use super::error::check_rc;
use super::guard::guard;
use super::shell::Shell;
use super::slot::Slot;
use super::userdata;
use crate::errno::Errno;
use crate::ffi::host;
use crate::ffi::types::FLUX_PLUGIN_ARG_IN;
use crate::ffi::types::FLUX_PLUGIN_ARG_OUT;
use crate::ffi::types::flux_plugin_arg_t;
use crate::ffi::types::flux_plugin_t;

/// Key of our one object in the host's plugin handle.
const KEY: &CStr = c"flux-bcast::state";

type Handler = Slot<dyn FnMut(&Invocation<'_>) -> Result<()>>;

/// A view of the loaded plugin; copies refer to the same one.
///
/// ```compile_fail
/// fn is_send<T: Send>() {}
/// is_send::<flux_bcast::flux::plugin::Plugin>();
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Plugin(NonNull<flux_plugin_t>);

impl Plugin {
    /// A view of the host's plugin handle.
    ///
    /// # Errors
    /// EINVAL for NULL.
    ///
    /// # Safety
    /// `raw` is NULL or what the host passed to `flux_plugin_init`, and no
    /// view is used after the host has destroyed it. The state that
    /// [`Plugin::attach`] and the handlers keep ends before that.
    pub unsafe fn from_raw(raw: *mut flux_plugin_t) -> Result<Plugin> {
        match NonNull::new(raw) {
            Some(raw) => Ok(Plugin(raw)),
            None => Err(Error::with_text(Errno::EINVAL, "the plugin handle is NULL")),
        }
    }

    /// The shell that has loaded the plugin.
    ///
    /// # Errors
    /// ENOSYS if this process is not flux-shell.
    pub fn shell(self) -> Result<Shell> {
        let api = host::shell()?;
        // SAFETY: the plugin exists (from_raw).
        let raw = check_ptr(unsafe { api.flux_plugin_get_shell(self.0.as_ptr()) })
            .context("get shell")?;
        // SAFETY: the shell outlives its plugins (F2).
        Ok(unsafe { Shell::new(raw, self) })
    }

    /// Sets the name under which the plugin is known.
    ///
    /// # Errors
    /// EINVAL or ENOMEM.
    pub fn set_name(self, name: &str) -> Result<()> {
        let core = host::core()?;
        cstr::with_cstr(name, |name| {
            // SAFETY: the plugin exists (from_raw); the name is copied.
            let rc = unsafe { core.flux_plugin_set_name(self.0.as_ptr(), name.as_ptr()) };
            check_rc(rc).map(drop).context("set plugin name")
        })
    }

    /// Calls `handler` for every event with this topic. An error is logged and
    /// makes the host's call fail with its errno. A handler that is running
    /// already is not entered again; that event fails with EBUSY.
    ///
    /// Topic `task.exec` runs in a forked child, where nothing may allocate:
    /// do not handle it. Patterns (`*`) would match it too.
    ///
    /// # Errors
    /// EINVAL or ENOMEM.
    pub fn add_handler(
        self,
        topic: &str,
        handler: impl FnMut(&Invocation<'_>) -> Result<()> + 'static,
    ) -> Result<()> {
        let core = host::core()?;
        let ctopic = cstr::cstring(topic)?;
        let slot: Rc<Handler> = Rc::new(Slot::new(Box::new(handler)));
        let arg = self.keep(&slot, Slot::close)?;
        // SAFETY: the plugin exists (from_raw); arg is kept for ever, see
        // Plugin::keep.
        let rc = unsafe {
            core.flux_plugin_add_handler(self.0.as_ptr(), ctopic.as_ptr(), Some(on_topic), arg)
        };
        check_rc(rc)
            .map(drop)
            .with_context(|| format!("add handler of {topic}"))
    }

    /// Keeps the plugin's state until the plugin is destroyed. An earlier
    /// state is dropped.
    ///
    /// # Errors
    /// ENOMEM; the state is dropped then.
    pub fn attach(self, state: impl Any) -> Result<()> {
        let old = self
            .with_registry(|registry| registry.state.borrow_mut().replace(Box::new(state)))?;
        drop(old);
        Ok(())
    }

    /// Keeps what C's callbacks refer to, has `close` called when the plugin is
    /// destroyed, and returns the pointer for C. The value itself, a few bytes,
    /// is never freed: C keeps such pointers without a destructor, some of
    /// them (services) longer than the plugin lives (F2).
    pub(crate) fn keep<T: 'static>(
        self,
        value: &Rc<T>,
        close: impl Fn(&T) + 'static,
    ) -> Result<*mut c_void> {
        let kept = Rc::clone(value);
        self.with_registry(|registry| {
            registry
                .closers
                .borrow_mut()
                .push(Box::new(move || close(&kept)));
        })?;
        Ok(Rc::into_raw(Rc::clone(value)).cast_mut().cast())
    }

    /// Calls `f` with our object in the host's plugin handle; makes it if this
    /// is the first use.
    fn with_registry<T>(self, f: impl FnOnce(&Registry) -> T) -> Result<T> {
        let core = host::core()?;
        let p = self.0.as_ptr();
        // SAFETY: the plugin exists (from_raw).
        let mut found = unsafe { core.flux_plugin_aux_get(p, KEY.as_ptr()) };
        if found.is_null() {
            found = userdata::into_foreign(Box::new(Registry::default()));
            let free = Some(userdata::free_boxed::<Registry> as _);
            // SAFETY: the plugin exists; free fits the object.
            let rc = unsafe { core.flux_plugin_aux_set(p, KEY.as_ptr(), found, free) };
            if let Err(error) = check_rc(rc) {
                // SAFETY: the host has not taken it (F4).
                drop(unsafe { userdata::from_foreign::<Registry>(found) });
                return Err(error.context("attach state to plugin"));
            }
        }
        // SAFETY: only this function uses KEY, and the host destroys the
        // object with the plugin, not within this call.
        Ok(f(unsafe { userdata::borrow::<Registry>(found) }))
    }
}

/// Our one object in the host's plugin handle.
#[derive(Default)]
struct Registry {
    closers: RefCell<Vec<Box<dyn Fn()>>>,
    state: RefCell<Option<Box<dyn Any>>>,
}

impl Drop for Registry {
    fn drop(&mut self) {
        // Closures first: they may refer to the state, not the other way.
        for close in self.closers.take() {
            close();
        }
        drop(self.state.take());
    }
}

/// One call of a handler.
pub struct Invocation<'a> {
    plugin: Plugin,
    topic: &'a CStr,
    args: *mut flux_plugin_arg_t,
    /// The arguments live only as long as the call.
    call: PhantomData<&'a ()>,
}

impl fmt::Debug for Invocation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invocation")
            .field("topic", &self.topic)
            .finish_non_exhaustive()
    }
}

impl Invocation<'_> {
    /// The plugin that is called.
    pub fn plugin(&self) -> Plugin {
        self.plugin
    }

    /// The topic of the event.
    pub fn topic(&self) -> &str {
        self.topic.to_str().unwrap_or_default()
    }

    /// The event's input arguments; `None` if it has none.
    ///
    /// # Errors
    /// EPROTO if they are not what `T` expects.
    pub fn input<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        if self.args.is_null() {
            return Ok(None);
        }
        let core = host::core()?;
        let mut json = ptr::null_mut();
        let flags = FLUX_PLUGIN_ARG_IN as c_int;
        // SAFETY: args lives as long as this call.
        let rc = unsafe { core.flux_plugin_arg_get(self.args, flags, &raw mut json) };
        match check_rc(rc) {
            Err(error) if error.errno() == Errno::ENOENT => return Ok(None),
            other => other.with_context(|| format!("read arguments of {}", self.topic()))?,
        };
        // SAFETY: a malloc'd string that is ours now.
        let Some(json) = (unsafe { MallocString::from_raw(json) }) else {
            return Ok(None);
        };
        json.json()
            .map(Some)
            .with_context(|| format!("read arguments of {}", self.topic()))
    }

    /// Adds the members of a JSON object to the event's output arguments.
    ///
    /// # Errors
    /// EINVAL if the event takes none; EPROTO if the value has no JSON form.
    pub fn set_output(&self, value: &impl Serialize) -> Result<()> {
        let core = host::core()?;
        let json = cstr::json_cstring(value)?;
        let flags = FLUX_PLUGIN_ARG_OUT as c_int;
        // SAFETY: args is NULL (refused) or lives as long as this call.
        let rc = unsafe { core.flux_plugin_arg_set(self.args, flags, json.as_ptr()) };
        check_rc(rc)
            .map(drop)
            .with_context(|| format!("answer {}", self.topic()))
    }
}

/// # Safety
/// Called by the host with what [`Plugin::add_handler`] registered.
unsafe extern "C" fn on_topic(
    p: *mut flux_plugin_t,
    topic: *const c_char,
    args: *mut flux_plugin_arg_t,
    data: *mut c_void,
) -> c_int {
    guard(|| -> Result<c_int> {
        // SAFETY: the host calls a handler only while the plugin exists.
        let plugin = unsafe { Plugin::from_raw(p) }?;
        // SAFETY: the topic lives as long as the call.
        let topic = unsafe { cstr::borrow(topic) }.unwrap_or_default();
        // SAFETY: a slot that is never freed, see Plugin::keep.
        let slot = unsafe { userdata::borrow::<Handler>(data) };
        let invocation = Invocation {
            plugin,
            topic,
            args,
            call: PhantomData,
        };
        let outcome = slot.call(|f| f(&invocation)).unwrap_or_else(|| {
            Err(Error::with_text(
                Errno::EBUSY,
                "the handler is running already",
            ))
        });
        if let Err(error) = &outcome
            && let Ok(shell) = plugin.shell()
        {
            shell.log().error(format_args!("{error}"));
        }
        outcome.map(|()| 0)
    })
}
