//! What a misspelt word was meant to be: options of a job and of the commands are
//! refused with the nearest one that there is.

/// The known word that is nearest to `word`, if it is near enough: no more than
/// one of three letters is missing, too many, another one, or changed places with
/// its neighbour, and some are right.
#[must_use]
pub fn meant<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = word.chars().count();
    let most = (length / 3).max(1);
    known
        .into_iter()
        .map(|known| (strsim::osa_distance(word, known), known))
        .filter(|(distance, _)| *distance <= most && *distance < length)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// As [`meant`], as a part of a sentence: ` (did you mean WORD?)`, or nothing. All
/// words have `prefix` before them.
#[must_use]
pub fn hint<'a>(prefix: &str, word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let meant = meant(word, known);
    meant.map_or_else(String::new, |meant| {
        format!(" (did you mean {prefix}{meant}?)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_that_is_near() {
        let known = ["force", "from", "fanout", "send-libs", "dry-run", "k"];
        for (word, means) in [
            ("forse", Some("force")),
            ("froce", Some("force")),
            ("forces", Some("force")),
            ("dryrun", Some("dry-run")),
            ("sendlib", Some("send-libs")),
            ("kk", Some("k")),
            ("form", Some("from")),
            // A letter is no misspelt other letter.
            ("x", None),
            ("", None),
            ("frobnicate", None),
            ("recursive", None),
        ] {
            assert_eq!(meant(word, known), means, "{word}");
        }
        assert_eq!(hint("--", "forse", known), " (did you mean --force?)");
        assert_eq!(hint("--", "recursive", known), "");
    }
}
