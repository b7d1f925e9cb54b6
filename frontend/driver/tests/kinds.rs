//! Every kind of error has a page, and every page is one of a kind.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use mithril_driver::kinds::{KINDS, Kind};
use mithril_ir::diagnostic::Diagnostic;

#[test]
fn codes_and_pages_are_the_same() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors");
    let stem = |path: &Path| path.file_stem().unwrap().to_string_lossy().into_owned();
    let pages: BTreeSet<String> =
        fs::read_dir(&folder).unwrap().map(|entry| stem(&entry.unwrap().path())).collect();
    let codes: BTreeSet<String> = KINDS.iter().map(|kind| kind.code.to_string()).collect();
    assert_eq!(codes.len(), KINDS.len(), "two kinds have one code");
    assert_eq!(codes, pages);
    for kind in KINDS {
        let page = fs::read_to_string(folder.join(format!("{}.md", kind.code))).unwrap();
        let title = format!("# {}: {}\n", kind.code, kind.heading);
        assert!(page.starts_with(&title), "{}: the page has another title", kind.code);
        // What nobody should see has no example.
        if kind.code != "E0901" {
            assert_eq!(page.matches("```python").count(), 2, "{}: two examples", kind.code);
            assert!(page.contains("```text"), "{}: what the first one says", kind.code);
        }
    }
}

#[test]
fn headings_decide() {
    for (what, code) in [
        ("Terminal not found: `Model` has no terminal `y`", "E0107"),
        ("Incompatible shapes during compilation: axis 3 is out of range", "E0201"),
        ("Incompatible shapes: `x` of inputs has the wrong dtype", "E0202"),
        ("Backend does not support operation sort", "E0501"),
        ("Out of memory during compilation", "E0506"),
        ("what nobody has said yet", "E0100"),
    ] {
        assert_eq!(Kind::of(&Diagnostic::new(what)).code, code);
    }
    assert_eq!(Kind::find("e0107").unwrap().heading, "Terminal not found");
}
