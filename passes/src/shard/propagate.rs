//! Finds layouts for all values of a function from those of a few, in the manner of GSPMD (Xu et
//! al. 2021) and Shardy: each operation relates the dims of its operands and results by factors, and
//! axes of the mesh spread along them.

use std::collections::BTreeSet;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::graph::{Function, Operation, Value};
use mithril_ir::op::{self, Kind};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::layout::{Axes, Axis, Layout, Mesh};
use super::partial::PartialSums;
use super::problem::first_of_gradients;
use super::residuals::is_open;
use super::tables::Tables;
use super::{attention, constrain};
use crate::factors::{Division, Factor, Factors};

/// The layouts of a function's values.
#[derive(Debug)]
pub struct Layouts {
    /// By value.
    pub values: Vec<Layout>,
    pub relations: Relations,
}

/// An axis of an operand or result.
type Place = (Value, usize);

/// The axes of a function's values that belong together.
#[derive(Debug)]
pub struct Relations {
    /// The factors of each operation, then those of each pair of tied values.
    pub factors: Vec<Factors>,
    /// For each of them, the places of each factor.
    places: Vec<Vec<SmallVec<[Place; 4]>>>,
    /// Those that only pass dims on: they do not choose.
    simple: Vec<bool>,
    /// For each value, those that it takes part in.
    users: Vec<Vec<usize>>,
    /// The values that are tied to others, by these.
    partners: FxHashMap<Value, Value>,
    /// For each contraction or attention, earlier ones that read the same value.
    earlier: Vec<SmallVec<[usize; 2]>>,
    pub sums: PartialSums,
    pub tables: Tables,
}

/// The number of earlier contractions of a value that are looked at.
const EARLIER: usize = 3;

impl Relations {
    /// The relations of a function of primitives without calls. The values of each pair in `tied`
    /// have the same shape, and get the same layout: a param and its gradient.
    pub fn of(function: &Function, tied: &[(Value, Value)]) -> Relations {
        let mut relations = Relations {
            factors: Vec::new(),
            places: Vec::new(),
            simple: Vec::new(),
            users: vec![Vec::new(); function.values.len()],
            partners: tied.iter().copied().collect(),
            earlier: earlier(function),
            sums: PartialSums::of(function),
            tables: Tables::of(function, tied),
        };
        for op in &function.ops {
            let factors = Factors::of(function, op);
            let results: Vec<Value> = op.results().collect();
            relations.add(&op.operands, &results, factors, is_simple(op));
        }
        for (one, other) in tied {
            let dims = function.ty(*one).shape.dims.iter().cloned();
            let factor = |size| Factor { division: Division::Parallel, size };
            let factors: Vec<Factor> = dims.map(factor).collect();
            let axes: Vec<usize> = (0..factors.len()).collect();
            let (operands, results) = (vec![axes.clone()], vec![axes]);
            let own = Factors { factors, operands, results, ..Factors::default() };
            relations.add(&[*one], &[*other], own, true);
        }
        relations
    }

    fn add(&mut self, operands: &[Value], results: &[Value], factors: Factors, simple: bool) {
        let at = self.factors.len();
        let mut places = vec![SmallVec::new(); factors.factors.len()];
        let own = operands.iter().zip(&factors.operands);
        for (value, axes) in own.chain(results.iter().zip(&factors.results)) {
            for (axis, factor) in axes.iter().enumerate() {
                places[*factor].push((*value, axis));
            }
            let users = &mut self.users[value.index()];
            if users.last() != Some(&at) {
                users.push(at);
            }
        }
        self.places.push(places);
        self.factors.push(factors);
        self.simple.push(simple);
    }

    /// The operations that a value takes part in, by number. Pairs of tied values follow the
    /// function's operations.
    pub fn users(&self, value: Value) -> &[usize] {
        &self.users[value.index()]
    }

    /// Whether one mesh axis cannot divide these two factors of an operation.
    fn compete(&self, at: usize, one: usize, other: usize) -> bool {
        let passes = |one: usize, other: usize| {
            self.factors[at].factors[one].division == Division::Passed { by: other }
        };
        one != other && !passes(one, other) && !passes(other, one)
    }

    /// The mesh axes that divide several factors of an operation with these layouts, though they can
    /// divide only one.
    pub fn contested(&self, at: usize, values: &[Layout]) -> Axes {
        let mut users: FxHashMap<Axis, usize> = FxHashMap::default();
        let mut contested = Axes::new();
        for (factor, places) in self.places[at].iter().enumerate() {
            for axis in places.iter().flat_map(|(value, axis)| &values[value.index()].dims[*axis]) {
                let first = *users.entry(*axis).or_insert(factor);
                if self.compete(at, first, factor) && !contested.contains(axis) {
                    contested.push(*axis);
                }
            }
        }
        contested
    }

    /// Contractions and attentions before this one that read one of its operands, both in the
    /// forward pass or both in that of the gradients: what they gather need not be gathered again.
    pub fn earlier(&self, at: usize) -> &[usize] {
        &self.earlier[at]
    }
}

fn earlier(function: &Function) -> Vec<SmallVec<[usize; 2]>> {
    let turn = first_of_gradients(function);
    let mut readers: FxHashMap<(Value, bool), SmallVec<[usize; 4]>> = FxHashMap::default();
    let mut attentions: Vec<usize> = Vec::new();
    let each = function.ops.iter().enumerate().map(|(at, op)| {
        let mut before: SmallVec<[usize; 2]> = SmallVec::new();
        if attention::is_attention(op.op) {
            // The log-sum-exp may come after the turn.
            let shares = |own: &&usize| attention::share_kernel(op, &function.ops[**own]);
            before.extend(attentions.iter().filter(shares).copied());
            attentions.push(at);
        } else if op.op.kind != Kind::Contraction {
            return before;
        }
        for value in &op.operands {
            let others = readers.entry((*value, at < turn)).or_default();
            for own in others.iter().take(EARLIER) {
                if !before.contains(own) {
                    before.push(*own);
                }
            }
            others.push(at);
        }
        before
    });
    each.collect()
}

fn is_simple(op: &Operation) -> bool {
    matches!(op.op.kind, Kind::Elementwise | Kind::Layout | Kind::Barrier)
}

/// Spreads the given layouts, and those of operations `constrain`, over a function of primitives
/// without calls: one after the other, so that the first ones come before the later ones. `tied` has
/// pairs of values that get the same layout.
///
/// Errors: a constraint by an unknown mesh axis; a given layout whose rank differs from the value's,
/// or whose axes do not divide a dim.
pub fn propagate(
    function: &Function,
    mesh: &Mesh,
    given: &[(Value, Layout)],
    tied: &[(Value, Value)],
) -> Result<Layouts> {
    let relations = Relations::of(function, tied);
    let spread = Spread { function, mesh, relations: &relations };
    let (values, _) = spread.start(given)?;
    Ok(Layouts { values, relations })
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
    mesh.check(&info.ty.shape, layout).map_err(|error| Box::new(error.at(format!("`{name}`"))))
}

/// Spreads layouts along the factors of operations.
pub struct Spread<'a> {
    pub function: &'a Function,
    pub mesh: &'a Mesh,
    pub relations: &'a Relations,
}

impl Spread<'_> {
    /// The layouts of all values that follow from constraints and from given ones, and which values
    /// these are for.
    ///
    /// Errors: as for [`propagate`].
    pub fn start(&self, given: &[(Value, Layout)]) -> Result<(Vec<Layout>, Vec<bool>)> {
        let function = self.function;
        let shapes = function.values.iter().map(|info| &info.ty.shape.dims);
        let mut values: Vec<Layout> = shapes.map(|dims| Layout::replicated(dims.len())).collect();
        let mut fixed = vec![false; values.len()];
        let constrain = op::get("constrain");
        let is_decided = |operation: &&Operation| operation.op == constrain && !is_open(operation);
        for operation in function.ops.iter().filter(is_decided) {
            let value = operation.result();
            let shape = &function.ty(value).shape;
            values[value.index()] = constrain::layout(self.mesh, operation, shape)?;
            fixed[value.index()] = true;
        }
        self.run(&mut values, &fixed, 0..self.relations.factors.len());
        for (value, layout) in given {
            check(function, self.mesh, *value, layout)?;
            self.give(&mut values, &mut fixed, &[*value], layout);
        }
        Ok((values, fixed))
    }

    /// Gives these values and those that are tied to them a layout, and spreads it. Returns the
    /// values that changed beside the first ones.
    pub fn give(
        &self,
        values: &mut [Layout],
        fixed: &mut [bool],
        to: &[Value],
        layout: &Layout,
    ) -> Vec<Value> {
        let tied: Vec<Value> =
            to.iter().filter_map(|value| self.relations.partners.get(value)).copied().collect();
        for value in to.iter().chain(&tied) {
            values[value.index()] = layout.clone();
            fixed[value.index()] = true;
        }
        let users = to.iter().chain(&tied).flat_map(|value| self.relations.users(*value)).copied();
        let mut changed = self.run(values, fixed, users);
        changed.extend(tied);
        changed
    }

    /// Visits these operations, and then those of each value whose layout changed, until nothing
    /// changes. Operations that only pass dims on come first. Returns the values that changed.
    fn run(
        &self,
        values: &mut [Layout],
        fixed: &[bool],
        operations: impl IntoIterator<Item = usize>,
    ) -> Vec<Value> {
        let simple = &self.relations.simple;
        let (mut first, mut rest): (BTreeSet<usize>, BTreeSet<usize>) =
            operations.into_iter().partition(|at| simple[*at]);
        let mut changed = Vec::new();
        while let Some(at) = first.pop_first().or_else(|| rest.pop_first()) {
            let start = changed.len();
            self.operation(at, values, fixed, &mut changed);
            for value in &changed[start..] {
                let users = self.relations.users(*value).iter().filter(|user| **user != at);
                users.for_each(|user| {
                    if simple[*user] { &mut first } else { &mut rest }.insert(*user);
                });
            }
        }
        changed
    }

    /// Spreads the axes of each factor of an operation to all places that have the factor.
    fn operation(
        &self,
        at: usize,
        values: &mut [Layout],
        fixed: &[bool],
        changed: &mut Vec<Value>,
    ) {
        let factors = &self.relations.factors[at].factors;
        for (factor, places) in self.relations.places[at].iter().enumerate() {
            if factors[factor].division == Division::Whole {
                continue;
            }
            let Some(axes) = self.axes(at, factor, values) else { continue };
            for place in places {
                if self.set(*place, &axes, values, fixed) {
                    changed.push(place.0);
                }
            }
        }
    }

    /// The axes that divide a factor: the longest ones of its places, if the others are their
    /// beginnings. Axes that divide another factor of the operation are left out.
    fn axes(&self, at: usize, factor: usize, values: &[Layout]) -> Option<Axes> {
        let own = |(value, axis): &Place| &values[value.index()].dims[*axis];
        let places = &self.relations.places[at];
        let longest = places[factor].iter().map(own).max_by_key(|axes| axes.len())?;
        let agree = || places[factor].iter().all(|place| longest.starts_with(own(place)));
        if longest.is_empty() || !agree() {
            return None;
        }
        let others = || {
            let others = places.iter().enumerate();
            let others = others.filter(|(other, _)| self.relations.compete(at, factor, *other));
            others.flat_map(|(_, places)| places).flat_map(own)
        };
        let is_free = |axis: &&Axis| others().all(|other| other != *axis);
        let kept: Axes = longest.iter().take_while(is_free).copied().collect();
        let size = &self.relations.factors[at].factors[factor].size;
        (!kept.is_empty() && self.mesh.divides(&kept, size)).then_some(kept)
    }

    fn set(
        &self,
        (value, axis): Place,
        axes: &Axes,
        values: &mut [Layout],
        fixed: &[bool],
    ) -> bool {
        if fixed[value.index()] {
            return false;
        }
        let layout = &values[value.index()];
        let known = &layout.dims[axis];
        let is_longer = axes.len() > known.len() && axes.starts_with(known);
        let is_free = || axes[known.len()..].iter().all(|own| !layout.uses(*own));
        let dim = &self.function.ty(value).shape.dims[axis];
        if !is_longer || !is_free() || !self.mesh.divides(axes, dim) {
            return false;
        }
        let before = std::mem::replace(&mut values[value.index()].dims[axis], axes.clone());
        let (tables, layout) = (&self.relations.tables, &values[value.index()]);
        if tables.is_narrow(self.function, self.mesh, value, layout) {
            values[value.index()].dims[axis] = before;
            return false;
        }
        true
    }
}
