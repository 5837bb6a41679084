//! The command line.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::time::Duration;

use clap::Parser;
use clap::Subcommand;
use flux_bcast::sockets::origin::Origin;
use flux_bcast::units::parse_fsd;

/// Start programs that use PMI over TCP, serve them, and check who serves them.
#[derive(Debug, Parser)]
#[command(name = "flux pmi-port", bin_name = "flux pmi-port", version)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Serve(Serve),
    Exec(Exec),
    Check(Check),
}

/// Start COMMAND once per rank on a list of hosts, without a resource manager.
///
/// Opens a PMI server, starts COMMAND on each host by way of the rsh command,
/// and serves until all have ended. Ranks are laid over the hosts in blocks.
/// COMMAND finds PMI_PORT (host:port), PMI_ID, PMI_RANK, PMI_SIZE, PMI_HOST and
/// PMI_HOSTLIST in its environment, and its input is empty. When this command
/// ends, however it does, so does everything it has started.
#[derive(Debug, Parser)]
#[command(
    after_help = "Exit status: the largest one of the commands and of an abort; 1 if \
                   ranks are missing; 2 for wrong usage."
)]
pub(crate) struct Serve {
    /// Number of ranks (default: one per host)
    #[arg(short = 'n', long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub(crate) size: Option<u32>,

    /// Hosts such as foo[0-12] (default: only this one, without an rsh command)
    #[arg(short = 'H', long, value_name = "HOSTS")]
    pub(crate) hostlist: Option<String>,

    /// What takes a host and a command line and runs it there (default: ssh)
    #[arg(short = 'r', long, value_name = "CMD")]
    pub(crate) rsh_command: Option<String>,

    /// Run the rsh command just once, with COMMAND as its arguments: it starts
    /// all ranks itself, under `flux pmi-port exec`, and passes on PMI_SECRET
    #[arg(long, requires = "hostlist")]
    pub(crate) script: bool,

    /// Address to listen on (default: the one that the first host is reached
    /// from, or 127.0.0.1 without hosts)
    #[arg(short = 'b', long, value_name = "ADDR")]
    pub(crate) bind: Option<Ipv4Addr>,

    /// Accept clients from this address, network (ADDR/BITS) or host too; those
    /// of the hosts and of this machine are
    #[arg(long, value_name = "FROM")]
    pub(crate) allow: Vec<Origin>,

    /// Do not demand that clients on this machine belong to this user
    #[arg(long)]
    pub(crate) no_uid_check: bool,

    /// Offer PMI 1.2 (barriers of groups)
    #[arg(long)]
    pub(crate) pmi12: bool,

    /// Put the rank before each line of output; lines of 64 KiB or more are cut
    #[arg(short = 'l', long)]
    pub(crate) label: bool,

    /// How long a client may take to say who it is
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = some_time)]
    pub(crate) handshake_timeout: Duration,

    /// How long others may run on after a command has failed
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_fsd)]
    pub(crate) exit_timeout: Duration,

    /// Say what happens
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,

    /// Program and arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    pub(crate) words: Vec<String>,
}

/// Connect to PMI_PORT and run PROGRAM with PMI_FD, PMI_RANK and PMI_SIZE.
///
/// For programs that know only an inherited descriptor; `flux start` and
/// `flux broker` are such ones.
///
/// The id is PMI_ID. Without it, it follows from PMI_SECRET and the rank, which
/// is --rank, PMI_RANK, or the place of this host in PMI_HOSTLIST.
#[derive(Debug, Parser)]
pub(crate) struct Exec {
    /// The rank of this program, with PMI_SECRET
    #[arg(long, value_name = "N")]
    pub(crate) rank: Option<u32>,

    /// Read the secret from the first line of the input instead of PMI_SECRET
    #[arg(long)]
    pub(crate) secret_stdin: bool,

    /// Program and arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    pub(crate) words: Vec<OsString>,
}

/// Connect to PMI_PORT as a client and print what the provider answers.
///
/// Fails if an answer is one that known clients do not cope with.
#[derive(Debug, Parser)]
pub(crate) struct Check {
    /// Address of the provider, host:port (default: PMI_PORT)
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) port: Option<String>,

    /// Id to give (default: PMI_ID)
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<i64>,

    /// Enter a barrier, which returns when all ranks have
    #[arg(long)]
    pub(crate) barrier: bool,

    /// Say nothing unless something is wrong
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,

    /// How long to wait for an answer
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = some_time)]
    pub(crate) timeout: Duration,
}

/// A time in which something can happen.
fn some_time(text: &str) -> Result<Duration, String> {
    match parse_fsd(text)? {
        Duration::ZERO => Err("must be more than 0".into()),
        time => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manual;
    use clap::CommandFactory;

    #[test]
    fn the_definitions_are_consistent() {
        Args::command().debug_assert();
    }

    /// The manual page must name exactly the options that there are.
    #[test]
    fn the_manual_page_has_the_same_options() {
        let page = include_str!("flux-pmi-port.1");
        for command in Args::command().get_subcommands() {
            let documented = manual::documented(page, &format!(".SS {}", command.get_name()));
            assert_eq!(documented, manual::known(command), "{}", command.get_name());
        }
    }

    #[test]
    fn a_command_keeps_its_own_options() {
        let args = Args::try_parse_from(["x", "serve", "-n", "2", "sh", "-c", "true"]).unwrap();
        let Command::Serve(serve) = args.command else {
            panic!("not serve")
        };
        assert_eq!((serve.size, serve.words.len()), (Some(2), 3));
    }

    #[test]
    fn a_misspelt_option_is_no_program() {
        for words in [
            &["x", "serve", "-n", "2", "--lable", "true"][..],
            &["x", "exec", "--rnak", "true"],
        ] {
            let error = Args::try_parse_from(words).unwrap_err();
            assert!(
                error.to_string().contains(words[words.len() - 2]),
                "{error}"
            );
        }
        for (words, program) in [
            (&["x", "serve", "-n2", "true", "-x", "--help"][..], 3),
            (&["x", "serve", "-n2", "-l", "--", "-true", "-x"], 2),
        ] {
            let args = Args::try_parse_from(words).unwrap();
            let Command::Serve(serve) = args.command else {
                panic!("not serve")
            };
            assert_eq!(
                (serve.size, serve.words.len()),
                (Some(2), program),
                "{words:?}"
            );
        }
    }
}
