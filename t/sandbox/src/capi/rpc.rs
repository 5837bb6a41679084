//! `flux_rpc` and its kin.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::rc::Rc;

use super::message::{payload, string};
use super::{borrow, fail, give, text};
use crate::errno::Errno;
use crate::host::future::Future;
use crate::host::handle::Handle;
use crate::host::rpc;
use crate::wire::Message;

fn start(
    h: *const Handle,
    topic: *const c_char,
    payload: Option<Vec<u8>>,
    nodeid: u32,
    flags: c_int,
) -> *const Future {
    // SAFETY: pointers of the caller of an exported function.
    let (Some(h), Some(topic)) = (unsafe { borrow(h) }, unsafe { text(topic) }) else {
        return fail(libc::EINVAL, std::ptr::null());
    };
    match rpc::start(&h, &topic, payload, nodeid, flags) {
        Ok(f) => give(f),
        Err(e) => fail(e.0, std::ptr::null()),
    }
}

/// The response of a future, waited for.
pub(super) fn response(f: *const Future) -> Result<Rc<Message>, Errno> {
    // SAFETY: a pointer of the caller of an exported function.
    let f = unsafe { borrow(f) }.ok_or(Errno(libc::EINVAL))?;
    rpc::get(&f)?.ok_or(Errno(libc::EINVAL))
}

crate::export! {
    fn flux_rpc(
        h: *const Handle,
        topic: *const c_char,
        s: *const c_char,
        nodeid: u32,
        flags: c_int,
    ) -> *const Future {
        let payload = (!s.is_null()).then(|| CStr::from_ptr(s).to_bytes_with_nul().to_vec());
        start(h, topic, payload, nodeid, flags)
    }

    fn flux_rpc_raw(
        h: *const Handle,
        topic: *const c_char,
        data: *const c_void,
        len: usize,
        nodeid: u32,
        flags: c_int,
    ) -> *const Future {
        let payload = (!data.is_null() && len > 0)
            .then(|| std::slice::from_raw_parts(data.cast::<u8>(), len).to_vec());
        start(h, topic, payload, nodeid, flags)
    }

    fn flux_rpc_get(f: *const Future, s: *mut *const c_char) -> c_int {
        let found = response(f).and_then(|msg| string(&msg));
        match found {
            Ok(p) => {
                if !s.is_null() {
                    *s = p;
                }
                0
            }
            Err(e) => fail(e.0, -1),
        }
    }

    fn flux_rpc_get_raw(
        f: *const Future,
        data: *mut *const c_void,
        len: *mut usize,
    ) -> c_int {
        match response(f) {
            Ok(msg) => {
                let (d, l) = payload(&msg);
                if !data.is_null() {
                    *data = d;
                }
                if !len.is_null() {
                    *len = l;
                }
                0
            }
            Err(e) => fail(e.0, -1),
        }
    }
}
