//! The thread pools that calls run on.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use mithril_runtime::threads::Pool;

/// The pool of this many threads; 0 means one thread for each core. Callers that ask for the same
/// number share a pool.
pub fn of(threads: usize) -> Arc<Pool> {
    static POOLS: Mutex<Vec<Weak<Pool>>> = Mutex::new(Vec::new());
    let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let threads = if threads == 0 { cores() } else { threads };
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    pools.retain(|pool| pool.strong_count() > 0);
    let mut living = pools.iter().filter_map(Weak::upgrade);
    if let Some(pool) = living.find(|pool| pool.threads() == threads) {
        return pool;
    }
    let pool = Arc::new(Pool::new(threads));
    pools.push(Arc::downgrade(&pool));
    pool
}
