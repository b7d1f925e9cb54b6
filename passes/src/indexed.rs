//! Finds the inputs of a model that hold indices, and the axes they index, so that calls can check
//! them.
//!
//! Elements are followed from the arguments of the entry, through operations that pass them on
//! unchanged and through calls, to operands that index an axis according to the op table. Indices
//! that are computed on the way are checked by the operation that reads them.

use std::sync::Arc;

use mithril_ir::attr::Attr;
use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::Result;
use mithril_ir::dim::{Dim, Symbol};
use mithril_ir::evaluate::decompose;
use mithril_ir::graph::{Function, Module, Operation, ResultDef, Role, Value};
use mithril_ir::loc::Loc;
use mithril_ir::op::access::{Access, Passes, Pieces, passes};
use mithril_ir::op::view::IndexMap;
use mithril_ir::op::{Gradient, Kind, Meaning};
use mithril_ir::shape::{Shape, Type};
use mithril_ir::signature::{bind, passed_types};

/// Elements of an argument that index an axis.
#[derive(Clone, PartialEq, Debug)]
pub struct Indexed {
    pub argument: Arc<str>,
    /// Which elements of the argument; an axis that is not listed is taken whole.
    pub part: Vec<Range>,
    /// The length of the indexed axis, in the symbols of the arguments.
    pub extent: Dim,
    /// Whether a negative index counts from the end.
    pub from_end: bool,
    /// Values that mean no index, such as a padding value.
    pub ignored: Vec<i64>,
    /// The blocks that read the indices.
    pub readers: Loc,
}

/// Every `step`-th element of an axis, `count` of them.
#[derive(Clone, PartialEq, Debug)]
pub struct Range {
    /// Counted from the back: 1 is the last axis.
    pub axis: usize,
    pub start: Dim,
    pub count: Dim,
    pub step: i64,
}

/// The integer inputs of a module's entry that index an axis, in the order of the arguments.
///
/// Errors: a callee that does not exist; a composite whose decomposition fails.
pub fn indexed(module: &Module) -> Result<Vec<Indexed>> {
    let Some(entry) = module.entry() else { return Ok(Vec::new()) };
    let argument_views = entry.arguments().enumerate().map(|(argument, (value, own))| {
        let ty = entry.ty(value);
        let reads = matches!(own.role, Role::Data | Role::Constant) && ty.dtype.is_int();
        reads.then(|| ArgumentView::whole(argument, &ty.shape)).into_iter().collect()
    });
    let argument_views: Vec<Views> = argument_views.collect();
    if argument_views.iter().all(Vec::is_empty) {
        return Ok(Vec::new());
    }
    let mut search = Search { module, entry, found: Vec::new() };
    search.walk(entry, argument_views, &|dim| dim.clone(), &Loc::unknown())?;
    Ok(search.distinct())
}

impl Indexed {
    /// The same for a function whose arguments have other dims. `of` maps dims of the entry to dims
    /// of that function. None if a dim is unknown there.
    pub fn with_dims(mut self, of: &dyn Fn(&Dim) -> Dim) -> Option<Indexed> {
        self.extent = of(&self.extent);
        for range in &mut self.part {
            (range.start, range.count) = (of(&range.start), of(&range.count));
        }
        let known = self.dims().all(|dim| !dim.is_unknown());
        known.then_some(self)
    }

    /// The dims that its extent and its ranges are made of.
    pub fn dims(&self) -> impl Iterator<Item = &Dim> {
        let parts = self.part.iter().flat_map(|range| [&range.start, &range.count]);
        [&self.extent].into_iter().chain(parts)
    }
}

/// The indexed elements for an entry that was compiled from `logical` with other argument types.
///
/// Errors: as [`indexed`]; types that are not those of the entry.
pub fn indexed_as(logical: &Module, compiled: &Module) -> Result<Vec<Indexed>> {
    let found = indexed(logical)?;
    let (Some(from), Some(to)) = (logical.entry(), compiled.entry()) else { return Ok(found) };
    if found.is_empty() {
        return Ok(found);
    }
    let types: Vec<&Type> = to.arguments().map(|(value, _)| to.ty(value)).collect();
    let binding = bind(from, &types, &mut Vec::new())?;
    Ok(found.into_iter().filter_map(|own| own.with_dims(&|dim| binding.dim(dim))).collect())
}

/// Elements of an argument that a value passes on.
#[derive(Clone, PartialEq, Debug)]
struct ArgumentView {
    argument: usize,
    part: Vec<Range>,
    /// For each axis of the value, the last one first: the axis of the argument, from the back, if
    /// positions along both are the same.
    axes: Vec<Option<usize>>,
    ignored: Vec<i64>,
}

/// The argument elements that a value may hold.
type Views = Vec<ArgumentView>;

/// Expresses a dim of the current function in the symbols of the entry.
type Resolve<'a> = &'a dyn Fn(&Dim) -> Dim;

impl ArgumentView {
    fn whole(argument: usize, shape: &Shape) -> ArgumentView {
        let axes = (1..=shape.dims.len()).map(Some).collect();
        ArgumentView { argument, part: Vec::new(), axes, ignored: Vec::new() }
    }

    /// The same elements as a value with other axes. `axes` gives, for each new axis, the last one
    /// first, the old axis.
    fn permuted(&self, axes: impl Iterator<Item = Option<usize>>) -> ArgumentView {
        let own = |axis: usize| self.axes.get(axis - 1).copied().flatten();
        ArgumentView { axes: axes.map(|axis| axis.and_then(own)).collect(), ..self.clone() }
    }

    /// A slice along an axis of the value, counted from the back; none if that is not an axis of
    /// the argument.
    fn sliced(mut self, axis: usize, start: Dim, count: Dim, step: i64) -> Option<ArgumentView> {
        let axis = self.axes.get(axis - 1).copied().flatten()?;
        match self.part.iter_mut().find(|range| range.axis == axis) {
            Some(range) => {
                range.start = &range.start + &(&Dim::Const(range.step) * &start);
                (range.count, range.step) = (count, range.step * step);
            }
            None => self.part.push(Range { axis, start, count, step }),
        }
        Some(self)
    }
}

struct Search<'m> {
    module: &'m Module,
    entry: &'m Function,
    found: Vec<(usize, Indexed)>,
}

impl Search<'_> {
    /// Follows the elements that the arguments of a function hold, and returns those that its
    /// results hold. `at` is the block that the function is part of.
    fn walk(
        &mut self,
        function: &Function,
        argument_views: Vec<Views>,
        resolve: Resolve,
        at: &Loc,
    ) -> Result<Vec<Views>> {
        let mut value_views = argument_views;
        value_views.resize(function.values.len(), Views::new());
        let definitions = function.definitions();
        for op in &function.ops {
            if op.operands.iter().all(|value| value_views[value.index()].is_empty()) {
                continue;
            }
            let loc = op.loc.inside(at);
            let scope =
                Scope { function, definitions: &definitions, value_views: &value_views, resolve };
            if let Some(indexes) = op.op.indexes {
                let views = &value_views[op.operands[indexes.operand].index()];
                let first = function.ty(op.operands[0]);
                let extent = indexes.extent.dim(op.op, &op.attrs, first);
                if let Some(extent) = extent.map(|dim| resolve(&dim)) {
                    views.iter().for_each(|v| self.add(v, &extent, indexes.from_end, &loc));
                }
            } else if let Some(views) = scope.passed(op) {
                value_views[op.first.index()] = views;
            } else if let (Meaning::Decompose(_), None) = (op.op.meaning, op.op.indexes) {
                let parts = parts(function, op)?;
                let argument_views =
                    op.operands.iter().map(|v| value_views[v.index()].clone()).collect();
                let results = self.walk(&parts, argument_views, resolve, &loc)?;
                value_views[op.first.index()] = results.into_iter().next().unwrap_or_default();
            } else if op.op.kind == Kind::Call {
                for (value, views) in
                    op.results().zip(self.call(function, op, &value_views, resolve, &loc)?)
                {
                    value_views[value.index()] = views;
                }
            }
        }
        Ok(function
            .results
            .iter()
            .map(|result| value_views[result.value.index()].clone())
            .collect())
    }

    /// The elements that the results of a call hold.
    fn call(
        &mut self,
        function: &Function,
        op: &Operation,
        value_views: &[Views],
        resolve: Resolve,
        at: &Loc,
    ) -> Result<Vec<Views>> {
        let name = op.functions().next();
        let Some(callee) = name.and_then(|name| self.module.get(name)).filter(|f| !f.external)
        else {
            return Ok(Vec::new());
        };
        let types: Vec<Type> = op.operands.iter().map(|v| function.ty(*v).clone()).collect();
        let types = passed_types(op, 0, &types);
        let passed = op.passed(0).into_iter().map(|at| op.operands[at]);
        let mut argument_views: Vec<Views> =
            passed.map(|v| value_views[v.index()].clone()).collect();
        let repeated = match op.op.gradient {
            Gradient::Scan => {
                let (carries, sequences) =
                    (op.attr("carries").as_int(), op.attr("sequences").as_int());
                argument_views.iter_mut().take(carries as usize).for_each(Vec::clear);
                // The body takes slices along the first axis; positions along other axes stay the
                // same.
                let sequences = carries as usize..(carries + sequences) as usize;
                argument_views[sequences].iter_mut().flatten().for_each(|view| {
                    view.axes.pop();
                });
                true
            }
            Gradient::While => {
                argument_views.iter_mut().take(op.results as usize).for_each(Vec::clear);
                true
            }
            // The condition may guard against indices that are out of range.
            Gradient::Branches => return Ok(Vec::new()),
            Gradient::Callee | Gradient::Recompute | Gradient::Vjp => false,
            Gradient::Derived | Gradient::Partials(_) | Gradient::Rule(_) | Gradient::Zero => false,
        };
        let types: Vec<&Type> = types.iter().collect();
        let binding = bind(callee, &types, &mut Vec::new())?;
        let inner = |dim: &Dim| resolve(&binding.dim(dim));
        let results = self.walk(callee, argument_views, &inner, at)?;
        Ok(if repeated { Vec::new() } else { results })
    }

    /// Records elements that index an axis of this length.
    fn add(&mut self, view: &ArgumentView, extent: &Dim, from_end: bool, readers: &Loc) {
        let own = Indexed {
            argument: self.entry.args[view.argument].name.clone(),
            part: view.part.clone(),
            extent: extent.clone(),
            from_end: from_end
                && !self.entry.ty(self.entry.arg(view.argument)).dtype.is_unsigned_int(),
            ignored: view.ignored.clone(),
            readers: readers.clone(),
        };
        // Skips dims that no argument of the entry binds: they are not known before the call.
        let is_bound = |symbol: &Symbol| {
            let mut bound = false;
            for (value, _) in self.entry.arguments() {
                self.entry.ty(value).shape.for_each_symbol(&mut |own| bound |= own == symbol);
            }
            bound
        };
        let known = |dim: &Dim| !dim.is_unknown() && dim.symbols().into_iter().all(is_bound);
        if own.dims().all(known) {
            self.found.push((view.argument, own));
        }
    }

    /// Merges equal entries and the blocks that read them, and drops entries that another entry
    /// implies.
    fn distinct(self) -> Vec<Indexed> {
        let mut all: Vec<(usize, Indexed)> = Vec::new();
        for (argument, own) in self.found {
            let alike = |other: &Indexed| {
                Indexed { readers: Loc::unknown(), ..other.clone() }
                    == Indexed { readers: Loc::unknown(), ..own.clone() }
            };
            match all.iter_mut().find(|(_, other)| alike(other)) {
                Some((_, other)) => other.readers.merge(&own.readers),
                None => all.push((argument, own)),
            }
        }
        let wider = |own: &Indexed| {
            let narrow = Indexed { from_end: false, readers: Loc::unknown(), ..own.clone() };
            let same = |o: &Indexed| Indexed { readers: Loc::unknown(), ..o.clone() } == narrow;
            own.from_end && all.iter().any(|(_, other)| same(other))
        };
        let mut kept: Vec<(usize, Indexed)> =
            all.iter().filter(|(_, own)| !wider(own)).cloned().collect();
        kept.sort_by_key(|(argument, _)| *argument);
        kept.into_iter().map(|(_, own)| own).collect()
    }
}

/// The decomposition of a composite as a function of its operands.
fn parts(function: &Function, op: &Operation) -> Result<Function> {
    let builder = Builder::new(op.op.name);
    let operands =
        op.operands.iter().enumerate().map(|(at, value)| {
            builder.arg(at.to_string(), Role::Data, function.ty(*value).clone())
        });
    let operands: Vec<Value> = operands.collect();
    let value = decompose(&builder, op.op, &operands, &op.attrs)?;
    builder.finish(vec![ResultDef { name: "result".into(), value, state: None }])
}

/// A function, and the elements found so far.
struct Scope<'a> {
    function: &'a Function,
    definitions: &'a [Option<u32>],
    value_views: &'a [Views],
    resolve: Resolve<'a>,
}

impl Scope<'_> {
    fn shape(&self, value: Value) -> &Shape {
        &self.function.ty(value).shape
    }

    fn views(&self, value: Value) -> &Views {
        &self.value_views[value.index()]
    }

    /// The elements that the result of an operation passes on; none if the operation has to be
    /// decomposed or followed into a callee.
    fn passed(&self, op: &Operation) -> Option<Views> {
        let views = || self.views(op.operands[0]).iter();
        Some(match op.op.access {
            Access::View(map) => {
                let map = map(&self.function.view(op));
                views().filter_map(|view| self.viewed(op, &map, view)).collect()
            }
            Access::Pieces(Pieces::Concat) => {
                let all = op.operands.iter().flat_map(|value| self.views(*value));
                all.map(|view| self.without(op, "axis", view)).collect()
            }
            Access::Meaning if op.op.kind == Kind::Elementwise => self.chosen(op),
            Access::Meaning => return None,
            Access::Constant(_)
            | Access::Pieces(Pieces::Pad)
            | Access::Gather(_)
            | Access::Fold(_)
            | Access::Contract
            | Access::Scatter(_)
            | Access::Random(_)
            | Access::Library(_) => Views::new(),
        })
    }

    /// Aligns the axes of an operand with those of a result, from the back. Axes that are broadcast
    /// are dropped.
    fn aligned(&self, view: &ArgumentView, from: &Shape, to: &Shape) -> ArgumentView {
        let dim = |shape: &Shape, back: usize| {
            shape.dims.len().checked_sub(back).map(|at| shape.dims[at].clone())
        };
        let same = |back: &usize| dim(from, *back).is_some_and(|own| dim(to, *back) == Some(own));
        view.permuted((1..=to.dims.len()).map(|back| Some(back).filter(same)))
    }

    /// The elements that a view of a value passes on; none if the view slices an axis that is not
    /// one of the argument.
    fn viewed(&self, op: &Operation, map: &IndexMap, view: &ArgumentView) -> Option<ArgumentView> {
        let (from, to) = (self.shape(op.operands[0]), self.shape(op.result()));
        let Some(axes) = map.axes() else { return Some(self.reshaped(op, view)) };
        let mut view = view.clone();
        let mut sources = vec![None; to.dims.len()];
        for (at, axis_map) in axes.iter().enumerate() {
            let back = from.dims.len() - at;
            let (dim, own) = (&from.dims[at], axis_map.terms.first().copied());
            match (own, axis_map.terms.len()) {
                (Some((axis, step)), 1) if step > 0 => {
                    let count = (self.resolve)(&to.dims[axis]);
                    if count != (self.resolve)(dim) {
                        let start = (self.resolve)(&axis_map.offset);
                        view = view.sliced(back, start, count, step)?;
                    }
                    sources[axis] = Some(back);
                }
                // The axis is read at one position, backwards, or by overlapping windows.
                _ => {}
            }
        }
        Some(view.permuted(sources.into_iter().rev()))
    }

    /// An axis keeps its positions if all axes before it stay the same, or all axes after it.
    fn reshaped(&self, op: &Operation, view: &ArgumentView) -> ArgumentView {
        let (from, to) = (self.shape(op.operands[0]), self.shape(op.result()));
        let (have, want) = (from.dims.len(), to.dims.len());
        let equal_after = from.dims.iter().rev().zip(to.dims.iter().rev());
        let equal_after = equal_after.take_while(|(a, b)| a == b).count();
        let before = from.dims.iter().zip(&to.dims).take_while(|(a, b)| a == b).count();
        let before = if from.lead == to.lead { before } else { 0 };
        let source = |back: usize| match want - back {
            _ if back <= equal_after => Some(back),
            front if front < before => Some(have - front),
            _ => None,
        };
        view.permuted((1..=want).map(source))
    }

    /// All axes except those of an attribute, along which positions change.
    fn without(&self, op: &Operation, attr: &str, view: &ArgumentView) -> ArgumentView {
        let shape = self.shape(op.result());
        let axes = match op.attr(attr) {
            Attr::Int(axis) => vec![*axis],
            Attr::Ints(axes) => axes.to_vec(),
            _ => return view.permuted(std::iter::empty()),
        };
        let lost: Option<Vec<usize>> =
            axes.iter().map(|axis| shape.axis_from_back(*axis).ok()).collect();
        match lost {
            Some(lost) => {
                let all = 1..=shape.dims.len();
                view.permuted(all.map(|back| Some(back).filter(|axis| !lost.contains(axis))))
            }
            None => view.permuted(std::iter::empty()),
        }
    }

    fn chosen(&self, op: &Operation) -> Views {
        let to = self.shape(op.result());
        let aligned = |value: Value, view: &ArgumentView| self.aligned(view, self.shape(value), to);
        match passes(op.op) {
            Passes::All => {
                self.views(op.operands[0]).iter().map(|v| aligned(op.operands[0], v)).collect()
            }
            // A select whose condition compares the elements themselves with a number.
            Passes::Chosen => {
                let Some((tested, equal, ignored)) = self.tested(op.operands[0]) else {
                    return Views::new();
                };
                let kept = op.operands[if equal { 2 } else { 1 }];
                if kept != tested {
                    return Views::new();
                }
                let mut views: Views = self.views(kept).iter().map(|v| aligned(kept, v)).collect();
                views.iter_mut().for_each(|view| view.ignored.push(ignored));
                views
            }
            Passes::Equal(_) | Passes::None => Views::new(),
        }
    }

    /// The value that a condition compares to a number; whether the condition is equality; the
    /// number.
    fn tested(&self, condition: Value) -> Option<(Value, bool, i64)> {
        let op = &self.function.ops[self.definitions[condition.index()]? as usize];
        let Passes::Equal(equal) = passes(op.op) else { return None };
        let number = |value: Value| self.function.info(value).known.as_deref()?.first()?.as_const();
        let [x, y] = op.operands[..] else { return None };
        match (number(x), number(y)) {
            (_, Some(number)) => Some((x, equal, number)),
            (Some(number), None) => Some((y, equal, number)),
            (None, None) => None,
        }
    }
}
