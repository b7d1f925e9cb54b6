//! Loops over a space: elementwise kernels, and kernels whose folds go along rows.
//!
//! A task is a row, or a stretch of the last axis where there is but one row. A row is swept once
//! for each level of folds, then once for the results; it stays in the first cache meanwhile. What
//! takes long to compute and is needed by several sweeps is kept in scratch memory.

use mithril_ir::diagnostic::Result;
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::graph::{Function, Operation, Value};
use mithril_ir::op::access::{Access, Fold};
use mithril_ir::op::{self, Kind};
use mithril_ir::scalar::expr::Node;
use rustc_hash::FxHashSet;

use super::fold::{Folder, product};
use super::index::{Index, Ix};
use super::nest::{Kept, Nest};
use super::{Isa, Lowered};
use crate::code::{Binary, Cmp, Ty, V};

/// Vectors that a sweep takes at once, so that the next need not wait for the one before.
const UNROLL: i64 = 4;
/// Elements of a task where the space is a single row.
const STRETCH: i64 = 4096;
/// Columns are folded this many vectors at a time.
const COLUMNS: i64 = 8;
/// Elements that are worth a thread.
const GRAIN: i64 = 16384;

pub fn lower(function: &Function, isa: &Isa) -> Result<Lowered> {
    let flat = super::flatten::flatten(function);
    let function = flat.as_ref().unwrap_or(function);
    let mut rows = Rows::new(function, isa);
    let (tasks, per_task) = rows.kernel();
    if let Some(fault) = rows.nest.fault.take() {
        return Err(fault);
    }
    let grain = per_task.as_const().map_or(1, |n| (GRAIN / n.max(1)).max(1));
    let code = rows.nest.b.finish();
    Ok(Lowered { code, tasks, grain, scratch: rows.scratch })
}

/// How many elements a vector has: of the widest float there is.
pub fn lanes(function: &Function, isa: &Isa) -> u32 {
    let double = function.values.iter().any(|info| info.ty.dtype == DType::F64);
    isa.vector / if double { 8 } else { 4 }
}

struct Rows<'f> {
    nest: Nest<'f>,
    space: Vec<Dim>,
    /// The axis that vectors go along; the last one that is longer than 1.
    axis: usize,
    /// The axes before this one number the tasks.
    outer: usize,
    /// The folds along rows, with their levels.
    folds: Vec<(usize, &'f Operation, Fold)>,
    scratch: Dim,
}

impl<'f> Rows<'f> {
    fn new(function: &'f Function, isa: &Isa) -> Rows<'f> {
        let nest = Nest::new(function, lanes(function, isa));
        let mut rows = Rows {
            nest,
            space: Vec::new(),
            axis: 0,
            outer: 0,
            folds: Vec::new(),
            scratch: Dim::Const(0),
        };
        rows.find_space();
        rows
    }

    /// The space of the folds along rows, or that of the results.
    fn find_space(&mut self) {
        let f = self.nest.f;
        let mut levels = vec![0; f.values.len()];
        for op in &f.ops {
            let below = op.operands.iter().map(|v| levels[v.index()]).max().unwrap_or(0);
            let along = self.along(op);
            if let Some((fold, first)) = along {
                self.space = f.ty(op.operands[0]).shape.dims.to_vec();
                self.outer = first;
                self.folds.push((below + 1, op, fold));
            }
            for value in op.results() {
                levels[value.index()] = below + usize::from(along.is_some());
            }
        }
        if self.folds.is_empty() {
            self.space = f.ty(f.results[0].value).shape.dims.to_vec();
        }
        let long = self.space.iter().rposition(|dim| dim.as_const() != Some(1));
        self.axis = long.unwrap_or(self.space.len().saturating_sub(1));
        if self.folds.is_empty() {
            self.outer = self.axis;
        }
        self.axis = self.axis.max(self.outer);
    }

    /// Whether an operation folds the last axes: how, and from which one on.
    fn along(&self, op: &Operation) -> Option<(Fold, usize)> {
        let Access::Fold(fold) = op.op.access else {
            return None;
        };
        let dims = self.nest.dims(op.operands[0]);
        let folded = self.nest.fold_axes(op).folded;
        let first = folded.iter().position(|f| *f)?;
        let mut rest = folded[first..].iter().zip(&dims[first..]);
        rest.all(|(f, dim)| *f || dim.as_const() == Some(1)).then_some((fold, first))
    }

    /// Writes the code; how many tasks there are, and the elements of each.
    fn kernel(&mut self) -> (Dim, Dim) {
        let outer = product(&self.space[..self.outer]);
        let inner = product(&self.space[self.outer..]);
        let single = outer.as_const() == Some(1) && self.folds.is_empty();
        self.keep();
        let (first, last) = (self.nest.b.first(), self.nest.b.last());
        self.nest.repeat_from(first, last, 1, &[], |_, _, _| vec![]);
        let tasks = match single {
            true => (&inner + &Dim::Const(STRETCH - 1)).floor_div(&Dim::Const(STRETCH)),
            false => outer,
        };
        (tasks, if single { Dim::Const(STRETCH) } else { inner })
    }
}
