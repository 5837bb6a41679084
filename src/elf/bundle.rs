//! From programs to further sources of a transfer: their shared objects.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::closure::Library;
use super::closure::Search;
use super::closure::closure;
use crate::bcast::name::RawName;
use crate::bcast::spec::Dest;
use crate::file::Input;
use crate::file::Origin;

/// Directories whose objects are on every node.
const SYSTEM: &str = "/lib:/usr/lib:/lib64:/usr/lib64";

/// What to do about shared objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Libs {
    dir: Option<RawName>,
    exclude: Vec<PathBuf>,
}

impl Libs {
    /// They go into a directory `dir` next to the copies, or into one for each
    /// program, called as its copy with `_libs` appended. Those below one of the
    /// directories `exclude` (separated by colons or commas; by default the
    /// system's) are left out.
    ///
    /// # Errors
    /// One line that says what is wrong with a name.
    pub fn new(dir: Option<RawName>, exclude: Option<&OsStr>) -> Result<Self, String> {
        if let Some(dir) = &dir
            && (matches!(dir.as_bytes(), b"" | b"." | b"..") || dir.as_bytes().contains(&b'/'))
        {
            return Err(format!(
                "'{dir}' is not the name of a directory next to the copies"
            ));
        }
        let exclude = exclude.unwrap_or(OsStr::new(SYSTEM)).as_bytes();
        let exclude = exclude
            .split(|byte| matches!(byte, b':' | b','))
            .filter(|dir| !dir.is_empty())
            .map(|dir| PathBuf::from(OsStr::from_bytes(dir)))
            .collect();
        Ok(Self { dir, exclude })
    }

    /// The directories whose objects are left out.
    fn left_out(&self) -> String {
        let dirs = self.exclude.iter();
        let dirs: Vec<String> = dirs
            .map(|dir| RawName::from(dir.as_path()).to_string())
            .collect();
        dirs.join(":")
    }
}

/// What was added to a transfer.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// How many directories of shared objects; they are the last inputs.
    pub directories: usize,
    /// What could not be found, or that there is nothing to send: one line each.
    pub notes: Vec<String>,
}

/// Adds the shared objects of those inputs that are programs or shared objects
/// themselves. Inputs that are anything else, or cannot be read, have none.
///
/// # Errors
/// One line, if there are some and there is no place for them.
pub fn add_libs(
    inputs: &mut Vec<Input>,
    dest: &mut Dest,
    libs: &Libs,
    search: &Search,
) -> Result<Added, String> {
    let mut added = Added::default();
    let mut programs: Vec<(usize, Vec<Library>)> = Vec::new();
    let mut left_out = false;
    for (index, input) in inputs.iter().enumerate() {
        let Origin::Path(path) = &input.origin else {
            continue;
        };
        let Ok(Some(closure)) = closure(path, search) else {
            continue;
        };
        for missing in closure.missing {
            added.notes.push(format!(
                "{}, which {} needs, is not found here",
                missing.name,
                RawName::from(missing.by)
            ));
        }
        let mut libraries = closure.libraries;
        let found = libraries.len();
        libraries
            .retain(|library| !libs.exclude.iter().any(|dir| library.path.starts_with(dir)));
        left_out |= libraries.len() < found;
        // A name with a slash is looked for just there, not in a directory.
        libraries.retain(|Library { name, .. }| {
            let fixed = name.as_bytes().contains(&b'/');
            if fixed {
                let program = RawName::from(path.as_path());
                added
                    .notes
                    .push(format!("{program} needs {name} at that very path"));
            }
            !fixed
        });
        if !libraries.is_empty() {
            programs.push((index, libraries));
        }
    }
    if programs.is_empty() {
        // Whoever asked for them waits for a directory to look in.
        let why = match left_out {
            true => format!("those that were found are below {}", libs.left_out()),
            false => "no source is a program that needs some from a directory".into(),
        };
        added.notes.push(format!(
            "no shared objects are sent, and so there is no LD_LIBRARY_PATH to set: {why}"
        ));
        return Ok(added);
    }
    if let [input] = inputs.as_mut_slice() {
        name_apart(dest, input)?;
    }
    let mut directories: Vec<(RawName, Vec<(RawName, PathBuf)>)> = Vec::new();
    for (index, libraries) in programs {
        let dir = directory(&inputs[index], libs);
        let at = directories.iter().position(|(known, _)| *known == dir);
        let at = at.unwrap_or_else(|| {
            directories.push((dir, Vec::new()));
            directories.len() - 1
        });
        let members = &mut directories[at].1;
        for library in libraries {
            if !members.iter().any(|(name, _)| *name == library.name) {
                members.push((library.name, library.path));
            }
        }
    }
    added.directories = directories.len();
    inputs.extend(
        directories
            .into_iter()
            .map(|(dir, members)| Input::new(Origin::Set(members), Some(dir))),
    );
    Ok(added)
}

/// Name of the directory for the shared objects of a program.
fn directory(program: &Input, libs: &Libs) -> RawName {
    if let Some(dir) = &libs.dir {
        return dir.clone();
    }
    let name = match (&program.name, &program.origin) {
        (Some(name), _) => name.as_bytes(),
        (None, Origin::Path(path)) => path.file_name().unwrap_or_default().as_bytes(),
        _ => &[],
    };
    RawName::new([name, b"_libs"].concat())
}

/// Where the destination names the single copy itself, moves that name to the
/// input, so that something can be put next to it.
///
/// # Errors
/// One line if the name differs by node.
fn name_apart(dest: &mut Dest, input: &mut Input) -> Result<(), String> {
    let Some(path) = dest.path.clone().filter(|_| !dest.directory) else {
        return Ok(());
    };
    let bytes = path.as_bytes();
    let (dir, name) = match bytes.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => bytes.split_at(slash + 1),
        None => (&[][..], bytes),
    };
    if matches!(name, b"" | b"." | b"..") {
        return Ok(());
    }
    if name.windows(2).any(|two| two == b"{{") {
        return Err(format!(
            "the name in {path} differs by node, so that shared objects cannot be sent with it"
        ));
    }
    input.name = Some(RawName::new(name));
    dest.path = (!dir.is_empty()).then(|| RawName::new(dir));
    dest.directory = true;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn me() -> Input {
        Input::path(std::env::current_exe().unwrap())
    }

    #[test]
    fn names_move_to_the_input() {
        for (given, dir, name) in [
            ("b.out", None, Some("b.out")),
            ("d/b.out", Some("d/"), Some("b.out")),
            ("/x/b.out", Some("/x/"), Some("b.out")),
            ("d/", Some("d/"), None),
        ] {
            let mut dest = Dest {
                path: Some(given.into()),
                ..Dest::default()
            };
            let mut input = Input::path("a.out");
            name_apart(&mut dest, &mut input).unwrap();
            assert_eq!(dest.path, dir.map(RawName::from), "{given}");
            assert_eq!(input.name, name.map(RawName::from), "{given}");
        }
        let mut dest = Dest {
            path: Some("a.{{node.id}}".into()),
            ..Dest::default()
        };
        assert!(name_apart(&mut dest, &mut me()).is_err());
    }

    fn add(inputs: &mut Vec<Input>, exclude: Option<&str>, path: Option<&str>) -> Added {
        let libs = Libs::new(None, exclude.map(OsStr::new)).unwrap();
        let mut dest = Dest {
            path: path.map(RawName::from),
            ..Dest::default()
        };
        add_libs(inputs, &mut dest, &libs, &Search::system()).unwrap()
    }

    #[test]
    fn the_systems_objects_stay_by_default() {
        let mut inputs = vec![me()];
        let none = add(&mut inputs, None, None);
        assert_eq!((none.directories, none.notes.len()), (0, 1));
        assert!(none.notes[0].contains("below /lib:/usr/lib:"), "{none:?}");
        assert_eq!(inputs.len(), 1);
        let added = add(&mut inputs, Some(""), Some("d/copy"));
        assert_eq!((added.directories, added.notes.len()), (1, 0));
        let Origin::Set(members) = &inputs[1].origin else {
            panic!("not a set");
        };
        let is_libc = |name: &RawName| name.as_bytes().starts_with(b"libc.");
        assert!(members.iter().any(|(name, _)| is_libc(name)));
        assert_eq!(inputs[0].name, Some("copy".into()));
        assert_eq!(inputs[1].name, Some("copy_libs".into()));
    }

    #[test]
    fn data_has_none_and_is_no_failure() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("data");
        std::fs::write(&file, "text").unwrap();
        let mut inputs = vec![Input::path(&file), Input::path(dir.path().join("none"))];
        let none = add(&mut inputs, Some(""), None);
        assert_eq!((none.directories, none.notes.len()), (0, 1));
        assert!(none.notes[0].contains("no source is a program"), "{none:?}");
        assert_eq!(inputs.len(), 2);
    }

    #[test]
    fn directories_are_names() {
        for bad in ["", "..", "a/b", "/x"] {
            assert!(Libs::new(Some(bad.into()), None).is_err(), "{bad}");
        }
    }
}
