//! The directory of each rank's gathered files.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::path::PathBuf;

const OPEN: &[u8] = b"{{";
const CLOSE: &[u8] = b"}}";

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

fn has_tags(path: &Path) -> bool {
    find(path.as_os_str().as_bytes(), OPEN).is_some()
}

/// The part of the path that is the same for all ranks: the first components
/// without a tag.
pub(super) fn fixed(path: &Path) -> &Path {
    let parent = path.ancestors().find(|ancestor| !has_tags(ancestor));
    match parent {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// The directory of a rank: tags filled in, or `path/RANK` if there are none.
pub(super) fn render(path: &Path, rank: u32, hosts: &[String]) -> PathBuf {
    if !has_tags(path) {
        return path.join(rank.to_string());
    }
    let host = hosts.get(rank as usize).map_or("", String::as_str);
    let mut rest = path.as_os_str().as_bytes();
    let mut whole = Vec::new();
    while let Some(at) = find(rest, OPEN) {
        whole.extend_from_slice(&rest[..at]);
        rest = &rest[at + OPEN.len()..];
        let Some(end) = find(rest, CLOSE) else { break };
        match &rest[..end] {
            b"rank" => whole.extend_from_slice(rank.to_string().as_bytes()),
            b"host" => whole.extend_from_slice(host.as_bytes()),
            _ => {}
        }
        rest = &rest[end + CLOSE.len()..];
    }
    whole.extend_from_slice(rest);
    PathBuf::from(OsString::from_vec(whole))
}

/// Checks that the tags are known and give each rank a directory of its own, which
/// no name of a host leads out of.
///
/// # Errors
/// One line that names the path.
pub(super) fn check(path: &Path, ranks: &[u32], hosts: &[String]) -> Result<(), String> {
    let shown = crate::bcast::name::RawName::from(path);
    let mut rest = path.as_os_str().as_bytes();
    let mut by_host = false;
    while let Some(at) = find(rest, OPEN) {
        rest = &rest[at + OPEN.len()..];
        match find(rest, CLOSE) {
            Some(end) if matches!(&rest[..end], b"rank" | b"host") => {
                by_host |= &rest[..end] == b"host";
                rest = &rest[end + CLOSE.len()..];
            }
            _ => {
                return Err(format!(
                    "{shown}: unknown tag; a directory for gathered files can have {{{{rank}}}} \
                     and {{{{host}}}}"
                ));
            }
        }
    }
    let mut seen = BTreeMap::new();
    for &rank in ranks {
        let host = hosts.get(rank as usize).map_or("", String::as_str);
        if by_host && (matches!(host, "" | "." | "..") || host.contains(['/', '\0'])) {
            let host = crate::bcast::name::RawName::from(host);
            return Err(format!(
                "{shown}: the host of rank {rank} is called '{host}', which names no directory"
            ));
        }
        if let Some(other) = seen.insert(render(path, rank, hosts), rank) {
            return Err(format!(
                "{shown}: ranks {other} and {rank} would share a directory; add {{{{rank}}}}"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts() -> Vec<String> {
        ["a", "b", "b"].map(String::from).to_vec()
    }

    #[test]
    fn directories_of_ranks() {
        for (path, rank, whole, part) in [
            ("d", 1, "d/1", "d"),
            ("d/", 1, "d/1", "d/"),
            ("/x/{{host}}-{{rank}}/y", 2, "/x/b-2/y", "/x"),
            ("{{rank}}", 0, "0", "."),
            ("out.{{rank}}", 0, "out.0", "."),
        ] {
            let path = Path::new(path);
            assert_eq!(render(path, rank, &hosts()), Path::new(whole));
            assert_eq!(fixed(path), Path::new(part), "{path:?}");
        }
    }

    #[test]
    fn what_cannot_be() {
        let check = |path: &str| check(Path::new(path), &[0, 1, 2], &hosts());
        assert!(check("d").is_ok());
        assert!(check("{{host}}/{{rank}}").is_ok());
        assert!(check("{{host}}").unwrap_err().contains("ranks 1 and 2"));
        assert!(check("d/{{node}}").unwrap_err().contains("unknown tag"));
        assert!(check("d/{{rank").unwrap_err().contains("unknown tag"));
    }

    /// The names come from the job, and maybe through somebody else's brokers.
    #[test]
    fn a_host_leads_to_no_other_directory() {
        for host in ["..", ".", "", "../../up", "a/b", "/abs", "a\0b"] {
            let hosts = ["a".into(), host.to_owned()];
            let check = |path: &str, ranks: &[u32]| check(Path::new(path), ranks, &hosts);
            assert!(check("d/{{host}}-{{rank}}", &[0]).is_ok());
            assert!(check("d/{{rank}}", &[0, 1]).is_ok());
            let refused = check("d/{{host}}/{{rank}}", &[0, 1]).unwrap_err();
            assert!(refused.contains("rank 1"), "{host:?}: {refused}");
        }
    }
}
