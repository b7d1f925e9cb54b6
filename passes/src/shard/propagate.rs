//! Finds layouts for all values of a function from those of a few, in the manner of GSPMD (Xu et
//! al. 2021) and Shardy: each operation relates the dims of its operands and results by factors, and
//! axes of the mesh spread along them.

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::graph::{Function, Operation, Value};
use mithril_ir::loc::Loc;
use mithril_ir::op::Kind;
use rustc_hash::FxHashMap;

use super::layout::{Axes, Axis, Layout, Mesh};
use crate::factors::{Division, Factors};

/// The layouts of a function's values.
#[derive(Debug)]
pub struct Layouts {
    /// By value.
    pub values: Vec<Layout>,
    /// The factors of each operation.
    pub factors: Vec<Factors>,
    /// Where two layouts wanted one mesh axis for different dims, in the order in which they were
    /// found.
    pub conflicts: Vec<Conflict>,
}

/// Two factors of an operation whose layouts use one mesh axis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conflict {
    pub operation: usize,
    pub axis: Axis,
    pub loc: Loc,
}

/// Spreads the given layouts over a function of primitives, without calls.
///
/// Errors: a given layout whose rank differs from the value's, or whose axes do not divide a dim.
pub fn propagate(
    function: &Function,
    mesh: &Mesh,
    given: &FxHashMap<Value, Layout>,
) -> Result<Layouts> {
    let shapes = function.values.iter().map(|info| &info.ty.shape.dims);
    let values = shapes.map(|dims| Layout::replicated(dims.len())).collect();
    let factors = function.ops.iter().map(|op| Factors::of(function, op)).collect();
    let mut layouts = Layouts { values, factors, conflicts: Vec::new() };
    for (value, layout) in given {
        check(function, mesh, *value, layout)?;
        layouts.values[value.index()] = layout.clone();
    }
    let mut spread = Spread { function, mesh, given, layouts: &mut layouts };
    // Operations that only pass dims on come first: they do not choose.
    while spread.everywhere(&is_simple) || spread.everywhere(&|_| true) {}
    spread.find_conflicts();
    Ok(layouts)
}

fn is_simple(op: &Operation) -> bool {
    matches!(op.op.kind, Kind::Elementwise | Kind::Layout | Kind::Barrier)
}

fn check(function: &Function, mesh: &Mesh, value: Value, layout: &Layout) -> Result<()> {
    let info = function.info(value);
    let name = info.name.as_deref().unwrap_or("a value");
    let dims = &info.ty.shape.dims;
    if info.ty.shape.lead.is_some() || dims.len() != layout.dims.len() {
        return Diagnostic::of(
            ErrorKind::Shapes,
            format!("the layout of `{name}` has the wrong number of dims"),
        )
        .got(format!("{} for {}", mesh.text(layout), info.ty.shape))
        .err();
    }
    for (dim, axes) in dims.iter().zip(&layout.dims) {
        if !mesh.divides(axes, dim) {
            return Diagnostic::of(
                ErrorKind::Shapes,
                format!("a dim of `{name}` cannot be divided into equal parts"),
            )
            .got(format!("{dim} in {} parts", mesh.parts(axes)))
            .expected("a multiple of the number of parts")
            .hint("choose a mesh axis whose size divides the dim, or pad the array")
            .err();
        }
    }
    Ok(())
}

struct Spread<'a> {
    function: &'a Function,
    mesh: &'a Mesh,
    given: &'a FxHashMap<Value, Layout>,
    layouts: &'a mut Layouts,
}

/// An axis of an operand or result.
type Place = (Value, usize);

impl Spread<'_> {
    /// Visits all operations that `wanted` takes, forward and backward, until nothing changes.
    /// Returns whether anything did.
    fn everywhere(&mut self, wanted: &dyn Fn(&Operation) -> bool) -> bool {
        let order: Vec<usize> =
            (0..self.function.ops.len()).filter(|at| wanted(&self.function.ops[*at])).collect();
        let mut ever = false;
        loop {
            let forward = order.iter().fold(false, |any, at| self.operation(*at) | any);
            let backward = order.iter().rev().fold(false, |any, at| self.operation(*at) | any);
            if !(forward || backward) {
                return ever;
            }
            ever = true;
        }
    }

    /// Spreads the axes of each factor of an operation to all places that have the factor.
    fn operation(&mut self, at: usize) -> bool {
        let mut changed = false;
        for factor in 0..self.layouts.factors[at].factors.len() {
            if self.layouts.factors[at].factors[factor].division == Division::Whole {
                continue;
            }
            let places = self.places(at, factor);
            let Some(axes) = self.axes(at, factor, &places) else { continue };
            for place in places {
                changed |= self.set(place, &axes);
            }
        }
        changed
    }

    fn places(&self, at: usize, factor: usize) -> Vec<Place> {
        let (op, factors) = (&self.function.ops[at], &self.layouts.factors[at]);
        let operands = op.operands.iter().copied().zip(&factors.operands);
        let all = operands.chain(op.results().zip(&factors.results));
        let places = all.flat_map(|(value, own)| {
            let axes = own.iter().enumerate().filter(|(_, own)| **own == factor);
            axes.map(move |(axis, _)| (value, axis))
        });
        places.collect()
    }

    /// The axes that divide a factor: the longest ones of its places, if the others are their
    /// beginnings. Axes that divide another factor of the operation are left out.
    fn axes(&self, at: usize, factor: usize, places: &[Place]) -> Option<Axes> {
        let own = |(value, axis): &Place| &self.layouts.values[value.index()].dims[*axis];
        let longest = places.iter().map(own).max_by_key(|axes| axes.len())?;
        let agree = places.iter().all(|place| longest.starts_with(own(place)));
        if longest.is_empty() || !agree {
            return None;
        }
        let others: Vec<Axis> = (0..self.layouts.factors[at].factors.len())
            .filter(|other| *other != factor)
            .flat_map(|other| self.places(at, other))
            .flat_map(|place| own(&place).clone())
            .collect();
        let kept: Axes =
            longest.iter().take_while(|axis| !others.contains(axis)).copied().collect();
        let size = &self.layouts.factors[at].factors[factor].size;
        (!kept.is_empty() && self.mesh.divides(&kept, size)).then_some(kept)
    }

    fn set(&mut self, (value, axis): Place, axes: &Axes) -> bool {
        if self.given.contains_key(&value) {
            return false;
        }
        let layout = &self.layouts.values[value.index()];
        let known = &layout.dims[axis];
        let is_longer = axes.len() > known.len() && axes.starts_with(known);
        let is_free = axes[known.len().min(axes.len())..].iter().all(|own| !layout.uses(*own));
        let dim = &self.function.ty(value).shape.dims[axis];
        if is_longer && is_free && self.mesh.divides(axes, dim) {
            self.layouts.values[value.index()].dims[axis] = axes.clone();
            return true;
        }
        false
    }

    /// Records the operations in which one mesh axis divides two factors.
    fn find_conflicts(&mut self) {
        for (at, op) in self.function.ops.iter().enumerate() {
            let count = self.layouts.factors[at].factors.len();
            let mut users: FxHashMap<Axis, usize> = FxHashMap::default();
            for factor in 0..count {
                for (value, axis) in self.places(at, factor) {
                    for own in self.layouts.values[value.index()].dims[axis].clone() {
                        let first = *users.entry(own).or_insert(factor);
                        let conflict = Conflict { operation: at, axis: own, loc: op.loc.clone() };
                        if first != factor && !self.layouts.conflicts.contains(&conflict) {
                            self.layouts.conflicts.push(conflict);
                        }
                    }
                }
            }
        }
    }
}
