//! `flux_plugin_*` of libflux-core.

use std::ffi::{CStr, c_char, c_int, c_void};

use super::{borrow, fail, malloc_string, status, text};
use crate::host::aux::Free;
use crate::host::plugin::{Args, Handler, Plugin};

crate::export! {
    fn flux_plugin_set_name(p: *const Plugin, name: *const c_char) -> c_int {
        let (Some(p), Some(name)) = (borrow(p), text(name)) else {
            return fail(libc::EINVAL, -1);
        };
        p.set_name(&name);
        0
    }

    fn flux_plugin_add_handler(
        p: *const Plugin,
        topic: *const c_char,
        cb: Option<Handler>,
        arg: *mut c_void,
    ) -> c_int {
        let Some(p) = borrow(p).filter(|_| !topic.is_null()) else {
            return fail(libc::EINVAL, -1);
        };
        p.add_handler(CStr::from_ptr(topic), cb, arg);
        0
    }

    fn flux_plugin_aux_set(
        p: *const Plugin,
        key: *const c_char,
        val: *mut c_void,
        free_fn: Option<Free>,
    ) -> c_int {
        let Some(p) = borrow(p) else {
            return fail(libc::EINVAL, -1);
        };
        let key = (!key.is_null()).then(|| CStr::from_ptr(key).to_bytes());
        status(p.aux.set(key, val, free_fn))
    }

    fn flux_plugin_aux_get(p: *const Plugin, key: *const c_char) -> *mut c_void {
        let Some(p) = borrow(p).filter(|_| !key.is_null()) else {
            return fail(libc::EINVAL, std::ptr::null_mut());
        };
        p.aux
            .get(CStr::from_ptr(key).to_bytes())
            .unwrap_or_else(|e| fail(e.0, std::ptr::null_mut()))
    }

    fn flux_plugin_arg_get(
        args: *const Args,
        flags: c_int,
        json_str: *mut *mut c_char,
    ) -> c_int {
        if args.is_null() || json_str.is_null() {
            return fail(libc::EINVAL, -1);
        }
        match (*args).get(flags) {
            Some(value) => {
                *json_str = malloc_string(&value.to_string());
                0
            }
            None => fail(libc::ENOENT, -1),
        }
    }

    fn flux_plugin_arg_set(
        args: *const Args,
        flags: c_int,
        json_str: *const c_char,
    ) -> c_int {
        if args.is_null() {
            return fail(libc::EINVAL, -1);
        }
        let value = match text(json_str) {
            None => None,
            Some(s) => match serde_json::from_str(&s) {
                Ok(value) => Some(value),
                Err(_) => return fail(libc::EINVAL, -1),
            },
        };
        (*args).set(flags, value);
        0
    }
}
