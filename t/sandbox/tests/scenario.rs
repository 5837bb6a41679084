//! One scenario of a real plugin in C and a client, whose output must be, line
//! by line, what Flux gives for it (`scenario/expected` was made by Flux; see
//! `scenario/run.sh`).

#![expect(clippy::expect_used, reason = "the test fails by it")]

use std::path::{Path, PathBuf};
use std::process::Command;

fn compile(source: &Path, output: &Path, args: &[&str]) {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
    let status = Command::new("cc")
        .arg("-I")
        .arg(include)
        .arg("-o")
        .arg(output)
        .arg(source)
        .args(args)
        .status()
        .expect("cc runs");
    assert!(status.success(), "{} compiles", source.display());
}

#[test]
fn a_plugin_and_a_client_see_what_they_see_in_flux() {
    let flux = PathBuf::from(env!("CARGO_BIN_EXE_flux"));
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenario");
    let work = tempfile::tempdir().expect("temporary directory");
    let (plugin, client) = (work.path().join("plugin.so"), work.path().join("client"));
    compile(&here.join("plugin.c"), &plugin, &["-shared", "-fPIC"]);
    // The instance says where its library is.
    let lib = work.path().join("lib");
    std::fs::create_dir(&lib).expect("directory");
    let built = flux.parent().expect("directory of programs");
    let built = ["libflux_sandbox.so", "deps/libflux_sandbox.so"].map(|n| built.join(n));
    let built = built.iter().find(|p| p.exists()).expect("library is built");
    std::os::unix::fs::symlink(built, lib.join("libflux-core.so")).expect("symlink");
    let lib = format!("-L{}", lib.display());
    compile(&here.join("client.c"), &client, &[&lib, "-lflux-core"]);

    let output = Command::new("timeout")
        .args(["--kill-after=5", "300"])
        .arg(&flux)
        .args(["start", "-s", "4", "sh"])
        .arg(here.join("run.sh"))
        .args([&plugin, &client])
        .env("LANG", "C.UTF-8")
        .env("LC_ALL", "C.UTF-8")
        .env("FLUX_SANDBOX_CORES", "2")
        .output()
        .expect("flux runs");
    let got = String::from_utf8_lossy(&output.stdout);
    let want = std::fs::read_to_string(here.join("expected")).expect("expected");
    for (n, (got, want)) in got.lines().zip(want.lines()).enumerate() {
        assert_eq!(got, want, "line {} of the scenario", n + 1);
    }
    assert_eq!(got.lines().count(), want.lines().count());
    assert!(output.status.success());
}
