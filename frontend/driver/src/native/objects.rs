//! The machine code of kernels: already loaded by this process, read from the disk cache, or
//! compiled by LLVM or Cranelift. Cranelift compiles kernels that should not wait for LLVM, and
//! those that LLVM fails on.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};
use std::{process, thread};

use blake3::Hasher;
use mithril_instant::Machine;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::loc::Loc;
use mithril_kernels::code;
use mithril_kernels::host::Host;
use mithril_runtime::code::{Code, Error, check};
use mithril_runtime::threads::Pool;

use super::cache::{Cache, Key, Miss};
use super::failures::Failure;
use super::library::{self, Library, Stage};
use super::progress::Progress;
use crate::VERSION;

/// A kernel to compile.
pub struct Source<'a> {
    pub text: String,
    /// The loop code that the text was printed from.
    pub code: &'a code::Code,
    /// Whether Cranelift's code may be used until LLVM's is ready.
    pub quick: bool,
    /// The blocks it comes from.
    pub loc: Loc,
}

/// The code of kernels, and its origin.
pub struct Objects {
    pub code: Vec<Arc<Code>>,
    /// The number of kernels that LLVM compiled.
    pub compiled: usize,
    /// The reasons why the cache did not have the compiled kernels.
    pub misses: Vec<Miss>,
    /// The kernels that run Cranelift's code for now.
    pub pending: Vec<Pending>,
    /// The kernels that Cranelift compiled because LLVM failed, by index.
    pub failed: Vec<(usize, Failure)>,
    /// The compile time of each kernel. `None` for a kernel that was available.
    pub times: Vec<Option<Duration>>,
}

/// A kernel that runs Cranelift's code until LLVM's is ready.
pub struct Pending {
    /// Its index.
    pub kernel: usize,
    pub text: String,
    pub key: Key,
    /// The blocks it comes from.
    pub loc: Loc,
}

/// The compiler of a kernel's code.
enum Origin {
    /// LLVM, now or in an earlier compile.
    Llvm,
    /// Cranelift; LLVM's code will replace it.
    Instant,
    /// Cranelift, because LLVM failed.
    Fallback(Failure),
}

/// The kernels that live programs of this process have loaded.
static LOADED: Mutex<Option<HashMap<Key, Weak<Code>>>> = Mutex::new(None);

/// Loads the code of kernels. With `anew`, code that is already available is ignored. Missing
/// kernels are compiled on all cores. The native library is opened only if LLVM is needed. Once
/// `stop` is set, no further kernel is started.
///
/// Errors: there is no native library; a kernel that neither LLVM nor Cranelift compiles; `stop`.
pub fn load(sources: &[Source], host: &Host, anew: bool, stop: &AtomicBool) -> Result<Objects> {
    let keys: Vec<Key> = sources.iter().map(|source| key(&source.text, host)).collect();
    let lengths: Vec<Length> = sources.iter().map(Source::length).collect();
    let known = |key: &Key, cache: &Cache| match loaded(key) {
        _ if anew => Err(Miss::Absent),
        Some(code) => Ok((code, Origin::Llvm, None)),
        None => cached(key, cache).map(|code| (Arc::new(code), Origin::Llvm, None)),
    };
    let machine = OnceLock::new();
    let instant = |code: &code::Code| -> Option<Code> {
        let machine = machine.get_or_init(|| Machine::of(host)).as_ref()?;
        Code::of_function("kernel", &machine.compile(code).ok()?).ok()
    };
    let (made, misses) = gather(&keys, &lengths, stop, &known, &|at, cache| {
        let start = Instant::now();
        let (code, origin) = make(&sources[at], at, &keys[at], &instant, host, cache)?;
        Ok((Arc::new(code), origin, Some(start.elapsed())))
    })?;
    let mut objects = Objects {
        code: Vec::new(),
        compiled: misses.len(),
        misses,
        pending: Vec::new(),
        failed: Vec::new(),
        times: made.iter().map(|(_, _, time)| *time).collect(),
    };
    let mut remembered = Vec::new();
    for (kernel, ((code, origin, _), key)) in made.into_iter().zip(keys).enumerate() {
        match origin {
            Origin::Llvm => remembered.push((key, Arc::downgrade(&code))),
            Origin::Instant => {
                let (text, loc) = (sources[kernel].text.clone(), sources[kernel].loc.clone());
                objects.pending.push(Pending { kernel, text, key, loc });
            }
            Origin::Fallback(failure) => objects.failed.push((kernel, failure)),
        }
        objects.code.push(code);
    }
    objects.compiled -= objects.pending.len() + objects.failed.len();
    if objects.compiled > 0 {
        library::release_memory();
    }
    remember(remembered);
    Ok(objects)
}

/// Compiles the kernel of this index. `instant` compiles with Cranelift, and returns `None` for a
/// kernel that only LLVM can compile.
fn make(
    source: &Source,
    kernel: usize,
    key: &Key,
    instant: &dyn Fn(&code::Code) -> Option<Code>,
    host: &Host,
    cache: &Cache,
) -> Result<(Code, Origin)> {
    if let Some(code) = source.quick.then(|| instant(source.code)).flatten() {
        return Ok((code, Origin::Instant));
    }
    match compile(&source.text, key, host, cache) {
        Ok(code) => Ok((code, Origin::Llvm)),
        Err(Failure::Every(error)) => Err(error),
        Err(failure) => match instant(source.code) {
            Some(code) => Ok((code, Origin::Fallback(failure))),
            None => Err(failure.error(kernel, &source.loc)),
        },
    }
}

/// LLVM's code of one kernel: loaded, cached or compiled.
///
/// Errors: those of the native library.
pub fn one(text: &str, key: &Key, host: &Host) -> std::result::Result<Arc<Code>, Failure> {
    let cache = Cache::open();
    let known = loaded(key).or_else(|| Some(Arc::new(cached(key, &cache).ok()?)));
    let code = match known {
        Some(code) => code,
        None => {
            let code = Arc::new(compile(text, key, host, &cache)?);
            cache.trim();
            code
        }
    };
    remember([(*key, Arc::downgrade(&code))]);
    Ok(code)
}

/// One kernel in a form that can be linked into a library.
pub enum Linked {
    /// An object that defines `kernel`.
    Object(Vec<u8>),
    /// A function in position-independent machine code by Cranelift, and why LLVM made no object.
    Function(Vec<u8>, Failure),
}

/// Compiles kernels for linking.
///
/// Errors: as for [`load`].
pub fn linked(sources: &[Source], host: &Host, stop: &AtomicBool) -> Result<Vec<Linked>> {
    let keys: Vec<Key> = sources.iter().map(|source| key(&source.text, host)).collect();
    let lengths: Vec<Length> = sources.iter().map(Source::length).collect();
    let known = |key: &Key, cache: &Cache| cache.get(key).map(Linked::Object);
    let function = |code: &code::Code| Machine::of(host)?.compile(code).ok();
    let make = |at: usize, cache: &Cache| {
        let source = &sources[at];
        match object(&source.text, &keys[at], host, cache) {
            Ok(object) => Ok(Linked::Object(object)),
            Err(Failure::Every(error)) => Err(error),
            Err(failure) => match function(source.code) {
                Some(code) => Ok(Linked::Function(code, failure)),
                None => Err(failure.error(at, &source.loc)),
            },
        }
    };
    let (objects, misses) = gather(&keys, &lengths, stop, &known, &make)?;
    if !misses.is_empty() {
        library::release_memory();
    }
    Ok(objects)
}

/// An estimate of a kernel's compile time: whether Cranelift compiles it, and the length of its
/// text.
type Length = (bool, usize);

impl Source<'_> {
    fn length(&self) -> Length {
        (self.quick, self.text.len())
    }
}

/// Looks up each key with `known`, or else calls `make` with its index. Also returns the reasons
/// for the misses.
fn gather<T: Send>(
    keys: &[Key],
    lengths: &[Length],
    stop: &AtomicBool,
    known: &dyn Fn(&Key, &Cache) -> std::result::Result<T, Miss>,
    make: &(dyn Fn(usize, &Cache) -> Result<T> + Sync),
) -> Result<(Vec<T>, Vec<Miss>)> {
    let cache = Cache::open();
    let mut misses = Vec::new();
    let known = keys.iter().map(|key| known(key, &cache).map_err(|miss| misses.push(miss)).ok());
    let mut found: Vec<Option<T>> = known.collect();
    let mut missing: Vec<usize> = (0..keys.len()).filter(|&at| found[at].is_none()).collect();
    if !missing.is_empty() {
        // The longest first, so that all cores finish at about the same time.
        missing.sort_by_key(|&at| std::cmp::Reverse(lengths[at].1));
        // Kernels for Cranelift come before those for LLVM. Only the longest kernel for LLVM comes
        // first: one core opens the library for it, while the other cores compile with Cranelift.
        missing.sort_by_key(|&at| !lengths[at].0);
        if let Some(first) = missing.iter().position(|&at| !lengths[at].0) {
            missing[..=first].rotate_right(1);
        }
        let progress = Progress::new(missing.len());
        let made = each(&missing, stop, &|at| {
            let made = make(at, &cache);
            progress.step();
            made
        });
        drop(progress);
        for (at, made) in made {
            found[at] = Some(made?);
        }
        cache.trim();
    }
    if found.iter().any(Option::is_none) {
        return interrupted();
    }
    Ok((found.into_iter().flatten().collect(), misses))
}

/// The error for a compilation that was interrupted.
pub fn interrupted<T>() -> Result<T> {
    Diagnostic::of(
        ErrorKind::Native,
        "Native code was not generated: its compilation was interrupted",
    )
    .err()
}

fn key(text: &str, host: &Host) -> Key {
    let mut hasher = Hasher::new();
    let generator = env!("MITHRIL_CODE_GENERATOR");
    for part in ["mithril object", VERSION, generator, host.level.name, &host.features, text] {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    hasher.finalize()
}

/// The code that a live program of this process has loaded.
fn loaded(key: &Key) -> Option<Arc<Code>> {
    let loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    loaded.as_ref()?.get(key)?.upgrade()
}

/// The code in the disk cache.
fn cached(key: &Key, cache: &Cache) -> std::result::Result<Code, Miss> {
    Code::load(&cache.get(key)?).map_err(|_| {
        cache.remove(key);
        Miss::Damaged
    })
}

fn remember(code: impl IntoIterator<Item = (Key, Weak<Code>)>) {
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let loaded = loaded.get_or_insert_default();
    loaded.retain(|_, code| code.strong_count() > 0);
    loaded.extend(code);
}

fn compile(
    text: &str,
    key: &Key,
    host: &Host,
    cache: &Cache,
) -> std::result::Result<Code, Failure> {
    let object = object(text, key, host, cache)?;
    Code::load(&object).map_err(|error| loading_failure(host, error))
}

/// LLVM's object of a kernel, which may be for another machine.
fn object(
    text: &str,
    key: &Key,
    host: &Host,
    cache: &Cache,
) -> std::result::Result<Vec<u8>, Failure> {
    let library = Library::open().map_err(Failure::Every)?;
    let object = library.compile(text, host, Stage::Object).map_err(Failure::Kernel)?;
    check(&object).map_err(|error| loading_failure(host, error))?;
    cache.put(key, &object);
    Ok(object)
}

fn loading_failure(host: &Host, error: Error) -> Failure {
    match error {
        Error::Undefined(symbol) => Failure::Every(missing_instruction(host, &symbol)),
        error => Failure::Kernel(error.to_string()),
    }
}

/// The error for an instruction that the processor does not have. LLVM replaces it by a call of a
/// function.
fn missing_instruction(host: &Host, function: &str) -> Box<Diagnostic> {
    Box::new(
        Diagnostic::of(
            ErrorKind::Native,
            "Native code cannot be generated: a kernel needs more than the processor \
                         has",
        )
        .got(format!("{}, where LLVM would call `{function}`", host.name()))
        .hint("x86-64-v3 has everything that kernels need"),
    )
}

/// The error for code that is malformed.
pub fn malformed_code(why: String) -> Box<Diagnostic> {
    Box::new(
        Diagnostic::of(
            ErrorKind::Native,
            "Native code cannot be generated: a kernel does not compile",
        )
        .got(why)
        .hint("please report it, with the steps that led to it"),
    )
}

/// Calls `work` for each number on as many threads as there are cores, until `stop` is set.
pub fn each<T: Send>(
    numbers: &[usize],
    stop: &AtomicBool,
    work: &(dyn Fn(usize) -> T + Sync),
) -> Vec<(usize, T)> {
    let pool = pool();
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let run = || {
        while let Some(&number) = numbers.get(next.fetch_add(1, Ordering::Relaxed)) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let made = work(number);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((number, made));
        }
    };
    let threads = pool.threads().min(numbers.len());
    pool.run(threads as i64, 1, &|from, to, _| (from..to).for_each(|_| run()));
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// The compile threads of this process. A forked process creates new ones, because threads are not
/// forked.
fn pool() -> Arc<Pool> {
    static POOL: Mutex<Option<(u32, Arc<Pool>)>> = Mutex::new(None);
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let own = process::id();
    let kept = pool.take_if(|(process, _)| *process == own);
    let cores = || thread::available_parallelism().map_or(1, |cores| cores.get());
    let kept = kept.unwrap_or_else(|| (own, Arc::new(Pool::new(cores()))));
    pool.insert(kept).1.clone()
}
