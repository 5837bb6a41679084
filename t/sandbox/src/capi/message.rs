//! `flux_msg_*`, `flux_request_decode`, `flux_respond`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::rc::Rc;

use super::{borrow, fail, status, take, text};
use crate::errno::Errno;
use crate::host::handle::Handle;
use crate::wire::{FLAG_NORESPONSE, FLAG_STREAMING, Kind, Message};

/// Where the payload of `msg` is: NULL and 0 when it has none.
pub(super) fn payload(msg: &Message) -> (*const c_void, usize) {
    match &msg.payload {
        Some(p) => (p.as_ptr().cast(), p.len()),
        None => (std::ptr::null(), 0),
    }
}

/// The payload as a C string; NULL when there is none.
pub(super) fn string(msg: &Message) -> Result<*const c_char, Errno> {
    match &msg.payload {
        None => Ok(std::ptr::null()),
        Some(p) if p.last() == Some(&0) => Ok(p.as_ptr().cast()),
        Some(_) => Err(Errno(libc::EPROTO)),
    }
}

fn answer(
    h: *const Handle,
    request: *const Message,
    errnum: i32,
    payload: Option<Vec<u8>>,
) -> c_int {
    // SAFETY: pointers of the caller of an exported function.
    let (Some(h), Some(request)) = (unsafe { borrow(h) }, unsafe { borrow(request) }) else {
        return fail(libc::EINVAL, -1);
    };
    if request.has(FLAG_NORESPONSE) {
        return 0;
    }
    let errnum = u32::try_from(errnum).unwrap_or(0);
    status(h.send(&request.response(errnum, payload)))
}

crate::export! {
    fn flux_msg_incref(msg: *const Message) -> *const Message {
        if msg.is_null() {
            return fail(libc::EINVAL, msg);
        }
        Rc::increment_strong_count(msg);
        msg
    }

    fn flux_msg_decref(msg: *const Message) {
        let saved = crate::errno::get();
        drop(take(msg));
        crate::errno::set(saved);
    }

    fn flux_msg_get_topic(msg: *const Message, topic: *mut *const c_char) -> c_int {
        if msg.is_null() || topic.is_null() {
            return fail(libc::EINVAL, -1);
        }
        *topic = (*msg).topic.as_ptr();
        0
    }

    fn flux_msg_get_userid(msg: *const Message, userid: *mut u32) -> c_int {
        if msg.is_null() || userid.is_null() {
            return fail(libc::EINVAL, -1);
        }
        *userid = (*msg).userid;
        0
    }

    fn flux_msg_get_rolemask(msg: *const Message, rolemask: *mut u32) -> c_int {
        if msg.is_null() || rolemask.is_null() {
            return fail(libc::EINVAL, -1);
        }
        *rolemask = (*msg).rolemask;
        0
    }

    fn flux_msg_is_streaming(msg: *const Message) -> bool {
        !msg.is_null() && (*msg).flags & FLAG_STREAMING != 0
    }

    fn flux_msg_is_noresponse(msg: *const Message) -> bool {
        !msg.is_null() && (*msg).flags & FLAG_NORESPONSE != 0
    }

    fn flux_msg_route_first(msg: *const Message) -> *const c_char {
        if msg.is_null() {
            return std::ptr::null();
        }
        let msg = &*msg;
        msg.routes.first().map_or(std::ptr::null(), |r| r.as_ptr())
    }

    fn flux_request_decode(
        msg: *const Message,
        topic: *mut *const c_char,
        s: *mut *const c_char,
    ) -> c_int {
        let Some(msg) = borrow(msg) else {
            return fail(libc::EINVAL, -1);
        };
        if msg.kind != Kind::Request {
            return fail(libc::EPROTO, -1);
        }
        if !s.is_null() {
            match string(&msg) {
                Ok(p) => *s = p,
                Err(e) => return fail(e.0, -1),
            }
        }
        if !topic.is_null() {
            *topic = msg.topic.as_ptr();
        }
        0
    }

    fn flux_request_decode_raw(
        msg: *const Message,
        topic: *mut *const c_char,
        data: *mut *const c_void,
        len: *mut usize,
    ) -> c_int {
        let Some(msg) = borrow(msg).filter(|_| !data.is_null() && !len.is_null()) else {
            return fail(libc::EINVAL, -1);
        };
        if msg.kind != Kind::Request {
            return fail(libc::EPROTO, -1);
        }
        (*data, *len) = payload(&msg);
        if !topic.is_null() {
            *topic = msg.topic.as_ptr();
        }
        0
    }

    fn flux_respond(
        h: *const Handle,
        request: *const Message,
        s: *const c_char,
    ) -> c_int {
        let payload = (!s.is_null()).then(|| CStr::from_ptr(s).to_bytes_with_nul().to_vec());
        answer(h, request, 0, payload)
    }

    fn flux_respond_raw(
        h: *const Handle,
        request: *const Message,
        data: *const c_void,
        len: c_int,
    ) -> c_int {
        let len = usize::try_from(len).unwrap_or(0);
        let payload = (!data.is_null() && len > 0)
            .then(|| std::slice::from_raw_parts(data.cast::<u8>(), len).to_vec());
        answer(h, request, 0, payload)
    }

    fn flux_respond_error(
        h: *const Handle,
        request: *const Message,
        errnum: c_int,
        errmsg: *const c_char,
    ) -> c_int {
        if errnum <= 0 {
            return fail(libc::EINVAL, -1);
        }
        let payload = text(errmsg).map(|s| crate::wire::text_payload(&s));
        answer(h, request, errnum, payload)
    }
}
