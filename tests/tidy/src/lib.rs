//! Reading the source tree for the tests that hold over all of it.

pub mod imports;
pub mod scan;

use std::fs;
use std::path::{Path, PathBuf};

/// One source file of the project.
pub struct Source {
    /// Relative to the root of the checkout, with `/`.
    pub path: String,
    pub text: String,
}

impl Source {
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    pub fn lines(&self) -> usize {
        self.text.lines().count()
    }
}

/// The root of the checkout.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("tests/tidy").to_owned()
}

/// Every Rust and Python file of the project, in the order of their paths.
pub fn sources() -> Vec<Source> {
    let (root, mut files) = (root(), Vec::new());
    for dir in ["ir", "passes", "codegen", "runtime", "frontend", "tools", "tests", "examples"] {
        collect(&root, &root.join(dir), &mut files);
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

fn collect(root: &Path, dir: &Path, files: &mut Vec<Source>) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries.map(|e| e.expect("a readable directory")) {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            if !name.starts_with('.') && name != "__pycache__" && name != "target" {
                collect(root, &path, files);
            }
        } else if name.ends_with(".rs") || name.ends_with(".py") {
            files.push(Source {
                path: path
                    .strip_prefix(root)
                    .expect("under the root")
                    .to_string_lossy()
                    .replace('\\', "/"),
                text: fs::read_to_string(&path).expect("UTF-8 source"),
            });
        }
    }
}
