//! The crates of the workspace depend on each other only downwards.

use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

/// Each crate, where it lies, and the crates it may depend on.
const LAYERS: [(&str, &str, &[&str]); 12] = [
    ("mithril-ir", "ir", &[]),
    ("mithril-passes", "passes", &["mithril-ir"]),
    ("mithril-source", "codegen/source", &["mithril-ir", "mithril-passes"]),
    ("mithril-kernels", "codegen/kernels", &["mithril-ir", "mithril-passes", "mithril-runtime"]),
    ("mithril-native", "codegen/native", &[]),
    ("mithril-instant", "codegen/instant", &["mithril-ir", "mithril-kernels"]),
    ("mithril-runtime", "runtime", &[]),
    ("mithril-model", "frontend/model", &["mithril-ir"]),
    (
        "mithril-driver",
        "frontend/driver",
        &[
            "mithril-ir",
            "mithril-passes",
            "mithril-source",
            "mithril-kernels",
            "mithril-instant",
            "mithril-runtime",
            "mithril-model",
        ],
    ),
    (
        "mithril-python",
        "frontend/python",
        &[
            "mithril-ir",
            "mithril-passes",
            "mithril-source",
            "mithril-kernels",
            "mithril-runtime",
            "mithril-model",
            "mithril-driver",
        ],
    ),
    (
        "mithril-tools",
        "tools",
        &[
            "mithril-ir",
            "mithril-passes",
            "mithril-source",
            "mithril-kernels",
            "mithril-model",
            "mithril-driver",
        ],
    ),
    ("mithril-tidy", "tests/tidy", &[]),
];

/// What tests of a crate may use beside what it depends on.
const TESTS: [(&str, &[&str]); 2] = [
    ("mithril-model", &["mithril-passes"]),
    (
        "mithril-native",
        &["mithril-ir", "mithril-passes", "mithril-kernels", "mithril-instant", "mithril-runtime"],
    ),
];

/// Crates that one layer alone may see.
const RESERVED: [(&str, &[&str]); 3] = [
    ("pyo3", &["mithril-python"]),
    ("melior mlir-sys inkwell llvm-sys", &["mithril-native"]),
    ("cranelift-codegen cranelift-frontend cranelift-native", &["mithril-instant"]),
];

fn metadata() -> Value {
    let args = ["metadata", "--format-version", "1", "--no-deps", "--offline"];
    let output = Command::new(env!("CARGO")).args(args).current_dir(mithril_tidy::root()).output();
    let output = output.expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON from cargo metadata")
}

/// A crate of the workspace: its directory, what it depends on, and what its tests do.
struct Crate {
    dir: String,
    depends: Vec<String>,
    tests: Vec<String>,
}

fn crates() -> BTreeMap<String, Crate> {
    let (metadata, root) = (metadata(), mithril_tidy::root());
    let text = |value: &Value| value.as_str().expect("a string").to_owned();
    let package = |package: &Value| {
        let manifest = text(&package["manifest_path"]);
        let dir = std::path::Path::new(&manifest).parent().and_then(|d| d.strip_prefix(&root).ok());
        let dir = dir.expect("a crate under the root").to_string_lossy().replace('\\', "/");
        let all = package["dependencies"].as_array().expect("a list");
        let (tests, depends): (Vec<&Value>, _) = all.iter().partition(|d| d["kind"] == "dev");
        let names = |all: Vec<&Value>| all.into_iter().map(|d| text(&d["name"])).collect();
        (text(&package["name"]), Crate { dir, depends: names(depends), tests: names(tests) })
    };
    metadata["packages"].as_array().expect("a list").iter().map(package).collect()
}

#[test]
fn crates_depend_downwards() {
    let crates = crates();
    for (name, own) in &crates {
        let layer = LAYERS.iter().find(|(layer, ..)| layer == name);
        let (_, place, below) = layer.unwrap_or_else(|| panic!("{name} has no layer"));
        assert_eq!(own.dir, *place, "where {name} lies");
        let tests = TESTS.iter().find(|(layer, _)| layer == name).map_or(&[][..], |(_, all)| all);
        for other in own.depends.iter().filter(|d| crates.contains_key(*d)) {
            assert!(below.contains(&other.as_str()), "{name} may not depend on {other}");
        }
        for other in own.tests.iter().filter(|d| crates.contains_key(*d)) {
            let may = below.iter().chain(tests).any(|d| d == other);
            assert!(may, "tests of {name} may not depend on {other}");
        }
    }
}

#[test]
fn foreign_libraries_stay_in_their_layer() {
    for (name, own) in &crates() {
        for (reserved, owners) in RESERVED {
            let mut all = own.depends.iter().chain(&own.tests);
            let seen = all.find(|d| reserved.split(' ').any(|r| r == d.as_str()));
            assert!(
                seen.is_none() || owners.contains(&name.as_str()),
                "{name} may not depend on {seen:?}"
            );
        }
    }
}
