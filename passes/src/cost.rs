//! The cost of functions before anything runs: arithmetic and memory traffic, in the symbols of
//! their dims.

use std::fmt::{self, Display, Formatter, Write};
use std::ops::Add;
use std::sync::Arc;

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::Result;
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Module, Operation};
use mithril_ir::op::access::{Access, Attention, Library, Scatter};
use mithril_ir::op::{self, Meaning};
use mithril_ir::scalar::Prim;
use mithril_ir::scalar::expr::Node;
use mithril_ir::shape::Type;

pub mod blocks;

use crate::cse::Cse;
use crate::driver::Driver;
use crate::legalize::Legalize;
use crate::pipeline::Pipeline;
use crate::target::{self, Target};

/// The cost of a computation.
#[derive(Clone, PartialEq, Debug)]
pub struct Cost {
    /// Additions, multiplications, comparisons and functions such as `exp`, one each; two for each
    /// multiply-add of a contraction. Moving data counts none.
    pub flops: Dim,
    /// Bytes read and written.
    pub bytes: Dim,
}

impl Add for Cost {
    type Output = Cost;

    fn add(self, other: Cost) -> Cost {
        Cost { flops: self.flops + other.flops, bytes: self.bytes + other.bytes }
    }
}

/// `1.18 Mflop, 24.6 kB`, in powers of a thousand; formulas where dims are not known.
impl Display for Cost {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        amount(f, &self.flops, "flop")?;
        f.write_str(", ")?;
        amount(f, &self.bytes, "B")
    }
}

fn amount(f: &mut dyn Write, dim: &Dim, unit: &str) -> fmt::Result {
    match dim.as_const() {
        None => write!(f, "{dim} {unit}"),
        Some(number) => f.write_str(&scaled(number as f64, unit)),
    }
}

/// A number with its unit, in powers of a thousand: `1.18 Mflop`. Three digits of numbers that are
/// not whole or above a thousand.
pub fn scaled(number: f64, unit: &str) -> String {
    let scales = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let three = |number: f64| {
        let digits = if number < 10.0 { 2 } else { usize::from(number < 100.0) };
        format!("{number:.digits$}")
    };
    match scales.iter().find(|(scale, _)| number >= *scale) {
        None if number.fract() == 0.0 => format!("{number} {unit}"),
        None => format!("{} {unit}", three(number)),
        Some((scale, prefix)) => format!("{} {prefix}{unit}", three(number / scale)),
    }
}

/// The cost of a kernel. Only its arguments and results count as bytes. Common subexpressions count
/// once.
///
/// Errors: a composite whose decomposition fails.
pub fn of_kernel(function: &Function) -> Result<Cost> {
    let decomposed = decomposed(function, *target::CORE)?;
    let flops = decomposed.ops.iter().map(|operation| flops(&decomposed, operation)).sum();
    let arguments = function.arguments().map(|(value, _)| value);
    let results = function.results.iter().map(|result| result.value);
    let bytes = arguments.chain(results).map(|value| bytes(function.ty(value))).sum();
    Ok(Cost { flops, bytes })
}

/// The function decomposed into operations that the target takes, with common ones merged.
/// Errors: a composite whose decomposition fails.
pub fn decomposed(function: &Function, target: Target) -> Result<Arc<Function>> {
    let pipeline = Pipeline::default().then(Legalize { target }).then(Cse::default());
    let (decomposed, _) = Driver::default().run(&pipeline, &Module::of(function.clone()))?;
    Ok(decomposed.entry().cloned().expect("passes keep the entry"))
}

/// The bytes of a tensor.
pub fn bytes(ty: &Type) -> Dim {
    (count(ty) * Dim::from(ty.dtype.bits() as i64)).ceil_div(&Dim::Const(8))
}

/// The elements of a tensor. `size(*x)` stands for the number of elements of a rank variable.
pub fn count(ty: &Type) -> Dim {
    let open = ty.shape.lead.iter().map(|lead| Dim::symbol(format!("size(*{})", lead.as_str())));
    open.chain(ty.shape.dims.iter().cloned()).product()
}

/// The flops of a primitive.
pub fn flops(function: &Function, operation: &Operation) -> Dim {
    work(function, operation, &|_| 1)
}

/// The arithmetic of a primitive, with a weight for each scalar primitive.
pub fn work(function: &Function, operation: &Operation, weight: &dyn Fn(Prim) -> i64) -> Dim {
    let operand = |at: usize| function.ty(operation.operands[at]);
    let result = || count(function.ty(operation.result()));
    match (operation.op.access, operation.op.meaning) {
        (Access::Contract, _) => {
            let x = operand(0);
            let axes = match operation.attr("x_contract") {
                Attr::Ints(axes) => &axes[..],
                _ => &[],
            };
            let rank = x.shape.dims.len() as i64;
            let dim = |axis: &i64| x.shape.dims[axis.rem_euclid(rank.max(1)) as usize].clone();
            let k: Dim = axes.iter().map(dim).product();
            Dim::Const(2) * result() * k
        }
        (
            Access::Fold(_)
            | Access::Library(Library::ArgExtremum { .. })
            | Access::Library(Library::Cumulative(_)),
            _,
        ) => count(operand(0)),
        (Access::Library(Library::Matrix(_)), _) => {
            let x = operand(0);
            let rows = x.shape.dims.last().cloned().unwrap_or(Dim::Const(1));
            // Twice the work of an elimination, about that of the other factorisations.
            Dim::Const(2) * (count(x) + result()) * rows
        }
        (Access::Library(Library::Grouped { .. }), _) => {
            let columns = operand(1).shape.dims.last().cloned().unwrap_or(Dim::Const(1));
            Dim::Const(2) * count(operand(0)) * columns
        }
        (Access::Library(Library::Attention(of)), _) => {
            attention(operation, of, [0, 1, 2].map(operand))
        }
        (Access::Scatter(Scatter::Rows) | Access::Scatter(Scatter::Along(_)), _) => {
            count(function.ty(operation.operands[operation.operands.len() - 1]))
        }
        (_, Meaning::Scalar(_)) => {
            let expr = op::expr(operation.op).expect("a scalar meaning has an expression");
            let weights = expr.nodes().iter().map(|node| match node {
                Node::Prim(prim, _) => weight(*prim),
                _ => 0,
            });
            Dim::from(weights.sum::<i64>()) * result()
        }
        _ => Dim::Const(0),
    }
}

/// The arithmetic of an attention kernel, or of the part of one that an operation stands for: a
/// kernel computes the gradients together. A softmax takes about five operations a score.
fn attention(operation: &Operation, of: Attention, [query, key, value]: [&Type; 3]) -> Dim {
    let dim = |ty: &Type, from_end: usize| {
        ty.shape.dims.iter().nth_back(from_end).cloned().unwrap_or(Dim::Const(1))
    };
    let heads = count(query).exact_div(&dim(query, 0)).unwrap_or(Dim::Const(0));
    let scores = heads * dim(key, 1);
    let product = |features: Dim| Dim::Const(2) * scores.clone() * features;
    let (keys, values) = (product(dim(key, 0)), product(dim(value, 0)));
    match (of, operation.op.attr_index("of").map(|_| operation.attr("of").as_int())) {
        (Attention::Output, _) => keys + values + Dim::Const(5) * scores,
        (Attention::LogSumExp | Attention::RowMax, _) => Dim::Const(0),
        (Attention::Gradient, Some(0)) => Dim::Const(2) * keys + values + Dim::Const(5) * scores,
        (Attention::Gradient, Some(1)) => keys,
        (Attention::Gradient, _) => values,
    }
}
