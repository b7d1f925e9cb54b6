//! Splits a file into modules at lines `// -----`.

/// One module of a file. Empty lines replace the modules before it, so that line numbers in its
/// text are those of the file.
pub struct Chunk {
    pub text: String,
}

impl Chunk {
    pub fn whole(source: &str) -> Chunk {
        Chunk { text: source.to_string() }
    }
}

const SEPARATOR: &str = "// -----";

/// The modules of a file. Modules after the first may omit the version line.
pub fn chunks(source: &str) -> Vec<Chunk> {
    let lines: Vec<&str> = source.lines().collect();
    let first = lines.iter().find(|line| has_version(line)).copied();
    let mut chunks = Vec::new();
    let mut start = 0;
    let ends = (0..lines.len()).filter(|&i| lines[i].trim_end() == SEPARATOR);
    for end in ends.chain([lines.len()]) {
        let body = &lines[start..end];
        if body.iter().any(|line| !line.trim().is_empty()) {
            chunks.push(chunk(start, body, first.unwrap_or("")));
        }
        start = end + 1;
    }
    chunks
}

fn chunk(start: usize, body: &[&str], version: &str) -> Chunk {
    let mut text = "\n".repeat(start);
    let own = body.iter().any(|line| has_version(line));
    if !own && start > 0 {
        // Replaces the line of the separator.
        text.insert_str(start - 1, version);
    }
    text.push_str(&body.join("\n"));
    text.push('\n');
    Chunk { text }
}

fn has_version(line: &str) -> bool {
    line.split_whitespace().next() == Some("mithril")
}

#[cfg(test)]
mod tests {
    use super::chunks;

    #[test]
    fn line_numbers_stay_the_same() {
        let source = "mithril 1\na\n// -----\nb\n// -----\n\n// -----\nmithril 1\nc";
        let texts: Vec<String> = chunks(source).into_iter().map(|c| c.text).collect();
        assert_eq!(texts, ["mithril 1\na\n", "\n\nmithril 1\nb\n", "\n\n\n\n\n\n\nmithril 1\nc\n"]);
    }
}
