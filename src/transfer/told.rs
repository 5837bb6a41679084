//! Errors about files as a rank tells them to others.

use std::path::Path;

use crate::bcast::name::RawName;
use crate::bcast::report::Failure;
use crate::bcast::report::TMPDIR;

/// Says [`TMPDIR`] for the job's temporary directory `base`.
pub(crate) fn told(base: &Path, failure: Failure) -> Failure {
    let text = told_text(base, &failure.text);
    let tmpdir = (text != failure.text).then(|| RawName::from(base));
    Failure {
        text,
        tmpdir,
        ..failure
    }
}

/// The same for a text alone.
pub(crate) fn told_text(base: &Path, text: &str) -> String {
    let real = std::fs::canonicalize(base).unwrap_or_default();
    let mut text = text.to_owned();
    for dir in [base, &real] {
        let dir = RawName::from(dir).to_string();
        if dir.len() > 1 {
            text = text.replace(&dir, TMPDIR);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_has_one_name() {
        let dir = tempfile::tempdir().unwrap();
        let real = std::fs::canonicalize(dir.path()).unwrap();
        let link = real.join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let (long, short) = (format!("open {}/f: bad", real.display()), link.display());
        assert_eq!(told_text(&link, &long), "open $FLUX_JOB_TMPDIR/f: bad");
        let failure = Failure::on(1, libc::EIO, format!("open {short}/f: bad"));
        let told = told(&link, failure.clone());
        assert_eq!(told.text, "open $FLUX_JOB_TMPDIR/f: bad");
        assert_eq!(told.full_text(), failure.text);
        for base in ["", "/"] {
            assert_eq!(told_text(Path::new(base), "open /f: bad"), "open /f: bad");
        }
    }
}
