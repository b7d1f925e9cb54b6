//! The type stub `mithril/_core.pyi` is what the extension module says of itself.

use mithril_tidy::root;
use pyo3_introspection::{introspect_cdylib, module_stub_files};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Builds the extension module as the Makefile does, in the profile this test was built in.
fn build() -> PathBuf {
    let deps = env::current_exe().expect("a path").parent().expect("deps").to_owned();
    let out = deps.parent().expect("the profile's directory");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--package", "mithril-python"]);
    if out.ends_with("release") {
        cargo.arg("--release");
    }
    cargo.arg("--target-dir").arg(out.parent().expect("the target directory"));
    assert!(cargo.current_dir(root()).status().expect("cargo runs").success());
    let names = ["libmithril_python.so", "libmithril_python.dylib", "mithril_python.dll"];
    names.iter().map(|n| out.join(n)).find(|p| p.exists()).expect("the extension module")
}

/// PyO3 hands back what an operator has changed in place, and says that it gives None.
fn with_operators(stub: &str) -> String {
    let mut text = stub.replace("import disjoint_base", "import Self, disjoint_base");
    for operator in ["__iadd__", "__ior__"] {
        let said = format!("def {operator}(self, block: object, /) -> None: ...");
        assert!(text.contains(&said), "the stub says something else of {operator}:\n{stub}");
        text = text.replace(&said, &format!("def {operator}(self, block: Block, /) -> Self: ..."));
    }
    text
}

/// Keywords there are not come to a diagnostic when it runs; a type checker refuses them before.
fn without_unknown_keywords(stub: &str) -> String {
    stub.replace(", **unknown: \"object\"", "")
}

#[test]
fn the_stub_is_what_the_extension_says() {
    let module = introspect_cdylib(build(), "_core").expect("an introspectable module");
    let files = module_stub_files(&module);
    let stub = files.get(Path::new("__init__.pyi")).or_else(|| files.get(Path::new("_core.pyi")));
    let stub = stub.unwrap_or_else(|| panic!("one stub among {:?}", files.keys()));
    let stub = without_unknown_keywords(&with_operators(stub));
    let path = root().join("frontend/python/mithril/_core.pyi");
    if env::var_os("BLESS").is_some() {
        fs::write(&path, &stub).expect("a writable stub");
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stub == kept,
        "{} is not up to date: `make bless` regenerates it. Expected:\n{stub}",
        path.display()
    );
}
