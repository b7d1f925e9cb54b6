//! The code generator: a library that compiles the text of kernels to machine code. It is the only
//! part of Mithril that contains MLIR and LLVM, and is loaded when a kernel is first compiled.

use std::env;
use std::ffi::{CStr, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::{Mutex, PoisonError};

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_kernels::host::{Host, Level};

use super::background::close_at_exit;

/// The stages whose output the library can return, numbered as in its interface.
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
type Compile = unsafe extern "C" fn(Bytes, Bytes, Bytes, Bytes, u32, Take, *mut u8) -> i32;

/// The loaded library.
#[derive(Clone, Copy)]
pub struct Library {
    compile: Compile,
}

impl Library {
    /// Loads the library on the first call.
    ///
    /// Errors: it is missing, or does not load.
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

    /// Compiles the text of a kernel up to a stage and returns the output of that stage.
    ///
    /// Errors: those that MLIR or LLVM reports.
    pub fn compile(self, text: &str, host: &Host, stage: Stage) -> Result<Vec<u8>, String> {
        let mut taken: Vec<u8> = Vec::new();
        let Level { architecture, cpu, .. } = host.level;
        let [text, triple, cpu, features] =
            [text, architecture.triple(), cpu, &host.features].map(Bytes::of);
        // SAFETY: the function is the library's, the texts outlive the call, and `take` receives
        // `taken`.
        let code = unsafe {
            (self.compile)(text, triple, cpu, features, stage as u32, take, (&raw mut taken).cast())
        };
        match code {
            0 => Ok(taken),
            _ => Err(String::from_utf8_lossy(&taken).into_owned()),
        }
    }
}

/// Returns memory to the system: free heap memory, and the pages of MLIR's and LLVM's code. The
/// system reads these pages from their files again at the next compile.
pub fn release_memory() {
    release_code();
    #[cfg(target_env = "gnu")]
    // SAFETY: the call has no conditions.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Returns the pages of MLIR's and LLVM's code, as far as the system lists mappings of files.
fn release_code() {
    #[cfg(target_os = "linux")]
    for line in std::fs::read_to_string("/proc/self/maps").unwrap_or_default().lines() {
        if !(line.contains("/libLLVM") || line.contains("/libMLIR")) {
            continue;
        }
        // Only executable mappings, which are never written to and so equal their file.
        let mut words = line.split_ascii_whitespace();
        let (Some(range), Some("r-xp")) = (words.next(), words.next()) else { continue };
        let ends = range.split_once('-').map(<[&str; 2]>::from);
        let ends = ends.map(|ends| ends.map(|end| usize::from_str_radix(end, 16)));
        if let Some([Ok(start), Ok(end)]) = ends {
            // SAFETY: these are unmodified pages of a file; a thread that executes them waits until
            // they are read again.
            unsafe { libc::madvise(start as *mut c_void, end - start, libc::MADV_DONTNEED) };
        }
    }
}

/// # Safety
/// `sink` must be a `Vec<u8>` of the caller, and `bytes` must be readable.
unsafe extern "C" fn take(sink: *mut u8, bytes: Bytes) {
    // SAFETY: guaranteed by the caller.
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
            Diagnostic::of(
                ErrorKind::Native,
                "Native code cannot be generated: the code generator does not load",
            )
            .at(path.display().to_string())
            .got(error)
            .hint("it needs LLVM 22: on Debian, `apt-get install libmlir-22 libllvm22`"),
        )
    };
    // SAFETY: it is our own library; loading it runs LLVM's constructors, which have no conditions.
    let library = unsafe { libloading::Library::new(path) }.map_err(broken)?;
    // SAFETY: the function of this name has this type.
    let compile = unsafe { library.get::<Compile>(b"mithril_native_compile\0") };
    let compile = *compile.map_err(broken)?;
    // The library stays loaded until the process ends, because LLVM cannot be unloaded safely.
    std::mem::forget(library);
    close_at_exit();
    Ok(Library { compile })
}

/// The path of the library: the one in MITHRIL_NATIVE, or one near this code's file.
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
            Diagnostic::of(
                ErrorKind::Native,
                "Native code cannot be generated: the code generator is missing",
            )
            .expected(folder.join(places[0]).display())
            .hint(
                "build it with `make build`, which needs LLVM 22, or set MITHRIL_NATIVE to \
                       its path; `ml.NumpyBackend()` works without it",
            ),
        )
    })
}

/// The file that this code was loaded from: the extension module, or an executable.
fn own_path() -> Option<PathBuf> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the address belongs to this code; `info` is read only after `dladdr` has filled it.
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
        // The name of an executable is the one it was invoked with, which may be relative.
        false => env::current_exe().ok(),
    }
}
