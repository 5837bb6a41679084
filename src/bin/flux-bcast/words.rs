//! Which of the words is the job, which are sources, which is the destination.

use std::ffi::OsStr;
use std::ffi::OsString;
use std::path::Path;

use flux_bcast::bcast::name::RawName;

/// The words by meaning.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Words {
    /// The job, as the user spells it; none: the enclosing one.
    pub(crate) job: Option<String>,
    /// The sources, at least one.
    pub(crate) sources: Vec<OsString>,
    /// The destination.
    pub(crate) dest: Option<OsString>,
}

/// What the last word is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    /// The destination, if there is a source before it.
    MayBeDest,
    /// The destination.
    IsDest,
    /// A source like the others.
    IsSource,
}

/// Takes the job from the front of `words`. `jobid` is the option of that name;
/// `is_job` tells whether a text can be a job id, `exists` whether a file has
/// that name.
///
/// # Errors
/// One line if the first word can be both.
pub(crate) fn take_job(
    words: &[OsString],
    jobid: Option<&str>,
    is_job: impl Fn(&str) -> bool,
    exists: impl Fn(&Path) -> bool,
) -> Result<(Option<String>, Vec<OsString>), String> {
    let whole = words.to_vec();
    if let Some(job) = jobid {
        return Ok((Some(job.to_owned()), whole));
    }
    let Some((first, rest)) = words.split_first() else {
        return Ok((None, whole));
    };
    match first.to_str() {
        Some(first) if !first.contains('/') && is_job(first) => {
            if exists(Path::new(first)) {
                return Err(format!(
                    "'{first}' is both a file and a job id: use --jobid={first} for the job or \
                     ./{first} for the file"
                ));
            }
            Ok((Some(first.to_owned()), rest.to_vec()))
        }
        _ => Ok((None, whole)),
    }
}

/// Sorts what is left once the job is taken.
///
/// # Errors
/// One line about what is missing.
pub(crate) fn sort(
    job: Option<String>,
    mut words: Vec<OsString>,
    dest: Option<&OsStr>,
    last: Last,
) -> Result<Words, String> {
    let mut dest = dest.map(OsStr::to_owned);
    let takes = match last {
        Last::MayBeDest => words.len() > 1,
        Last::IsDest => !words.is_empty(),
        Last::IsSource => false,
    };
    if dest.is_none() && takes {
        dest = words.pop();
    }
    if last == Last::IsDest && (dest.is_none() || words.is_empty()) {
        return Err("a PATH on the nodes and a DIR for the copies are needed".into());
    }
    if words.is_empty() {
        return Err(match job {
            Some(job) => format!("no source is given, only the job {job}"),
            None => "no source is given; it takes [JOBID] SOURCE... [DEST]".into(),
        });
    }
    if words.iter().any(|word| word.is_empty()) {
        return Err("a source is an empty word".into());
    }
    if dest.as_ref().is_some_and(|dest| dest.is_empty()) {
        return Err("DEST is an empty word".into());
    }
    Ok(Words {
        job,
        sources: words,
        dest,
    })
}

/// What to tell somebody who may have meant two sources: the second of two
/// words is a destination, but also the name of a file here. `said` tells that
/// it was given by an option.
pub(crate) fn doubtful_dest(
    words: &Words,
    said: bool,
    is_file: impl Fn(&Path) -> bool,
) -> Option<String> {
    let ([source], Some(dest), false) = (&words.sources[..], &words.dest, said) else {
        return None;
    };
    // A file of the same name everywhere is what a copy is for, and an absolute
    // path says where it is to be.
    let dest_path = Path::new(dest);
    let meant =
        Path::new(source).file_name() == dest_path.file_name() || dest_path.is_absolute();
    if meant || !is_file(Path::new(dest)) {
        return None;
    }
    let dest = RawName::from(Path::new(dest));
    Some(format!(
        "'{dest}' is taken for the name of the copy, and there is a file of that name here; \
         to send both, add a directory (such as ./) as DEST"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted_as(
        words: &str,
        jobid: Option<&str>,
        dest: Option<&str>,
        last: Last,
    ) -> Result<Words, String> {
        let words: Vec<OsString> = words.split_whitespace().map(OsString::from).collect();
        let (job, rest) = take_job(
            &words,
            jobid,
            |word| word.starts_with('f') || word.bytes().all(|b| b.is_ascii_digit()),
            |path| path == Path::new("fboth"),
        )?;
        sort(job, rest, dest.map(OsStr::new), last)
    }

    fn sorted(words: &str, jobid: Option<&str>, dest: Option<&str>) -> Result<Words, String> {
        sorted_as(words, jobid, dest, Last::MayBeDest)
    }

    fn words(job: Option<&str>, sources: &[&str], dest: Option<&str>) -> Words {
        Words {
            job: job.map(str::to_owned),
            sources: sources.iter().map(OsString::from).collect(),
            dest: dest.map(OsString::from),
        }
    }

    #[test]
    fn the_rule() {
        for (given, meant) in [
            ("a", words(None, &["a"], None)),
            ("f1 a", words(Some("f1"), &["a"], None)),
            ("123 a b", words(Some("123"), &["a"], Some("b"))),
            ("a b", words(None, &["a"], Some("b"))),
            ("f1 a b c/", words(Some("f1"), &["a", "b"], Some("c/"))),
            ("./f1 a", words(None, &["./f1"], Some("a"))),
        ] {
            assert_eq!(sorted(given, None, None).unwrap(), meant, "{given}");
        }
        assert_eq!(
            sorted("f1", Some("f2"), None).unwrap(),
            words(Some("f2"), &["f1"], None)
        );
        assert_eq!(
            sorted("f1 a b", None, Some("d")).unwrap(),
            words(Some("f1"), &["a", "b"], Some("d"))
        );
    }

    #[test]
    fn two_files() {
        let hint = |line: &str, dest: Option<&str>| {
            let words = sorted(line, None, dest).unwrap();
            doubtful_dest(&words, dest.is_some(), |path| path != Path::new("new"))
        };
        assert!(hint("f1 a b", None).unwrap().starts_with("'b' is taken"));
        for (line, dest) in [
            ("f1 a", None),
            ("f1 a new", None),
            ("f1 a d/a", None),
            ("f1 a /d/b", None),
            ("f1 a b c", None),
            ("f1 a b", Some("c")),
        ] {
            assert_eq!(hint(line, dest), None, "{line}");
        }
    }

    #[test]
    fn the_last_word() {
        assert_eq!(
            sorted_as("f1 a b", None, None, Last::IsSource).unwrap(),
            words(Some("f1"), &["a", "b"], None)
        );
        assert_eq!(
            sorted_as("f1 a b", None, None, Last::IsDest).unwrap(),
            words(Some("f1"), &["a"], Some("b"))
        );
        let lacking = sorted_as("f1 a", None, None, Last::IsDest).unwrap_err();
        assert!(lacking.contains("DIR"), "{lacking}");
    }

    #[test]
    fn doubt_and_lack_are_refused() {
        assert!(
            sorted("fboth a", None, None)
                .unwrap_err()
                .contains("--jobid=fboth")
        );
        assert!(sorted("f1", None, None).unwrap_err().contains("no source"));
        assert_eq!(
            sorted("f1 a", None, Some("")).unwrap_err(),
            "DEST is an empty word"
        );
        assert!(sorted("", None, None).unwrap_err().contains("no source"));
        assert_eq!(
            sorted("fboth a", Some("f1"), None).unwrap().sources,
            ["fboth"]
        );
    }
}
