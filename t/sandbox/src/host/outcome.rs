//! What fulfils a future: a value, or an error with its text.

use std::ffi::{CString, c_void};
use std::rc::Rc;

use crate::errno::Errno;
use crate::host::aux::Free;
use crate::wire::Message;

/// A value as a user gave it, freed when it is replaced.
#[derive(Debug)]
pub struct Value {
    pub(super) ptr: *mut c_void,
    free: Option<Free>,
    pub(super) message: Option<Rc<Message>>,
}

impl Value {
    /// A value of C.
    pub fn from_c(ptr: *mut c_void, free: Option<Free>) -> Self {
        Self {
            ptr,
            free,
            message: None,
        }
    }

    /// A response; C sees the message's address.
    pub fn from_message(msg: Rc<Message>) -> Self {
        Self {
            ptr: Rc::as_ptr(&msg).cast_mut().cast(),
            free: None,
            message: Some(msg),
        }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        if let Some(free) = self.free
            && !self.ptr.is_null()
        {
            free_value(free, self.ptr);
        }
    }
}

#[expect(unsafe_code, reason = "calls a destructor given by C")]
fn free_value(free: Free, ptr: *mut c_void) {
    // SAFETY: the user gave the destructor for this value; a Value is dropped
    // once.
    unsafe { free(ptr) };
}

/// An error number and its text, if it has one of its own.
#[derive(Debug)]
pub struct Failure {
    /// The number.
    pub errno: Errno,
    pub(super) text: CString,
}

impl Failure {
    pub(super) fn new(errno: Errno, text: Option<&str>) -> Self {
        let text = match text {
            Some(text) => crate::wire::name(text),
            None => crate::wire::name(&errno.text()),
        };
        Self { errno, text }
    }
}
