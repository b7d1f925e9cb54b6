//! Which object a block is. One object has one set of params, however often it is used.

use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::FxHashMap;

/// Identifies a block object. Its clones, under whatever name and connections, are the same object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Identity(u64);

impl Identity {
    /// An identity that nothing else has.
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

/// Identifies a param or a state: an input of the block object that introduces it. Inputs of equal
/// ids in one model are one input.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ParamId {
    pub block: Identity,
    pub input: u32,
}

/// New identities for a copy. What is shared among the originals is shared among the copies.
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
