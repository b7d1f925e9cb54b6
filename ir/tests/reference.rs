//! The op reference page is what the table says.

#[test]
fn page_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/ops.md");
    let page = mithril_ir::op::reference::reference();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(kept == page, "docs/ops.md is out of date: run `make bless`");
}
