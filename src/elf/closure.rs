//! All shared objects that a program needs, those included that these need.
//!
//! The order of ld.so(8): the old search path (RPATH) of the object and of those
//! that led to it, unless the object has a new one; `LD_LIBRARY_PATH`; the new
//! search path (RUNPATH) of the object alone; the cache; the system's
//! directories. A name that was found once is not looked for again, whoever
//! needs it.

use std::collections::HashSet;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::path::PathBuf;

use super::cache::Cache;
use super::object::Kind;
use super::object::Object;
use crate::bcast::name::RawName;

/// The system's directories; those that do not exist do no harm.
const SYSTEM: &[&str] = &[
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib/powerpc64le-linux-gnu",
    "/usr/lib/powerpc64le-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];

/// What `$LIB` can stand for: it depends on how the loader was built.
const LIB: &[&str] = &[
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "lib/powerpc64le-linux-gnu",
    "lib",
];

/// Where to look besides what the objects say.
#[derive(Clone, Debug, Default)]
pub struct Search {
    library_path: Vec<PathBuf>,
    cache: Cache,
}

impl Search {
    /// As the loader would look in this process's environment and system.
    pub fn system() -> Self {
        Self::with_path(&std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default())
    }

    /// As the loader would look in this system with this `LD_LIBRARY_PATH`.
    pub fn with_path(path: &OsStr) -> Self {
        Self {
            library_path: split(path.as_bytes())
                .map(|dir| PathBuf::from(OsStr::from_bytes(dir)))
                .collect(),
            cache: Cache::system(),
        }
    }
}

/// A shared object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// The name by which it is needed.
    pub name: RawName,
    /// Where it is.
    pub path: PathBuf,
}

/// A shared object that was not found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The name by which it is needed.
    pub name: RawName,
    /// Who needs it.
    pub by: PathBuf,
}

/// What a program needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Closure {
    /// What was found, in the order of finding.
    pub libraries: Vec<Library>,
    /// What was not.
    pub missing: Vec<Missing>,
}

/// An object on the way.
struct Node {
    path: PathBuf,
    origin: PathBuf,
    object: Object,
    /// Index of the object that led to it.
    parent: Option<usize>,
}

/// Finds what a file needs; `None` if it is no program or shared object, or a
/// static one.
///
/// # Errors
/// The file cannot be read.
pub fn closure(program: &Path, search: &Search) -> io::Result<Option<Closure>> {
    let Some(object) = Object::read(program)? else {
        return Ok(None);
    };
    let real = std::fs::canonicalize(program)?;
    let mut nodes = vec![Node {
        origin: real.parent().unwrap_or(Path::new("/")).to_path_buf(),
        path: program.to_path_buf(),
        object,
        parent: None,
    }];
    let mut closure = Closure::default();
    let mut known: HashSet<Vec<u8>> = HashSet::new();
    let mut queue = VecDeque::from([0]);
    while let Some(at) = queue.pop_front() {
        for name in nodes[at].object.needed.clone() {
            if !known.insert(name.clone()) {
                continue;
            }
            match find(&name, at, &nodes, search) {
                Some((path, object)) => {
                    closure.libraries.push(Library {
                        name: RawName::new(name),
                        path: path.clone(),
                    });
                    nodes.push(Node {
                        origin: path.parent().unwrap_or(Path::new("/")).to_path_buf(),
                        path,
                        object,
                        parent: Some(at),
                    });
                    queue.push_back(nodes.len() - 1);
                }
                None => closure.missing.push(Missing {
                    name: RawName::new(name),
                    by: nodes[at].path.clone(),
                }),
            }
        }
    }
    Ok(Some(closure))
}

fn find(name: &[u8], at: usize, nodes: &[Node], search: &Search) -> Option<(PathBuf, Object)> {
    let node = &nodes[at];
    let kind = nodes[0].object.kind;
    if name.contains(&b'/') {
        let paths = expand(name, &node.origin);
        return paths.into_iter().find_map(|path| load(path, kind));
    }
    let file = OsStr::from_bytes(name);
    let in_dirs =
        |dirs: Vec<PathBuf>| dirs.into_iter().find_map(|dir| load(dir.join(file), kind));
    let mut old = Vec::new();
    if node.object.runpath.is_none() {
        let mut next = Some(node);
        while let Some(node) = next {
            if let (Some(rpath), None) = (&node.object.rpath, &node.object.runpath) {
                old.extend(dirs(rpath, &node.origin));
            }
            next = node.parent.map(|parent| &nodes[parent]);
        }
    }
    let runpath = node.object.runpath.as_deref().unwrap_or_default();
    in_dirs(old)
        .or_else(|| in_dirs(search.library_path.clone()))
        .or_else(|| in_dirs(dirs(runpath, &node.origin)))
        .or_else(|| {
            let usable = |path: &&Path| !(node.object.no_default && is_system(path));
            let mut cached = search.cache.lookup(name).filter(usable);
            cached.find_map(|path| load(path.to_path_buf(), kind))
        })
        .or_else(|| {
            if node.object.no_default {
                return None;
            }
            in_dirs(SYSTEM.iter().map(PathBuf::from).collect())
        })
}

fn is_system(path: &Path) -> bool {
    SYSTEM
        .iter()
        .any(|dir| path.parent() == Some(Path::new(dir)))
}

/// The object there, if it goes with the program; as the loader, passes others
/// over.
fn load(path: PathBuf, kind: Kind) -> Option<(PathBuf, Object)> {
    let object = Object::read(&path).ok()??;
    (object.kind == kind).then_some((path, object))
}

fn split(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| matches!(byte, b':' | b';'))
        .filter(|dir| !dir.is_empty())
}

/// The directories of a search path.
fn dirs(path: &[u8], origin: &Path) -> Vec<PathBuf> {
    split(path).flat_map(|dir| expand(dir, origin)).collect()
}

/// Fills in `$ORIGIN`, `$LIB` and `$PLATFORM`.
fn expand(dir: &[u8], origin: &Path) -> Vec<PathBuf> {
    let with_origin = replace(dir, "ORIGIN", origin.as_os_str().as_bytes());
    let text = replace(&with_origin, "PLATFORM", std::env::consts::ARCH.as_bytes());
    let variants = LIB.iter().map(|lib| replace(&text, "LIB", lib.as_bytes()));
    let mut paths: Vec<PathBuf> = variants
        .map(|path| PathBuf::from(OsStr::from_bytes(&path)))
        .collect();
    paths.dedup();
    paths
}

/// Replaces `$NAME` and `${NAME}`.
fn replace(text: &[u8], name: &str, value: &[u8]) -> Vec<u8> {
    let (plain, braced) = (format!("${name}"), format!("${{{name}}}"));
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        if let Some(tail) = rest.strip_prefix(braced.as_bytes()) {
            out.extend_from_slice(value);
            rest = tail;
        } else if let Some(tail) = rest
            .strip_prefix(plain.as_bytes())
            .filter(|tail| !tail.first().is_some_and(|b| b.is_ascii_alphanumeric()))
        {
            out.extend_from_slice(value);
            rest = tail;
        } else {
            out.push(*first);
            rest = tail;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn tokens_of_search_paths() {
        let origin = Path::new("/o");
        assert_eq!(expand(b"/a", origin), [PathBuf::from("/a")]);
        assert_eq!(
            dirs(b"$ORIGIN/../lib:${ORIGIN}:/x", origin),
            ["/o/../lib", "/o", "/x"].map(PathBuf::from)
        );
        assert!(expand(b"/a/$LIB", origin).contains(&PathBuf::from("/a/lib64")));
        assert_eq!(expand(b"/$LIBRARY", origin), [PathBuf::from("/$LIBRARY")]);
    }

    /// The loader's own answer for this very program.
    #[test]
    fn as_the_loader_finds_them() {
        let me = std::env::current_exe().unwrap();
        let out = Command::new("ldd").arg(&me).output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        let mut wanted: Vec<(String, PathBuf)> = text
            .lines()
            .filter_map(|line| line.trim().split_once(" => "))
            .map(|(name, rest)| {
                let path = rest.split(" (").next().unwrap();
                (name.to_owned(), PathBuf::from(path))
            })
            .collect();
        wanted.sort();
        let closure = closure(&me, &Search::system()).unwrap().unwrap();
        assert_eq!(closure.missing, []);
        let mut found: Vec<(String, PathBuf)> = closure
            .libraries
            .iter()
            // ldd names the loader by its path alone.
            .filter(|library| !library.name.to_string().starts_with("ld-"))
            .map(|library| (library.name.to_string(), library.path.clone()))
            .collect();
        found.sort();
        assert!(!found.is_empty());
        assert_eq!(found, wanted);
    }

    /// Builds small libraries and programs that need each other by all ways.
    #[test]
    fn search_paths_of_all_kinds() {
        let dir = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(dir.path()).unwrap();
        let build = |args: &str| {
            let done = Command::new("cc")
                .args(args.split_whitespace())
                .current_dir(&dir)
                .status()
                .unwrap();
            assert!(done.success(), "{args}");
        };
        std::fs::write(dir.join("e.c"), "").unwrap();
        std::fs::write(dir.join("m.c"), "int main(void) { return 0; }").unwrap();
        for sub in ["one", "two"] {
            std::fs::create_dir(dir.join(sub)).unwrap();
        }
        let all = "-Wl,--no-as-needed -Wl,--disable-new-dtags";
        build("-shared -o two/libin.so -Wl,-soname,libin.so e.c");
        build(&format!("-shared -o one/libout.so {all} e.c -Ltwo -lin"));
        // RPATH serves the libraries of libraries as well,
        build(&format!(
            "-o old {all} -Wl,-rpath,$ORIGIN/one:$ORIGIN/two m.c -Lone -lout -Wl,-rpath-link,two"
        ));
        // RUNPATH does not.
        build(
            "-o new -Wl,--no-as-needed -Wl,--enable-new-dtags -Wl,-rpath,$ORIGIN/one:$ORIGIN/two \
             m.c -Lone -lout -Wl,-rpath-link,two",
        );
        let ours = |program: &str, search: &Search| {
            let closure = closure(&dir.join(program), search).unwrap().unwrap();
            let found: Vec<PathBuf> = closure
                .libraries
                .into_iter()
                .filter(|library| library.path.starts_with(&dir))
                .map(|library| library.path)
                .collect();
            (found, closure.missing)
        };
        let mut search = Search::system();
        let both = [dir.join("one/libout.so"), dir.join("two/libin.so")];
        assert_eq!(ours("old", &search), (both.to_vec(), vec![]));
        let (found, missing) = ours("new", &search);
        assert_eq!(found, [both[0].clone()]);
        assert_eq!(missing[0].name, RawName::from("libin.so"));
        assert_eq!(missing[0].by, both[0]);
        search.library_path = vec![dir.join("two")];
        assert_eq!(ours("new", &search), (both.to_vec(), vec![]));
    }
}
