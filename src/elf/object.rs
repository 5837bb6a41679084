//! What the dynamic section of an ELF file says.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use goblin::container::Ctx;
use goblin::elf::Elf;
use goblin::elf::ProgramHeader;
use goblin::elf::dynamic::DF_1_NODEFLIB;
use goblin::elf::dynamic::DT_FLAGS_1;
use goblin::elf::dynamic::DT_NEEDED;
use goblin::elf::dynamic::DT_RPATH;
use goblin::elf::dynamic::DT_RUNPATH;
use goblin::elf::dynamic::DT_STRSZ;
use goblin::elf::dynamic::DT_STRTAB;
use goblin::elf::dynamic::Dynamic;
use goblin::elf::header::ELFMAG;
use goblin::elf::program_header::PT_DYNAMIC;
use goblin::elf::program_header::PT_LOAD;

/// Bytes of the larger of the two kinds of file header.
const HEADER: usize = 64;

/// No table of a file is believed to be larger.
const LARGEST: u64 = 64 << 20;

/// A dynamic object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Object {
    /// Which programs it goes with.
    pub(super) kind: Kind,
    /// Names of what it needs, in its order.
    pub(super) needed: Vec<Vec<u8>>,
    /// Search path of the old kind, which also serves what it needs in turn.
    pub(super) rpath: Option<Vec<u8>>,
    /// Search path for what it needs itself; it makes `rpath` void.
    pub(super) runpath: Option<Vec<u8>>,
    /// The system's directories are not searched.
    pub(super) no_default: bool,
}

/// Class, byte order and machine of an object: only equal ones go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    class: u8,
    data: u8,
    machine: u16,
}

impl Object {
    /// Reads a file; `None` if it is no dynamic ELF object.
    ///
    /// # Errors
    /// What open(2) and read(2) say.
    pub(super) fn read(path: &Path) -> io::Result<Option<Object>> {
        let file = File::open(path)?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Ok(None);
        }
        let mut header = [0; HEADER];
        match file.read_exact_at(&mut header, 0) {
            // Too short for an object.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            done => done?,
        }
        if header[..ELFMAG.len()] != *ELFMAG {
            return Ok(None);
        }
        // What does not hang together is a data file that happens to begin so.
        Ok(parse(&file, meta.len(), &header))
    }
}

fn parse(file: &File, size: u64, header: &[u8]) -> Option<Object> {
    let header = Elf::parse_header(header).ok()?;
    let ctx = Ctx::new(header.container().ok()?, header.endianness().ok()?);
    let count = usize::from(header.e_phnum);
    let table = u64::from(header.e_phentsize) * u64::from(header.e_phnum);
    let table = part(file, size, header.e_phoff, table)?;
    let segments = ProgramHeader::parse(&table, 0, count, ctx).ok()?;
    let dynamic = segments.iter().find(|s| s.p_type == PT_DYNAMIC)?;
    let bytes = part(file, size, dynamic.p_offset, dynamic.p_filesz)?;
    let here = ProgramHeader {
        p_offset: 0,
        ..dynamic.clone()
    };
    let entries = Dynamic::parse(&bytes, &[here], ctx).ok()??.dyns;
    let value = |tag| entries.iter().find(|e| e.d_tag == tag).map(|e| e.d_val);
    // The string table is given by where it is in memory.
    let address = value(DT_STRTAB)?;
    let load = segments.iter().find(|s| {
        let end = s.p_vaddr.saturating_add(s.p_filesz);
        s.p_type == PT_LOAD && (s.p_vaddr..end).contains(&address)
    })?;
    let offset = load.p_offset.checked_add(address - load.p_vaddr)?;
    let strings = part(file, size, offset, value(DT_STRSZ)?)?;
    let string = |at: u64| -> Option<Vec<u8>> {
        let rest = strings.get(usize::try_from(at).ok()?..)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        Some(rest[..end].to_vec())
    };
    let needed = entries.iter().filter(|e| e.d_tag == DT_NEEDED);
    Some(Object {
        kind: Kind {
            class: header.e_ident[4],
            data: header.e_ident[5],
            machine: header.e_machine,
        },
        needed: needed.map(|e| string(e.d_val)).collect::<Option<_>>()?,
        rpath: value(DT_RPATH).and_then(string),
        runpath: value(DT_RUNPATH).and_then(string),
        no_default: value(DT_FLAGS_1).is_some_and(|flags| flags & DF_1_NODEFLIB != 0),
    })
}

/// Bytes of the file, if it has them.
fn part(file: &File, size: u64, offset: u64, len: u64) -> Option<Vec<u8>> {
    if len > LARGEST || offset.checked_add(len)? > size {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(len).ok()?];
    file.read_exact_at(&mut bytes, offset).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_is_a_dynamic_program() {
        let me = std::env::current_exe().unwrap();
        let object = Object::read(&me).unwrap().unwrap();
        assert!(object.needed.iter().any(|name| name.starts_with(b"libc.")));
    }

    #[test]
    fn data_is_no_object() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        for contents in [
            b"".to_vec(),
            b"\x7fELF".to_vec(),
            b"text of some length ".repeat(10),
            [b"\x7fELF\x02\x01\x01".to_vec(), vec![0xff; 500]].concat(),
        ] {
            std::fs::write(&path, contents).unwrap();
            assert_eq!(Object::read(&path).unwrap(), None);
        }
        assert_eq!(Object::read(dir.path()).unwrap(), None);
        assert!(Object::read(&dir.path().join("none")).is_err());
    }

    #[test]
    fn damaged_objects_are_no_objects_and_no_accidents() {
        let whole = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        for cut in [64, 100, 1000, 4096] {
            std::fs::write(&path, &whole[..cut]).unwrap();
            assert_eq!(Object::read(&path).unwrap(), None);
        }
        for at in 5..1000 {
            let mut bytes = whole[..4096].to_vec();
            bytes[at] = 0xff;
            std::fs::write(&path, &bytes).unwrap();
            let _ = Object::read(&path);
        }
    }
}
