//! How the processes of `flux start` in the tasks of one job become one
//! instance. They meet over `PMI_FD`, as Flux's brokers do; but task 0 plays all
//! brokers, and the others stay for as long as it does.
#![expect(unsafe_code, reason = "takes over an inherited descriptor")]

use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;

use flux_sandbox::host::handle;

/// Where task 0 tells the others its address.
const KEY: &str = "sandbox.uri";

/// A task's connection to the process manager.
#[derive(Debug)]
pub(crate) struct Boot {
    stream: BufReader<UnixStream>,
    /// Rank of the task, from 0.
    pub(crate) rank: u32,
    /// Number of tasks.
    pub(crate) size: u32,
    kvsname: String,
}

impl Boot {
    /// Connects; `None` without `PMI_FD`, or where we are the only task.
    ///
    /// # Errors
    /// A server that is not there or says no.
    pub(crate) fn from_env() -> io::Result<Option<Self>> {
        let number = |name: &str| {
            let text = std::env::var(name).ok()?;
            text.parse::<u32>().ok()
        };
        let fd = number("PMI_FD").and_then(|fd| RawFd::try_from(fd).ok());
        let (Some(fd), Some(rank), Some(size)) = (fd, number("PMI_RANK"), number("PMI_SIZE"))
        else {
            return Ok(None);
        };
        if size < 2 {
            return Ok(None);
        }
        // SAFETY: the environment says that it was opened for us. We only make a
        // copy, which fails when it is not open.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let stream = UnixStream::from(rustix::io::fcntl_dupfd_cloexec(fd, 3)?);
        let mut boot = Self {
            stream: BufReader::new(stream),
            rank,
            size,
            kvsname: String::new(),
        };
        boot.ask(
            "init pmi_version=1 pmi_subversion=1",
            "response_to_init rc=0",
        )?;
        boot.kvsname = boot.ask("get_my_kvsname", "my_kvsname rc=0 kvsname=")?;
        Ok(Some(boot))
    }

    /// Task 0: tells the others that brokers listen at `uris`, one for each.
    ///
    /// # Errors
    /// Those of the server.
    pub(crate) fn lead(mut self, uri: impl Fn(u32) -> String) -> io::Result<()> {
        let kvsname = self.kvsname.clone();
        for rank in 1..self.size {
            let put = format!("put kvsname={kvsname} key={KEY}.{rank} value={}", uri(rank));
            self.ask(&put, "put_result rc=0")?;
        }
        self.ask("barrier_in", "barrier_out rc=0")?;
        // All are connected: nobody finds us gone already.
        self.ask("barrier_in", "barrier_out rc=0")?;
        self.ask("finalize", "finalize_ack rc=0").map(|_| ())
    }

    /// Other tasks: return when the instance has ended.
    ///
    /// # Errors
    /// Those of the server, and of an instance that cannot be reached.
    pub(crate) fn follow(mut self) -> io::Result<()> {
        self.ask("barrier_in", "barrier_out rc=0")?;
        let get = format!("get kvsname={} key={KEY}.{}", self.kvsname, self.rank);
        let uri = self.ask(&get, "get_result rc=0 value=")?;
        let path = handle::socket_path(Some(&uri)).map_err(invalid)?;
        let mut instance = UnixStream::connect(path)?;
        self.ask("barrier_in", "barrier_out rc=0")?;
        self.ask("finalize", "finalize_ack rc=0")?;
        // Nothing is sent to who asks nothing.
        io::copy(&mut instance, &mut io::sink())?;
        Ok(())
    }

    /// Sends a command; the rest of the answer after `expected`.
    fn ask(&mut self, command: &str, expected: &str) -> io::Result<String> {
        let line = format!("cmd={command}\n");
        self.stream.get_mut().write_all(line.as_bytes())?;
        let mut answer = String::new();
        self.stream.read_line(&mut answer)?;
        let answer = answer.trim_end();
        match answer
            .strip_prefix("cmd=")
            .and_then(|a| a.strip_prefix(expected))
        {
            Some(rest) => Ok(rest.to_owned()),
            None => Err(invalid(format!("{command}: answer '{answer}'"))),
        }
    }
}

fn invalid(what: impl Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_string())
}
