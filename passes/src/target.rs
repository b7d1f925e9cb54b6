//! Targets as data: which operations each takes whole.

use std::fmt;

use mithril_ir::external::TargetBody;
use mithril_ir::graph::{Function, Operation};
use mithril_ir::op::{self, Meaning, Op};
use mithril_ir::scalar::expr::Node;

use crate::profile::{self, Profile};

/// Whether a target has its own form of this operation of the function.
pub type Takes = &'static (dyn Fn(&Function, &Operation) -> bool + Sync);

/// Whether a target computes the gradient of the operation with the given gradient operation.
pub type PullsBack = &'static (dyn Fn(&Function, &Operation, Op) -> bool + Sync);

/// The target of a program: `legalize` decomposes the operations that it does not take.
#[derive(Clone, Copy)]
pub struct Target {
    pub name: &'static str,
    pub takes: Takes,
    pub pulls_back: PullsBack,
    /// The performance of the target, for estimates.
    pub profile: Profile,
    /// The language of its code, and of bodies of external functions.
    pub language: Language,
    /// The targets whose bodies of external functions it takes, the preferred one first.
    pub bodies: &'static [&'static str],
    /// The body of a standard function ([`Function::computes`]) that the target has, for the types
    /// of this function.
    pub standard: fn(&Function) -> Option<TargetBody>,
}

/// A language that users write bodies of external functions in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Language {
    /// A body returns the results.
    Python,
    /// A body stores the results.
    C,
}

impl Language {
    pub fn name(self) -> &'static str {
        match self {
            Language::Python => "Python",
            Language::C => "C",
        }
    }
}

impl Target {
    /// The body of a function that the target takes, if it has one.
    pub fn body<'f>(&self, function: &'f Function) -> Option<&'f TargetBody> {
        let find = |name: &&str| function.bodies.iter().find(|body| *body.target == **name);
        self.bodies.iter().find_map(find)
    }

    /// The target's own body of the standard function that this function computes.
    pub fn standard_body(&self, function: &Function) -> Option<TargetBody> {
        function.computes.as_ref().and_then(|_| (self.standard)(function))
    }
}

/// The target that takes only primitives.
pub const CORE: &Target = &Target {
    name: "core",
    takes: &|_, op| is_primitive(op.op),
    pulls_back: &|_, _, _| false,
    profile: profile::CPU,
    language: Language::Python,
    bodies: &["core"],
    standard: |_| None,
};

/// The targets that options may name. Code generators supply them.
pub type Targets = &'static [Target];

/// Whether nothing else can express the operation. For tests, and to show what an operation
/// consists of.
fn is_primitive(op: Op) -> bool {
    match op.meaning {
        Meaning::Scalar(_) => is_scalar_primitive(op),
        Meaning::Kernel(_) | Meaning::Call(_) => true,
        Meaning::Decompose(_) => false,
    }
}

/// Whether an elementwise operation is a single scalar primitive applied to its operands in order,
/// so that expanding it would give the same operation.
pub fn is_scalar_primitive(op: Op) -> bool {
    let nodes = op::expr(op).map_or(&[][..], |e| e.nodes());
    match nodes.last() {
        Some(Node::Prim(prim, _)) => op::of_prim(*prim) == op,
        _ => false,
    }
}

impl PartialEq for Target {
    /// Compares names, which are unique.
    fn eq(&self, other: &Target) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_tuple("Target").field(&self.name).finish()
    }
}
