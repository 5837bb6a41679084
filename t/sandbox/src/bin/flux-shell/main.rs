//! The job shell: one per node of a job. It loads plugins, runs tasks and
//! passes on what they print.

mod barrier;
mod builtin;
mod capi;
mod doom;
mod info;
mod initrc;
mod input;
mod lifecycle;
mod log;
mod output;
mod pmi;
mod render;
mod shell;
mod signals;
mod task;

fn main() {
    let mut args = std::env::args().skip(1);
    let id = match (args.next(), args.next()) {
        (Some(id), None) => flux_sandbox::jobid::parse(&id),
        _ => None,
    };
    let Some(id) = id else {
        log::plain("FATAL: usage: flux-shell JOBID");
        std::process::exit(1);
    };
    lifecycle::run(id)
}
