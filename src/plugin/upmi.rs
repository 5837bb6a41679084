//! Lets a Flux broker boot from `PMI_PORT`.
//!
//! A broker looks for a bootstrap method among plugins too
//! (`FLUX_PMI_CLIENT_SEARCHPATH`, `FLUX_PMI_CLIENT_METHODS=port`). Loaded by
//! one, this library offers the method `port`: the broker is then a client of
//! a provider over TCP, such as `flux pmi-port serve`.

use std::cell::RefCell;
use std::net::TcpStream;
use std::rc::Rc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use serde_json::json;

use crate::errno::Errno;
use crate::flux::error::Error;
use crate::flux::error::Result;
use crate::flux::plugin::Invocation;
use crate::flux::plugin::Plugin;
use crate::pmi::client::Client;
use crate::sockets::dial::dial;

/// The name of the method.
const NAME: &str = "port";

/// How long the provider may take to accept and to answer the handshake.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A connection, once `upmi.preinit` has decided that there is to be one.
#[derive(Default)]
struct State {
    address: Option<(String, i64)>,
    client: Option<Client<TcpStream>>,
}

/// What the operations take; each takes some of it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Input {
    path: Option<String>,
    key: String,
    value: String,
    msg: String,
}

type Operation = fn(&mut State, Input) -> std::result::Result<Value, String>;

const OPERATIONS: [(&str, Operation); 7] = [
    ("upmi.preinit", State::preinit),
    ("upmi.initialize", State::initialize),
    ("upmi.put", State::put),
    ("upmi.get", State::get),
    ("upmi.barrier", State::barrier),
    ("upmi.abort", State::abort),
    ("upmi.finalize", State::finalize),
];

/// Registers the method.
///
/// # Errors
/// Those of the host.
pub(super) fn init(plugin: Plugin) -> Result<()> {
    plugin.set_name(NAME)?;
    let state = Rc::new(RefCell::new(State::default()));
    for (topic, operation) in OPERATIONS {
        let state = Rc::clone(&state);
        plugin.add_handler(topic, move |call| run(&state, operation, call))?;
    }
    plugin.attach(state)
}

fn run(state: &RefCell<State>, operation: Operation, call: &Invocation<'_>) -> Result<()> {
    let input: Input = call.input()?.unwrap_or_default();
    match operation(&mut state.borrow_mut(), input) {
        Ok(Value::Null) => Ok(()),
        Ok(output) => call.set_output(&output),
        Err(text) => {
            call.set_output(&json!({ "errmsg": text }))?;
            Err(Error::with_text(Errno::EPROTO, text))
        }
    }
}

impl State {
    /// Decides whether this method applies, without connecting.
    fn preinit(&mut self, input: Input) -> std::result::Result<Value, String> {
        let env = |name: &str| {
            std::env::var(name).map_err(|_| format!("{name} not found in environ"))
        };
        let port = match input.path {
            Some(path) => path,
            None => env("PMI_PORT")?,
        };
        let id = env("PMI_ID")?;
        let id = id
            .parse()
            .map_err(|_| format!("PMI_ID '{id}' is no number"))?;
        let note = format!("selected {port}");
        self.address = Some((port, id));
        Ok(json!({ "note": note }))
    }

    fn initialize(&mut self, _: Input) -> std::result::Result<Value, String> {
        let (port, id) = self.address.as_ref().ok_or("not initialized")?;
        let stream = dial(port, TIMEOUT)?;
        let text = |error: std::io::Error| crate::errno::reason(&error);
        stream.set_read_timeout(Some(TIMEOUT)).map_err(text)?;
        let handle = stream.try_clone().map_err(text)?;
        let mut client = Client::handshake(stream, *id).map_err(|error| error.to_string())?;
        client.init().map_err(|error| error.to_string())?;
        // Later requests may wait for other ranks.
        handle.set_read_timeout(None).map_err(text)?;
        let name = String::from_utf8_lossy(client.kvsname()).into_owned();
        let output = json!({ "rank": client.rank, "size": client.size, "name": name });
        self.client = Some(client);
        Ok(output)
    }

    fn put(&mut self, input: Input) -> std::result::Result<Value, String> {
        self.client()?
            .put(&input.key, input.value.as_bytes())
            .map(|()| Value::Null)
            .map_err(|error| error.to_string())
    }

    fn get(&mut self, input: Input) -> std::result::Result<Value, String> {
        let value = self
            .client()?
            .get(&input.key)
            .map_err(|error| error.to_string())?;
        let value = String::from_utf8(value).map_err(|error| error.to_string())?;
        Ok(json!({ "value": value }))
    }

    fn barrier(&mut self, _: Input) -> std::result::Result<Value, String> {
        self.client()?
            .barrier()
            .map(|()| Value::Null)
            .map_err(|error| error.to_string())
    }

    fn abort(&mut self, input: Input) -> std::result::Result<Value, String> {
        self.client()?
            .abort(1, &input.msg)
            .map(|()| Value::Null)
            .map_err(|error| error.to_string())
    }

    fn finalize(&mut self, _: Input) -> std::result::Result<Value, String> {
        let outcome = self.client()?.finalize();
        self.client = None;
        outcome
            .map(|()| Value::Null)
            .map_err(|error| error.to_string())
    }

    fn client(&mut self) -> std::result::Result<&mut Client<TcpStream>, String> {
        self.client
            .as_mut()
            .ok_or_else(|| "not initialized".to_owned())
    }
}
