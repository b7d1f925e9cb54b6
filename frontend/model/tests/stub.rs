//! The stub `mithril/models.pyi` is up to date with the block table.

use std::path::Path;
use std::{env, fs};

#[test]
fn the_stub_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python/mithril/models.pyi");
    let stub = mithril_model::stub::models();
    if env::var_os("BLESS").is_some() {
        fs::write(&path, &stub).expect("a writable stub");
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(stub == kept, "{} is not up to date: `make bless` regenerates it", path.display());
}
