//! `check`: is the provider at `PMI_PORT` one that clients get along with?

use std::io::ErrorKind;
use std::net::TcpStream;

use flux_bcast::errno::reason;
use flux_bcast::pmi::client;
use flux_bcast::pmi::client::Client;
use flux_bcast::pmi::client::Reply;

use crate::Failed;
use crate::args::Check;
use crate::identity;
use crate::output;

/// Lines that old clients still read whole.
const LINE_MAX: usize = 1023;

pub(crate) fn run(args: &Check) -> Result<(), Failed> {
    let id = identity::client_id(args.id, args.port.as_deref())?;
    let stream = identity::connect(args.port.as_deref(), args.timeout)?;
    let lost = |error: &dyn std::fmt::Display| Failed::Error(error.to_string());
    stream
        .set_read_timeout(Some(args.timeout))
        .map_err(|error| lost(&reason(&error)))?;
    let ended = |error: client::Error| match error {
        client::Error::Io(error) if error.kind() == ErrorKind::WouldBlock => Failed::Error(
            format!("no answer within {:?}; see --timeout", args.timeout),
        ),
        error => lost(&error),
    };
    let client = Client::handshake(stream, id).map_err(ended)?;
    let mut talk = Talk {
        client,
        quiet: args.quiet,
        deviations: 0,
    };
    talk.say(&format!(
        "rank {} of {}",
        talk.client.rank, talk.client.size
    ));
    talk.all(args.barrier).map_err(ended)?;
    match talk.deviations {
        0 => Ok(()),
        n => Err(Failed::Error(format!(
            "{n} answers deviate from what clients need"
        ))),
    }
}

struct Talk {
    client: Client<TcpStream>,
    quiet: bool,
    deviations: u32,
}

type Result2<T> = std::result::Result<T, flux_bcast::pmi::client::Error>;

impl Talk {
    fn say(&self, text: &str) {
        if !self.quiet {
            output::line(text);
        }
    }

    fn deviates(&mut self, text: &str) {
        self.deviations += 1;
        output::error(text);
    }

    /// Sends a request, prints question and answer, and checks what holds for
    /// every reply.
    fn ask(&mut self, line: &str, name: &str) -> Result2<Reply> {
        let reply = self.client.ask(line.as_bytes())?;
        let text = String::from_utf8_lossy(reply.line()).into_owned();
        self.say(&format!("{line}\n    {text}"));
        if reply.name() != Some(name.as_bytes()) {
            self.deviates(&format!("'{line}' is answered by '{text}', not by {name}"));
        }
        if reply.int("rc").is_none() {
            self.deviates(&format!("the answer to '{line}' has no rc"));
        }
        if reply.line().len() >= LINE_MAX {
            self.deviates(&format!(
                "the answer to '{line}' is too long for older clients"
            ));
        }
        Ok(reply)
    }

    fn expect_rc(&mut self, line: &str, reply: &Reply, ok: bool) {
        let rc = reply.int("rc").unwrap_or(0);
        if (rc == 0) != ok {
            let want = if ok { "0" } else { "another than 0" };
            self.deviates(&format!("'{line}' has rc={rc}, should be {want}"));
        }
    }

    fn all(&mut self, barrier: bool) -> Result2<()> {
        let line = "cmd=init pmi_version=1 pmi_subversion=1";
        let reply = self.ask(line, "response_to_init")?;
        self.expect_rc(line, &reply, true);
        match (reply.int("pmi_version"), reply.int("pmi_subversion")) {
            (Some(1), Some(1)) => {}
            (Some(1), Some(2)) => {
                self.say("    (groups are enabled; Flux's own client needs 1.1)")
            }
            _ => self.deviates("the version is neither 1.1 nor 1.2"),
        }

        let reply = self.ask("cmd=get_maxes", "maxes")?;
        for (key, max) in [
            ("kvsname_max", 256),
            ("keylen_max", 256),
            ("vallen_max", 1024),
        ] {
            match reply.int(key) {
                Some(n) if (1..=max).contains(&n) => {}
                Some(n) => self.deviates(&format!("{key}={n} is not from 1 to {max}")),
                None => self.deviates(&format!("{key} is missing")),
            }
        }
        for (line, name, key) in [
            ("cmd=get_appnum", "appnum", "appnum"),
            ("cmd=get_universe_size", "universe_size", "size"),
        ] {
            let reply = self.ask(line, name)?;
            self.expect_rc(line, &reply, true);
            if reply.int(key).is_none() {
                self.deviates(&format!("the answer to '{line}' has no {key}"));
            }
        }
        let reply = self.ask("cmd=get_my_kvsname", "my_kvsname")?;
        let name = reply.get("kvsname").unwrap_or_default();
        if name.is_empty() {
            self.deviates("the key space has no name");
        }
        self.keys(&String::from_utf8_lossy(&name))?;
        if barrier {
            let line = "cmd=barrier_in";
            let reply = self.ask(line, "barrier_out")?;
            self.expect_rc(line, &reply, true);
        }
        let reply = self.ask("cmd=finalize", "finalize_ack")?;
        self.expect_rc("cmd=finalize", &reply, true);
        Ok(())
    }

    fn keys(&mut self, space: &str) -> Result2<()> {
        let get = |key: &str| format!("cmd=get kvsname={space} key={key}");
        let line = get("PMI_process_mapping");
        let reply = self.ask(&line, "get_result")?;
        if reply.int("rc") == Some(0) {
            let value = reply.get("value").unwrap_or_default();
            // An empty one makes older libraries abort.
            if !value.starts_with(b"(vector,") || !value.ends_with(b")") {
                self.deviates("PMI_process_mapping is no (vector,...)");
            }
        }
        let line = get("flux-pmi-port-check.none");
        let reply = self.ask(&line, "get_result")?;
        self.expect_rc(&line, &reply, false);

        // Blanks and '=' belong to the value; nothing may follow it.
        let value = "a b=c";
        let key = format!("local::check.{}", self.client.rank);
        let line = format!("cmd=put kvsname={space} key={key} value={value}");
        let reply = self.ask(&line, "put_result")?;
        self.expect_rc(&line, &reply, true);
        let line = get(&key);
        let reply = self.ask(&line, "get_result")?;
        self.expect_rc(&line, &reply, true);
        if !reply.line().ends_with(b" value=a b=c") {
            self.deviates("a value does not come back as it was put, at the end of the line");
        }
        Ok(())
    }
}
