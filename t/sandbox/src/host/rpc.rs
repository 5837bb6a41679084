//! Remote procedure calls: a future that the responses of a request fulfil.

use std::rc::Rc;

use crate::errno::Errno;
use crate::host::dispatch::Match;
use crate::host::future::Future;
use crate::host::handle::Handle;
use crate::host::outcome::Value;
use crate::wire::{
    self, FLAG_NORESPONSE, FLAG_STREAMING, FLAG_UPSTREAM, Message, NODEID_UPSTREAM,
};

/// No answer is wanted.
pub const NORESPONSE: i32 = 1;
/// Many answers, ended by an error.
pub const STREAMING: i32 = 2;

/// All roles: an answer may come from anyone.
const ANY_ROLE: u32 = 0xFFFF_FFFF;

/// Sends a request.
///
/// # Errors
/// `EINVAL` for unknown flags; `ECONNRESET` and such when it cannot be sent.
pub fn start(
    h: &Rc<Handle>,
    topic: &str,
    payload: Option<Vec<u8>>,
    nodeid: u32,
    flags: i32,
) -> Result<Rc<Future>, Errno> {
    if flags & !(NORESPONSE | STREAMING) != 0 {
        return Err(Errno(libc::EINVAL));
    }
    let mut msg = Message::request(wire::name(topic), payload, nodeid);
    if flags & NORESPONSE == 0 {
        msg.matchtag = h.alloc_tag();
    } else {
        msg.flags |= FLAG_NORESPONSE;
    }
    if flags & STREAMING != 0 {
        msg.flags |= FLAG_STREAMING;
    }
    if nodeid == NODEID_UPSTREAM {
        msg.flags |= FLAG_UPSTREAM;
        let rank = h.attr_string("rank")?;
        msg.word = rank.parse().map_err(|_| Errno(libc::EPROTO))?;
    }
    let f = Future::new(Some(Box::new(await_responses)));
    f.set_flux(Some(Rc::clone(h)));
    f.rpc.set(Some((msg.matchtag, flags, nodeid)));
    if let Err(e) = h.send(&msg) {
        f.destroy();
        return Err(e);
    }
    if flags & NORESPONSE != 0 {
        f.fulfill(Value::from_c(std::ptr::null_mut(), None));
    }
    Ok(f)
}

/// Sends a request with a JSON payload.
///
/// # Errors
/// As [`start`].
pub fn start_json(
    h: &Rc<Handle>,
    topic: &str,
    payload: &serde_json::Value,
    nodeid: u32,
    flags: i32,
) -> Result<Rc<Future>, Errno> {
    let payload = wire::text_payload(&payload.to_string());
    start(h, topic, Some(payload), nodeid, flags)
}

/// Waits for the response.
///
/// # Errors
/// Its error, or why waiting failed.
pub fn get(f: &Rc<Future>) -> Result<Option<Rc<Message>>, Errno> {
    f.get().map(|(_, msg)| msg)
}

fn await_responses(f: &Rc<Future>) {
    let Some((tag, flags, _)) = f.rpc.get() else {
        return;
    };
    if flags & NORESPONSE != 0 {
        return;
    }
    let weak = Rc::downgrade(f);
    let added = f.flux().and_then(|h| {
        h.dispatch().add(
            Match::Response(tag),
            ANY_ROLE,
            Box::new(move |_, mh, msg| {
                let Some(f) = weak.upgrade() else { return };
                if msg.word == 0 {
                    f.fulfill(Value::from_message(Rc::clone(msg)));
                    if flags & STREAMING == 0 {
                        mh.stop();
                    }
                } else {
                    let errno = i32::try_from(msg.word).unwrap_or(libc::EPROTO);
                    f.fulfill_error(Errno(errno), msg.text());
                    mh.stop();
                }
            }),
        )
    });
    match added {
        Ok(mh) => f.keep_handler(mh),
        Err(e) => f.fulfill_error(e, None),
    }
}
