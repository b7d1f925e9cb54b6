//! What a sharded function costs: the work of a device, and the collectives that move data between
//! devices.

use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Operation, Value};
use mithril_ir::loc::Loc;
use mithril_ir::op::access::Fold;

use super::layout::{Axes, Axis, Layout, Mesh};
use super::propagate::Layouts;
use crate::cost::{bytes, flops};
use crate::factors::{Division, Factors};

/// What a collective does along one axis of a mesh.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Each device gets the parts of all.
    AllGather,
    /// Each device gets the terms of all, combined.
    AllReduce,
    /// Each device gets its part of the combined terms.
    ReduceScatter,
    /// The parts of one dim become parts of another.
    AllToAll,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::AllGather => "all-gather",
            Kind::AllReduce => "all-reduce",
            Kind::ReduceScatter => "reduce-scatter",
            Kind::AllToAll => "all-to-all",
        }
    }
}

/// A collective.
#[derive(Clone, PartialEq, Debug)]
pub struct Collective {
    pub kind: Kind,
    pub axis: Axis,
    /// The array that it moves.
    pub value: Value,
    /// The operation that needs it.
    pub operation: usize,
    /// The bytes that each device sends in a ring.
    pub bytes: Dim,
    pub loc: Loc,
}

/// The cost of a function on a mesh.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Bill {
    pub collectives: Vec<Collective>,
    /// For each operation, the floating-point operations of one device.
    pub flops: Vec<Dim>,
}

/// The cost of a function with these layouts.
pub fn bill(function: &Function, mesh: &Mesh, layouts: &Layouts) -> Bill {
    let mut counter = Counter { function, mesh, bill: Bill::default() };
    for (at, op) in function.ops.iter().enumerate() {
        counter.operation(at, op, layouts);
    }
    counter.bill
}

/// How an operation is computed: the mesh axes that divide each factor.
fn division(op: &Operation, factors: &Factors, layouts: &Layouts) -> Vec<Axes> {
    let mut divided = vec![Axes::new(); factors.factors.len()];
    let mut used: Vec<Axis> = Vec::new();
    let own = |value: Value| &layouts.values[value.index()];
    // Results decide, so that they need not be moved. Operands decide what is reduced.
    let results = op.results().zip(&factors.results);
    let operands = op.operands.iter().copied().zip(&factors.operands);
    for (value, places) in results.chain(operands) {
        for (axis, factor) in places.iter().enumerate() {
            let axes = &own(value).dims[axis];
            let kind = factors.factors[*factor].division;
            let is_open = divided[*factor].is_empty() && kind != Division::Whole;
            if is_open && !axes.is_empty() && axes.iter().all(|axis| !used.contains(axis)) {
                used.extend(axes);
                divided[*factor] = axes.clone();
            }
        }
    }
    divided
}

struct Counter<'a> {
    function: &'a Function,
    mesh: &'a Mesh,
    bill: Bill,
}

impl Counter<'_> {
    fn operation(&mut self, at: usize, op: &Operation, layouts: &Layouts) {
        let factors = &layouts.factors[at];
        let divided = division(op, factors, layouts);
        let layout = |places: &[usize]| Layout {
            dims: places.iter().map(|factor| divided[*factor].clone()).collect(),
        };
        for (value, places) in op.operands.iter().zip(&factors.operands) {
            let from = &layouts.values[value.index()];
            self.moved(at, *value, from, &layout(places));
        }
        let parts: i64 = divided.iter().map(|axes| self.mesh.parts(axes)).product();
        self.bill.flops.push(flops(self.function, op).ceil_div(&Dim::Const(parts)));
        let reduced: Vec<(Axis, Fold)> = factors
            .factors
            .iter()
            .zip(&divided)
            .filter_map(|(factor, axes)| match factor.division {
                Division::Reduced(fold) => Some(axes.iter().map(move |axis| (*axis, fold))),
                Division::Parallel | Division::Whole => None,
            })
            .flatten()
            .collect();
        for (value, places) in op.results().zip(&factors.results) {
            let wanted = &layouts.values[value.index()];
            let mut made = layout(places);
            for (axis, fold) in &reduced {
                self.combined(at, value, &mut made, wanted, (*axis, *fold));
            }
            self.moved(at, value, &made, wanted);
        }
    }

    /// Combines the terms of a result along a mesh axis. Sums become parts at once where the result
    /// is divided along this axis.
    fn combined(
        &mut self,
        at: usize,
        value: Value,
        made: &mut Layout,
        wanted: &Layout,
        (axis, fold): (Axis, Fold),
    ) {
        let target = wanted.dims.iter().position(|axes| axes.last() == Some(&axis));
        let target = target.filter(|dim| {
            let rest = &wanted.dims[*dim][..wanted.dims[*dim].len() - 1];
            fold == Fold::Sum && made.dims[*dim][..] == *rest
        });
        let local = self.local(value, made);
        let size = self.mesh.parts(&[axis]);
        let around = |times: i64| {
            (local.clone() * Dim::Const(times * (size - 1))).ceil_div(&Dim::Const(size))
        };
        match target {
            Some(dim) => {
                self.add(Kind::ReduceScatter, axis, value, at, around(1));
                made.dims[dim].push(axis);
            }
            None => self.add(Kind::AllReduce, axis, value, at, around(2)),
        }
    }

    /// Moves an array from one layout to another: gathers what is divided too much, after axes have
    /// moved between dims. Dividing further needs no data of others.
    fn moved(&mut self, at: usize, value: Value, from: &Layout, to: &Layout) {
        let mut now = from.clone();
        for dim in 0..now.dims.len() {
            while !to.dims[dim].starts_with(&now.dims[dim]) {
                let Some(axis) = now.dims[dim].last().copied() else { break };
                let size = self.mesh.parts(&[axis]);
                let local = self.local(value, &now);
                now.dims[dim].pop();
                let target = (0..now.dims.len()).find(|other| {
                    let next = now.dims[*other].len();
                    *other != dim
                        && to.dims[*other].starts_with(&now.dims[*other])
                        && to.dims[*other].get(next) == Some(&axis)
                });
                match target {
                    Some(other) => {
                        let sent = (local * Dim::Const(size - 1)).ceil_div(&Dim::Const(size));
                        self.add(Kind::AllToAll, axis, value, at, sent);
                        now.dims[other].push(axis);
                    }
                    None => {
                        self.add(Kind::AllGather, axis, value, at, local * Dim::Const(size - 1));
                    }
                }
            }
        }
    }

    fn add(&mut self, kind: Kind, axis: Axis, value: Value, operation: usize, bytes: Dim) {
        let loc = self.function.ops[operation].loc.clone();
        self.bill.collectives.push(Collective { kind, axis, value, operation, bytes, loc });
    }

    /// The bytes of a device's part of an array.
    fn local(&self, value: Value, layout: &Layout) -> Dim {
        let parts: i64 = layout.dims.iter().map(|axes| self.mesh.parts(axes)).product();
        bytes(self.function.ty(value)).ceil_div(&Dim::Const(parts))
    }
}
