//! `serve`: a PMI server and the commands it starts, with no resource manager.

mod hosts;
mod launch;
mod server;

use std::net::Ipv4Addr;
use std::net::SocketAddr;
use std::net::SocketAddrV4;

use flux_bcast::errno::Errno;
use flux_bcast::errno::reason;
use flux_bcast::hostlist;
use flux_bcast::pmi::BATCH_BYTES;
use flux_bcast::pmi::Config;
use flux_bcast::pmi::Ids;
use flux_bcast::pmi::Limits;
use flux_bcast::pmi::Provider;
use flux_bcast::pmi::mapping;
use flux_bcast::sockets::Sockets;
use flux_bcast::sockets::admission::Admission;
use rustix::rand::GetRandomFlags;

use self::hosts::Hosts;
use self::launch::Launch;
use self::server::Server;
use crate::Failed;
use crate::args::Serve;
use crate::identity::LANES;
use crate::output;

pub(crate) fn run(args: Serve) -> Result<(), Failed> {
    let names = match &args.hostlist {
        None => Vec::new(),
        Some(list) => hostlist::expand(list)
            .map_err(|error| Failed::Usage(format!("--hostlist: {error}")))?,
    };
    if args.hostlist.is_some() && names.is_empty() {
        return Err(Failed::Usage("--hostlist names no host".to_owned()));
    }
    // An rsh command would take it for an option, which may run anything here.
    if let Some(name) = names.iter().find(|name| name.starts_with('-')) {
        let text = format!("--hostlist: '{name}' is not the name of a host");
        return Err(Failed::Usage(text));
    }
    if args.rsh_command.is_some() && names.is_empty() {
        let text = "--rsh-command has no meaning without --hostlist";
        return Err(Failed::Usage(text.to_owned()));
    }
    if args.words.first().is_some_and(String::is_empty) {
        return Err(Failed::Usage("COMMAND is an empty word".to_owned()));
    }
    let count = u32::try_from(names.len()).unwrap_or(u32::MAX);
    let size = match args.size {
        Some(size) => size,
        None if count > 0 => count,
        None => return Err(Failed::Usage("give --size or --hostlist".to_owned())),
    };
    let hosts = Hosts::new(names, size).map_err(Failed::Usage)?;
    let known = hosts.look_up(&args.allow).map_err(Failed::Error)?;
    let bind = match args.bind {
        Some(addr) => addr,
        None => hosts.local_address(&known).map_err(Failed::Error)?,
    };
    if bind.is_loopback() && !args.allow.is_empty() {
        return Err(Failed::Usage(format!(
            "--allow: no other host can connect where this listens, at {bind}: give a \
             --bind address that is not of 127.*"
        )));
    }
    let sockets = Sockets::listen(SocketAddrV4::new(bind, 0))
        .map_err(|error| Failed::Error(format!("listen on {bind}: {}", reason(&error))))?;
    let addr = sockets
        .local_addr()
        .map_err(|error| Failed::Error(reason(&error)))?;
    let secret = secret()?;
    let ids = Ids::from_secret(secret.as_bytes(), size, LANES);
    let provider = Provider::new(config(&hosts, &secret, ids.clone(), args.pmi12));
    if args.verbose {
        output::note(&format!("listening on {addr} for {size} ranks"));
    }

    let launch = Launch {
        host: contact(addr, bind),
        port: addr.port(),
        size,
        hostlist: hosts.text(),
        secret,
    };
    let admission = Admission::new(!args.no_uid_check, hosts.places(&known, &args.allow))
        .map_err(|error| Failed::Error(format!("list own addresses: {}", reason(&error))))?;
    let mut server = Server::new(&args, provider, sockets, admission)?;
    if args.script {
        server.start(launch.script(&args)?, None)?;
    } else {
        for rank in 0..size {
            let id = ids.id(rank).unwrap_or_default();
            server.start(launch.rank(&args, hosts.name(rank), rank, id)?, Some(rank))?;
        }
    }
    server.run()
}

/// The address to tell to clients.
fn contact(addr: SocketAddr, bind: Ipv4Addr) -> String {
    if bind.is_unspecified() {
        // They must find this machine by name then.
        return rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
    }
    addr.ip().to_string()
}

fn secret() -> Result<String, Failed> {
    let mut bytes = [0; 16];
    match rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(16) => Ok(bytes.iter().map(|b| format!("{b:02x}")).collect()),
        Ok(_) => Err(Failed::Error("too few random bytes".to_owned())),
        Err(error) => Err(Failed::Error(format!(
            "get random bytes: {}",
            Errno::from(error)
        ))),
    }
}

fn config(hosts: &Hosts, secret: &str, ids: Ids, groups: bool) -> Config {
    let nodes = hosts.node_of_rank();
    let mut presets = Vec::new();
    let mut preset = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            presets.push((key.as_bytes().to_vec(), value.into_bytes()));
        }
    };
    preset("PMI_process_mapping", mapping::process_mapping(nodes));
    preset("flux.taskmap", mapping::taskmap(nodes));
    // Libraries derive names of shared memory from this name: it must be
    // another in every run, and must not give the secret away.
    let name = blake3::hash(format!("kvs {secret}").as_bytes()).to_hex();
    Config {
        shell: 0,
        shell_of_rank: vec![0; nodes.len()],
        node_of_rank: nodes.to_vec(),
        k: 2,
        batch: BATCH_BYTES,
        kvsname: format!("serve-{}", &name[..16]).into_bytes(),
        presets,
        ids,
        groups,
        limits: Limits::for_size(hosts.size()),
    }
}
