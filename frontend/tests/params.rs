//! Params in files, and their names of before.

mod harness;

use harness::f64s;
use mithril::params::{load, save};
use mithril::renamed_params;
use mithril_ir::tensor::Tensor;

#[test]
fn names_of_before() {
    let renamed = renamed_params(&["linear.w"], &["linear_0.w", "linear_1.w"]);
    assert_eq!(renamed, [("linear.w", "linear_0.w")]);
}

#[test]
fn params_in_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("params.safetensors");
    let (w, b): (Tensor, Tensor) = (f64s(&[2, 1], &[10.0, 1.0]), f64s(&[0], &[]));
    save(&path, &[("h.0.w", &w), ("b", &b)]).expect("a file");
    let mut found = load(&path).expect("params");
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["b", "h.0.w"]);
    assert!(found[1].1 == w && found[0].1 == b);
    assert!(save(&path, &[("__metadata__", &w)]).is_err());
    assert!(load(&folder.path().join("none")).is_err());
}
