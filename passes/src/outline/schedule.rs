//! The schedule of a kernel: the loop structure that fusion chose, which lowering follows.

use std::fmt;

use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Module, Operation};
use mithril_ir::op::access::{Access, Fold, fold_axes};
use mithril_ir::text;

use super::Kernel;
use super::views::is_one;

/// How a kernel computes its results. Operations are given by their indices in the kernel.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Schedule {
    Loops(LoopNest),
    /// A contraction, with an epilogue for each element of its result, and how it reads its
    /// operands.
    Contraction {
        op: usize,
        reads: [Read; 2],
    },
    /// A library kernel, such as sorting or attention. `op` is its first operation.
    Library {
        op: usize,
    },
}

/// How a contraction finds the elements of an operand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Read {
    /// At fixed strides from an offset, where the contracted axes are collapsed into one.
    Strided,
    /// Axes have separate strides, and elements may be zeros of a padding, as in windows. They are
    /// gathered when panels are packed.
    Gathered,
}

/// Loops over an iteration space.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LoopNest {
    /// The extent of each axis.
    pub space: Vec<Dim>,
    /// The first axis of a row. The axes before it number the rows, and each row is one task or
    /// part of one. `None` where the kernel reduces nothing along rows and adds up no columns.
    pub rows: Option<usize>,
    /// The reductions along rows.
    pub reductions: Vec<Reduction>,
    /// The sums over all rows, one for each column, which are accumulated while rows are computed.
    pub column_sums: Vec<usize>,
    /// A reduction over axes other than the last ones, whose result has the shape of the space.
    pub columns: Option<ColumnReduction>,
}

/// A reduction along rows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reduction {
    pub op: usize,
    pub fold: Fold,
    /// The pass over a row that computes it, from 1. It needs the results of lower levels.
    pub level: usize,
}

/// A reduction over axes before those of the space.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ColumnReduction {
    pub op: usize,
    pub fold: Fold,
}

impl Schedule {
    /// The schedule with its dims replaced.
    pub fn map_dims(&self, mut dim: impl FnMut(&Dim) -> Dim) -> Schedule {
        match self {
            Schedule::Loops(loops) => {
                let space = loops.space.iter().map(&mut dim).collect();
                Schedule::Loops(LoopNest { space, ..loops.clone() })
            }
            other => other.clone(),
        }
    }
}

impl LoopNest {
    /// Loops over a space without reductions along rows.
    pub fn over(space: &[Dim]) -> LoopNest {
        LoopNest {
            space: space.to_vec(),
            rows: None,
            reductions: Vec::new(),
            column_sums: Vec::new(),
            columns: None,
        }
    }
}

/// Prints the kernel's schedule and function.
impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let name = |op: &usize| format!("%{}", self.function.ops[*op].first.index());
        match &self.schedule {
            Schedule::Loops(loops) => loops.write(f, name)?,
            Schedule::Contraction { op, reads } => {
                write!(f, "contraction {}", name(op))?;
                for (read, operand) in reads.iter().zip(&self.function.ops[*op].operands) {
                    match read {
                        Read::Strided => {}
                        Read::Gathered => write!(f, " gather %{}", operand.index())?,
                    }
                }
            }
            Schedule::Library { op } => write!(f, "library {}", name(op))?,
        }
        write!(f, "\n{}", text::print(&Module::of(self.function.clone())))
    }
}

impl LoopNest {
    fn write(&self, f: &mut fmt::Formatter, name: impl Fn(&usize) -> String) -> fmt::Result {
        let space: Vec<String> = self.space.iter().map(Dim::to_string).collect();
        write!(f, "loops ({})", space.join(", "))?;
        self.rows.iter().try_for_each(|rows| write!(f, " rows {rows}"))?;
        for Reduction { op, level, .. } in &self.reductions {
            write!(f, " reduce {} level {level}", name(op))?;
        }
        self.column_sums.iter().try_for_each(|op| write!(f, " sum_columns {}", name(op)))?;
        self.columns.iter().try_for_each(|own| write!(f, " reduce_columns {}", name(&own.op)))
    }
}

/// The first axis of the rows that an operation reduces, if it reduces the last axes. The taps of
/// windows are not rows: they are short, and neighbouring results read overlapping elements.
pub fn reduced_rows(function: &Function, windowed: &[bool], op: &Operation) -> Option<usize> {
    let Access::Fold(_) = op.op.access else {
        return None;
    };
    if windowed[op.operands[0].index()] {
        return None;
    }
    let dims = &function.ty(op.operands[0]).shape.dims;
    let reduced = reduced_axes(function, op);
    let rows = reduced.iter().position(|reduced| *reduced)?;
    let mut rest = reduced[rows..].iter().zip(&dims[rows..]);
    rest.all(|(reduced, dim)| *reduced || is_one(dim)).then_some(rows)
}

/// How many axes an operation sums over, if they are the first ones and others remain.
pub fn summed_axes(function: &Function, op: &Operation) -> Option<usize> {
    let Access::Fold(Fold::Sum) = op.op.access else {
        return None;
    };
    let reduced = reduced_axes(function, op);
    let first = reduced.iter().position(|reduced| !reduced)?;
    let rest = reduced[first..].iter().all(|reduced| !reduced);
    let dims = &function.ty(op.operands[0]).shape.dims;
    (first > 0 && rest && !dims[first..].iter().all(is_one)).then_some(first)
}

fn reduced_axes(function: &Function, op: &Operation) -> Vec<bool> {
    let (from, to) = (function.ty(op.operands[0]), function.ty(op.result()));
    fold_axes(op.op, &op.attrs, from, to).folded
}
