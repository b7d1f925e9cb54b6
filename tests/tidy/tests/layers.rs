//! The crates of the workspace depend on each other only downwards.

use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

/// Each crate, where it lies, and the crates it may depend on.
const LAYERS: [(&str, &str, &[&str]); 10] = [
    ("mithril-ir", "ir", &[]),
    ("mithril-passes", "passes", &["mithril-ir"]),
    ("mithril-source", "codegen/source", &["mithril-ir", "mithril-passes"]),
    ("mithril-kernels", "codegen/kernels", &["mithril-ir", "mithril-passes", "mithril-runtime"]),
    (
        "mithril-native",
        "codegen/native",
        &["mithril-ir", "mithril-passes", "mithril-kernels", "mithril-instant", "mithril-runtime"],
    ),
    ("mithril-instant", "codegen/instant", &["mithril-ir", "mithril-kernels"]),
    ("mithril-runtime", "runtime", &[]),
    (
        "mithril",
        "frontend",
        &[
            "mithril-ir",
            "mithril-passes",
            "mithril-source",
            "mithril-kernels",
            "mithril-instant",
            "mithril-runtime",
        ],
    ),
    (
        "mithril-tools",
        "tools",
        &["mithril-ir", "mithril-passes", "mithril-source", "mithril-runtime", "mithril"],
    ),
    ("mithril-tidy", "tests/tidy", &[]),
];

/// Crates that one layer alone may see.
const RESERVED: [(&str, &[&str]); 3] = [
    ("pyo3", &["mithril"]),
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

/// The crates of the workspace: directory, and the names of all dependencies (tests' too).
fn crates() -> BTreeMap<String, (String, Vec<String>)> {
    let (metadata, root) = (metadata(), mithril_tidy::root());
    let text = |value: &Value| value.as_str().expect("a string").to_owned();
    let package = |package: &Value| {
        let manifest = text(&package["manifest_path"]);
        let dir = std::path::Path::new(&manifest).parent().and_then(|d| d.strip_prefix(&root).ok());
        let dir = dir.expect("a crate under the root").to_string_lossy().replace('\\', "/");
        let depends = package["dependencies"].as_array().expect("a list");
        (text(&package["name"]), (dir, depends.iter().map(|d| text(&d["name"])).collect()))
    };
    metadata["packages"].as_array().expect("a list").iter().map(package).collect()
}

#[test]
fn crates_depend_downwards() {
    let crates = crates();
    for (name, (dir, depends)) in &crates {
        let layer = LAYERS.iter().find(|(layer, ..)| layer == name);
        let (_, place, below) = layer.unwrap_or_else(|| panic!("{name} has no layer"));
        assert_eq!(dir, place, "where {name} lies");
        for other in depends.iter().filter(|d| crates.contains_key(*d)) {
            assert!(below.contains(&other.as_str()), "{name} may not depend on {other}");
        }
    }
}

#[test]
fn foreign_libraries_stay_in_their_layer() {
    for (name, (_, depends)) in &crates() {
        for (reserved, owners) in RESERVED {
            let seen = reserved.split(' ').find(|r| depends.iter().any(|d| d == r));
            assert!(
                seen.is_none() || owners.contains(&name.as_str()),
                "{name} may not depend on {seen:?}"
            );
        }
    }
}
