//! `flux getattr`, `lsattr`, `version`, `uptime`.

use crate::driver::open;
use crate::fail::{Fail, Outcome, say};

/// Prints one attribute.
pub(crate) fn getattr(words: &[String]) -> Outcome {
    let [name] = words else {
        return Err(Fail::new("Usage: flux getattr name"));
    };
    let h = open("flux-getattr")?;
    match h.attr_string(name) {
        Ok(value) => {
            say(&value);
            Ok(0)
        }
        Err(e) => Err(Fail::new(format!("flux-getattr: {name}: {e}"))),
    }
}

/// Prints the attributes that every broker has.
pub(crate) fn lsattr(_words: &[String]) -> Outcome {
    let h = open("flux-lsattr")?;
    let names = [
        "broker.pid",
        "hostlist",
        "instance-level",
        "jobid",
        "jobid-path",
        "local-uri",
        "parent-uri",
        "rank",
        "rundir",
        "security.owner",
        "size",
        "tbon.topo",
    ];
    for name in names {
        if let Ok(value) = h.attr_string(name) {
            say(&format!("{name:<24}{value}"));
        }
    }
    Ok(0)
}

/// Prints the size of the instance.
pub(crate) fn uptime(_words: &[String]) -> Outcome {
    let h = open("flux-uptime")?;
    let attr = |name: &str| h.attr_string(name).unwrap_or_default();
    say(&format!(
        "run, owner {}, depth {}, size {}",
        attr("security.owner"),
        attr("instance-level"),
        attr("size")
    ));
    Ok(0)
}

/// Prints what this is.
pub(crate) fn version(_words: &[String]) -> Outcome {
    let version = env!("CARGO_PKG_VERSION");
    say(&format!("commands:    \t\t{version}-sandbox"));
    say(&format!("libflux-core:\t\t{version}-sandbox"));
    if let Ok(uri) = std::env::var("FLUX_URI") {
        say(&format!("FLUX_URI:\t\t{uri}"));
    }
    Ok(0)
}
