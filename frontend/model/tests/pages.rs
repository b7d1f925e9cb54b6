//! The pages about blocks are up to date with the block table, and the table describes every block.

use std::collections::HashSet;
use std::path::Path;
use std::{env, fs};

use mithril_ir::graph::Role;
use mithril_model::blocks::{FAMILIES, PUBLICATIONS, table};
use mithril_model::page;

#[test]
fn pages_are_up_to_date() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let pages = page::pages();
    for (name, text) in &pages {
        let path = docs.join(name);
        if env::var_os("BLESS").is_some() {
            fs::create_dir_all(path.parent().expect("a folder")).expect("a writable folder");
            fs::write(&path, text).expect("a writable page");
        }
        let kept = fs::read_to_string(&path).unwrap_or_default();
        assert!(*text == kept, "docs/{name} is not up to date: `make bless` regenerates it");
    }
    for file in fs::read_dir(docs.join("blocks")).expect("the pages") {
        let name = format!("blocks/{}", file.expect("a file").file_name().display());
        assert!(pages.iter().any(|(page, _)| *page == name), "docs/{name} has no family");
    }
}

#[test]
fn names_of_families_are_unique() {
    let names: HashSet<&str> = FAMILIES.iter().map(|family| family.name).collect();
    assert_eq!(names.len(), FAMILIES.len());
}

#[test]
fn every_argument_and_param_is_described() {
    for entry in table() {
        for parameter in entry.parameters {
            assert!(!parameter.doc.is_empty(), "`{}` of `{}`", parameter.name, entry.name);
        }
        for input in entry.inputs.iter().filter(|i| matches!(i.role, Role::Param | Role::State)) {
            assert!(!input.doc.is_empty(), "`{}` of `{}`", input.name, entry.name);
        }
        assert!(!entry.example.output.is_empty(), "`{}` has no example", entry.name);
    }
}

/// The publications that a text cites: texts in parentheses that end in a year.
fn cited(text: &str) -> Vec<String> {
    let part = |(at, _)| {
        let part: &str = &text[at + 1..];
        part.split(['(', ')', ',']).next().unwrap_or("").to_string()
    };
    let is_named = |name: &String| {
        let year = name.rsplit(' ').next().unwrap_or("");
        name.contains(' ') && year.len() == 4 && year.bytes().all(|b| b.is_ascii_digit())
    };
    text.match_indices('(').map(part).filter(is_named).collect()
}

#[test]
fn every_cited_publication_is_listed() {
    let mut named = HashSet::new();
    for entry in table() {
        for name in cited(&entry.doc()).into_iter().chain(cited(&format!("({}", entry.source))) {
            let known = PUBLICATIONS.iter().any(|source| source.short == name);
            assert!(known, "`{}` names {name:?}", entry.name);
            named.insert(name);
        }
    }
    for source in PUBLICATIONS {
        assert!(named.contains(source.short), "no block names {}", source.short);
    }
}
