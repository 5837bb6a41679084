//! Plugins: named handlers of life-cycle topics, in a shared object.
#![expect(unsafe_code, reason = "dlopen(3), and calls into what it loaded")]

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::rc::Rc;

use serde_json::Value;

use crate::host::aux::Aux;

/// A handler of the plugin.
pub type Handler = unsafe extern "C" fn(
    p: *const Plugin,
    topic: *const c_char,
    args: *const Args,
    data: *mut c_void,
) -> c_int;

/// A handler has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandlerFailed;

/// Arguments of a call, in and out.
#[derive(Debug, Default)]
pub struct Args {
    input: RefCell<Option<Value>>,
    output: RefCell<Option<Value>>,
}

/// Selects the output.
pub const ARG_OUT: i32 = 1;
/// Replaces instead of merging.
pub const ARG_REPLACE: i32 = 4;

impl Args {
    /// Arguments with this input.
    pub fn new(input: Value) -> Self {
        Self {
            input: RefCell::new(Some(input)),
            output: RefCell::new(None),
        }
    }

    fn side(&self, flags: i32) -> &RefCell<Option<Value>> {
        if flags & ARG_OUT != 0 {
            &self.output
        } else {
            &self.input
        }
    }

    /// One side; `None` when nothing was set.
    pub fn get(&self, flags: i32) -> Option<Value> {
        self.side(flags).borrow().clone()
    }

    /// Sets one side; objects are merged unless it is to be replaced.
    pub fn set(&self, flags: i32, value: Option<Value>) {
        let mut side = self.side(flags).borrow_mut();
        match (&mut *side, value) {
            (Some(Value::Object(old)), Some(Value::Object(new)))
                if flags & ARG_REPLACE == 0 =>
            {
                old.extend(new);
            }
            (side, value) => *side = value,
        }
    }
}

struct Entry {
    topic: CString,
    handler: Handler,
    data: *mut c_void,
}

/// A plugin.
#[derive(Default)]
pub struct Plugin {
    name: RefCell<String>,
    handlers: RefCell<Vec<Rc<Entry>>>,
    /// What it attached.
    pub aux: Aux,
    library: Cell<Option<std::ptr::NonNull<c_void>>>,
    /// The shell that loaded it.
    pub shell: Cell<*mut c_void>,
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Plugin({})", self.name.borrow())
    }
}

impl Plugin {
    /// A plugin without code; `shell` is what `flux_plugin_get_shell` returns.
    pub fn new(shell: *mut c_void) -> Rc<Self> {
        let p = Self::default();
        p.shell.set(shell);
        Rc::new(p)
    }

    /// Its name: the path until it sets another.
    pub fn name(&self) -> String {
        self.name.borrow().clone()
    }

    /// Sets its name.
    pub fn set_name(&self, name: &str) {
        name.clone_into(&mut self.name.borrow_mut());
    }

    /// Adds a handler; without one, removes the first of that very topic.
    pub fn add_handler(&self, topic: &CStr, handler: Option<Handler>, data: *mut c_void) {
        let mut handlers = self.handlers.borrow_mut();
        match handler {
            Some(handler) => handlers.push(Rc::new(Entry {
                topic: topic.to_owned(),
                handler,
                data,
            })),
            None => {
                if let Some(at) = handlers.iter().position(|e| *e.topic == *topic) {
                    handlers.remove(at);
                }
            }
        }
    }

    /// Loads `path` and runs its `flux_plugin_init`.
    ///
    /// # Errors
    /// The text that Flux logs.
    pub fn load(self: &Rc<Self>, path: &str) -> Result<(), String> {
        let c_path = crate::wire::name(path);
        // SAFETY: the path is a C string; loading runs the constructors of a
        // library that the user asked for.
        let library =
            unsafe { libc::dlopen(c_path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
        let Some(library) = std::ptr::NonNull::new(library) else {
            return Err(format!("dlopen: {}", dl_error()));
        };
        self.library.set(Some(library));
        self.set_name(path);
        // SAFETY: the library is open, the name is a C string.
        let init = unsafe { libc::dlsym(library.as_ptr(), c"flux_plugin_init".as_ptr()) };
        if init.is_null() {
            return Ok(());
        }
        type Init = unsafe extern "C" fn(p: *const Plugin) -> c_int;
        // SAFETY: by Flux's convention the symbol is a function of this type.
        let init = unsafe { std::mem::transmute::<*mut c_void, Init>(init) };
        // SAFETY: `self` outlives the call and is what the ABI calls a plugin.
        if unsafe { init(Rc::as_ptr(self)) } < 0 {
            return Err(format!("{path}: flux_plugin_init failed"));
        }
        Ok(())
    }

    /// Calls the first handler whose pattern matches `topic`.
    ///
    /// # Errors
    /// When the handler fails.
    pub fn call(
        self: &Rc<Self>,
        topic: &CStr,
        args: Option<&Args>,
    ) -> Result<bool, HandlerFailed> {
        let found = self
            .handlers
            .borrow()
            .iter()
            .find(|e| {
                // SAFETY: both are C strings.
                unsafe { libc::fnmatch(e.topic.as_ptr(), topic.as_ptr(), 0) == 0 }
            })
            .cloned();
        let Some(entry) = found else { return Ok(false) };
        let args = args.map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the plugin registered this handler and its data; the plugin,
        // the topic and the arguments live until it returns.
        let rc = unsafe { (entry.handler)(Rc::as_ptr(self), topic.as_ptr(), args, entry.data) };
        if rc < 0 { Err(HandlerFailed) } else { Ok(true) }
    }

    /// Unloads it: handlers, what it attached, then its code.
    pub fn destroy(&self) {
        self.handlers.take();
        self.aux.destroy();
        if let Some(library) = self.library.take() {
            // SAFETY: opened by `load`, closed once; the handlers are gone.
            unsafe { libc::dlclose(library.as_ptr()) };
        }
    }
}

fn dl_error() -> String {
    // SAFETY: dlerror returns NULL or a C string valid until the next dl call.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            "unknown error".to_owned()
        } else {
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    }
}
