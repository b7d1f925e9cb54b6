//! Targets as data: which operations each takes whole.

use mithril_ir::graph::{Function, Operation};
use mithril_ir::op::{self, Meaning, Op};
use mithril_ir::scalar::expr::Node;

use crate::profile::{self, Profile};

/// Where a program goes to: `legalize` decomposes what it does not take.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub name: &'static str,
    /// Whether it has its own form of the operation, which stands in the function.
    pub takes: fn(&Function, &Operation) -> bool,
    /// Whether it computes the gradients of the operation by the one named last.
    pub pulls_back: fn(&Function, &Operation, Op) -> bool,
    /// How long things take there.
    pub profile: Profile,
}

/// What programs consist of where nothing is taken whole.
pub const CORE: &Target = &Target {
    name: "core",
    takes: |_, op| is_primitive(op.op),
    pulls_back: |_, _, _| false,
    profile: profile::CPU,
};

/// The targets that names in options stand for. Code generators supply them.
pub type Targets = &'static [Target];

/// Only what nothing else can express: for tests, and to see what an operation consists of.
fn is_primitive(op: Op) -> bool {
    match op.meaning {
        Meaning::Scalar(_) => is_scalar_primitive(op),
        Meaning::Kernel(_) | Meaning::Call(_) => true,
        Meaning::Decompose(_) => false,
    }
}

/// Whether an elementwise operation is one scalar primitive on its operands in order: expanding
/// it would give itself.
pub fn is_scalar_primitive(op: Op) -> bool {
    let nodes = op::expr(op).map_or(&[][..], |e| e.nodes());
    match nodes.last() {
        Some(Node::Prim(prim, _)) => op::of_prim(*prim) == op,
        _ => false,
    }
}

impl PartialEq for Target {
    /// By name: there is one target of each.
    fn eq(&self, other: &Target) -> bool {
        self.name == other.name
    }
}
