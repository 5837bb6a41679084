//! Standard input of the user goes to the tasks.

use std::cell::RefCell;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::rc::Rc;

use flux_sandbox::fields;
use flux_sandbox::fields::Event;
use flux_sandbox::host::handle::Handle;
use flux_sandbox::host::reactor::{Kind, POLLIN, Watcher};
use flux_sandbox::host::rpc;
use flux_sandbox::wire::NODEID_ANY;
use serde_json::json;

/// Bytes sent at once.
const PIECE: usize = 64 * 1024;

/// Sends what can be read, to its end.
pub(crate) fn forward(h: &Rc<Handle>, id: u64, path: Option<&str>) -> Option<Rc<Watcher>> {
    let file = match path {
        Some(path) => File::open(path).ok(),
        None => rustix::io::dup(std::io::stdin()).ok().map(File::from),
    };
    let Some(file) = file else {
        send(h, id, b"", true);
        return None;
    };
    let fd = file.as_raw_fd();
    let file = RefCell::new(file);
    let h = Rc::clone(h);
    let w = Watcher::new(
        &h.reactor(),
        Kind::Fd(fd, POLLIN),
        Box::new(move |w, _| {
            let mut buf = vec![0; PIECE];
            let n = file.borrow_mut().read(&mut buf).unwrap_or(0);
            if n == 0 {
                w.stop();
            }
            send(&h, id, &buf[..n], n == 0);
        }),
    );
    w.start();
    Some(w)
}

fn send(h: &Rc<Handle>, id: u64, data: &[u8], eof: bool) {
    let mut context = fields! { "stream": "stdin", "rank": "all" };
    context.push_data(data, eof);
    let event = Event {
        timestamp: h.reactor().now(),
        name: "data".to_owned(),
        context: Some(context),
    };
    let request = json!({ "id": id, "path": "guest.input", "line": event.line() });
    let sent = rpc::start_json(h, "sandbox.append", &request, NODEID_ANY, rpc::NORESPONSE);
    if let Ok(f) = sent {
        f.destroy();
    }
}
