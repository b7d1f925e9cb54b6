//! Params are saved to files and loaded again.

use mithril_driver::params::{load, save};
use mithril_ir::dtype::DType;
use mithril_ir::tensor::Tensor;

#[test]
fn params_are_saved_and_loaded() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("params.safetensors");
    let w = Tensor::from_f64s(DType::F64, vec![2, 1], &[10.0, 1.0]);
    let b = Tensor::from_f64s(DType::F64, vec![0], &[]);
    save(&path, &[("h.0.w", &w), ("b", &b)]).expect("a file");
    let mut found = load(&path).expect("params");
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["b", "h.0.w"]);
    assert!(found[1].1 == w && found[0].1 == b);
    assert!(save(&path, &[("__metadata__", &w)]).is_err());
    assert!(load(&folder.path().join("none")).is_err());
}
