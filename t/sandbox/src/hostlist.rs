//! Lists of hosts such as `login,node[0-3]`.

use crate::idset;

/// The hosts of a list, in order; each name has at most one pair of brackets, at
/// its end.
pub fn expand(list: &str) -> Option<Vec<String>> {
    let mut hosts = Vec::new();
    let mut inside = false;
    let outside_comma = |c| {
        match c {
            '[' => inside = true,
            ']' => inside = false,
            _ => {}
        }
        c == ',' && !inside
    };
    for word in list.split(outside_comma) {
        match word.split_once('[') {
            None if word.is_empty() => return None,
            None => hosts.push(word.to_owned()),
            Some((prefix, ids)) => {
                let ids = idset::parse(ids.strip_suffix(']')?)?;
                hosts.extend(ids.iter().map(|id| format!("{prefix}{id}")));
            }
        }
    }
    Some(hosts)
}

#[cfg(test)]
mod tests {
    use super::expand;

    #[test]
    fn lists() {
        let want = ["a", "n1", "n3", "n4", "b"];
        assert_eq!(expand("a,n[1,3-4],b").unwrap(), want);
        for bad in ["", "a,,b", "n[1", "n[x]"] {
            assert_eq!(expand(bad), None, "{bad}");
        }
    }
}
