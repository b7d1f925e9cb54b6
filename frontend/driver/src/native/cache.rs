//! A disk cache of objects, keyed by a hash of their inputs, and shared by all processes of a user.
//!
//! An entry is written to a temporary file and renamed, so that no reader sees a partial one. It
//! begins with a checksum over its key and contents, so that a damaged one is never loaded. If the
//! cache is too large, the least recently used entries are removed.

use std::fs::{self, DirBuilder, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use std::{env, fmt, process};

use blake3::{Hash, Hasher};

use crate::amount;

/// The key of an entry.
pub type Key = Hash;

/// The size limit in bytes, unless MITHRIL_CACHE_LIMIT sets another one.
const DEFAULT_LIMIT: u64 = 2 << 30;
/// The largest entry in bytes that is read. Kernels take some kilobytes each, C libraries some
/// megabytes.
const MAX_ENTRY: u64 = 1 << 30;
/// Partial files of killed processes are removed after this time.
const ABANDONED: Duration = Duration::from_secs(3600);

/// The cache of this user. It is always empty if it has no usable folder.
pub struct Cache {
    folder: Result<PathBuf, &'static str>,
    /// The size limit in bytes.
    pub limit: u64,
}

/// The reason why the cache does not have an entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Miss {
    /// There is no cache, for this reason.
    Off(&'static str),
    Absent,
    /// The checksum of the contents is wrong. The entry is removed.
    Damaged,
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Miss::Off(why) => write!(f, "without a cache: {why}"),
            Miss::Absent => f.write_str("not in the cache"),
            Miss::Damaged => f.write_str("damaged in the cache"),
        }
    }
}

/// One object on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The key in hexadecimal digits.
    pub name: String,
    pub bytes: u64,
    /// The time since it was last used.
    pub age: Duration,
}

impl Cache {
    /// Opens the cache in the folder that MITHRIL_CACHE names (none if that is empty), or in
    /// `~/.cache/mithril`. MITHRIL_CACHE_LIMIT sets the size limit.
    pub fn open() -> Cache {
        let folder = match (env::var_os("MITHRIL_CACHE"), env::var_os("HOME")) {
            (Some(named), _) if named.is_empty() => Err("MITHRIL_CACHE is empty"),
            (Some(named), _) => Ok(PathBuf::from(named)),
            (None, Some(home)) => Ok(Path::new(&home).join(".cache/mithril")),
            (None, None) => Err("neither MITHRIL_CACHE nor HOME is set"),
        };
        let limit = match env::var("MITHRIL_CACHE_LIMIT") {
            Ok(text) if !text.is_empty() => {
                amount::bytes(&text).ok_or("MITHRIL_CACHE_LIMIT is not a size such as 2GB")
            }
            _ => Ok(DEFAULT_LIMIT),
        };
        let folder = limit.and(folder).and_then(|folder| make(&folder).map(|()| folder));
        Cache { folder, limit: limit.unwrap_or(DEFAULT_LIMIT) }
    }

    /// The entry with this key, or the reason why it is missing. A damaged entry is removed.
    pub fn get(&self, key: &Key) -> Result<Vec<u8>, Miss> {
        let path = self.path(key).map_err(Miss::Off)?;
        let file = match File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Miss::Absent),
            // For example a socket, or a file without read permission.
            Err(_) => return Err(self.damaged(key)),
        };
        let Ok(mut bytes) = contents(&file) else {
            return Err(self.damaged(key));
        };
        if bytes.len() < 32 || checksum(key, &bytes[32..]).as_bytes()[..] != bytes[..32] {
            return Err(self.damaged(key));
        }
        bytes.drain(..32);
        // The modification time records the last use.
        let _ = file.set_modified(now());
        Ok(bytes)
    }

    /// Removes a damaged entry.
    fn damaged(&self, key: &Key) -> Miss {
        self.remove(key);
        Miss::Damaged
    }

    /// Writes an entry. Failures are ignored: the next process compiles it again.
    pub fn put(&self, key: &Key, bytes: &[u8]) {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let (Ok(path), Ok(folder)) = (self.path(key), &self.folder) else { return };
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let temporary = folder.join(format!("{}-{count}.new", process::id()));
        let write = || -> io::Result<()> {
            let mut file = File::options().write(true).create_new(true).open(&temporary)?;
            file.write_all(checksum(key, bytes).as_bytes())?;
            file.write_all(bytes)?;
            drop(file);
            fs::rename(&temporary, &path)
        };
        if write().is_err() {
            let _ = fs::remove_file(&temporary);
        }
    }

    pub fn remove(&self, key: &Key) {
        if let Ok(path) = self.path(key) {
            let _ = fs::remove_file(path);
        }
    }

    /// The folder, or the reason why there is no cache.
    pub fn folder(&self) -> Result<&Path, &'static str> {
        self.folder.as_deref().map_err(|why| *why)
    }

    /// All entries, the most recently used first.
    pub fn entries(&self) -> Vec<Entry> {
        let object = |path: &Path| path.extension().is_some_and(|end| end == "o");
        let mut files = self.files();
        files.retain(|(.., path)| object(path));
        files.sort_by(|a, b| (b.0, &a.2).cmp(&(a.0, &b.2)));
        let entry = |(used, bytes, path): (SystemTime, u64, PathBuf)| {
            let name = path.file_stem().map_or(String::new(), |stem| stem.to_string_lossy().into());
            Entry { name, bytes, age: now().duration_since(used).unwrap_or_default() }
        };
        files.into_iter().map(entry).collect()
    }

    /// Removes all files that the cache wrote, partial ones too. Returns their number and bytes.
    pub fn clear(&self) -> (usize, u64) {
        let own = |path: &Path| path.extension().is_some_and(|end| end == "o" || end == "new");
        let files = self.files().into_iter().filter(|(.., path)| own(path));
        let removed = files.filter(|(.., path)| fs::remove_file(path).is_ok());
        removed.fold((0, 0), |(count, bytes), (_, own, _)| (count + 1, bytes + own))
    }

    /// Removes the least recently used entries until the rest fits into the limit.
    pub fn trim(&self) {
        let mut files = self.files();
        files.sort_by_key(|(time, ..)| std::cmp::Reverse(*time));
        let mut total = 0;
        for (time, bytes, path) in files {
            total += bytes;
            let half = path.extension().is_some_and(|e| e == "new");
            let old = now().duration_since(time).is_ok_and(|age| age > ABANDONED);
            if if half { old } else { total > self.limit } {
                let _ = fs::remove_file(path);
            }
        }
    }

    fn files(&self) -> Vec<(SystemTime, u64, PathBuf)> {
        let Ok(Ok(entries)) = self.folder().map(fs::read_dir) else {
            return Vec::new();
        };
        let file = |entry: io::Result<fs::DirEntry>| {
            let entry = entry.ok()?;
            let meta: Metadata = entry.metadata().ok().filter(Metadata::is_file)?;
            Some((meta.modified().ok()?, meta.len(), entry.path()))
        };
        entries.filter_map(file).collect()
    }

    fn path(&self, key: &Key) -> Result<PathBuf, &'static str> {
        Ok(self.folder()?.join(format!("{}.o", key.to_hex())))
    }
}

/// Reads a file.
///
/// Errors: it is not a regular file (reading a FIFO or a device may block for ever), it is larger
/// than any entry, or it cannot be read.
fn contents(mut file: &File) -> io::Result<Vec<u8>> {
    let meta = file.metadata()?;
    if !meta.is_file() || meta.len() > MAX_ENTRY {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::with_capacity(meta.len() as usize);
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn now() -> SystemTime {
    SystemTime::now()
}

fn checksum(key: &Key, bytes: &[u8]) -> Hash {
    Hasher::new().update(key.as_bytes()).update(bytes).finalize()
}

/// Creates the folder for this user only. Errors: it cannot be created, or other users may write to
/// it. They could make this process run their code.
fn make(folder: &Path) -> Result<(), &'static str> {
    if !folder.is_dir() && DirBuilder::new().recursive(true).mode(0o700).create(folder).is_err() {
        return Err("its folder cannot be created");
    }
    // SAFETY: the call has no conditions.
    let user = unsafe { libc::geteuid() };
    match folder.metadata() {
        Ok(meta) if meta.uid() == user && meta.mode() & 0o022 == 0 => Ok(()),
        _ => Err("other users may write to its folder"),
    }
}
