//! The registry of targets.

use mithril_driver::compile::{CompileOptions, compile};
use mithril_driver::targets::{self, TARGETS, TargetEntry};
use mithril_model::Custom;

#[test]
fn names_of_targets_are_unique() {
    let mut names = targets::names();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), TARGETS.len());
}

#[test]
fn properties_name_registered_targets() {
    let exists = |name: &str| targets::find(name).is_ok();
    for target in TARGETS.iter() {
        assert_eq!(target.passes.bodies.first(), Some(&target.name()));
        assert!(target.passes.bodies.iter().all(|name| exists(name)), "{target:?}");
        assert!(exists(target.arrays), "{target:?}");
    }
    let of_passes: Vec<&str> = targets::of_passes().iter().map(|target| target.name).collect();
    assert_eq!(of_passes, TARGETS.iter().map(TargetEntry::name).collect::<Vec<_>>());
}

/// The error of compiling a function with this body.
fn compile_error(target: &str, body: &str) -> String {
    let custom = Custom::new("f").shape("(x: [n]) -> [n]").body(target, body);
    let block = custom.block().expect("target names are checked later, when the block is compiled");
    let options = CompileOptions::usual("numpy").expect("a target");
    compile(&block, &options).expect_err("the body is refused").to_string()
}

#[test]
fn bodies_for_unknown_targets_are_errors() {
    let error = compile_error("nunpy", "return x");
    assert!(error.contains("there is no target `nunpy` for a body"), "{error}");
    assert!(error.contains("where: function `f`"), "{error}");
    assert!(error.contains("expected: one of numpy, torch, jax, mlx, tinygrad, cpu, c"), "{error}");
    assert!(error.contains("did you mean `numpy`?"), "{error}");
}

#[test]
fn bodies_in_python_must_return() {
    let error = compile_error("jax", "y = x");
    assert!(error.contains("the body for jax returns nothing"), "{error}");
}
