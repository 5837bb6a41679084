//! Methods of the shell's service: requests from tasks, other shells and
//! clients arrive here.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::c_void;

use super::error::Result;
use super::guard;
use super::guard::guard_ok;
use super::handle::Handle;
use super::message::Request;
use super::slot::Slot;
use super::userdata;
use crate::errno::Errno;
use crate::ffi::types::flux_msg_handler_t;
use crate::ffi::types::flux_msg_t;
use crate::ffi::types::flux_t;

/// A registered method.
pub(crate) struct Method {
    slot: Slot<dyn FnMut(Request)>,
    /// Requests that came while the closure was running, oldest first.
    backlog: RefCell<VecDeque<Request>>,
}

impl Method {
    pub(crate) fn new(handler: impl FnMut(Request) + 'static) -> Method {
        Method {
            slot: Slot::new(Box::new(handler)),
            backlog: RefCell::default(),
        }
    }

    /// Drops the closure; requests from now on are answered with ENOSYS.
    pub(crate) fn close(&self) {
        self.slot.close();
        self.refuse_backlog();
    }

    fn refuse_backlog(&self) {
        for request in self.backlog.take() {
            let _ = refuse(request);
        }
    }

    /// Gives the request to the closure, or to the call of it that is running.
    fn receive(&self, request: Request) {
        self.backlog.borrow_mut().push_back(request);
        if self.slot.is_running() {
            return;
        }
        loop {
            let next = self.backlog.borrow_mut().pop_front();
            let Some(request) = next else {
                return;
            };
            let mut request = Some(request);
            let _ = self.slot.call(|f| request.take().map(&mut *f));
            if let Some(request) = request {
                let _ = refuse(request);
            }
        }
    }
}

fn refuse(request: Request) -> Result<()> {
    request.fail(Errno::ENOSYS, Some("the service has ended"))
}

/// # Safety
/// Called by the host with what `Shell::service_register` registered.
pub(crate) unsafe extern "C" fn on_request(
    h: *mut flux_t,
    _: *mut flux_msg_handler_t,
    msg: *const flux_msg_t,
    arg: *mut c_void,
) {
    if guard::is_poisoned() {
        // The sender must not wait for ever.
        guard::destructor(|| {
            // SAFETY: the host's handle and message, for the time of the call.
            let request = unsafe { receive(h, msg) };
            let text = "the service has stopped after an internal error";
            let _ = request.and_then(|r| r.fail(Errno::ENOTRECOVERABLE, Some(text)));
        });
        return;
    }
    guard_ok(|| {
        // SAFETY: the host's handle and message, for the time of the call.
        let Ok(request) = (unsafe { receive(h, msg) }) else {
            return;
        };
        // SAFETY: a method that is never freed, see Plugin::keep.
        let method = unsafe { userdata::borrow::<Method>(arg) };
        method.receive(request);
    });
}

/// # Safety
/// `h` is the shell's handle, `msg` a request that came over it.
unsafe fn receive(h: *mut flux_t, msg: *const flux_msg_t) -> Result<Request> {
    // SAFETY: the shell's handle outlives the plugin's state (F2).
    let handle = unsafe { Handle::from_raw(h) }?;
    // SAFETY: as the caller vouches.
    unsafe { Request::from_raw(handle, msg) }
}
