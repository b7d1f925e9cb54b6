//! The origin of an operation: a set of block paths.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

/// The maximum number of paths in a message.
const MAX_NAMED: usize = 3;
/// The maximum length of a path that messages show in full, in characters.
const MAX_LENGTH: usize = 80;

/// The set of block paths (`transformer.h.3.attn.c_proj`) an operation comes from, sorted.
/// Merged operations carry the union; messages show the shortest.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Loc(SmallVec<[Arc<str>; 1]>);

impl Loc {
    pub fn unknown() -> Loc {
        Loc::default()
    }

    pub fn path(path: impl Into<Arc<str>>) -> Loc {
        let path = path.into();
        if path.is_empty() { Loc::default() } else { Loc(SmallVec::from_iter([path])) }
    }

    pub fn paths(&self) -> &[Arc<str>] {
        &self.0
    }

    pub fn is_unknown(&self) -> bool {
        self.0.is_empty()
    }

    /// The union of locations, in O(n log n) for n paths in all.
    pub fn union<'a>(all: impl Iterator<Item = &'a Loc>) -> Loc {
        let mut paths: SmallVec<[Arc<str>; 1]> =
            all.flat_map(|loc| loc.0.iter().cloned()).collect();
        paths.sort_unstable();
        paths.dedup();
        Loc(paths)
    }

    /// Adds the paths of another location.
    pub fn merge(&mut self, other: &Loc) {
        for path in &other.0 {
            if let Err(at) = self.0.binary_search(path) {
                self.0.insert(at, path.clone());
            }
        }
    }

    /// The same paths, prefixed with the block `prefix`.
    pub fn inside(&self, prefix: &Loc) -> Loc {
        let Some(front) = prefix.shortest() else {
            return self.clone();
        };
        if self.0.is_empty() {
            return prefix.clone();
        }
        Loc(self.0.iter().map(|p| Arc::from(format!("{front}.{p}"))).collect())
    }

    /// The paths as messages name them: "blocks `a`, `b`". Only the first few of many.
    pub fn blocks(&self) -> Option<String> {
        let names: Vec<String> =
            self.0.iter().take(MAX_NAMED).map(|path| format!("`{}`", shortened(path))).collect();
        let rest = if self.0.len() > MAX_NAMED { " and others" } else { "" };
        match &names[..] {
            [] => None,
            [name] => Some(format!("block {name}")),
            names => Some(format!("blocks {}{rest}", names.join(", "))),
        }
    }

    /// The shortest path, and the first one among equally short ones.
    pub fn shortest(&self) -> Option<&str> {
        self.0.iter().min_by_key(|p| p.len()).map(|p| &**p)
    }
}

fn shortened(path: &str) -> String {
    match path.char_indices().nth(MAX_LENGTH) {
        Some((at, _)) => format!("{}...", &path[..at]),
        None => path.to_string(),
    }
}

impl fmt::Display for Loc {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.shortest().unwrap_or("<unknown>"))
    }
}
