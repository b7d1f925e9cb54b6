//! The sizes of files and functions, the names of modules, and what no file may contain.

use mithril_tidy::{Source, scan, sources};
use std::path::Path;

/// Fails with every offence at once, one to a line.
fn none(rule: &str, offences: Vec<String>) {
    assert!(offences.is_empty(), "{rule}:\n  {}", offences.join("\n  "));
}

fn rust() -> Vec<Source> {
    sources().into_iter().filter(Source::is_rust).collect()
}

#[test]
fn files_are_short() {
    let files = sources();
    let long = files.iter().filter(|f| f.lines() > 800);
    none(
        "a file has at most 800 lines",
        long.map(|f| format!("{}: {}", f.path, f.lines())).collect(),
    );

    let mut lines: Vec<usize> = files.iter().map(Source::lines).filter(|n| *n > 0).collect();
    lines.sort_unstable();
    let (median, p90) = (lines[lines.len() / 2], lines[lines.len() * 9 / 10]);
    assert!(median <= 200, "half of the files have at most 200 lines, the median is {median}");
    assert!(
        p90 <= 500,
        "nine in ten files have at most 500 lines, the ninetieth percentile is {p90}"
    );
}

#[test]
fn functions_are_short() {
    let mut offences = Vec::new();
    for file in rust() {
        let long = scan::functions(&scan::code(&file.text)).into_iter().filter(|f| f.lines > 60);
        offences
            .extend(long.map(|f| format!("{}:{}: {} has {}", file.path, f.line, f.name, f.lines)));
    }
    none("a function has at most 60 lines", offences);
}

#[test]
fn modules_are_named_after_what_they_hold() {
    const VAGUE: [&str; 8] =
        ["util", "utils", "helper", "helpers", "common", "misc", "shared", "stuff"];
    let mut offences = Vec::new();
    for file in sources() {
        let parts = Path::new(&file.path).with_extension("");
        if parts.iter().any(|part| VAGUE.iter().any(|v| part == *v)) {
            offences.push(file.path.clone());
        }
        if file.is_rust() {
            let code = scan::code(&file.text);
            let inline = VAGUE.iter().filter(|v| {
                code.contains(&format!("mod {v} ")) || code.contains(&format!("mod {v};"))
            });
            offences.extend(inline.map(|v| format!("{}: mod {v}", file.path)));
        }
    }
    none("a module's name says what it holds", offences);
}

#[test]
fn rust_files_begin_with_their_purpose() {
    let bare = rust().into_iter().filter(|f| !f.text.starts_with("//! "));
    none("a file begins with a line `//! …`", bare.map(|f| f.path).collect());
}

#[test]
fn nothing_is_left_open() {
    const RUST: [&str; 3] = ["#[ignore", "todo!", "unimplemented!"];
    const PYTHON: [&str; 3] = ["mark.skip(", "mark.xfail", "pytest.xfail("];
    let mut offences = Vec::new();
    for file in sources() {
        let (words, code) =
            if file.is_rust() { (RUST, scan::code(&file.text)) } else { (PYTHON, file.text) };
        offences.extend(
            words.iter().filter(|w| code.contains(*w)).map(|w| format!("{}: {w}", file.path)),
        );
    }
    none("a wrong behaviour is asserted with a FIXME, never ignored", offences);
}

/// The files of crates that know neither the system nor any framework.
fn core() -> impl Iterator<Item = Source> {
    const CORE: [&str; 3] = ["ir/src/", "passes/src/", "frontend/model/src/"];
    rust().into_iter().filter(|file| CORE.iter().any(|core| file.path.starts_with(core)))
}

#[test]
fn the_core_names_no_framework() {
    const NAMES: [&str; 5] = ["\"numpy\"", "\"torch\"", "\"jax\"", "\"mlx\"", "\"tinygrad\""];
    let mut offences = Vec::new();
    for file in core() {
        let lines = file.text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let named = lines.filter(|line| NAMES.iter().any(|name| line.contains(name)));
        offences.extend(named.map(|line| format!("{}: {}", file.path, line.trim())));
    }
    none("the core is handed its targets", offences);
}

#[test]
fn the_core_does_no_input_or_output() {
    const MODULES: [&str; 4] = ["fs", "process", "env", "net"];
    let mut offences = Vec::new();
    for file in core() {
        let code: String = scan::code(&file.text).split_whitespace().collect::<Vec<_>>().join(" ");
        let named = |m: &&&str| code.split("std::").skip(1).any(|rest| imports(rest, m));
        offences.extend(MODULES.iter().filter(named).map(|m| format!("{}: std::{m}", file.path)));
    }
    none("the core touches no file, process, environment or network", offences);
}

/// Whether the path or the braced list that follows `std::` begins at `module`.
fn imports(rest: &str, module: &str) -> bool {
    let list = match rest.strip_prefix('{') {
        Some(braced) => braced.split(';').next().unwrap_or(braced),
        None => {
            return rest.split(|c: char| !c.is_alphanumeric() && c != '_').next() == Some(module);
        }
    };
    let mut depth = 0;
    let mut heads = String::new();
    for c in list.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ if depth == 0 => heads.push(c),
            _ => {}
        }
    }
    heads.split(',').any(|head| head.trim().split("::").next() == Some(module))
}

#[test]
fn imports_are_seen_in_lists() {
    assert!(imports("fs::read(", "fs"));
    assert!(imports("{collections::{HashMap, env}, fs}; use", "fs"));
    assert!(!imports("{collections::{HashMap, env}, fs}; use", "env"));
    assert!(!imports("fmt::Display", "fs"));
}
