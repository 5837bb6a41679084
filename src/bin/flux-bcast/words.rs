//! Which of the words is the job, which are sources, which is the destination.

use std::ffi::OsStr;
use std::ffi::OsString;
use std::path::Path;

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

/// Sorts `words`. `jobid` and `dest` are the options of that name; `is_job`
/// tells whether a text can be a job id, `exists` whether a file has that name.
///
/// # Errors
/// One line about what is missing or ambiguous.
pub(crate) fn sort(
    words: &[OsString],
    jobid: Option<&str>,
    dest: Option<&OsStr>,
    is_job: impl Fn(&str) -> bool,
    exists: impl Fn(&Path) -> bool,
) -> Result<Words, String> {
    let mut words = words.to_vec();
    let mut job = jobid.map(str::to_owned);
    if job.is_none()
        && let Some(first) = words
            .first()
            .and_then(|word| word.to_str())
            .map(str::to_owned)
        && !first.contains('/')
        && is_job(&first)
    {
        if exists(Path::new(&first)) {
            return Err(format!(
                "'{first}' is both a file and a job id: use --jobid={first} for the job or \
                 ./{first} for the file"
            ));
        }
        words.remove(0);
        job = Some(first);
    }
    let mut dest = dest.map(OsStr::to_owned);
    if dest.is_none() && words.len() > 1 {
        dest = words.pop();
    }
    if words.is_empty() {
        return Err(match job {
            Some(job) => format!("no source is given, only the job {job}"),
            None => "no source is given".into(),
        });
    }
    Ok(Words {
        job,
        sources: words,
        dest,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(words: &str, jobid: Option<&str>, dest: Option<&str>) -> Result<Words, String> {
        let words: Vec<OsString> = words.split_whitespace().map(OsString::from).collect();
        sort(
            &words,
            jobid,
            dest.map(OsStr::new),
            |word| word.starts_with('f') || word.bytes().all(|b| b.is_ascii_digit()),
            |path| path == Path::new("fboth"),
        )
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
    fn doubt_and_lack_are_refused() {
        assert!(
            sorted("fboth a", None, None)
                .unwrap_err()
                .contains("--jobid=fboth")
        );
        assert!(sorted("f1", None, None).unwrap_err().contains("no source"));
        assert_eq!(
            sorted("fboth a", Some("f1"), None).unwrap().sources,
            ["fboth"]
        );
    }
}
