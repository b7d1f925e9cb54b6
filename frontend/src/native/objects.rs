//! Kernels as code in memory: from this process, from the disk cache, or compiled.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

use blake3::Hasher;
use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_runtime::code::Code;

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
    let cache = Cache::open();
    let keys: Vec<Key> = texts.iter().map(|text| key(text, host)).collect();
    let mut found: Vec<Option<Arc<Code>>> = keys.iter().map(|key| known(key, &cache)).collect();
    let mut missing: Vec<usize> = (0..texts.len()).filter(|&at| found[at].is_none()).collect();
    let compiled = missing.len();
    if compiled > 0 {
        // The long ones first: then the cores are done at about the same time.
        missing.sort_by_key(|&at| std::cmp::Reverse(texts[at].len()));
        let library = Library::open()?;
        let compile = |at: usize| compile(&texts[at], &keys[at], host, library, &cache);
        for (at, code) in each(&missing, &compile) {
            found[at] = Some(code?);
        }
        cache.trim();
    }
    let code: Vec<Arc<Code>> = found.into_iter().flatten().collect();
    remember(&keys, &code);
    Ok(Objects { code, compiled })
}

fn key(text: &str, host: &Host) -> Key {
    let mut hasher = Hasher::new();
    let generator = env!("MITHRIL_CODE_GENERATOR");
    for part in ["mithril object", VERSION, generator, host.cpu, &host.features, text] {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    hasher.finalize()
}

/// What need not be compiled.
fn known(key: &Key, cache: &Cache) -> Option<Arc<Code>> {
    let loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(code) = loaded.as_ref().and_then(|all| all.get(key)?.upgrade()) {
        return Some(code);
    }
    drop(loaded);
    match Code::load(&cache.get(key)?) {
        Ok(code) => Some(Arc::new(code)),
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

fn compile(
    text: &str,
    key: &Key,
    host: &Host,
    library: Library,
    cache: &Cache,
) -> Result<Arc<Code>> {
    let broken = |why: String| {
        Box::new(
            Diagnostic::new("Native code cannot be made: a kernel does not compile")
                .got(why)
                .hint("please report it, with what led to it"),
        )
    };
    let object = library.compile(text, host, Stage::Object).map_err(broken)?;
    let code = Code::load(&object).map_err(|error| broken(error.to_string()))?;
    cache.put(key, &object);
    Ok(Arc::new(code))
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
