//! Writes files atomically, so that no reader sees a partial file.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};

/// Writes a temporary file in the same folder, then renames it to `path`. A link to a file stays
/// one. What is not a file, such as a pipe, is written to.
/// Errors: those of `write`; the file cannot be renamed.
pub fn publish<T>(path: &Path, write: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.into());
    if target.exists() && !target.is_file() {
        return write(path);
    }
    let temporary = temporary(&target);
    let moved = write(&temporary).and_then(|written| {
        rename(&temporary, &target)?;
        Ok(written)
    });
    if moved.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    moved.map_err(|error| of_file(error, &temporary, path))
}

/// The error with the name of the file in place of the temporary one's.
pub fn of_file(mut error: Box<Diagnostic>, temporary: &Path, path: &Path) -> Box<Diagnostic> {
    if error.place.as_deref() == temporary.to_str() {
        error.place = Some(path.display().to_string());
    }
    error
}

/// A new name in the same folder, for a file that will be renamed to `path`.
pub fn temporary(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let own = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed), name_of(path));
    path.with_file_name(format!(".{}.{}.{}", own.0, own.1, own.2))
}

/// Renames a temporary file to `path`.
/// Errors: those of the system.
pub fn rename(temporary: &Path, path: &Path) -> Result<()> {
    fs::rename(temporary, path).map_err(|error| unwritable(path, error))
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
