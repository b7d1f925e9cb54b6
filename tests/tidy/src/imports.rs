//! Which modules of a Rust crate name which others.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Source, scan};

/// A module, by the names on the way to it from the root of its crate.
pub type Module = Vec<String>;

/// For each module of a crate, those that it names in `use` or in paths. A module's ancestors and
/// descendants are left out.
pub fn imports(files: &[Source], crate_root: &str) -> BTreeMap<Module, BTreeSet<Module>> {
    let own = files.iter().filter_map(|file| Some((module(&file.path, crate_root)?, file)));
    let modules: BTreeMap<Module, &Source> = own.collect();
    let named = |(from, file): (&Module, &&Source)| {
        let code = scan::code(&file.text);
        let code = code.split("#[cfg(test)]").next().unwrap_or_default();
        let mut named = BTreeSet::new();
        for path in paths(code) {
            let target = resolve(from, &path).and_then(|path| nearest(&modules, path));
            named.extend(target.filter(|to| !to.starts_with(from) && !from.starts_with(to)));
        }
        (from.clone(), named)
    };
    modules.iter().map(named).collect()
}

fn module(path: &str, crate_root: &str) -> Option<Module> {
    let inside = path.strip_prefix(crate_root)?.strip_prefix('/')?.strip_suffix(".rs")?;
    let mut names: Module = inside.split('/').map(str::to_string).collect();
    if names.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        names.pop();
    }
    Some(names)
}

/// The paths from `crate` or `super`, each name of a group being one.
fn paths(code: &str) -> Vec<Vec<&str>> {
    let mut found = Vec::new();
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            if code[..at].ends_with(is_name) {
                continue;
            }
            let rest = &code[at..];
            let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
            let head: Vec<&str> = rest[..end].split("::").filter(|name| !name.is_empty()).collect();
            found.push(head.clone());
            if let Some(group) =
                rest[end..].strip_prefix('{').filter(|_| rest[..end].ends_with("::"))
            {
                let group = &group[..group.find("};").unwrap_or(0)];
                for item in group.split([',', '{', '}']) {
                    let names = item.trim().split("::").take_while(|name| !name.is_empty());
                    found.push(head.iter().copied().chain(names).collect());
                }
            }
        }
    }
    found
}

/// A path from the root of the crate, where `from` names it.
fn resolve(from: &Module, path: &[&str]) -> Option<Module> {
    let ups = path.iter().take_while(|name| **name == "super").count();
    let base = match path.first() {
        Some(&"crate") => &[],
        _ => from.get(..from.len().checked_sub(ups)?)?,
    };
    let names = path.iter().skip_while(|name| ["crate", "super"].contains(name));
    Some(base.iter().cloned().chain(names.map(|name| (*name).to_string())).collect())
}

/// The module that a path is of, or is in.
fn nearest(modules: &BTreeMap<Module, &Source>, mut path: Module) -> Option<Module> {
    while !path.is_empty() && !modules.contains_key(&path) {
        path.pop();
    }
    modules.contains_key(&path).then_some(path)
}
