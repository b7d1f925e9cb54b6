//! Preludes: the functions at the top of a file that supply what its framework lacks.

use rustc_hash::FxHashSet;

/// One definition of a prelude, with its text up to the next one.
pub struct Definition<'a> {
    pub name: &'a str,
    pub text: &'a str,
}

/// The definitions of a prelude file in order. Each begins in the first column with a name that
/// begins with `_`, or with `def` or `class` and such a name; decorators may come first.
pub fn definitions(prelude: &str) -> Vec<Definition<'_>> {
    let starts = |line: &str| ["def _", "class _", "_", "@"].iter().any(|s| line.starts_with(s));
    let mut bounds = Vec::new();
    let mut at = 0;
    let mut decorated = false;
    for line in prelude.split_inclusive('\n') {
        if starts(line) && !decorated {
            bounds.push(at);
        }
        decorated = line.starts_with('@');
        at += line.len();
    }
    bounds.push(prelude.len());
    let text = |pair: &[usize]| prelude[pair[0]..pair[1]].trim_end();
    bounds
        .windows(2)
        .map(|pair| Definition {
            name: words(text(pair)).find(|word| word.starts_with('_')).unwrap_or(""),
            text: text(pair),
        })
        .collect()
}

/// The prelude of every framework.
const EVERY: &str = include_str!("../backends/prelude/every.py");

/// The definitions of these names and of everything they use, in the order of the files: those of
/// a framework's prelude, then those of every framework that it does not define itself.
pub fn needed<'a>(prelude: &[&'a str], names: &FxHashSet<String>) -> Vec<Definition<'a>> {
    let own: Vec<_> = prelude.iter().flat_map(|file| definitions(file)).collect();
    let names_own = |name: &str| own.iter().any(|definition| definition.name == name);
    let of_every =
        definitions(EVERY).into_iter().filter(|d| !names_own(d.name)).collect::<Vec<_>>();
    let definitions: Vec<_> = own.into_iter().chain(of_every).collect();
    let mut wanted: FxHashSet<&str> = names.iter().map(String::as_str).collect();
    loop {
        let before = wanted.len();
        for definition in &definitions {
            if wanted.contains(definition.name) {
                let used = words(definition.text);
                wanted.extend(used.filter(|w| definitions.iter().any(|d| d.name == *w)));
            }
        }
        if wanted.len() == before {
            break;
        }
    }
    let kept = definitions.into_iter();
    kept.filter(|d| wanted.contains(d.name)).collect()
}

/// Whether the prelude of a framework, or that of all, has a definition of this name.
pub fn defines(prelude: &[&str], name: &str) -> bool {
    let files = prelude.iter().copied().chain([EVERY]);
    files.flat_map(definitions).any(|own| own.name == name)
}

/// The words of a text: its runs of letters, digits and underscores, such as identifiers.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty())
}
