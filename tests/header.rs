//! The C header is the contract of the C functions: it compiles as every
//! language it is meant for, declares exactly what the library exports, and
//! says the library's version and numbers.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test reports by panicking"
)]

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

const TOP: &str = env!("CARGO_MANIFEST_DIR");

fn header() -> String {
    std::fs::read_to_string(Path::new(TOP).join("include/flux-bcast.h")).unwrap()
}

/// Runs a compiler over a program and returns what it complains about.
fn compile(compiler: &str, options: &[&str], name: &str, program: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join(name);
    std::fs::write(&source, program).unwrap();
    let output = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-c", "-o"])
        .arg(dir.path().join("out.o"))
        .args(options)
        .arg(format!("-I{TOP}/include"))
        .arg(format!("-I{TOP}/t/sandbox/include"))
        .arg(&source)
        .output()
        .unwrap_or_else(|error| panic!("{compiler}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.success(), said.is_empty(), "{said}");
    said
}

/// Uses the header alone, twice, and a bit of everything in it.
const PROGRAM: &str = r#"
#include <flux-bcast.h>
#include <flux-bcast.h>

int use (flux_future_t *f);
int use (flux_future_t *f)
{
    flux_bcast_opts_t *o = flux_bcast_opts_create ();
    enum flux_bcast_state s = FLUX_BCAST_ENDED;
    int rc = flux_bcast_opts_set_flags (o, FLUX_BCAST_TRUNC | FLUX_BCAST_SYNC);
    flux_bcast_opts_destroy (o);
    return rc + (flux_bcast_get_state (f) == (int)s) + FLUX_BCAST_VERSION_HEX;
}
"#;

#[test]
fn it_compiles_as_c99_and_later() {
    for standard in ["-std=c99", "-std=c11", "-std=gnu17"] {
        assert_eq!(compile("cc", &[standard], "use.c", PROGRAM), "");
    }
    // The test would see a mistake.
    let wrong = PROGRAM.replace("flux_bcast_opts_create ()", "flux_bcast_opts_create (1)");
    assert!(!compile("cc", &["-std=c99"], "use.c", &wrong).is_empty());
}

#[test]
fn it_compiles_as_cplusplus() {
    for standard in ["-std=c++11", "-std=c++17"] {
        assert_eq!(compile("c++", &[standard], "use.cc", PROGRAM), "");
    }
}

/// Names of functions that the header declares.
fn declared() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for statement in header().split(';') {
        // The declaration is what follows the last mark: a comment may come
        // before it.
        let Some((_, declaration)) = statement.rsplit_once("FLUX_BCAST_API ") else {
            continue;
        };
        let (head, _) = declaration.split_once(" (").expect("a function");
        names.insert(head.rsplit([' ', '*']).next().unwrap().to_owned());
    }
    names
}

/// The library that was built with this test.
fn library() -> PathBuf {
    let deps = std::env::current_exe().unwrap();
    let built = deps.parent().unwrap();
    let named = built.join("libflux_bcast.so");
    if named.exists() {
        return named;
    }
    built.parent().unwrap().join("libflux_bcast.so")
}

#[test]
fn the_library_exports_what_is_declared_and_nothing_else() {
    let library = library();
    let output = Command::new("nm")
        .args(["-D", "--defined-only", "--format=posix"])
        .arg(&library)
        .output()
        .unwrap();
    assert!(output.status.success(), "nm {}", library.display());
    let listing = String::from_utf8(output.stdout).unwrap();
    let mut exported: BTreeSet<String> = listing
        .lines()
        .filter_map(|line| line.split(' ').next())
        .map(str::to_owned)
        .collect();
    assert!(exported.remove("flux_plugin_init"));
    let declared = declared();
    assert!(declared.len() > 30, "{declared:?}");
    assert!(
        declared.iter().all(|name| name.starts_with("flux_bcast_")),
        "{declared:?}"
    );
    assert_eq!(declared, exported);
}

#[test]
fn it_says_the_version_of_the_package() {
    let header = header();
    let value = |name: &str| {
        let line = header
            .lines()
            .find_map(|line| line.strip_prefix(&format!("#define FLUX_BCAST_VERSION_{name} ")));
        line.unwrap().trim_matches('"').to_owned()
    };
    let parts = [value("MAJOR"), value("MINOR"), value("PATCH")].join(".");
    assert_eq!(parts, env!("CARGO_PKG_VERSION"));
    assert_eq!(value("STRING"), env!("CARGO_PKG_VERSION"));
}

/// Numbers that the library knows by itself must be those of the header.
#[test]
fn its_numbers_are_those_of_the_library() {
    let options = std::fs::read_to_string(Path::new(TOP).join("src/capi/options.rs")).unwrap();
    let header = header();
    let mut seen = 0;
    for line in header.lines() {
        let Some((name, number)) = line
            .trim()
            .strip_prefix("FLUX_BCAST_")
            .and_then(|line| line.split_once(" = "))
        else {
            continue;
        };
        let number = number.split(',').next().unwrap();
        if options.contains(&format!(" const {name}: i32 = {number};")) {
            seen += 1;
        } else {
            let states = ["src/capi/transfer.rs", "src/capi/report.rs"]
                .map(|file| std::fs::read_to_string(Path::new(TOP).join(file)).unwrap())
                .concat();
            let word = name.trim_start_matches("RANK_").trim_start_matches("KIND_");
            let word = word.to_lowercase();
            let variant = word[..1].to_uppercase() + &word[1..];
            assert!(
                states.contains(&format!("    {variant} = {number},")),
                "{name} = {number}"
            );
            seen += 1;
        }
    }
    assert_eq!(seen, 25);
}

/// Each function's declaration, in one line, by its name.
fn declarations() -> BTreeMap<String, String> {
    let header = header();
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    header
        .split("\nFLUX_BCAST_API ")
        .skip(1)
        .filter_map(|rest| rest.split_once(';'))
        .map(|(declaration, _)| {
            let declaration = words(declaration).replace("( ", "(") + ";";
            let (head, _) = declaration.split_once(" (").expect("a function");
            let name = head.rsplit([' ', '*']).next().unwrap().to_owned();
            (name, declaration)
        })
        .collect()
}

/// The manual pages of the library, as plain lines by their sections.
fn pages() -> Vec<(String, BTreeMap<String, Vec<String>>)> {
    let dir = Path::new(TOP).join("src/capi/man");
    let read = |path: PathBuf| {
        let mut sections: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut section = String::new();
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            match line.strip_prefix(".SH ") {
                Some(name) => section = name.to_owned(),
                None => {
                    let line = line.replace("\\-", "-").replace("\\e", "\\");
                    sections.entry(section.clone()).or_default().push(line);
                }
            }
        }
        (path.display().to_string(), sections)
    };
    let entries = std::fs::read_dir(dir).unwrap();
    entries.map(|entry| read(entry.unwrap().path())).collect()
}

/// Every function is described in one page, under the declaration it has.
#[test]
fn the_manual_pages_declare_the_same_functions() {
    let mut declarations = declarations();
    assert_eq!(declarations.len(), declared().len());
    for (page, sections) in pages() {
        let names = sections["NAME"].join(" ");
        let (names, _) = names.split_once(" - ").expect(&page);
        let synopsis: String = sections["SYNOPSIS"]
            .iter()
            .map(|line| match line.strip_prefix(".BI ") {
                Some(text) => text.split('"').map(str::trim_start).collect::<String>() + " ",
                None => String::new(),
            })
            .collect();
        let plain = |text: &str| text.replace(' ', "");
        for name in names.split(", ").map(str::trim) {
            let declaration = declarations.remove(name).expect(name);
            let shown = plain(&synopsis);
            assert!(
                shown.contains(&plain(&declaration)),
                "{page}: {declaration}"
            );
        }
    }
    assert_eq!(declarations, BTreeMap::new());
}

#[test]
fn the_examples_of_the_manual_pages_compile() {
    for (page, sections) in pages() {
        let lines = sections["EXAMPLES"].iter();
        let code: Vec<&str> = lines
            .map(String::as_str)
            .filter(|line| !line.starts_with('.'))
            .collect();
        assert!(code.len() > 5, "{page}");
        let program = format!(
            "#include <stdio.h>\n#include <flux-bcast.h>\n{}\n",
            code.join("\n")
        );
        assert_eq!(
            compile("cc", &["-std=c99"], "use.c", &program),
            "",
            "{page}"
        );
    }
}
