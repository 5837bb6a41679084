//! The `flux` command of the embedded provider: just what trying out and
//! testing needs, with the words and exit codes of Flux.

use std::ffi::OsString;

mod args;
mod attach;
mod attr;
mod batch;
mod boot;
mod cancel;
mod driver;
mod exec;
mod fail;
mod job;
mod run;
mod spec;
mod start;
mod stdin;
mod watch;

fn main() -> std::process::ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let code = match driver::run(&args) {
        Ok(code) => code,
        Err(e) => e.report(),
    };
    std::process::ExitCode::from(u8::try_from(code & 0xff).unwrap_or(1))
}
