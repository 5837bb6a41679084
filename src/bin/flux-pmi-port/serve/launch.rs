//! The command lines that `serve` runs.
//!
//! Ids are secrets, and command lines are not (anybody may list processes), so
//! an id reaches the other side as the first line of its input. The end of that
//! input tells the other side that it is over: nothing outlives `serve`, even
//! if that was killed.

use std::process::Command;
use std::process::Stdio;

use crate::Failed;
use crate::args::Serve;

/// What all commands are told.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) size: u32,
    pub(super) hostlist: String,
    pub(super) secret: String,
}

/// A command with what is to be written to its input.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) command: Command,
    pub(super) input: String,
}

/// What runs the programs here.
pub(super) const SHELL: &str = "/bin/sh";

/// Runs "$@" with empty input; ends it when our own input ends. The program
/// gets a session of its own, so that all of its processes can be reached: those
/// that it leaves behind end after it, however it ended. They are given a moment for
/// what they are still writing.
///
/// What cannot be run is named, with the exit status that shells have for it. What
/// only the kernel knows (there is no such interpreter, the format is another
/// machine's) is said by the shell that becomes the program, and begins as all of
/// our errors do because that is the name of that shell.
const WRAPPER: &str = "IFS= read -r PMI_ID || exit 126; export PMI_ID; unset PMI_FD PMI_SPAWNED PMI_TOTALVIEW PMIX_NAMESPACE; \
     fail() { printf '%s\\n' \"flux-pmi-port: ERROR: rank $PMI_RANK: $1: $2\" >&2; exit $3; }; \
     case $1 in */*) \
     test ! -d \"$1\" || fail \"$1\" 'Is a directory' 126; \
     test ! -e \"$1\" || test -x \"$1\" || fail \"$1\" 'Permission denied' 126;; esac; \
     command -v \"$1\" >/dev/null 2>&1 || fail \"$1\" 'command not found' 127; \
     exec 3<&0 </dev/null; \
     set -- /bin/sh -c 'exec \"$@\"' \"flux-pmi-port: ERROR: rank $PMI_RANK\" \"$@\"; \
     if command -v setsid >/dev/null 2>&1; then setsid \"$@\" 3<&- & else \"$@\" 3<&- & fi; \
     p=$!; \
     end() { kill -s $1 -- -$p; kill -s $1 $p; }; \
     { cat <&3; end TERM; sleep 5; end KILL; } >/dev/null 2>&1 & w=$!; \
     exec 3<&-; wait $p; r=$?; kill $w 2>/dev/null; \
     { kill -s 0 -- -$p && sleep 2 && kill -s TERM -- -$p && sleep 5 && kill -s KILL -- -$p; } >/dev/null 2>&1 & exit $r";

impl Launch {
    /// Starts one rank, on `host` or here.
    pub(super) fn rank(
        &self,
        args: &Serve,
        host: Option<&str>,
        rank: u32,
        id: i64,
    ) -> Result<Prepared, Failed> {
        let mut vars = self.variables();
        vars.push(("PMI_RANK", rank.to_string()));
        let mut command = match host {
            None => {
                let mut command = Command::new(SHELL);
                command.args(["-c", WRAPPER, "sh"]).args(&args.words);
                command
            }
            Some(host) => {
                let (program, rest) = split(rsh(args))?;
                let mut command = Command::new(program);
                command
                    .args(rest)
                    .arg(host)
                    .arg(remote_line(&vars, &args.words));
                command
            }
        };
        command.envs(vars).env("PMI_ID", id.to_string());
        command.stdin(Stdio::piped());
        Ok(Prepared {
            command,
            input: format!("{id}\n"),
        })
    }

    /// Starts the script that starts all ranks.
    pub(super) fn script(&self, args: &Serve) -> Result<Prepared, Failed> {
        let (program, rest) = split(rsh(args))?;
        let mut command = Command::new(program);
        command.args(rest).args(&args.words).envs(self.variables());
        command.env("PMI_SECRET", &self.secret);
        // If serve is a rank itself, the ranks of the script are others.
        command.env_remove("PMI_ID").env_remove("PMI_RANK");
        command.stdin(Stdio::piped());
        Ok(Prepared {
            command,
            input: format!("{}\n", self.secret),
        })
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        vec![
            ("PMI_HOST", self.host.clone()),
            // With the host: that is what MPI libraries read.
            ("PMI_PORT", format!("{}:{}", self.host, self.port)),
            ("PMI_SIZE", self.size.to_string()),
            ("PMI_HOSTLIST", self.hostlist.clone()),
        ]
    }
}

/// One argument for an rsh command, which the other side's shell evaluates.
fn remote_line(vars: &[(&str, String)], words: &[String]) -> String {
    let dir = std::env::current_dir().unwrap_or_default();
    let mut script = String::new();
    // As local launchers do: same directory, if there is one.
    script.push_str(&format!(
        "cd {} 2>/dev/null; ",
        quote(&dir.to_string_lossy())
    ));
    for (name, value) in vars {
        script.push_str(&format!("{name}={}; export {name}; ", quote(value)));
    }
    script.push_str(WRAPPER);
    let mut line = format!("exec /bin/sh -c {} sh", quote(&script));
    for word in words {
        line.push(' ');
        line.push_str(&quote(word));
    }
    line
}

/// A word that any shell reads as just this text.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// The rsh command.
fn rsh(args: &Serve) -> &str {
    args.rsh_command.as_deref().unwrap_or("ssh")
}

fn split(text: &str) -> Result<(&str, impl Iterator<Item = &str>), Failed> {
    let mut words = text.split_ascii_whitespace();
    let program = words
        .next()
        .ok_or_else(|| Failed::Usage("--rsh-command is empty".to_owned()))?;
    Ok((program, words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::process::{Child, ChildStdin};

    #[test]
    fn words_survive_the_other_shell() {
        let words =
            ["printf", "%s|%s|%s|%s", "a b", "it's", "$HOME \"x\"", "*"].map(str::to_owned);
        let vars = [("PMI_X", "1 '2".to_owned())];
        let line = remote_line(&vars, &words);
        // An rsh command joins its arguments and a shell evaluates them.
        let (child, input) = started(&[&line]);
        let out = child.wait_with_output().unwrap();
        assert!(out.status.success());
        assert_eq!(
            String::from_utf8(out.stdout).unwrap(),
            "a b|it's|$HOME \"x\"|*"
        );
        drop(input);
    }

    /// Runs a shell text under the wrapper; the input stays open.
    fn wrapped(text: &str) -> (Child, ChildStdin) {
        started(&[WRAPPER, "sh", "/bin/sh", "-c", text])
    }

    /// Runs a line of the remote shell, which reads an id; the input stays open.
    fn started(line: &[&str]) -> (Child, ChildStdin) {
        let mut child = Command::new("/bin/sh")
            .arg("-c")
            .args(line)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"42\n").unwrap();
        (child, input)
    }

    #[test]
    fn the_id_arrives_and_the_status_comes_back() {
        let (child, input) = wrapped("echo $PMI_ID; cat; exit 7");
        let out = child.wait_with_output().unwrap();
        assert_eq!(out.status.code(), Some(7));
        assert_eq!(out.stdout, b"42\n", "and the program's input is empty");
        drop(input);
    }

    #[test]
    fn what_cannot_be_run_is_named_with_the_status_that_shells_have() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str, mode: u32| {
            let path = dir.path().join(name);
            // By another process: a descriptor that this one has open for writing could
            // get into the child of another test, and then the file cannot be executed.
            let made = Command::new("/bin/sh")
                .args(["-c", "printf %s \"$1\" >\"$2\"", "sh", text])
                .arg(&path)
                .status();
            assert!(made.unwrap().success());
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            path.to_str().unwrap().to_owned()
        };
        for (program, status, why) in [
            (file("it's closed", "", 0o644), 126, "Permission denied"),
            (
                dir.path().to_str().unwrap().to_owned(),
                126,
                "Is a directory",
            ),
            ("no-such-program".to_owned(), 127, "command not found"),
            ("./no-such-program".to_owned(), 127, "command not found"),
            // Why is in the words of the shell.
            (file("lost", "#!/no/such/interpreter\n", 0o755), 127, ""),
            (file("alien", "\x7fELF", 0o755), 126, ""),
        ] {
            let vars = [("PMI_RANK", "3".to_owned())];
            let line = remote_line(&vars, std::slice::from_ref(&program));
            let (child, input) = started(&[&line]);
            let out = child.wait_with_output().unwrap();
            let said = String::from_utf8(out.stderr).unwrap();
            assert_eq!(out.status.code(), Some(status), "{program}: {said}");
            assert!(
                said.contains(&program) && said.ends_with(&format!("{why}\n")),
                "{said}"
            );
            for line in said.lines() {
                assert!(line.starts_with("flux-pmi-port: ERROR: rank 3: "), "{said}");
            }
            drop(input);
        }
    }

    #[test]
    fn the_end_of_the_input_ends_the_program_and_its_children() {
        // The child's own words tell the first signal, SIGTERM, from the second.
        let text = "sh -c 'trap \"echo ended; exit\" TERM; echo up; while :; do sleep 0.1; done' & \
             wait";
        let (mut child, input) = wrapped(text);
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut up = String::new();
        output.read_line(&mut up).unwrap();
        assert_eq!(up, "up\n");
        drop(input);
        // Output ends only when every process that has it is gone.
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
        assert_eq!(rest, "ended\n");
    }

    /// What comes out of the wrapper until nobody has its output any more.
    fn all_output(child: Child) -> String {
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    }

    #[test]
    fn what_takes_no_notice_of_the_first_signal_gets_the_second() {
        let text = "sh -c 'trap \"\" TERM; echo up; sleep 60; echo survived' & wait";
        let (mut child, input) = wrapped(text);
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut up = String::new();
        output.read_line(&mut up).unwrap();
        assert_eq!(up, "up\n");
        drop(input);
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        child.wait().unwrap();
        assert_eq!(rest, "");
    }

    #[test]
    fn what_a_program_leaves_behind_ends_too() {
        let (child, input) = wrapped("sh -c 'sleep 60; echo survived' & echo done");
        assert_eq!(all_output(child), "done\n");
        drop(input);
    }

    #[test]
    fn secrets_are_not_on_the_command_line() {
        let launch = Launch {
            host: "h".into(),
            port: 1,
            size: 2,
            hostlist: "a,b".into(),
            secret: "sesame".into(),
        };
        use clap::Parser;
        let parse =
            |words: &[&str]| match crate::args::Args::try_parse_from(words).unwrap().command {
                crate::args::Command::Serve(serve) => serve,
                other => panic!("{other:?}"),
            };
        let args = parse(&["x", "serve", "-H", "a,b", "prog"]);
        let prepared = launch.rank(&args, Some("a"), 0, 987_654_321).unwrap();
        let shown = |command: &Command| {
            command
                .get_args()
                .map(|a| a.to_string_lossy().into_owned())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert!(!shown(&prepared.command).contains("987654321"));
        assert!(shown(&prepared.command).contains("PMI_PORT="));
        assert_eq!(prepared.input, "987654321\n");
        let args = parse(&[
            "x", "serve", "--script", "-r", "pdsh -x", "-H", "a,b", "prog",
        ]);
        assert!(!shown(&launch.script(&args).unwrap().command).contains("sesame"));
    }
}
