//! Writes files atomically, so that no reader sees a partial file.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};

/// Writes a temporary file in the same folder, then renames it to `path`.
/// Errors: those of `write`; the file cannot be renamed.
pub fn publish<T>(path: &Path, write: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let own = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed), name_of(path));
    let temporary = path.with_file_name(format!(".{}.{}.{}", own.0, own.1, own.2));
    let moved = write(&temporary).and_then(|written| {
        fs::rename(&temporary, path).map_err(|error| unwritable(path, error))?;
        Ok(written)
    });
    if moved.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    moved
}

/// Writes all bytes to a file.
/// Errors: it cannot be written.
pub fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || fs::File::create(path)?.write_all(bytes);
    write().map_err(|error| unwritable(path, error))
}

/// The file name of a path.
pub fn name_of(path: &Path) -> String {
    path.file_name().map_or(String::new(), |name| name.to_string_lossy().into())
}

/// The error for a file that cannot be written.
pub fn unwritable(path: &Path, error: std::io::Error) -> Box<Diagnostic> {
    Box::new(
        Diagnostic::of(ErrorKind::File, "the file cannot be written")
            .at(path.display().to_string())
            .got(error),
    )
}
