//! Models as C, compiled by the system's compiler for this machine.

use std::ffi::OsString;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::{env, fs, io};

use blake3::Hasher;
use libloading::Library;
use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_kernels::c::{Source, caller};

use super::cache::{Cache, Key, Miss};
use super::command::{self, Ended};
use super::objects;
use crate::VERSION;

/// No products and sums as one, which would make bits depend on the compiler.
///
/// Nothing reads what functions leave in `errno`, and square roots without it are vectors.
const FLAGS: [&str; 7] = [
    "-std=c11",
    "-O3",
    "-march=native",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fPIC",
    "-shared",
];
/// How many lines of a compiler's errors are shown.
const SHOWN: usize = 8;

/// A file of C, and its library once it is compiled.
#[derive(Debug)]
pub struct Unit {
    pub source: Source,
    library: Mutex<Option<Arc<Library>>>,
}

/// A library, and why it had to be compiled, if it had.
pub struct Loaded {
    pub library: Arc<Library>,
    pub compiled: Option<Miss>,
}

impl Unit {
    pub fn new(source: Source) -> Unit {
        Unit { source, library: Mutex::default() }
    }

    /// The library: loaded now, if it was not before, from the cache or the compiler.
    ///
    /// Errors: there is no compiler, or it takes the file not; `stop`.
    pub fn load(&self, stop: &AtomicBool) -> Result<Loaded> {
        let mut kept = self.library.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(library) = &*kept {
            return Ok(Loaded { library: library.clone(), compiled: None });
        }
        let text = format!("{}{}", self.source.text, caller::print(&self.source));
        let compiler = Compiler::find()?;
        let (cache, key) = (Cache::open(), compiler.key(&text));
        let folder = Folder::new()?;
        let cached = cache.get(&key);
        let cached = cached.and_then(|bytes| folder.load(&bytes).map_err(|_| Miss::Damaged));
        let compiled = cached.as_ref().err().copied();
        let library = match cached {
            Ok(library) => library,
            Err(_) => {
                let bytes = compiler.compile(&text, &folder, stop)?;
                cache.put(&key, &bytes);
                cache.trim();
                folder.load(&bytes)?
            }
        };
        let library = kept.insert(Arc::new(library)).clone();
        Ok(Loaded { library, compiled })
    }
}

/// The command of a C compiler, and what it says of itself.
struct Compiler {
    command: Vec<String>,
    about: String,
}

impl Compiler {
    /// The compiler that CC names, or `cc`.
    fn find() -> Result<Compiler> {
        let named = env::var("CC").ok().filter(|cc| !cc.trim().is_empty());
        let named = named.unwrap_or_else(|| "cc".into());
        let command: Vec<String> = named.split_whitespace().map(String::from).collect();
        let missing = |error: io::Error| {
            Box::new(
                Diagnostic::new("C cannot be compiled: there is no C compiler")
                    .got(format!("{named}: {error}"))
                    .hint("install gcc or clang, or name a compiler by the environment's CC; `jit=False` writes the file alone"),
            )
        };
        let output = start(&command).arg("--version").output().map_err(missing)?;
        Ok(Compiler { command, about: String::from_utf8_lossy(&output.stdout).into_owned() })
    }

    fn key(&self, text: &str) -> Key {
        let mut hasher = Hasher::new();
        let command = self.command.join(" ");
        let flags = FLAGS.join(" ");
        for part in ["mithril c", VERSION, &command, &self.about, &flags, processor(), text] {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
        hasher.finalize()
    }

    /// The bytes of a shared library.
    fn compile(&self, text: &str, folder: &Folder, stop: &AtomicBool) -> Result<Vec<u8>> {
        let (file, library) = (folder.0.join("model.c"), folder.0.join("compiled.so"));
        let failed = |what: String| Box::new(Diagnostic::new("C cannot be compiled").got(what));
        fs::write(&file, text).map_err(|error| failed(error.to_string()))?;
        let mut command = start(&self.command);
        command.args(FLAGS).arg("-o").arg(&library).arg(&file).arg("-lm");
        // What it leaves there when it is told to end goes with the folder.
        command.env("TMPDIR", &folder.0);
        match command::run(&mut command, stop).map_err(|error| failed(error.to_string()))? {
            Ended::Well => {}
            Ended::Badly(said) => return Err(self.refused(&said)),
            Ended::Stopped => return objects::interrupted(),
        }
        fs::read(&library).map_err(|error| failed(error.to_string()))
    }

    fn refused(&self, said: &[u8]) -> Box<Diagnostic> {
        let said = String::from_utf8_lossy(said);
        let errors: Vec<&str> = said.lines().filter(|line| line.contains("error")).collect();
        let shown = if errors.is_empty() { said.lines().collect() } else { errors };
        let shown = shown[..shown.len().min(SHOWN)].join("\n");
        Box::new(
            Diagnostic::new(format!(
                "C cannot be compiled: `{}` does not take the file",
                self.command.join(" ")
            ))
            .got(shown)
            .hint("gcc and clang take it; name a compiler by the environment's CC"),
        )
    }
}

fn start(command: &[String]) -> Command {
    let mut start = Command::new(&command[0]);
    start.args(&command[1..]);
    start
}

/// What tells the processors apart that the compiler makes code for.
fn processor() -> &'static str {
    static PROCESSOR: OnceLock<String> = OnceLock::new();
    PROCESSOR.get_or_init(|| {
        let told = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let names = ["model name", "flags", "CPU part", "Features"];
        let lines = names.iter().filter_map(|name| told.lines().find(|l| l.starts_with(name)));
        format!("{} {}", env::consts::ARCH, lines.collect::<Vec<_>>().join("\n"))
    })
}

/// A folder of this process alone, which goes with this value.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Folder> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = env::temp_dir().join(format!("mithril-c-{}-{count}", process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Folder(path)),
                // One that was killed left it, and had the number that this process has.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let error =
                        Diagnostic::new("C cannot be compiled: no folder for it").got(error);
                    return Err(Box::new(error.at(path.display().to_string())));
                }
            }
        }
    }

    /// Loads a library by its bytes.
    fn load(&self, bytes: &[u8]) -> Result<Library> {
        let name: OsString = format!("loaded{}.so", bytes.len()).into();
        let path: &Path = &self.0.join(name);
        let failed = |error: String| {
            Box::new(
                Diagnostic::new("C cannot be compiled to a library that loads")
                    .got(error)
                    .hint("TMPDIR names the folder for it, from which code must be allowed to run"),
            )
        };
        fs::write(path, bytes).map_err(|error| failed(error.to_string()))?;
        // SAFETY: the file is what the compiler made of our own text; it runs nothing when loaded.
        unsafe { Library::new(path) }.map_err(|error| failed(error.to_string()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Nobody needs it any more; what cannot be removed is only in the way.
        let _ = fs::remove_dir_all(&self.0);
    }
}
