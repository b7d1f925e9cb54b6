//! Every kind of error has a page, and every page belongs to a kind.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind};

#[test]
fn every_code_has_a_page() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors");
    let stem = |path: &Path| path.file_stem().unwrap().to_string_lossy().into_owned();
    let pages: BTreeSet<String> =
        fs::read_dir(&folder).unwrap().map(|entry| stem(&entry.unwrap().path())).collect();
    let codes: BTreeSet<String> =
        ErrorKind::ALL.iter().map(|kind| kind.code().to_string()).collect();
    assert_eq!(codes.len(), ErrorKind::ALL.len(), "two kinds have one code");
    assert_eq!(codes, pages);
    for kind in ErrorKind::ALL {
        let page = fs::read_to_string(folder.join(format!("{}.md", kind.code()))).unwrap();
        let title = format!("# {}: {}\n", kind.code(), kind.heading());
        assert!(page.starts_with(&title), "{}: the title of the page is wrong", kind.code());
        // Bugs in Mithril have no example.
        if kind.code() != "E0901" {
            assert_eq!(
                page.matches("```python").count(),
                2,
                "{}: the page needs two examples",
                kind.code()
            );
            assert!(
                page.contains("```text"),
                "{}: the page needs the message of the first example",
                kind.code()
            );
        }
    }
}

#[test]
fn messages_show_headings() {
    let error = |kind| Diagnostic::of(kind, "`x`").headline();
    assert_eq!(error(ErrorKind::Terminal), "Terminal not found: `x`");
    assert_eq!(error(ErrorKind::Shapes), "Incompatible shapes during compilation: `x`");
    assert_eq!(error(ErrorKind::ShapesAtCall), "Incompatible shapes: `x`");
    assert_eq!(error(ErrorKind::Memory), "`x`");
    assert_eq!(Diagnostic::of(ErrorKind::Shapes, "").headline(), ErrorKind::Shapes.heading());
    assert_eq!(Diagnostic::new("`x`").kind.code(), "E0100");
    assert_eq!(ErrorKind::find("e0107"), Some(ErrorKind::Terminal));
}
