//! Makes names valid and unique in C.

use std::sync::LazyLock;

use rustc_hash::{FxHashMap, FxHashSet};

/// Names that parameters must not have: keywords of C and C++, macros of compilers and of the
/// included headers, and functions that are called where parameters are in scope.
const RESERVED: &str = "\
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t
    char32_t char8_t class co_await co_return co_yield compl concept const const_cast
    consteval constexpr constinit continue decltype default delete do double dynamic_cast else
    enum explicit export extern false float for friend goto i386 if INFINITY inline int linux
    long memcpy memset mutable namespace NAN new noexcept not not_eq NULL nullptr operator or
    or_eq private protected
    public register reinterpret_cast requires restrict return short signed sizeof static
    static_assert static_cast struct switch template this thread_local throw true try typedef
    typeid typename typeof typeof_unqual union unix unsigned using virtual void volatile
    wchar_t while xor xor_eq";

static RESERVED_WORDS: LazyLock<FxHashSet<&str>> =
    LazyLock::new(|| RESERVED.split_whitespace().collect());

/// Returns the C identifier that is closest to a text. Characters that C does not allow become
/// underscores. Leading and doubled underscores are avoided, because they are reserved for
/// compilers.
pub fn identifier(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    for c in text.chars() {
        let c = if c.is_ascii_alphanumeric() { c } else { '_' };
        if c != '_' || !(name.is_empty() || name.ends_with('_')) {
            name.push(c);
        }
    }
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert(0, 'x');
    }
    // Generated files define names with these prefixes.
    if ["mithril_", "MITHRIL_"].iter().any(|prefix| name.starts_with(prefix)) {
        name.insert_str(0, "x_");
    }
    if RESERVED_WORDS.contains(name.as_str()) || is_type(&name) {
        name.push('_');
    }
    name
}

/// Whether a standard header may define the name, such as `int64_t`, `INT64_MAX` or `SIZE_MAX`.
fn is_type(name: &str) -> bool {
    name.ends_with("_t") || ["_MAX", "_MIN", "_C", "_WIDTH"].iter().any(|end| name.ends_with(end))
}

/// A set of distinct names.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    taken: FxHashSet<String>,
    /// For each name that was requested again, the next number to try.
    next: FxHashMap<String, usize>,
}

impl Scope {
    /// Creates a scope in which these names are taken.
    pub fn new<const N: usize>(taken: [&str; N]) -> Scope {
        let taken = taken.into_iter().map(String::from).collect();
        Scope { taken, next: FxHashMap::default() }
    }

    /// Returns a new identifier for a text, with a number if the name is taken.
    pub fn name(&mut self, text: &str) -> String {
        let base = identifier(text);
        if self.taken.insert(base.clone()) {
            return base;
        }
        let next = self.next.entry(base.clone()).or_insert(1);
        loop {
            let name = format!("{base}_{next}");
            *next += 1;
            if self.taken.insert(name.clone()) {
                return name;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_identifiers() {
        for (text, name) in [
            ("x", "x"),
            ("linear_0.w", "linear_0_w"),
            ("h.0..w", "h_0_w"),
            ("__x__", "x_"),
            ("2d", "x2d"),
            ("größe", "gr_e"),
            ("", "x"),
            ("for", "for_"),
            ("size_t", "size_t_"),
            ("unix", "unix_"),
            ("MITHRIL_OK", "x_MITHRIL_OK"),
        ] {
            assert_eq!(identifier(text), name, "{text}");
        }
    }

    #[test]
    fn names_differ() {
        let mut scope = Scope::new(["workspace"]);
        let texts = ["a.b", "a_b", "a b", "workspace"];
        assert_eq!(texts.map(|t| scope.name(t)), ["a_b", "a_b_1", "a_b_2", "workspace_1"]);
    }
}
