//! Temporary folders for a C compiler.
//!
//! A folder is removed when its value is dropped. A killed process leaves its folder behind, and
//! the next process that makes a folder removes it: each folder holds a file that its process has
//! locked, and the system releases the lock when the process ends.

use std::ffi::OsStr;
use std::fs::{self, DirEntry, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use std::{env, io};

use libloading::Library;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use tempfile::TempDir;

/// The prefix of the names of folders.
const PREFIX: &str = "mithril-c-";
/// The file in a folder that its process locks.
const LOCK: &str = ".mithril-lock";
/// A folder younger than this is never removed: its process may not have locked it yet.
const MIN_AGE: Duration = Duration::from_secs(60);

/// A folder that only this process uses.
pub struct Folder {
    folder: TempDir,
    /// The lock is held until this file is closed.
    _lock: File,
}

impl Folder {
    /// Makes a new folder in the directory for temporary files, and removes folders of killed
    /// processes.
    ///
    /// Errors: it cannot be made.
    pub fn new() -> Result<Folder> {
        remove_abandoned();
        let made = || -> io::Result<Folder> {
            let folder = tempfile::Builder::new().prefix(PREFIX).tempdir()?;
            let lock = File::create(folder.path().join(LOCK))?;
            // This fails on a file system without locks. Other processes then never remove the
            // folder.
            try_lock(&lock);
            Ok(Folder { folder, _lock: lock })
        };
        made().map_err(|error| {
            let what = Diagnostic::of(
                ErrorKind::CCompiler,
                "C cannot be compiled: no temporary folder can be created",
            )
            .got(error);
            Box::new(what.at(env::temp_dir().display().to_string()))
        })
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Loads a library from its bytes.
    ///
    /// Errors: it cannot be written, or it is not a library.
    pub fn load(&self, bytes: &[u8]) -> Result<Library> {
        let path = self.path().join(format!("loaded{}.so", bytes.len()));
        let failed = |error: String| {
            Box::new(
                Diagnostic::of(
                    ErrorKind::CCompiler,
                    "C cannot be compiled: the library does not load",
                )
                .got(error)
                .hint("set TMPDIR to a folder from which code may run"),
            )
        };
        fs::write(&path, bytes).map_err(|error| failed(error.to_string()))?;
        // SAFETY: the compiler made the file from our own text; loading it runs no code.
        unsafe { Library::new(&path) }.map_err(|error| failed(error.to_string()))
    }
}

/// Removes folders of this user whose processes have ended. Failures are ignored: the next process
/// tries again.
fn remove_abandoned() {
    let Ok(entries) = fs::read_dir(env::temp_dir()) else { return };
    for entry in entries.flatten().filter(|entry| is_folder_name(&entry.file_name())) {
        let _ = remove_if_abandoned(&entry);
    }
}

fn is_folder_name(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with(PREFIX))
}

/// Removes a folder that a killed process left behind. A folder without the lock file may belong to
/// another program, so it is removed only if it is empty.
fn remove_if_abandoned(entry: &DirEntry) -> io::Result<()> {
    let meta = entry.metadata()?;
    // SAFETY: the call has no conditions.
    let user = unsafe { libc::geteuid() };
    let young = meta.modified()?.elapsed().map_or(true, |age| age < MIN_AGE);
    if !meta.is_dir() || meta.uid() != user || young {
        return Ok(());
    }
    match File::open(entry.path().join(LOCK)) {
        Ok(lock) if try_lock(&lock) => fs::remove_dir_all(entry.path()),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => fs::remove_dir(entry.path()),
        Err(error) => Err(error),
    }
}

/// Tries to lock a file. Returns false if another process holds the lock.
fn try_lock(file: &File) -> bool {
    // SAFETY: the descriptor is open.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}
