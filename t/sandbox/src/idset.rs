//! Sets of small numbers as people write them: `0-3,7`.

use std::collections::BTreeSet;

/// Reads `0-3,7`, with or without brackets.
pub fn parse(text: &str) -> Option<BTreeSet<u32>> {
    let text = text.trim();
    let text = text
        .strip_prefix('[')
        .and_then(|t| t.strip_suffix(']'))
        .unwrap_or(text);
    let mut set = BTreeSet::new();
    if text.is_empty() {
        return Some(set);
    }
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last < first {
            return None;
        }
        set.extend(first..=last);
    }
    Some(set)
}

/// Writes `0-3,7`.
pub fn format(ids: impl IntoIterator<Item = u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for id in ids {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == id => *last = id,
            _ => runs.push((id, id)),
        }
    }
    let parts: Vec<String> = runs
        .iter()
        .map(|(a, b)| {
            if a == b {
                a.to_string()
            } else {
                format!("{a}-{b}")
            }
        })
        .collect();
    parts.join(",")
}

/// Writes `5` or `[0-3,7]`, as host and rank lists have it.
pub fn format_brackets(ids: impl IntoIterator<Item = u32>) -> String {
    let text = format(ids);
    if text.contains([',', '-']) {
        format!("[{text}]")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes() {
        assert_eq!(format([0, 1, 2, 3, 7]), "0-3,7");
        assert_eq!(format_brackets([0, 1]), "[0-1]");
        assert_eq!(format_brackets([4]), "4");
        let set = parse("[0-3,7]").unwrap();
        assert_eq!(format(set), "0-3,7");
        assert_eq!(parse("3-1"), None);
        assert_eq!(parse("a"), None);
    }
}
