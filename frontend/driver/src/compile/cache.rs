//! An in-memory cache of programs, keyed by block and options.

use std::sync::{Arc, Mutex, PoisonError};

use mithril_ir::diagnostic::Result;
use mithril_model::block::Block;
use mithril_model::literal::Literal;

use super::{CompileOptions, Program};

/// Returns the cached program of an equal compile, or compiles with `fresh` and caches it.
///
/// Errors: those of `fresh`.
pub fn cached(
    block: &Block,
    options: &CompileOptions,
    fresh: impl FnOnce() -> Result<Program>,
) -> Result<Arc<Program>> {
    let key = Key::of(block, options);
    let lock = || CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, cached)) = lock().iter().find(|(k, _)| *k == key) {
        return Ok(cached.clone());
    }
    let program = Arc::new(fresh()?);
    let mut cache = lock();
    if cache.len() == CACHED {
        cache.remove(0);
    }
    cache.push((key, program.clone()));
    Ok(program)
}

/// The cache key: everything that determines a program.
#[derive(PartialEq)]
struct Key {
    block: Block,
    name: Option<String>,
    constants: Vec<(String, Literal)>,
    /// All other options as text. Constants are separate because their text is abbreviated.
    rest: String,
}

impl Key {
    fn of(block: &Block, options: &CompileOptions) -> Key {
        let mut rest = options.clone();
        Key {
            block: block.clone(),
            name: block.name().map(String::from),
            constants: std::mem::take(&mut rest.lower.constant_keys),
            rest: format!("{rest:?}"),
        }
    }
}

static CACHE: Mutex<Vec<(Key, Arc<Program>)>> = Mutex::new(Vec::new());
/// The number of programs in the cache. The oldest is evicted first.
const CACHED: usize = 64;
