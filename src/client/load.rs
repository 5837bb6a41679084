//! What is to be found out about the sources before anything is sent. It reads
//! files, so it is done in the thread that will read them.

use std::path::Path;
use std::sync::mpsc;

use crate::bcast::name::RawName;
use crate::bcast::spec::Dest;
use crate::elf;
use crate::elf::Added;
use crate::elf::Libs;
use crate::elf::Search;
use crate::errno::Errno;
use crate::file::FileError;
use crate::file::Input;
use crate::file::Origin;
use crate::file::SourceSpec;

/// What was found out.
#[derive(Debug)]
pub(super) struct Loaded {
    /// Where the copies go, now that there may be more of them.
    pub(super) dest: Dest,
    /// What was added to the sources.
    pub(super) added: Added,
    /// The sources a second time, to compare them; none if that is not wanted,
    /// or one of them can be read only once.
    pub(super) again: Option<Vec<Input>>,
}

/// What is to be done.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) source: SourceSpec,
    pub(super) dest: Dest,
    pub(super) libs: Option<Libs>,
    pub(super) checksum: bool,
}

impl Load {
    /// Does it, and tells what it found by the channel.
    pub(super) fn run(self, tell: &mpsc::Sender<Loaded>) -> Result<SourceSpec, FileError> {
        let (mut source, mut dest) = (self.source, self.dest);
        let mut added = match &self.libs {
            Some(libs) => elf::add_libs(&mut source.inputs, &mut dest, libs, &Search::system())
                .map_err(|text| misplaced(&dest, text))?,
            None => Added::default(),
        };
        let uncomparable = self.checksum.then(|| uncomparable(&source)).flatten();
        let again = match uncomparable {
            Some(note) => {
                added.notes.push(note);
                None
            }
            None => self.checksum.then(|| rereadable(&source)).flatten(),
        };
        // Nobody may want it any more.
        let _ = tell.send(Loaded { dest, added, again });
        Ok(source)
    }
}

fn misplaced(dest: &Dest, text: String) -> FileError {
    let path = dest.path.as_ref().map_or(Path::new("."), RawName::as_path);
    FileError::new(Errno::EINVAL, "send to", path).with_hint(text)
}

/// A line about a source that ranks cannot be asked for by its digest, so that
/// everything is sent to all of them.
fn uncomparable(source: &SourceSpec) -> Option<String> {
    source.inputs.iter().find_map(|input| {
        let directory = match (&input.origin, &input.name) {
            (Origin::Path(path), _) if path.is_dir() => RawName::from(path.as_path()),
            (Origin::Set(_), Some(name)) => name.clone(),
            _ => return None,
        };
        Some(format!(
            "{directory} is a directory, which is not compared: everything is sent to all ranks"
        ))
    })
}

/// The sources once more; none if one of them can be read only once.
fn rereadable(source: &SourceSpec) -> Option<Vec<Input>> {
    source.inputs.iter().map(Input::again).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(inputs: Vec<Input>, checksum: bool) -> Loaded {
        let (tell, told) = mpsc::channel();
        let load = Load {
            source: SourceSpec {
                inputs,
                ..SourceSpec::default()
            },
            dest: Dest::default(),
            libs: None,
            checksum,
        };
        load.run(&tell).unwrap();
        told.try_recv().unwrap()
    }

    #[test]
    fn what_is_read_once_is_not_compared() {
        let memory = || Input::new(Origin::Memory(vec![1]), Some("m".into()));
        let stream = || {
            let file = std::fs::File::open("/dev/null").unwrap();
            Input::new(Origin::Stream(file.into()), Some("s".into()))
        };
        assert!(load(vec![memory()], false).again.is_none());
        let again = load(vec![memory(), Input::path("p")], true).again.unwrap();
        assert_eq!(again.len(), 2);
        let set = Input::new(Origin::Set(Vec::new()), Some("a_libs".into()));
        for (directory, name) in [(Input::path("/"), "/"), (set, "a_libs")] {
            let loaded = load(vec![memory(), directory], true);
            assert!(loaded.again.is_none());
            assert!(loaded.added.notes[0].starts_with(&format!("{name} is a directory")));
        }
        assert_eq!(load(vec![Input::path("/")], false).added.notes, [""; 0]);
        assert!(load(vec![memory(), stream()], true).again.is_none());
    }
}
