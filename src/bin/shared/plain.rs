//! One line that a terminal shows as it is, whatever words of the user are in it.

use std::borrow::Cow;

/// The text with control characters shown rather than sent: a line feed in a name
/// would make two messages of one, and an escape could hide it.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let shown = text.chars().map(|char| match char.is_control() {
        true => char.escape_default().to_string(),
        false => char.to_string(),
    });
    Cow::Owned(shown.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown() {
        assert_eq!(plain("a\nb\u{1b}[31mc"), "a\\nb\\u{1b}[31mc");
        assert_eq!(plain("ƒ1: \\n…"), "ƒ1: \\n…");
    }
}
