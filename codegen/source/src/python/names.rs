//! Makes names, strings and comments that are safe in Python, whatever text the user chose.

use std::sync::{Arc, LazyLock};

use rustc_hash::{FxHashMap, FxHashSet};

/// Maximum length of a local name. A longer block path loses its first parts.
const MAX_LENGTH: usize = 80;

const KEYWORDS: &str = "False None True and as assert async await break class continue def del \
    elif else except finally for from global if import in is lambda nonlocal not or pass raise \
    return try while with yield";

const BUILTINS: &str = "abs aiter all anext any ascii bin bool breakpoint bytearray bytes callable \
    chr classmethod compile complex copyright credits delattr dict dir divmod enumerate eval exec \
    exit filter float format frozenset getattr globals hasattr hash help hex id input int \
    isinstance issubclass iter len license list locals map max memoryview min next object oct open \
    ord pow print property quit range repr reversed round set setattr slice sorted staticmethod \
    str sum super tuple type vars zip";

/// Names that generated files import or define themselves.
const FILE_NAMES: &str = "np torch F jax jnp mx nn Tensor dtypes tinygrad math Path ml_dtypes numpy forward gradients \
    params inputs state output_gradients outputs outputs_and_gradients";

/// The device mesh in files that use one.
pub const MESH: &str = "mesh";
/// The function that divides arrays over it.
pub const DISTRIBUTE: &str = "distribute";

static RESERVED: LazyLock<FxHashSet<&str>> = LazyLock::new(|| {
    [KEYWORDS, BUILTINS, FILE_NAMES].into_iter().flat_map(str::split_whitespace).collect()
});

/// The names of one scope, and those of the enclosing scopes.
#[derive(Default)]
pub struct Names {
    own: TakenNames,
    /// Names of the enclosing scopes, shared by all scopes inside one.
    outer: Arc<TakenNames>,
}

#[derive(Clone, Default)]
struct TakenNames {
    names: FxHashSet<String>,
    /// For each base name, the next number to try as a suffix: all lower ones are taken.
    next: FxHashMap<String, u32>,
}

impl Names {
    /// A scope inside this one. It does not see names that this one takes later.
    pub fn inside(&mut self) -> Names {
        if !self.own.names.is_empty() {
            let outer = Arc::make_mut(&mut self.outer);
            outer.names.extend(self.own.names.drain());
            outer.next.extend(self.own.next.drain());
        }
        Names { own: TakenNames::default(), outer: self.outer.clone() }
    }

    /// A name like `preferred` that is not taken in this scope or an enclosing one.
    pub fn unique(&mut self, preferred: &str) -> String {
        let preferred = identifier(preferred);
        let reserved = Names::is_reserved(&preferred);
        let base = match preferred.as_str() {
            "input" => "x".to_string(),
            _ if reserved => format!("{preferred}_"),
            _ => preferred,
        };
        if !self.has(&base) {
            self.own.names.insert(base.clone());
            return base;
        }
        let known = |taken: &TakenNames| taken.next.get(&base).copied().unwrap_or(1);
        let mut number = known(&self.own).max(known(&self.outer));
        let separator = if base.ends_with('_') { "" } else { "_" };
        let mut name = format!("{base}{separator}{number}");
        while self.has(&name) {
            number += 1;
            name = format!("{base}{separator}{number}");
        }
        self.own.next.insert(base, number + 1);
        self.own.names.insert(name.clone());
        name
    }

    /// Takes a name, so that nothing else gets it.
    pub fn reserve(&mut self, name: &str) {
        self.own.names.insert(name.into());
    }

    pub fn has(&self, name: &str) -> bool {
        Names::is_reserved(name) || self.own.names.contains(name) || self.outer.names.contains(name)
    }

    fn is_reserved(name: &str) -> bool {
        RESERVED.contains(name)
    }
}

/// Whether the text can be the name of a variable as it is.
pub fn is_variable(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.chars().all(is_word)
        && text.starts_with(|c: char| !c.is_ascii_digit())
        && KEYWORDS.split_whitespace().all(|keyword| keyword != text)
}

/// An identifier of ASCII letters, digits and single underscores that begins with a letter. Other
/// letters could look like these or be normalized to them: Python reads `ｎｐ` as `np`.
pub fn identifier(text: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    let mut words: Vec<&str> = words.filter(|w| !w.is_empty()).collect();
    let width = |words: &[&str]| words.iter().map(|w| w.len() + 1).sum::<usize>();
    let is_number = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
    let mut shortened = false;
    while words.len() > 1 && (width(&words) > MAX_LENGTH || shortened && is_number(words[0])) {
        words.remove(0);
        shortened = true;
    }
    let mut name: String = words.join("_").chars().take(MAX_LENGTH).collect();
    if name.is_empty() {
        name = "value".into();
    }
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert(0, 'v');
    }
    name
}

/// Whether a character is displayed as itself and cannot affect the text around it.
fn is_plain(c: char) -> bool {
    c == ' ' || c.is_ascii_graphic() || (!c.is_ascii() && c.is_alphanumeric())
}

fn push_escaped(out: &mut String, c: char) {
    match c {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\\' => out.push_str("\\\\"),
        c if is_plain(c) => out.push(c),
        c if (c as u32) < 0x100 => out.push_str(&format!("\\x{:02x}", c as u32)),
        c if (c as u32) < 0x10000 => out.push_str(&format!("\\u{:04x}", c as u32)),
        c => out.push_str(&format!("\\U{:08x}", c as u32)),
    }
}

/// A string literal, in the quotes that ruff would choose.
pub fn string(text: &str) -> String {
    let count = |quote: char| text.matches(quote).count();
    let quote = if count('"') > count('\'') { '\'' } else { '"' };
    let mut out = String::from(quote);
    for c in text.chars() {
        if c == quote {
            out.push('\\');
        }
        push_escaped(&mut out, c);
    }
    out.push(quote);
    out
}

/// Escapes text for use between the quotes of `f"..."`.
pub fn format_text(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '{' | '}' => out.extend([c, c]),
            c => push_escaped(&mut out, c),
        }
    }
    out
}

/// A block path as a comment: unchanged if it is plain, otherwise as a string of bounded length.
pub fn comment(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    if path.len() <= 80 && path.chars().all(plain) {
        return path.to_string();
    }
    let mut start: String = path.chars().take(60).collect();
    if start.len() < path.len() {
        start.push_str("...");
    }
    string(&start)
}

/// One line of a docstring.
pub fn doc_line(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().take(80) {
        if c == '"' {
            out.push('\'');
        } else {
            push_escaped(&mut out, c);
        }
    }
    out.trim().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_names_become_identifiers() {
        let cases = [
            ("x; import os", "x_import_os"),
            ("np", "np_"),
            ("lambda", "lambda_"),
            ("a\nb", "a_b"),
            ("\"\"\"", "value"),
            ("ｎｐ", "value"),
            ("2d", "v2d"),
            ("__class__", "class_"),
            ("input", "x"),
        ];
        for (text, name) in cases {
            assert_eq!(Names::default().unique(text), name, "{text}");
        }
        let mut names = Names::default();
        assert_eq!(names.unique("a.b"), "a_b");
        assert_eq!(names.unique("a_b"), "a_b_1");
        assert_eq!(names.unique("sum"), "sum_");
        assert_eq!(names.unique("sum"), "sum_1");
    }

    #[test]
    fn strings_stay_inside_their_quotes() {
        assert_eq!(string("a\"b"), "'a\"b'");
        assert_eq!(string("a'\"b"), "\"a'\\\"b\"");
        assert_eq!(string("a\nb\\"), "\"a\\nb\\\\\"");
        assert_eq!(string("\u{202e}x"), "\"\\u202ex\"");
        assert_eq!(comment("a\nimport os"), "\"a\\nimport os\"");
        assert_eq!(format_text("{a\"}\n\\"), "{{a\\\"}}\\n\\\\");
    }
}
