//! Targets as data: which operations each takes whole.

use mithril_ir::diagnostic::did_you_mean;
use mithril_ir::graph::{Function, Operation};
use mithril_ir::op::access::Access;
use mithril_ir::op::{Meaning, Op, Python};

use crate::outline::attention;
use crate::pass::OptionValue;
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

/// Every target, by the names that users write.
pub const TARGETS: &[Target] = &[
    Target {
        name: "numpy",
        takes: |_, op| spelled(op.op, |python| python.numpy),
        pulls_back: |_, _, by| spelled(by, |python| python.numpy),
        profile: profile::PLAIN,
    },
    Target {
        name: "torch",
        takes: |_, op| {
            // What the gradients of attention read is said of a mask in another way there.
            let masked = op.op.pullback.is_none() && attention::mask(op).is_some();
            spelled(op.op, |python| python.torch) && !masked
        },
        pulls_back: |f, op, by| {
            spelled(by, |python| python.torch)
                && (!attention::is_attention(&by.access) || attention::is_plain(f, op))
        },
        profile: profile::FRAMEWORK,
    },
    Target {
        name: "jax",
        takes: |_, op| spelled(op.op, |python| python.jax),
        pulls_back: |_, _, by| spelled(by, |python| python.jax),
        profile: profile::COMPILED,
    },
    Target {
        name: "c",
        takes: has_kernel,
        pulls_back: has_backward_kernel,
        profile: profile::NATIVE,
    },
    Target {
        name: "native",
        takes: has_kernel,
        pulls_back: has_backward_kernel,
        profile: profile::NATIVE,
    },
    *CORE,
];

/// What programs consist of where nothing is taken whole.
pub const CORE: &Target = &Target {
    name: "core",
    takes: |_, op| is_primitive(op.op),
    pulls_back: |_, _, _| false,
    profile: profile::NATIVE,
};

/// The target of this name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// A framework takes what it has a spelling for, and primitives and calls in any case: those without
/// a template the emitter writes in Python's own syntax.
fn spelled(op: Op, spelling: fn(&Python) -> &'static str) -> bool {
    match op.meaning {
        Meaning::Scalar(_) | Meaning::Decompose(_) => !spelling(&op.python).is_empty(),
        Meaning::Kernel(_) | Meaning::Call(_) => true,
    }
}

/// Loops are generated from scalar expressions and for each kind of kernel.
fn has_loop(op: Op) -> bool {
    match op.meaning {
        Meaning::Scalar(_) | Meaning::Kernel(_) | Meaning::Call(_) => true,
        Meaning::Decompose(_) => false,
    }
}

/// Native code and C have kernels of their own for some composites beside.
fn has_kernel(function: &Function, op: &Operation) -> bool {
    match op.op.access {
        access if attention::is_attention(&access) => attention::fits(function, op),
        Access::Sort { .. } => true,
        _ => has_loop(op.op),
    }
}

/// That of attention, where it has the forward one; what is elementwise is one as any other.
fn has_backward_kernel(function: &Function, op: &Operation, by: Op) -> bool {
    match by.meaning {
        Meaning::Scalar(_) => true,
        _ => attention::is_attention(&by.access) && has_kernel(function, op),
    }
}

/// Only what nothing else can express: for tests, and to see what an operation consists of.
fn is_primitive(op: Op) -> bool {
    match op.meaning {
        Meaning::Scalar(_) => crate::legalize::is_scalar_primitive(op),
        Meaning::Kernel(_) | Meaning::Call(_) => true,
        Meaning::Decompose(_) => false,
    }
}

impl PartialEq for Target {
    /// By name: there is one target of each.
    fn eq(&self, other: &Target) -> bool {
        self.name == other.name
    }
}

impl OptionValue for Target {
    fn parse(text: &str) -> Result<Target, String> {
        let names = || TARGETS.iter().map(|t| t.name);
        find(text).copied().ok_or_else(|| {
            let all = names().collect::<Vec<_>>().join(", ");
            let near = did_you_mean(text, names());
            near.map_or_else(|| format!("one of {all}"), |near| format!("one of {all}: {near}"))
        })
    }

    fn print(&self) -> String {
        self.name.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What external functions may have bodies for is what programs go to.
    #[test]
    fn every_target_but_the_core_takes_bodies() {
        let names: Vec<&str> = TARGETS.iter().map(|t| t.name).filter(|n| *n != "core").collect();
        assert_eq!(mithril_ir::external::TARGETS[..], names);
    }
}
