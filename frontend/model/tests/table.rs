//! The block table is consistent. `tests/python/test_blocks.py` builds, lowers and runs every block.

use mithril_ir::op;
use mithril_model::blocks::{self, Meaning};

#[test]
fn names_are_unique() {
    let mut names: Vec<&str> = blocks::table().map(|e| e.name).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn every_block_has_a_doc_and_a_known_operation() {
    for entry in blocks::table() {
        if let Meaning::Op(name) = entry.meaning {
            assert!(op::find(name).is_some(), "{}", entry.name);
        }
        assert!(entry.doc().len() > 3, "{}", entry.name);
    }
}
