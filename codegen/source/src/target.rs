//! The targets of Python source, for the passes.

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Operation};
use mithril_ir::op::access::{Access, Library};
use mithril_ir::op::{Meaning, Op, Python};
use mithril_passes::profile;
use mithril_passes::target::{Target, Targets};

use crate::python::Framework;

/// All of them, by the names that options have.
pub const TARGETS: Targets = &[NUMPY, TORCH, JAX];

pub const NUMPY: Target = Target {
    name: "numpy",
    takes: |_, op| spelled(op.op, |python| python.numpy),
    pulls_back: |_, _, by| spelled(by, |python| python.numpy),
    profile: profile::PLAIN,
};

pub const TORCH: Target = Target {
    name: "torch",
    takes: |_, op| {
        // PyTorch's gradient of attention reads other sums of a masked one than ours.
        let masked = op.op.pullback.is_none() && op.operand_index("mask").is_some();
        spelled(op.op, |python| python.torch) && !masked
    },
    pulls_back: |f, op, by| {
        let attention = matches!(by.access, Access::Library(Library::Attention(_)));
        spelled(by, |python| python.torch) && (!attention || is_plain(f, op))
    },
    profile: profile::FRAMEWORK,
};

pub const JAX: Target = Target {
    name: "jax",
    takes: |_, op| spelled(op.op, |python| python.jax),
    pulls_back: |_, _, by| spelled(by, |python| python.jax),
    profile: profile::COMPILED,
};

/// The target of a framework.
pub fn of(framework: Framework) -> Target {
    match framework {
        Framework::Numpy => NUMPY,
        Framework::Torch => TORCH,
        Framework::Jax => JAX,
    }
}

/// A framework takes what it has a spelling for, and primitives and calls in any case: the emitter
/// writes those without a spelling in Python's own syntax.
fn spelled(op: Op, spelling: fn(&Python) -> &'static str) -> bool {
    match op.meaning {
        Meaning::Scalar(_) | Meaning::Decompose(_) => !spelling(&op.python).is_empty(),
        Meaning::Kernel(_) | Meaning::Call(_) => true,
    }
}

/// Whether PyTorch's kernels take this attention: query, key and value of rank 4 with equal batches,
/// heads and widths, perhaps fewer heads of keys and values, and no mask.
fn is_plain(function: &Function, op: &Operation) -> bool {
    let grouped = matches!(op.attr("grouped"), Attr::Bool(true));
    let alike = |other: &[Dim], own: &[Dim]| {
        let heads = grouped || own[1] == other[1];
        own.len() == other.len() && own[0] == other[0] && heads && own[3] == other[3]
    };
    let [q, k, v] = [0, 1, 2].map(|i| &function.ty(op.operands[i]).shape);
    let ranks = [q, k, v].iter().all(|shape| shape.rank() == Some(4));
    let plain = ranks && op.operand_index("mask").is_none();
    plain && alike(&q.dims, &k.dims) && alike(&q.dims, &v.dims) && k.dims[1] == v.dims[1]
}
