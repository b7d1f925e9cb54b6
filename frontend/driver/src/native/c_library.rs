//! Models as C, compiled for this machine by the system's compiler.

use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::{env, fs, io};

use blake3::Hasher;
use libloading::Library;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_kernels::c::external::{self, COMMENT};
use mithril_kernels::c::{Source, caller};
use mithril_kernels::host::{self, Architecture};
use mithril_kernels::program::Plan;

use super::cache::{Cache, Key, Miss};
use super::command::{self, Exit};
use super::folder::Folder;
use super::objects;
use crate::VERSION;

/// The compiler's options. Without `-ffp-contract=off`, fused multiply-adds would make the bits
/// depend on the compiler. With `-fno-math-errno` square roots are vectorised; no code reads
/// `errno`.
const FLAGS: [&str; 5] = ["-std=c11", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fPIC"];
const MISSING: &str =
    "install gcc or clang, or set CC to a compiler; `jit=False` only writes the file";
const ARM64_MISSING: &str = "install the cross compiler: apt-get install gcc-aarch64-linux-gnu";
/// The number of lines of a compiler's errors that are shown.
const MAX_ERROR_LINES: usize = 8;

/// A C file, and its library once it has been compiled.
#[derive(Debug)]
pub struct Unit {
    pub source: Source,
    library: Mutex<Option<Arc<Library>>>,
}

/// A library. If it was compiled, also the reason why the cache did not have it.
pub struct Loaded {
    pub library: Arc<Library>,
    pub compiled: Option<Miss>,
}

impl Unit {
    pub fn new(source: Source) -> Unit {
        Unit { source, library: Mutex::default() }
    }

    /// Returns the library. The first call loads it from the cache, or compiles it.
    ///
    /// Errors: there is no compiler, or it rejects the file; `stop`.
    pub fn load(&self, stop: &AtomicBool) -> Result<Loaded> {
        let mut kept = self.library.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(library) = &*kept {
            return Ok(Loaded { library: library.clone(), compiled: None });
        }
        let text = format!("{}{}", self.source.text, caller::print(&self.source));
        let loaded = load(&text, stop)?;
        *kept = Some(loaded.library.clone());
        Ok(loaded)
    }
}

/// The library of a C file, from the cache or compiled.
///
/// Errors: there is no compiler, or it rejects the file; `stop`.
pub fn load(text: &str, stop: &AtomicBool) -> Result<Loaded> {
    let compiler = Compiler::find()?;
    let (cache, key) = (Cache::open(), compiler.key(text));
    let folder = Folder::new()?;
    let cached = cache.get(&key);
    let cached = cached.and_then(|bytes| folder.load(&bytes).map_err(|_| Miss::Damaged));
    let compiled = cached.as_ref().err().copied();
    let library = match cached {
        Ok(library) => library,
        Err(_) => {
            let bytes = compiler.compile(text, &["-shared"], &folder, stop)?;
            cache.put(&key, &bytes);
            cache.trim();
            folder.load(&bytes)?
        }
    };
    Ok(Loaded { library: Arc::new(library), compiled })
}

/// The symbol of the kernel with this index.
pub fn symbol(number: usize) -> String {
    format!("mithril_kernel_{number}")
}

/// A C file with the kernels of a plan whose bodies the user wrote, under these symbols. `None` if
/// there are no such kernels.
///
/// Errors: an unknown dim.
pub fn external_kernels(plan: &Plan, symbol: &dyn Fn(usize) -> String) -> Result<Option<String>> {
    let mut text = String::new();
    let locs = plan.locs_of_kernels();
    for (at, kernel) in plan.kernels.iter().enumerate() {
        if let Some(own) = &kernel.external {
            text += &external::kernel(kernel, own, &symbol(at), &locs[at])?;
        }
    }
    Ok((!text.is_empty()).then(|| format!("{}{text}", external::HEAD)))
}

/// The object of a C file, for linking into a library for any processor of an architecture.
///
/// Errors: there is no compiler, or it rejects the file; `stop`.
pub fn object(text: &str, architecture: Architecture, stop: &AtomicBool) -> Result<Vec<u8>> {
    let compiler = match architecture {
        Architecture::X86_64 => Compiler { march: Vec::new(), ..Compiler::find()? },
        Architecture::Arm64 => Compiler::named("aarch64-linux-gnu-gcc", ARM64_MISSING)?,
    };
    compiler.compile(text, &["-c", "-fvisibility=hidden"], &Folder::new()?, stop)
}

/// A C compiler: its command, and the output of `--version`.
struct Compiler {
    command: Vec<String>,
    /// The processor to compile for.
    march: Vec<String>,
    about: String,
}

impl Compiler {
    /// The compiler that CC names, or `cc`. It compiles for the processor that MITHRIL_CPU names,
    /// or for this one.
    fn find() -> Result<Compiler> {
        let named = env::var("CC").ok().filter(|cc| !cc.trim().is_empty());
        let named = named.unwrap_or_else(|| "cc".into());
        Ok(Compiler { march: march(host::setting())?, ..Compiler::named(&named, MISSING)? })
    }

    /// The compiler of this command, for the processor that it compiles for by itself.
    fn named(named: &str, hint: &str) -> Result<Compiler> {
        let command: Vec<String> = named.split_whitespace().map(String::from).collect();
        let missing = |error: io::Error| {
            Box::new(
                Diagnostic::of(
                    ErrorKind::CCompiler,
                    "C cannot be compiled: there is no C compiler",
                )
                .got(format!("{named}: {error}"))
                .hint(hint),
            )
        };
        let output = start(&command).arg("--version").output().map_err(missing)?;
        let about = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(Compiler { command, march: Vec::new(), about })
    }

    fn key(&self, text: &str) -> Key {
        let mut hasher = Hasher::new();
        let command = self.command.join(" ");
        let flags = format!("{} {}", FLAGS.join(" "), self.march.join(" "));
        for part in ["mithril c", VERSION, &command, &self.about, &flags, processor(), text] {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
        hasher.finalize()
    }

    /// Compiles the text to a shared library or an object, by the flags, and returns its bytes.
    fn compile(
        &self,
        text: &str,
        flags: &[&str],
        folder: &Folder,
        stop: &AtomicBool,
    ) -> Result<Vec<u8>> {
        let (file, library) = (folder.path().join("model.c"), folder.path().join("compiled.so"));
        let failed = |what: String| {
            Box::new(Diagnostic::of(ErrorKind::CCompiler, "C cannot be compiled").got(what))
        };
        fs::write(&file, text).map_err(|error| failed(error.to_string()))?;
        let mut command = start(&self.command);
        command.args(FLAGS).args(flags).args(&self.march);
        command.arg("-o").arg(&library).arg(&file).arg("-lm");
        // If the compiler is stopped, its temporary files are deleted with the folder.
        command.env("TMPDIR", folder.path());
        match command::run(&mut command, stop).map_err(|error| failed(error.to_string()))? {
            Exit::Succeeded => {}
            Exit::Failed(stderr) => return Err(self.compile_error(&stderr, text)),
            Exit::Stopped => return objects::interrupted(),
        }
        fs::read(&library).map_err(|error| failed(error.to_string()))
    }

    fn compile_error(&self, stderr: &[u8], text: &str) -> Box<Diagnostic> {
        let stderr = String::from_utf8_lossy(stderr);
        let errors: Vec<&str> = stderr.lines().filter(|line| line.contains("error")).collect();
        let shown = if errors.is_empty() { stderr.lines().collect() } else { errors };
        let place = shown.iter().find_map(|line| custom_operation(line, text));
        let shown = shown[..shown.len().min(MAX_ERROR_LINES)].join("\n");
        if let Some(place) = place {
            return Box::new(
                Diagnostic::of(
                    ErrorKind::CCompiler,
                    "C cannot be compiled: the body of a custom operation is wrong",
                )
                .at(place)
                .got(shown)
                .hint("correct the body `c=` of the operation"),
            );
        }
        Box::new(
            Diagnostic::of(
                ErrorKind::CCompiler,
                format!("C cannot be compiled: `{}` rejects the file", self.command.join(" ")),
            )
            .got(shown)
            .hint("set CC to gcc or clang, which accept it"),
        )
    }
}

/// The custom operation in which the compiler reports an error, such as `model.c:12:5: error: …`.
/// The comment above the operation's code gives its name.
fn custom_operation(error: &str, text: &str) -> Option<String> {
    let number: usize = error.split_once("model.c:")?.1.split(':').next()?.parse().ok()?;
    let before: Vec<&str> = text.lines().take(number).collect();
    let start = before.iter().rposition(|line| line.starts_with("/*"))?;
    // In a long comment, the text begins on the second line.
    let lines = before[start..].iter().take(2).map(|line| line.trim_start_matches(['/', '*', ' ']));
    let name = lines.into_iter().find_map(|line| line.strip_prefix(COMMENT))?;
    let name = name.trim_start_matches(", ").trim_end_matches("*/").trim_end();
    let name = name.trim_end_matches('.');
    Some(match name.strip_prefix("in ") {
        Some(path) => format!("block `{path}`"),
        None => format!("`{name}`"),
    })
}

fn start(command: &[String]) -> Command {
    let mut start = Command::new(&command[0]);
    start.args(&command[1..]);
    start
}

/// The compiler's flags for the processor: this machine's, or a compatible one.
///
/// Errors: an unknown processor; one with features that this machine lacks.
fn march(named: Option<String>) -> Result<Vec<String>> {
    match named.filter(|name| name != "native") {
        // Compilers for arm64 name the processor by another flag.
        None if cfg!(target_arch = "aarch64") => Ok(vec!["-mcpu=native".into()]),
        None => Ok(vec!["-march=native".into()]),
        Some(_) => {
            let host = host::chosen(None)?;
            let extras = host.extras().map(|name| format!("-m{name}"));
            Ok([format!("-march={}", host.level.cpu)].into_iter().chain(extras).collect())
        }
    }
}

/// A text that identifies the processor, as the compiler generates different code for different
/// processors.
fn processor() -> &'static str {
    static PROCESSOR: OnceLock<String> = OnceLock::new();
    PROCESSOR.get_or_init(|| format!("{} {} {}", env::consts::OS, env::consts::ARCH, features()))
}

/// The name of the processor and its features.
#[cfg(target_os = "linux")]
fn features() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let names = ["model name", "flags", "CPU part", "Features"];
    let lines = names.iter().filter_map(|name| info.lines().find(|l| l.starts_with(name)));
    lines.collect::<Vec<_>>().join("\n")
}

/// The name of the processor, by the system's command; empty if there is none.
#[cfg(not(target_os = "linux"))]
fn features() -> String {
    let output = Command::new("sysctl").args(["-n", "machdep.cpu.brand_string"]).output();
    output.map_or(String::new(), |output| String::from_utf8_lossy(&output.stdout).into_owned())
}
