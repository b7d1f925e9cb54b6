//! The targets that options name.

use mithril_driver::compile::targets;

#[test]
fn external_functions_may_have_bodies_for_every_target() {
    let names: Vec<&str> = targets().iter().map(|target| target.name).collect();
    assert_eq!(mithril_ir::external::TARGETS[..], names);
}
