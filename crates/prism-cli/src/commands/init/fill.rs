//! Changes to a job file's text that leave everything else in it alone.

/// A section with its header, up to the next one; empty where there is none.
pub(super) fn section(toml: &str, name: &str) -> String {
    let mut out = String::new();
    let mut inside = false;
    for line in toml.lines() {
        if line.starts_with('[') {
            inside = line.trim() == format!("[{name}]");
        }
        if inside && !line.trim().is_empty() {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

/// Sets a key: in place of its line or of the comment that says it is missing, else first in its
/// section, else in a section of its own at the end.
pub(super) fn set(toml: &str, section: &str, key: &str, value: &str) -> String {
    let header = format!("[{section}]");
    let line_of = |line: &str| {
        let plain = line.trim_start_matches("# ");
        plain.split_once('=').is_some_and(|(name, _)| name.trim() == key)
    };
    let new = format!("{key} = {value}");
    let lines: Vec<&str> = toml.lines().collect();
    let Some(start) = lines.iter().position(|l| l.trim() == header) else {
        return format!("{toml}\n{header}\n{new}\n");
    };
    let end = lines[start + 1..]
        .iter()
        .position(|l| l.starts_with('['))
        .map_or(lines.len(), |n| start + 1 + n);
    let old = (start + 1..end).find(|&i| line_of(lines[i]));
    let mut out: Vec<&str> = lines.clone();
    match old {
        Some(i) => out[i] = &new,
        None => out.insert(start + 1, &new),
    }
    out.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "schema = \"x\"\n\n[a]\nkey = 1  # old\n\n[b]\n# open = ...  # missing: it\n";

    #[test]
    fn a_key_is_replaced_filled_in_or_added_once() {
        assert_eq!(set(TEXT, "a", "key", "2"), TEXT.replace("key = 1  # old", "key = 2"));
        let filled = TEXT.replace("# open = ...  # missing: it", "open = 3");
        assert_eq!(set(TEXT, "b", "open", "3"), filled);
        assert_eq!(set(TEXT, "a", "new", "4"), TEXT.replace("[a]\n", "[a]\nnew = 4\n"));
        assert_eq!(set(TEXT, "c", "new", "5"), format!("{TEXT}\n[c]\nnew = 5\n"));
    }

    #[test]
    fn a_section_ends_where_the_next_begins() {
        assert_eq!(section(TEXT, "a"), "[a]\nkey = 1  # old\n");
        assert_eq!(section(TEXT, "z"), "");
    }
}
