//! The library that turns the text of kernels into machine code: the one part of Mithril with MLIR
//! and LLVM in it, opened when a kernel is first compiled.

use std::env;
use std::ffi::{CStr, OsStr, c_void};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::{Mutex, PoisonError};

use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_kernels::host::Host;

use super::background::close_at_exit;

/// What the library gives, by its number there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    Mlir = 0,
    Llvm = 1,
    Optimized = 2,
    Assembly = 3,
    Object = 4,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Bytes {
    data: *const u8,
    len: usize,
}

impl Bytes {
    fn of(text: &str) -> Bytes {
        Bytes { data: text.as_ptr(), len: text.len() }
    }
}

type Take = unsafe extern "C" fn(sink: *mut u8, bytes: Bytes);
type Compile = unsafe extern "C" fn(Bytes, Bytes, Bytes, u32, Take, *mut u8) -> i32;

/// The library, once open.
#[derive(Clone, Copy)]
pub struct Library {
    compile: Compile,
}

impl Library {
    /// Opens the library, or takes the one that is open.
    ///
    /// Errors: it is not there, or does not load.
    pub fn open() -> Result<Library> {
        static OPEN: Mutex<Option<Library>> = Mutex::new(None);
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(library) = *open {
            return Ok(library);
        }
        let library = load(&find()?)?;
        *open = Some(library);
        Ok(library)
    }

    /// What a stage gives for the text of a kernel.
    ///
    /// Errors: what MLIR or LLVM says of it.
    pub fn compile(self, text: &str, host: &Host, stage: Stage) -> Result<Vec<u8>, String> {
        let mut taken: Vec<u8> = Vec::new();
        let [text, cpu, features] = [text, host.cpu, &host.features].map(Bytes::of);
        // SAFETY: the function is the library's, the texts live, and `take` gets `taken`.
        let code = unsafe {
            (self.compile)(text, cpu, features, stage as u32, take, (&raw mut taken).cast())
        };
        match code {
            0 => Ok(taken),
            _ => Err(String::from_utf8_lossy(&taken).into_owned()),
        }
    }
}

/// Gives memory back that nobody needs until something is compiled again: what is free, and the
/// pages of MLIR's and LLVM's code, which the system then reads from their files.
pub fn rest() {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for line in maps.lines().filter(|line| line.contains("/libLLVM") || line.contains("/libMLIR")) {
        // Code alone: nothing was ever written to it that the file does not have.
        let mut words = line.split_ascii_whitespace();
        let (Some(range), Some("r-xp")) = (words.next(), words.next()) else { continue };
        let ends = range.split_once('-').map(<[&str; 2]>::from);
        let ends = ends.map(|ends| ends.map(|end| usize::from_str_radix(end, 16)));
        if let Some([Ok(start), Ok(end)]) = ends {
            // SAFETY: pages of a file that nobody writes; who runs them meanwhile waits for them.
            unsafe { libc::madvise(start as *mut c_void, end - start, libc::MADV_DONTNEED) };
        }
    }
    #[cfg(target_env = "gnu")]
    // SAFETY: it has no conditions.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// # Safety
/// `sink` is a `Vec<u8>` of the caller's, and `bytes` can be read.
unsafe extern "C" fn take(sink: *mut u8, bytes: Bytes) {
    // SAFETY: the caller's promise.
    unsafe {
        let sink: &mut Vec<u8> = &mut *sink.cast();
        if bytes.len > 0 {
            sink.extend_from_slice(slice::from_raw_parts(bytes.data, bytes.len));
        }
    }
}

fn load(path: &Path) -> Result<Library> {
    let broken = |error: libloading::Error| {
        Box::new(
            Diagnostic::new("Native code cannot be made: the code generator does not load")
                .at(path.display().to_string())
                .got(error)
                .hint("it needs LLVM 22: on Debian, `apt-get install libmlir-22 libllvm22`"),
        )
    };
    // SAFETY: it is our own library; loading runs LLVM's constructors, which ask for nothing.
    let library = unsafe { libloading::Library::new(path) }.map_err(broken)?;
    // SAFETY: the function of this name has this type.
    let compile = unsafe { library.get::<Compile>(b"mithril_native_compile\0") };
    let compile = *compile.map_err(broken)?;
    // It stays for the process's life: LLVM does not like to be unloaded.
    std::mem::forget(library);
    close_at_exit();
    Ok(Library { compile })
}

/// Where the library is: where the environment says, or beside this code.
fn find() -> Result<PathBuf> {
    if let Some(path) = env::var_os("MITHRIL_NATIVE").filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    let own = own_path();
    let folder = own.as_deref().and_then(Path::parent).unwrap_or(Path::new("."));
    let places = ["_native.so", "libmithril_native.so", "../lib/libmithril_native.so"];
    let found = places.iter().map(|place| folder.join(place)).find(|path| path.exists());
    found.ok_or_else(|| {
        Box::new(
            Diagnostic::new("Native code cannot be made: the code generator is missing")
                .expected(folder.join(places[0]).display())
                .hint("`make build` builds it where LLVM 22 is installed; MITHRIL_NATIVE names another place; `ml.NumpyBackend()` needs none"),
        )
    })
}

/// The file that this code was loaded from: the extension module, or a command.
fn own_path() -> Option<PathBuf> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the address is one of this code's; what is written is read only if there is some.
    let name = unsafe {
        if libc::dladdr(own_path as *const c_void, info.as_mut_ptr()) == 0 {
            return None;
        }
        let info = info.assume_init();
        if info.dli_fname.is_null() {
            return None;
        }
        CStr::from_ptr(info.dli_fname)
    };
    let path = PathBuf::from(OsStr::from_bytes(name.to_bytes()));
    match path.is_absolute() {
        true => Some(path),
        // A command's name is what it was called by.
        false => env::current_exe().ok(),
    }
}
