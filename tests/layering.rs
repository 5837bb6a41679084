//! Which part of the library may know which: the domain knows nothing of Flux, and
//! only what touches C is unsafe. And files stay short enough to be read at once.

#![expect(clippy::unwrap_used, reason = "a test reports by panicking")]

use std::path::Path;
use std::path::PathBuf;

/// Most lines of a file.
const LINES: usize = 500;

/// The parts, and of which others each may know.
const LAYERS: &[(&str, &[&str])] = &[
    ("errno", &[]),
    ("kary", &[]),
    ("units", &[]),
    ("meant", &[]),
    ("idset", &[]),
    ("hostlist", &["idset"]),
    ("pmi", &["errno", "kary"]),
    ("sockets", &["errno", "pmi"]),
    ("bcast", &["errno", "hostlist", "idset", "kary", "units"]),
    ("file", &["bcast", "errno"]),
    ("elf", &["bcast", "file"]),
    ("ffi", &[]),
    ("flux", &["errno", "ffi"]),
    (
        "transfer",
        &["bcast", "errno", "file", "flux", "idset", "units"],
    ),
    (
        "client",
        &["bcast", "elf", "errno", "file", "flux", "idset", "transfer"],
    ),
    (
        "plugin",
        &[
            "bcast", "elf", "errno", "ffi", "file", "flux", "hostlist", "idset", "meant",
            "pmi", "sockets", "transfer", "units",
        ],
    ),
    (
        "capi",
        &[
            "bcast", "client", "elf", "errno", "ffi", "file", "flux", "hostlist", "idset",
            "transfer",
        ],
    ),
];

/// Where `unsafe` may stand: everywhere in these directories and files.
const UNSAFE: &[&str] = &["ffi", "flux", "capi", "plugin/entry.rs"];

/// The files of a directory and those below it.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
    found
}

/// Each source file of the library: its path below src, and its code without
/// comments.
fn sources() -> Vec<(PathBuf, String)> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut all = Vec::new();
    for path in files(&top) {
        let text = std::fs::read_to_string(&path).unwrap();
        let code: Vec<_> = text
            .lines()
            .map(|line| line.split("//").next().unwrap_or_default())
            .collect();
        all.push((path.strip_prefix(&top).unwrap().into(), code.join("\n")));
    }
    assert!(all.len() > 100, "only {} files found", all.len());
    all
}

/// The part that a file belongs to; `None` for those that join the parts.
fn part(path: &Path) -> Option<&str> {
    let first = path.iter().next().unwrap().to_str().unwrap();
    let name = first.strip_suffix(".rs").unwrap_or(first);
    (!["lib", "bin"].contains(&name)).then_some(name)
}

/// Every part that the code names.
fn named(code: &str) -> impl Iterator<Item = &str> {
    code.match_indices("crate::").map(|(at, mark)| {
        let rest = &code[at + mark.len()..];
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
        &rest[..end.unwrap_or(rest.len())]
    })
}

#[test]
fn each_part_knows_only_those_below_it() {
    let mut wrong = Vec::new();
    for (path, code) in sources() {
        let Some(part) = part(&path) else { continue };
        let Some((_, below)) = LAYERS.iter().find(|(name, _)| *name == part) else {
            wrong.push(format!("{}: not in the table", path.display()));
            continue;
        };
        for other in named(&code) {
            if other != part && !below.contains(&other) {
                wrong.push(format!("{} names {other}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_table_has_no_circles() {
    for (at, (name, below)) in LAYERS.iter().enumerate() {
        for other in *below {
            let found = LAYERS[..at].iter().any(|(name, _)| name == other);
            assert!(found, "{other} is not below {name}");
        }
    }
}

#[test]
fn only_what_touches_c_is_unsafe() {
    let unsafe_code = |code: &str| {
        ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"]
            .iter()
            .any(|mark| code.contains(mark))
    };
    let mut wrong = Vec::new();
    let mut right = 0;
    for (path, code) in sources() {
        let allowed = UNSAFE.iter().any(|place| path.starts_with(place));
        match (unsafe_code(&code), allowed) {
            (true, true) => right += 1,
            (true, false) => wrong.push(path),
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(right > 10, "the marks no longer fit");
}

#[test]
fn no_file_is_long() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut long = Vec::new();
    for dir in ["src", "tests", "t/sandbox/src", "t/sandbox/tests"] {
        for path in files(&top.join(dir)) {
            let lines = std::fs::read_to_string(&path).unwrap().lines().count();
            if lines > LINES {
                long.push(format!("{}: {lines} lines", path.display()));
            }
        }
    }
    assert!(long.is_empty(), "{long:#?}");
}
