//! The connection to a broker: a copyable view ([`Handle`]) of one that the
//! host or a [`Connection`] owns, and the calls that need nothing else.

use std::ffi::CStr;
use std::ffi::c_int;
use std::ptr;
use std::ptr::NonNull;

use serde::Serialize;

use super::cstr;
use super::error::Context;
use super::error::Error;
use super::error::Result;
use super::error::check_ptr;
use super::error::check_rc;
use super::future::Future;
use super::lease::Lease;
use super::lease::Lessor;
use super::reactor::Reactor;
use super::sigpipe::shielded;
use crate::errno::Errno;
use crate::ffi::host;
use crate::ffi::types::FLUX_NODEID_ANY;
use crate::ffi::types::FLUX_RPC_NORESPONSE;
use crate::ffi::types::FLUX_RPC_STREAMING;
use crate::ffi::types::flux_t;

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// The nearest broker that offers the service.
    Any,
    /// The broker of this rank.
    Rank(u32),
}

impl Node {
    fn id(self) -> u32 {
        match self {
            Node::Any => FLUX_NODEID_ANY,
            Node::Rank(rank) => rank,
        }
    }
}

/// A view of an open connection; copies refer to the same one.
///
/// Use of a view whose [`Connection`] is gone fails with ENOTCONN. Neither
/// `Send` nor `Sync`: a connection belongs to the thread of its reactor.
///
/// ```compile_fail
/// fn is_send<T: Send>() {}
/// is_send::<flux_bcast::flux::handle::Handle>();
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Handle {
    raw: NonNull<flux_t>,
    lease: Lease,
}

impl Handle {
    /// A view of a handle that someone else owns.
    ///
    /// # Errors
    /// EINVAL for NULL.
    ///
    /// # Safety
    /// The handle stays open, and belongs to this thread, as long as any copy
    /// of the view is used.
    pub unsafe fn from_raw(raw: *mut flux_t) -> Result<Handle> {
        let raw = NonNull::new(raw)
            .ok_or_else(|| Error::with_text(Errno::EINVAL, "the Flux handle is NULL"))?;
        Ok(Handle {
            raw,
            lease: Lease::HOST,
        })
    }

    /// A view that ends with a lease.
    ///
    /// # Safety
    /// The handle stays open as long as the lease is good.
    pub(crate) unsafe fn leased(raw: NonNull<flux_t>, lease: Lease) -> Handle {
        Handle { raw, lease }
    }

    /// The C handle, for passing back to C.
    pub fn as_raw(self) -> *mut flux_t {
        self.raw.as_ptr()
    }

    /// The C handle if it may be used.
    pub(crate) fn live(self) -> Result<*mut flux_t> {
        self.lease.check()?;
        Ok(self.raw.as_ptr())
    }

    /// Rank of the broker that this handle is connected to.
    ///
    /// # Errors
    /// As `flux_get_rank(3)`.
    pub fn rank(self) -> Result<u32> {
        let (core, h) = (host::core()?, self.live()?);
        let mut rank = 0;
        // SAFETY: h is open (live), rank is a valid place for the result.
        check_rc(unsafe { core.flux_get_rank(h, &raw mut rank) }).context("get broker rank")?;
        Ok(rank)
    }

    /// Number of brokers of the instance.
    ///
    /// # Errors
    /// As `flux_get_size(3)`.
    pub fn size(self) -> Result<u32> {
        let (core, h) = (host::core()?, self.live()?);
        let mut size = 0;
        // SAFETY: h is open (live), size is a valid place for the result.
        check_rc(unsafe { core.flux_get_size(h, &raw mut size) })
            .context("get instance size")?;
        Ok(size)
    }

    /// A broker attribute; `None` if it is not set.
    ///
    /// # Errors
    /// As `flux_attr_get(3)`, without ENOENT.
    pub fn attr_get(self, name: &str) -> Result<Option<String>> {
        let (core, h) = (host::core()?, self.live()?);
        cstr::with_cstr(name, |cname| {
            // SAFETY: h is open (live), the name is a C string.
            match check_ptr(unsafe { core.flux_attr_get(h, cname.as_ptr()) }) {
                Ok(value) => {
                    // SAFETY: a C string that the handle's cache keeps.
                    let value = unsafe { CStr::from_ptr(value.as_ptr()) };
                    Ok(Some(value.to_string_lossy().into_owned()))
                }
                Err(error) if error.errno() == Errno::ENOENT => Ok(None),
                Err(error) => Err(error.context(format!("get broker attribute {name}"))),
            }
        })
    }

    /// The reactor that serves this handle.
    ///
    /// # Errors
    /// ENOMEM, or ENOTCONN.
    pub fn reactor(self) -> Result<Reactor> {
        let (core, h) = (host::core()?, self.live()?);
        // SAFETY: h is open (live).
        let raw = check_ptr(unsafe { core.flux_get_reactor(h) }).context("get reactor")?;
        // SAFETY: the reactor lives as long as the handle.
        Ok(unsafe { Reactor::leased(raw, self.lease) })
    }

    /// Sends a request with a raw payload; the future gets one response.
    ///
    /// # Errors
    /// EINVAL for a bad topic, ENOMEM, or an error of the connection. Errors
    /// of the service come through the future.
    pub fn rpc_raw(self, topic: &str, payload: &[u8], node: Node) -> Result<Future> {
        self.request_raw(topic, payload, node, 0)
    }

    /// As [`Handle::rpc_raw`]; the future gets responses until one with an
    /// error, ENODATA being the regular end.
    ///
    /// # Errors
    /// As [`Handle::rpc_raw`].
    pub fn stream_raw(self, topic: &str, payload: &[u8], node: Node) -> Result<Future> {
        self.request_raw(topic, payload, node, FLUX_RPC_STREAMING)
    }

    /// As [`Handle::rpc_raw`], without a response. Nobody learns if the
    /// message does not arrive.
    ///
    /// # Errors
    /// As [`Handle::rpc_raw`].
    pub fn send_raw(self, topic: &str, payload: &[u8], node: Node) -> Result<()> {
        self.request_raw(topic, payload, node, FLUX_RPC_NORESPONSE)
            .map(drop)
    }

    /// Sends a request with a JSON payload; the future gets one response.
    ///
    /// # Errors
    /// As [`Handle::rpc_raw`]; EPROTO if the value has no JSON form.
    pub fn rpc_json(self, topic: &str, value: &impl Serialize, node: Node) -> Result<Future> {
        self.request_json(topic, value, node, 0)
    }

    /// As [`Handle::stream_raw`] with a JSON payload.
    ///
    /// # Errors
    /// As [`Handle::rpc_json`].
    pub fn stream_json(
        self,
        topic: &str,
        value: &impl Serialize,
        node: Node,
    ) -> Result<Future> {
        self.request_json(topic, value, node, FLUX_RPC_STREAMING)
    }

    /// As [`Handle::send_raw`] with a JSON payload.
    ///
    /// # Errors
    /// As [`Handle::rpc_json`].
    pub fn send_json(self, topic: &str, value: &impl Serialize, node: Node) -> Result<()> {
        self.request_json(topic, value, node, FLUX_RPC_NORESPONSE)
            .map(drop)
    }

    fn request_raw(
        self,
        topic: &str,
        payload: &[u8],
        node: Node,
        flags: u32,
    ) -> Result<Future> {
        let (core, h) = (host::core()?, self.live()?);
        let data = match payload {
            [] => ptr::null(),
            [..] => payload.as_ptr().cast(),
        };
        cstr::with_cstr(topic, |ctopic| {
            // SAFETY: h is open (live); topic is a C string; the payload is
            // copied by the call.
            let send = || unsafe {
                core.flux_rpc_raw(
                    h,
                    ctopic.as_ptr(),
                    data,
                    payload.len(),
                    node.id(),
                    flags as c_int,
                )
            };
            let raw = shielded(|| check_ptr(send()))
                .with_context(|| format!("send request {topic}"))?;
            // SAFETY: a new future that nobody else owns.
            Ok(unsafe { Future::from_raw(raw) })
        })
    }

    fn request_json(
        self,
        topic: &str,
        value: &impl Serialize,
        node: Node,
        flags: u32,
    ) -> Result<Future> {
        let (core, h) = (host::core()?, self.live()?);
        let json = cstr::json_cstring(value)?;
        cstr::with_cstr(topic, |ctopic| {
            // SAFETY: h is open (live); topic and payload are C strings, which
            // the call copies.
            let send = || unsafe {
                core.flux_rpc(h, ctopic.as_ptr(), json.as_ptr(), node.id(), flags as c_int)
            };
            let raw = shielded(|| check_ptr(send()))
                .with_context(|| format!("send request {topic}"))?;
            // SAFETY: a new future that nobody else owns.
            Ok(unsafe { Future::from_raw(raw) })
        })
    }
}

/// An open connection of a client, closed when dropped.
///
/// Futures keep the connection to the broker open for themselves (F5); views
/// and watchers made from it fail with ENOTCONN afterwards.
#[derive(Debug)]
#[must_use = "dropping a connection closes it"]
pub struct Connection {
    raw: NonNull<flux_t>,
    lessor: Option<Lessor>,
}

impl Connection {
    /// Connects to `uri`, or to the enclosing instance (`FLUX_URI`). Needs
    /// [`host::init_client`] or [`host::init_plugin`] first.
    ///
    /// # Errors
    /// As `flux_open(3)`: ENOENT or ECONNREFUSED if there is no broker there.
    pub fn open(uri: Option<&str>) -> Result<Connection> {
        let core = host::core()?;
        let curi = uri.map(cstr::cstring).transpose()?;
        let curi = curi.as_ref().map_or(ptr::null(), |uri| uri.as_ptr());
        // SAFETY: NULL or a C string.
        let raw = check_ptr(unsafe { core.flux_open(curi, 0) }).with_context(|| match uri {
            Some(uri) => format!("connect to Flux at {uri}"),
            None => match std::env::var_os("FLUX_URI") {
                Some(uri) => format!("connect to Flux at {} (FLUX_URI)", uri.display()),
                None => "connect to Flux (FLUX_URI is not set, so to the system instance)"
                    .to_owned(),
            },
        })?;
        Ok(Connection {
            raw,
            lessor: Some(Lessor::new()),
        })
    }

    /// Lets another reactor serve the connection, which must outlive it. Before
    /// anything else is done with it.
    ///
    /// # Errors
    /// EEXIST if it has one already.
    pub fn set_reactor(&self, reactor: Reactor) -> Result<()> {
        let (core, r) = (host::core()?, reactor.live()?);
        // SAFETY: the handle is ours and open, the reactor exists (live).
        let rc = unsafe { core.flux_set_reactor(self.raw.as_ptr(), r) };
        check_rc(rc).context("set reactor").map(drop)
    }

    /// A view, good until the connection is dropped.
    pub fn handle(&self) -> Handle {
        let lease = self.lessor.as_ref().map_or(Lease::HOST, Lessor::lease);
        // SAFETY: Drop ends the lease before it closes the handle.
        unsafe { Handle::leased(self.raw, lease) }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        drop(self.lessor.take());
        if let Ok(core) = host::core() {
            // SAFETY: opened by us, closed once; no lease is left.
            unsafe { core.flux_close(self.raw.as_ptr()) };
        }
    }
}
