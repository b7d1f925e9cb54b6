//! Kernels as code in memory: from this process, from the disk cache, or compiled.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

use blake3::Hasher;
use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_runtime::code::{Code, Error};

use super::cache::{Cache, Key};
use super::host::Host;
use super::library::{Library, Stage};
use crate::VERSION;

/// Code, and where it came from.
pub struct Objects {
    pub code: Vec<Arc<Code>>,
    /// How many were compiled; the others were there.
    pub compiled: usize,
}

/// Kernels that programs of this process have loaded.
static LOADED: Mutex<Option<HashMap<Key, Weak<Code>>>> = Mutex::new(None);

/// The code of kernels, by their texts. What has to be compiled is so on all of the machine's
/// cores; the native library is not opened where nothing has.
///
/// Errors: those of the native library.
pub fn load(texts: &[String], host: &Host) -> Result<Objects> {
    let keys: Vec<Key> = texts.iter().map(|text| key(text, host)).collect();
    let known = |key: &Key, cache: &Cache| match loaded(key) {
        Some(code) => Some(code),
        None => cached(key, cache).map(|made| Arc::new(made.code)),
    };
    let (code, compiled) = gather(texts, &keys, host, &known, &|made| Arc::new(made.code))?;
    remember(&keys, &code);
    Ok(Objects { code, compiled })
}

/// The objects of kernels, by their texts: each defines `kernel`.
///
/// Errors: those of the native library.
pub fn bytes(texts: &[String], host: &Host) -> Result<Vec<Vec<u8>>> {
    let keys: Vec<Key> = texts.iter().map(|text| key(text, host)).collect();
    let known = |key: &Key, cache: &Cache| cached(key, cache).map(|made| made.object);
    Ok(gather(texts, &keys, host, &known, &|made| made.object)?.0)
}

/// An object, and its code in memory: so it is known to be sound.
struct Made {
    object: Vec<u8>,
    code: Code,
}

/// What `known` gives for each text, or `take` of what is compiled; and how many were.
fn gather<T: Send>(
    texts: &[String],
    keys: &[Key],
    host: &Host,
    known: &dyn Fn(&Key, &Cache) -> Option<T>,
    take: &(dyn Fn(Made) -> T + Sync),
) -> Result<(Vec<T>, usize)> {
    let cache = Cache::open();
    let mut found: Vec<Option<T>> = keys.iter().map(|key| known(key, &cache)).collect();
    let mut missing: Vec<usize> = (0..texts.len()).filter(|&at| found[at].is_none()).collect();
    let compiled = missing.len();
    if compiled > 0 {
        // The long ones first: then the cores are done at about the same time.
        missing.sort_by_key(|&at| std::cmp::Reverse(texts[at].len()));
        let library = Library::open()?;
        let compile = |at: usize| compile(&texts[at], &keys[at], host, library, &cache).map(take);
        for (at, made) in each(&missing, &compile) {
            found[at] = Some(made?);
        }
        cache.trim();
    }
    Ok((found.into_iter().flatten().collect(), compiled))
}

fn key(text: &str, host: &Host) -> Key {
    let mut hasher = Hasher::new();
    let generator = env!("MITHRIL_CODE_GENERATOR");
    for part in ["mithril object", VERSION, generator, host.cpu, &host.features, text] {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    hasher.finalize()
}

/// What a program of this process has loaded.
fn loaded(key: &Key) -> Option<Arc<Code>> {
    let loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    loaded.as_ref()?.get(key)?.upgrade()
}

/// What the disk has.
fn cached(key: &Key, cache: &Cache) -> Option<Made> {
    let object = cache.get(key)?;
    match Code::load(&object) {
        Ok(code) => Some(Made { object, code }),
        Err(_) => {
            cache.remove(key);
            None
        }
    }
}

fn remember(keys: &[Key], code: &[Arc<Code>]) {
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let loaded = loaded.get_or_insert_default();
    loaded.retain(|_, code| code.strong_count() > 0);
    loaded.extend(keys.iter().copied().zip(code.iter().map(Arc::downgrade)));
}

fn compile(text: &str, key: &Key, host: &Host, library: Library, cache: &Cache) -> Result<Made> {
    let object = library.compile(text, host, Stage::Object).map_err(broken)?;
    let code = Code::load(&object).map_err(|error| match error {
        Error::Undefined(symbol) => lacking(host, &symbol),
        error => broken(error.to_string()),
    })?;
    cache.put(key, &object);
    Ok(Made { object, code })
}

/// The error of an instruction that a processor has not: LLVM calls a function instead.
fn lacking(host: &Host, function: &str) -> Box<Diagnostic> {
    Box::new(
        Diagnostic::new("Native code cannot be made: a kernel needs more than the processor has")
            .got(format!("{}, where LLVM would call `{function}`", host.name()))
            .hint("x86-64-v3 has all that kernels need"),
    )
}

/// The error of code that is not what it should be.
pub fn broken(why: String) -> Box<Diagnostic> {
    Box::new(
        Diagnostic::new("Native code cannot be made: a kernel does not compile")
            .got(why)
            .hint("please report it, with what led to it"),
    )
}

/// What `work` gives for each number, by threads that are as many as the machine's cores.
fn each<T: Send>(numbers: &[usize], work: &(dyn Fn(usize) -> T + Sync)) -> Vec<(usize, T)> {
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
    let next = AtomicUsize::new(0);
    let run = || {
        let mut done = Vec::new();
        while let Some(&number) = numbers.get(next.fetch_add(1, Ordering::Relaxed)) {
            done.push((number, work(number)));
        }
        done
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..cores.min(numbers.len())).map(|_| scope.spawn(run)).collect();
        let mut done = run();
        for other in others {
            done.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        done
    })
}
