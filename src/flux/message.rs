//! Requests to a service of ours, and the duty to answer each of them exactly
//! once (or, if it is streaming, to end it exactly once).

use std::ffi::CStr;
use std::ops::Deref;
use std::ptr;
use std::ptr::NonNull;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::cstr;
use super::error::Context;
use super::error::Error;
use super::error::Result;
use super::error::check_ptr;
use super::error::check_rc;
use super::handle::Handle;
use crate::errno::Errno;
use crate::ffi::host;
use crate::ffi::types::flux_msg_t;

/// A received message, kept by reference count.
#[derive(Debug)]
pub struct Message(NonNull<flux_msg_t>);

impl Message {
    /// Keeps a message beyond the callback that delivered it.
    ///
    /// # Errors
    /// EINVAL for NULL.
    ///
    /// # Safety
    /// `raw` is NULL or a valid message.
    unsafe fn keep(raw: *const flux_msg_t) -> Result<Message> {
        let core = host::core()?;
        if raw.is_null() {
            return Err(Error::new(Errno::EINVAL));
        }
        // SAFETY: not NULL, and the caller vouches for it.
        check_ptr(unsafe { core.flux_msg_incref(raw) }).map(Message)
    }

    fn raw(&self) -> *const flux_msg_t {
        self.0.as_ptr()
    }

    /// The full topic, `SERVICE.METHOD`.
    ///
    /// # Errors
    /// EPROTO if the message has none.
    pub fn topic(&self) -> Result<&str> {
        let core = host::core()?;
        let mut topic = ptr::null();
        // SAFETY: a valid message and a place for the result.
        check_rc(unsafe { core.flux_msg_get_topic(self.raw(), &raw mut topic) })?;
        // SAFETY: the topic lives as long as the message.
        let topic = unsafe { cstr::borrow(topic) }.ok_or(Errno::EPROTO)?;
        topic.to_str().map_err(|_| Errno::EPROTO.into())
    }

    /// The uid of the sender, as the broker vouches for it.
    ///
    /// # Errors
    /// EPROTO for a malformed message.
    pub fn userid(&self) -> Result<u32> {
        let core = host::core()?;
        let mut userid = 0;
        // SAFETY: a valid message and a place for the result.
        check_rc(unsafe { core.flux_msg_get_userid(self.raw(), &raw mut userid) })?;
        Ok(userid)
    }

    /// The roles of the sender (`FLUX_ROLE_*`), as the broker vouches for it.
    ///
    /// # Errors
    /// EPROTO for a malformed message.
    pub fn rolemask(&self) -> Result<u32> {
        let core = host::core()?;
        let mut rolemask = 0;
        // SAFETY: a valid message and a place for the result.
        check_rc(unsafe { core.flux_msg_get_rolemask(self.raw(), &raw mut rolemask) })?;
        Ok(rolemask)
    }

    /// Identifies the connection of the sender: equal for its requests and for
    /// the `disconnect` request that announces its death. `None` for a message
    /// from this same connection.
    pub fn route_first(&self) -> Option<&str> {
        let core = host::core().ok()?;
        // SAFETY: a valid message.
        let route = unsafe { core.flux_msg_route_first(self.raw()) };
        // SAFETY: the route lives as long as the message.
        unsafe { cstr::borrow(route) }?.to_str().ok()
    }

    /// True if the sender expects several responses.
    pub fn is_streaming(&self) -> bool {
        // SAFETY: a valid message.
        host::core().is_ok_and(|core| unsafe { core.flux_msg_is_streaming(self.raw()) })
    }

    /// True if the sender expects no response.
    pub fn is_noresponse(&self) -> bool {
        // SAFETY: a valid message.
        host::core().is_ok_and(|core| unsafe { core.flux_msg_is_noresponse(self.raw()) })
    }

    /// The payload, not copied; empty if there is none. That of a JSON request
    /// ends with a NUL; use [`Message::json`].
    ///
    /// # Errors
    /// EPROTO for a malformed message.
    pub fn payload(&self) -> Result<&[u8]> {
        let core = host::core()?;
        // Zero beforehand: Flux 0.58 has an int there, and fills in half of the length.
        let (mut data, mut len) = (ptr::null(), 0);
        // SAFETY: a valid message and places for the results.
        check_rc(unsafe {
            core.flux_request_decode_raw(
                self.raw(),
                ptr::null_mut(),
                &raw mut data,
                &raw mut len,
            )
        })?;
        if data.is_null() || len == 0 {
            return Ok(&[]);
        }
        // SAFETY: the payload lives, unchanged, as long as the message (F6).
        Ok(unsafe { std::slice::from_raw_parts(data.cast(), len) })
    }

    /// The payload as a C string; `None` if there is none.
    ///
    /// # Errors
    /// EPROTO if it is no string.
    pub fn text(&self) -> Result<Option<&CStr>> {
        let core = host::core()?;
        let mut text = ptr::null();
        // SAFETY: a valid message and a place for the result.
        check_rc(unsafe {
            core.flux_request_decode(self.raw(), ptr::null_mut(), &raw mut text)
        })?;
        // SAFETY: the payload lives, unchanged, as long as the message (F6).
        Ok(unsafe { cstr::borrow(text) })
    }

    /// The payload as JSON.
    ///
    /// # Errors
    /// EPROTO if there is none, or it is not what `T` expects; the text says
    /// why.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        let text = self.text()?.ok_or_else(|| {
            Error::with_text(Errno::EPROTO, "the request has no JSON payload")
        })?;
        serde_json::from_slice(text.to_bytes()).context("malformed request")
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if let Ok(core) = host::core() {
            // SAFETY: gives up the reference that keep() took.
            unsafe { core.flux_msg_decref(self.raw()) };
        }
    }
}

/// The way back to the sender. Answers an abandoned request when dropped.
#[derive(Debug)]
struct Reply {
    handle: Handle,
    msg: Message,
    done: bool,
}

impl Reply {
    fn raw(&self, payload: &[u8]) -> Result<()> {
        let (core, h) = (host::core()?, self.handle.live()?);
        let data = match payload {
            [] => ptr::null(),
            [..] => payload.as_ptr().cast(),
        };
        let len = i32::try_from(payload.len()).map_err(|_| Errno::EOVERFLOW)?;
        // SAFETY: open handle (live), valid request; the payload is copied.
        check_rc(unsafe { core.flux_respond_raw(h, self.msg.raw(), data, len) })
            .map(drop)
            .context("respond")
    }

    fn json(&self, value: &impl Serialize) -> Result<()> {
        let (core, h) = (host::core()?, self.handle.live()?);
        let json = cstr::json_cstring(value)?;
        // SAFETY: open handle (live), valid request, C string.
        check_rc(unsafe { core.flux_respond(h, self.msg.raw(), json.as_ptr()) })
            .map(drop)
            .context("respond")
    }

    fn error(&mut self, errno: Errno, text: Option<&str>) -> Result<()> {
        self.done = true;
        let (core, h) = (host::core()?, self.handle.live()?);
        let text = text.map(cstr::text_cstring);
        let text = text.as_ref().map_or(ptr::null(), |text| text.as_ptr());
        // SAFETY: open handle (live), valid request, NULL or C string.
        check_rc(unsafe { core.flux_respond_error(h, self.msg.raw(), errno.raw(), text) })
            .map(drop)
            .context("respond")
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.done {
            // Nothing to do if the peer cannot be told.
            let _ = self.error(Errno::ECANCELED, Some("the request was abandoned"));
        }
    }
}

/// A request that waits for its answer; may be kept beyond the handler.
///
/// The methods that answer consume it. Dropped without an answer, it is
/// answered with ECANCELED. All of them do nothing if the sender expects no
/// response. A streaming request gets its single answer and the end of the
/// stream, if it is not made a [`Stream`].
#[derive(Debug)]
#[must_use = "a request must be answered"]
pub struct Request(Reply);

impl Deref for Request {
    type Target = Message;

    fn deref(&self) -> &Message {
        &self.0.msg
    }
}

impl Request {
    /// Takes a request out of a message handler.
    ///
    /// # Errors
    /// EINVAL for NULL.
    ///
    /// # Safety
    /// `raw` is NULL or a valid request message that came over `handle`.
    pub unsafe fn from_raw(handle: Handle, raw: *const flux_msg_t) -> Result<Request> {
        // SAFETY: as the caller vouches.
        let msg = unsafe { Message::keep(raw) }?;
        Ok(Request(Reply {
            handle,
            msg,
            done: false,
        }))
    }

    /// The handle that the request came over.
    pub fn handle(&self) -> Handle {
        self.0.handle
    }

    /// Answers with success and no payload.
    ///
    /// # Errors
    /// Those of the connection; the sender gets nothing then.
    pub fn respond(self) -> Result<()> {
        self.respond_raw(&[])
    }

    /// Answers with a raw payload.
    ///
    /// # Errors
    /// As [`Request::respond`].
    pub fn respond_raw(mut self, payload: &[u8]) -> Result<()> {
        self.0.raw(payload)?;
        self.close()
    }

    /// Answers with a JSON payload.
    ///
    /// # Errors
    /// As [`Request::respond`]; EPROTO if the value has no JSON form, which
    /// the sender gets too.
    pub fn respond_json(mut self, value: &impl Serialize) -> Result<()> {
        if let Err(error) = self.0.json(value) {
            let _ = self.0.error(error.errno(), None);
            return Err(error);
        }
        self.close()
    }

    /// Answers with an error; `text` replaces that of the number.
    ///
    /// # Errors
    /// As [`Request::respond`].
    pub fn fail(mut self, errno: Errno, text: Option<&str>) -> Result<()> {
        self.0.error(errno, text)
    }

    /// Answers with an error's number and text.
    ///
    /// # Errors
    /// As [`Request::respond`].
    pub fn fail_with(self, error: &Error) -> Result<()> {
        self.fail(error.errno(), Some(&error.to_string()))
    }

    /// Starts answering a streaming request.
    ///
    /// # Errors
    /// EPROTO if the request is not streaming, or its sender expects no response;
    /// the sender gets that answer.
    pub fn into_stream(mut self) -> Result<Stream> {
        // Flux does not announce the end of a sender that wants no response: such
        // a stream would stay open for ever.
        if self.is_streaming() && !self.is_noresponse() {
            return Ok(Stream(self.0));
        }
        let text = "this method needs a streaming request";
        self.0.error(Errno::EPROTO, Some(text))?;
        Err(Error::with_text(Errno::EPROTO, text))
    }

    /// After the only response: the end of a stream, or nothing.
    fn close(&mut self) -> Result<()> {
        if self.is_streaming() {
            return self.0.error(Errno::ENODATA, None);
        }
        self.0.done = true;
        Ok(())
    }
}

/// A streaming request that is being answered.
///
/// Ends with [`Stream::finish`] or [`Stream::fail`]; dropped before, it ends
/// with ECANCELED.
#[derive(Debug)]
#[must_use = "a stream must be ended"]
pub struct Stream(Reply);

impl Deref for Stream {
    type Target = Message;

    fn deref(&self) -> &Message {
        &self.0.msg
    }
}

impl Stream {
    /// The handle that the request came over.
    pub fn handle(&self) -> Handle {
        self.0.handle
    }

    /// Sends one response with a raw payload.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn respond_raw(&self, payload: &[u8]) -> Result<()> {
        self.0.raw(payload)
    }

    /// Sends one response with a JSON payload.
    ///
    /// # Errors
    /// Those of the connection; EPROTO if the value has no JSON form.
    pub fn respond_json(&self, value: &impl Serialize) -> Result<()> {
        self.0.json(value)
    }

    /// Ends the stream regularly: the sender gets ENODATA.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn finish(mut self) -> Result<()> {
        self.0.error(Errno::ENODATA, None)
    }

    /// Ends the stream with an error; `text` replaces that of the number.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn fail(mut self, errno: Errno, text: Option<&str>) -> Result<()> {
        self.0.error(errno, text)
    }

    /// Ends the stream with an error's number and text.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn fail_with(self, error: &Error) -> Result<()> {
        self.fail(error.errno(), Some(&error.to_string()))
    }
}
