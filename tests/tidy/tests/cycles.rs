//! The modules of a crate do not need each other in circles.

use std::collections::{BTreeMap, BTreeSet};

use mithril_tidy::imports::{Module, imports};
use mithril_tidy::sources;
use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;

const CRATES: [&str; 12] = [
    "ir/src",
    "passes/src",
    "codegen/source/src",
    "codegen/kernels/src",
    "codegen/instant/src",
    "codegen/native/src",
    "runtime/src",
    "frontend/model/src",
    "frontend/driver/src",
    "frontend/python/src",
    "tools/src/bin/mithril",
    "tools/src/bin/mithril-opt",
];

/// Circles that stand, by their first modules. In each, data types hold one another: an operation of
/// the table has functions that build graphs of operations, a block may be a model of blocks, and a
/// connection of Python knows its block. No circle may be added, and one that is gone is to be taken
/// from the list.
const KNOWN: [&str; 3] = [
    "ir/src: algebra builder evaluate external graph guards op signature symbolic",
    "frontend/model/src: block blocks definition init lower model model::graph model::order \
     model::readers model::seal setting",
    "frontend/python/src: block connection model value",
];

fn circles(imports: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<String> {
    let modules: Vec<&Module> = imports.keys().collect();
    let number = |module: &Module| modules.binary_search(&module).expect("a module of the crate");
    let edges = imports.iter().flat_map(|(from, to)| to.iter().map(move |to| (from, to)));
    let graph: DiGraphMap<usize, ()> =
        DiGraphMap::from_edges(edges.map(|(from, to)| (number(from), number(to))));
    let groups = tarjan_scc(&graph).into_iter().filter(|group| group.len() > 1);
    let names = |group: Vec<usize>| {
        let mut names: Vec<String> = group.iter().map(|at| modules[*at].join("::")).collect();
        names.sort();
        names.join(" ")
    };
    groups.map(names).collect()
}

#[test]
fn modules_need_each_other_in_one_direction() {
    let files = sources();
    let found: BTreeSet<String> = CRATES
        .iter()
        .flat_map(|root| {
            let circles = circles(&imports(&files, root)).into_iter();
            circles.map(move |circle| format!("{root}: {circle}"))
        })
        .collect();
    let known: BTreeSet<String> = KNOWN.iter().map(|circle| (*circle).to_string()).collect();
    let new: Vec<&String> = found.difference(&known).collect();
    assert!(new.is_empty(), "modules that need each other: {new:#?}");
    let gone: Vec<&String> = known.difference(&found).collect();
    assert!(gone.is_empty(), "circles that are gone; take them from the list: {gone:#?}");
}

#[test]
fn circles_are_found() {
    let module = |name: &str| vec![name.to_string()];
    let edges = [("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")];
    let mut imports: BTreeMap<Module, BTreeSet<Module>> =
        ["a", "b", "c", "d"].map(|name| (module(name), BTreeSet::new())).into();
    for (from, to) in edges {
        imports.entry(module(from)).or_default().insert(module(to));
    }
    assert_eq!(circles(&imports), ["b c"]);
}
