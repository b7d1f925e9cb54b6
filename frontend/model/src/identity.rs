//! The identity of block objects. An object has one set of params, however often it is used.

use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::FxHashMap;

/// Identifies a block object. Clones are the same object, even with other names and connections.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Identity(u64);

impl Identity {
    /// A new, unique identity.
    pub fn new() -> Identity {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Identity(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Default for Identity {
    fn default() -> Identity {
        Identity::new()
    }
}

/// Identifies a param or a state: an input of the block object that introduces it. Within a model,
/// inputs with equal ids are the same input.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ParamId {
    pub block: Identity,
    pub input: u32,
}

/// Assigns new identities for a copy. Objects that are shared in the original are shared in the
/// copy.
#[derive(Default)]
pub(crate) struct Renewal {
    known: FxHashMap<Identity, Identity>,
}

impl Renewal {
    pub fn identity(&mut self, old: Identity) -> Identity {
        *self.known.entry(old).or_default()
    }

    pub fn param(&mut self, old: ParamId) -> ParamId {
        ParamId { block: self.identity(old.block), ..old }
    }
}
