//! Messages, and how they travel over a stream socket: one fixed binary header,
//! the names, then the payload as it is (no encoding of payloads, so that bulk
//! data costs two copies per hop).

use std::collections::VecDeque;
use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;

/// Destination "nearest rank that has the service".
pub const NODEID_ANY: u32 = 0xFFFF_FFFF;
/// Destination "nearest rank above the sender".
pub const NODEID_UPSTREAM: u32 = 0xFFFF_FFFE;
/// Sender not stated: the router fills in the credential of the connection.
pub const USERID_UNKNOWN: u32 = 0xFFFF_FFFF;

/// Role: owner of the instance.
pub const ROLE_OWNER: u32 = 1;
/// Role: any user that may connect.
pub const ROLE_USER: u32 = 2;
/// Role: connected on this machine.
pub const ROLE_LOCAL: u32 = 4;

/// The sender wants no answer.
pub const FLAG_NORESPONSE: u8 = 1;
/// Answers may be many; an error ends them.
pub const FLAG_STREAMING: u8 = 2;
/// The node id is that of the sender; deliver above it.
pub const FLAG_UPSTREAM: u8 = 4;

/// Largest payload that a peer may send; beyond it the stream is corrupt.
const MAX_PAYLOAD: usize = 1 << 30;
/// Largest header with names.
const MAX_HEAD: usize = 1 << 20;
/// Bytes read at once into the shared buffer.
const READ_SIZE: usize = 64 * 1024;
/// Length that says "no payload".
const NO_PAYLOAD: u32 = u32::MAX;
/// Bytes of the two length words.
const PREFIX: usize = 8;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Asks a service.
    Request,
    /// Answers a request.
    Response,
    /// Goes to all subscribers.
    Event,
}

impl Kind {
    fn code(self) -> u8 {
        match self {
            Self::Request => 1,
            Self::Response => 2,
            Self::Event => 4,
        }
    }

    fn from_code(code: u8) -> io::Result<Self> {
        match code {
            1 => Ok(Self::Request),
            2 => Ok(Self::Response),
            4 => Ok(Self::Event),
            _ => Err(corrupt("unknown message kind")),
        }
    }
}

/// One message.
#[derive(Clone, Debug)]
pub struct Message {
    /// What it is.
    pub kind: Kind,
    /// `FLAG_*`.
    pub flags: u8,
    /// User id of the sender.
    pub userid: u32,
    /// `ROLE_*` of the sender.
    pub rolemask: u32,
    /// Destination rank of a request; error number of a response.
    pub word: u32,
    /// Pairs a response with its request; 0 is none.
    pub matchtag: u32,
    /// Who to send the response to, the nearest hop last.
    pub routes: Vec<CString>,
    /// `service.method`.
    pub topic: CString,
    /// Content; text has its terminating NUL.
    pub payload: Option<Rc<Vec<u8>>>,
}

impl Message {
    /// A request to `topic` at `nodeid`.
    pub fn request(topic: CString, payload: Option<Vec<u8>>, nodeid: u32) -> Self {
        Self {
            kind: Kind::Request,
            flags: 0,
            userid: USERID_UNKNOWN,
            rolemask: 0,
            word: nodeid,
            matchtag: 0,
            routes: Vec::new(),
            topic,
            payload: payload.map(Rc::new),
        }
    }

    /// The response to `self`: success when `errnum` is 0.
    pub fn response(&self, errnum: u32, payload: Option<Vec<u8>>) -> Self {
        Self {
            kind: Kind::Response,
            flags: self.flags & FLAG_STREAMING,
            userid: USERID_UNKNOWN,
            rolemask: 0,
            word: errnum,
            matchtag: self.matchtag,
            routes: self.routes.clone(),
            topic: self.topic.clone(),
            payload: payload.map(Rc::new),
        }
    }

    /// Whether a flag is set.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The topic as text.
    pub fn topic_str(&self) -> &str {
        self.topic.to_str().unwrap_or("")
    }

    /// The payload without its NUL, if it is text that has one.
    pub fn text(&self) -> Option<&str> {
        let bytes = self.payload.as_ref()?.strip_suffix(&[0])?;
        std::str::from_utf8(bytes).ok()
    }

    /// The payload as JSON; none or anything else is `Null`.
    pub fn json(&self) -> serde_json::Value {
        self.text()
            .and_then(|s| serde_json::from_str(s).ok())
            .unwrap_or(serde_json::Value::Null)
    }

    fn head(&self) -> Vec<u8> {
        let mut out = vec![0; PREFIX];
        out.push(self.kind.code());
        out.push(self.flags);
        for word in [self.userid, self.rolemask, self.word, self.matchtag] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        push_name(&mut out, self.topic.as_bytes());
        for route in &self.routes {
            push_name(&mut out, route.as_bytes());
        }
        let head = u32::try_from(out.len() - PREFIX).unwrap_or(u32::MAX);
        let body = self
            .payload
            .as_ref()
            .map_or(NO_PAYLOAD, |p| u32::try_from(p.len()).unwrap_or(NO_PAYLOAD));
        out[..4].copy_from_slice(&head.to_le_bytes());
        out[4..PREFIX].copy_from_slice(&body.to_le_bytes());
        out
    }

    fn from_head(bytes: &[u8]) -> io::Result<Self> {
        let mut rest = bytes;
        let kind = Kind::from_code(take(&mut rest, 1)?[0])?;
        let flags = take(&mut rest, 1)?[0];
        let userid = take_word(&mut rest)?;
        let rolemask = take_word(&mut rest)?;
        let word = take_word(&mut rest)?;
        let matchtag = take_word(&mut rest)?;
        let topic = take_name(&mut rest)?;
        let mut routes = Vec::new();
        while !rest.is_empty() {
            routes.push(take_name(&mut rest)?);
        }
        Ok(Self {
            kind,
            flags,
            userid,
            rolemask,
            word,
            matchtag,
            routes,
            topic,
            payload: None,
        })
    }
}

/// Text as a payload: with its NUL, as Flux sends JSON.
pub fn text_payload(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len() + 1);
    bytes.extend_from_slice(text.as_bytes());
    bytes.push(0);
    bytes
}

/// A name that came from text; a NUL inside ends it.
pub fn name(text: &(impl AsRef<[u8]> + ?Sized)) -> CString {
    let clean = text.as_ref().split(|byte| *byte == 0).next();
    CString::new(clean.unwrap_or_default()).unwrap_or_default()
}

fn corrupt(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn push_name(out: &mut Vec<u8>, name: &[u8]) {
    let len = u16::try_from(name.len()).unwrap_or(0);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&name[..usize::from(len)]);
}

fn take<'a>(rest: &mut &'a [u8], n: usize) -> io::Result<&'a [u8]> {
    let (head, tail) = rest
        .split_at_checked(n)
        .ok_or_else(|| corrupt("short message header"))?;
    *rest = tail;
    Ok(head)
}

fn take_word(rest: &mut &[u8]) -> io::Result<u32> {
    let b = take(rest, 4)?;
    Ok(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

fn take_name(rest: &mut &[u8]) -> io::Result<CString> {
    let b = take(rest, 2)?;
    let len = usize::from(u16::from_le_bytes([b[0], b[1]]));
    CString::new(take(rest, len)?).map_err(|_| corrupt("NUL in a name"))
}

/// A message whose payload is still arriving.
#[derive(Debug)]
struct Partial {
    msg: Message,
    body: Vec<u8>,
    filled: usize,
}

/// Cuts a byte stream into messages.
#[derive(Debug)]
pub struct Reader {
    buf: Vec<u8>,
    /// What of `buf` has arrived and is not parsed yet.
    start: usize,
    end: usize,
    partial: Option<Partial>,
    ready: VecDeque<Message>,
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            buf: vec![0; READ_SIZE],
            start: 0,
            end: 0,
            partial: None,
            ready: VecDeque::new(),
        }
    }
}

impl Reader {
    /// Reads once; `Ok(0)` is the end of the stream.
    ///
    /// # Errors
    /// Those of recv(2), `EAGAIN` included, and `InvalidData` for a corrupt stream.
    pub fn fill(&mut self, fd: impl AsFd, dontwait: bool) -> io::Result<usize> {
        use rustix::net::RecvFlags;
        let flags = if dontwait {
            RecvFlags::DONTWAIT
        } else {
            RecvFlags::empty()
        };
        if let Some(p) = &mut self.partial {
            // Straight into place: bulk data is not copied once more.
            let (_, n) = rustix::net::recv(fd, &mut p.body[p.filled..], flags)?;
            p.filled += n;
            self.complete_partial();
            return Ok(n);
        }
        if self.start > 0 {
            self.buf.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.buf.len() - self.end < READ_SIZE / 2 {
            self.buf.resize(self.buf.len() + READ_SIZE, 0);
        }
        let (_, n) = rustix::net::recv(fd, &mut self.buf[self.end..], flags)?;
        self.end += n;
        self.parse()?;
        Ok(n)
    }

    /// The next whole message that has arrived.
    pub fn next_message(&mut self) -> Option<Message> {
        self.ready.pop_front()
    }

    fn complete_partial(&mut self) {
        if let Some(p) = self.partial.take_if(|p| p.filled == p.body.len()) {
            let mut msg = p.msg;
            msg.payload = Some(Rc::new(p.body));
            self.ready.push_back(msg);
        }
    }

    fn parse(&mut self) -> io::Result<()> {
        loop {
            let bytes = &self.buf[self.start..self.end];
            if bytes.len() < PREFIX {
                return Ok(());
            }
            let mut prefix = &bytes[..PREFIX];
            let head = take_word(&mut prefix)? as usize;
            let body = take_word(&mut prefix)?;
            if head > MAX_HEAD {
                return Err(corrupt("oversized message header"));
            }
            if bytes.len() < PREFIX + head {
                return Ok(());
            }
            let msg = Message::from_head(&bytes[PREFIX..PREFIX + head])?;
            self.start += PREFIX + head;
            if body == NO_PAYLOAD {
                self.ready.push_back(msg);
                continue;
            }
            let want = body as usize;
            if want > MAX_PAYLOAD {
                return Err(corrupt("oversized payload"));
            }
            let filled = want.min(self.end - self.start);
            let mut body = vec![0; want];
            body[..filled].copy_from_slice(&self.buf[self.start..self.start + filled]);
            self.start += filled;
            self.partial = Some(Partial { msg, body, filled });
            self.complete_partial();
            if self.partial.is_some() {
                return Ok(());
            }
        }
    }
}

/// Header and payload.
type Outgoing = (Vec<u8>, Option<Rc<Vec<u8>>>);

/// Messages that wait for a socket to take them.
#[derive(Debug, Default)]
pub struct Writer {
    queue: VecDeque<Outgoing>,
    sent: usize,
    bytes: usize,
}

impl Writer {
    /// Appends a message.
    pub fn push(&mut self, msg: &Message) {
        let head = msg.head();
        self.bytes += head.len() + msg.payload.as_ref().map_or(0, |p| p.len());
        self.queue.push_back((head, msg.payload.clone()));
    }

    /// Whether all has been sent.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Bytes that wait.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Sends what the socket takes; true when nothing is left.
    ///
    /// # Errors
    /// Those of sendmsg(2) other than `EAGAIN`.
    pub fn flush(&mut self, fd: impl AsFd, dontwait: bool) -> io::Result<bool> {
        use rustix::net::SendFlags;
        let mut flags = SendFlags::NOSIGNAL;
        if dontwait {
            flags |= SendFlags::DONTWAIT;
        }
        while let Some((head, body)) = self.queue.front() {
            let body: &[u8] = body.as_ref().map_or(&[], |b| b.as_slice());
            let total = head.len() + body.len();
            let parts = if self.sent < head.len() {
                [io::IoSlice::new(&head[self.sent..]), io::IoSlice::new(body)]
            } else {
                [
                    io::IoSlice::new(&body[self.sent - head.len()..]),
                    io::IoSlice::new(&[]),
                ]
            };
            let mut control = rustix::net::SendAncillaryBuffer::default();
            match rustix::net::sendmsg(fd.as_fd(), &parts, &mut control, flags) {
                Ok(n) => {
                    self.sent += n;
                    self.bytes -= n;
                    if self.sent == total {
                        self.sent = 0;
                        self.queue.pop_front();
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(false),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_message_arrives_as_it_was_sent() {
        let (a, b) = UnixStream::pair().unwrap();
        let mut sent = Message::request(name("svc.method"), Some(vec![7; 300_000]), 3);
        sent.flags = FLAG_STREAMING;
        sent.matchtag = 99;
        sent.routes = vec![name("first"), name("last")];
        let mut empty = Message::request(name("svc.none"), None, NODEID_ANY);
        empty.userid = 1000;
        let mut writer = Writer::default();
        writer.push(&sent);
        writer.push(&empty);
        let mut reader = Reader::default();
        let mut got = Vec::new();
        while got.len() < 2 {
            writer.flush(&a, true).unwrap();
            reader.fill(&b, true).unwrap();
            got.extend(std::iter::from_fn(|| reader.next_message()));
        }
        assert!(writer.is_empty());
        assert_eq!(writer.len(), 0);
        assert_eq!(got[0].topic, sent.topic);
        assert_eq!(got[0].routes, sent.routes);
        assert_eq!(got[0].payload, sent.payload);
        assert_eq!((got[0].word, got[0].matchtag), (3, 99));
        assert!(got[0].has(FLAG_STREAMING));
        assert_eq!(got[1].payload, None);
        assert_eq!(got[1].userid, 1000);
    }

    #[test]
    fn junk_is_refused() {
        let (a, b) = UnixStream::pair().unwrap();
        rustix::io::write(&a, &[0xff; 64]).unwrap();
        let err = Reader::default().fill(&b, true).unwrap_err();
        assert_eq!(err.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn text_needs_its_nul() {
        let msg = Message::request(name("a"), Some(text_payload("{\"x\":1}")), 0);
        assert_eq!(msg.json()["x"], 1);
        let raw = Message::request(name("a"), Some(b"{}".to_vec()), 0);
        assert_eq!(raw.text(), None);
    }
}
