//! The op reference page is what the table and the backends say.

use mithril_ir::op::Op;
use mithril_ir::op::reference::reference;
use mithril_source::backends::BACKENDS;

#[test]
fn page_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ops.md");
    let whole = |op: Op| -> Vec<&'static str> {
        let spelled = BACKENDS.iter().filter(|backend| !backend.spelling(op).is_empty());
        spelled.map(|backend| backend.label).collect()
    };
    let page = reference(&whole);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(kept == page, "docs/ops.md is out of date: run `make bless`");
}
