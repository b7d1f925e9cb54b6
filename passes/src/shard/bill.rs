//! What a sharded function costs: the work of a device, and the collectives that move data between
//! devices.

use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Operation, Value};
use mithril_ir::op::access::Fold;
use smallvec::SmallVec;

use super::layout::{Axes, Axis, Layout, Mesh};
use super::propagate::Layouts;
use crate::cost::{bytes, flops};
use crate::factors::{Division, Factors};

/// What a collective does along one axis of a mesh.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
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

/// A fraction of an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    pub times: i64,
    pub of: i64,
}

impl Share {
    /// This share of a number, rounded up.
    pub fn part(self, whole: Dim) -> Dim {
        (whole * Dim::Const(self.times)).ceil_div(&Dim::Const(self.of))
    }

    pub fn number(self) -> f64 {
        self.times as f64 / self.of as f64
    }
}

/// A collective.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Collective {
    pub kind: Kind,
    pub axis: Axis,
    /// The array that it moves.
    pub value: Value,
    /// The share of the array that each device sends, in a ring.
    pub sent: Share,
}

impl Collective {
    /// The bytes that each device sends.
    pub fn bytes(&self, function: &Function) -> Dim {
        self.sent.part(bytes(function.ty(self.value)))
    }
}

/// What an operation costs on a mesh.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct OperationBill {
    pub collectives: SmallVec<[Collective; 2]>,
    /// The number of parts into which its computation is divided.
    pub parts: i64,
    /// The share of each operand that a device reads.
    pub operands: SmallVec<[i64; 3]>,
    /// The share of each result that a device computes.
    pub results: SmallVec<[i64; 3]>,
}

/// The cost of a function on a mesh, by operation.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Bill {
    pub operations: Vec<OperationBill>,
}

impl Bill {
    /// All collectives with the operations that need them.
    pub fn collectives(&self) -> impl Iterator<Item = (usize, &Collective)> {
        let each = self.operations.iter().enumerate();
        each.flat_map(|(at, own)| own.collectives.iter().map(move |collective| (at, collective)))
    }

    /// The floating-point operations of a device for an operation.
    pub fn flops(&self, function: &Function, at: usize) -> Dim {
        let share = Share { times: 1, of: self.operations[at].parts };
        share.part(flops(function, &function.ops[at]))
    }
}

/// The cost of a function with these layouts.
pub fn bill(function: &Function, mesh: &Mesh, layouts: &Layouts) -> Bill {
    let factors = &layouts.relations.factors;
    let each = function.ops.iter().zip(factors);
    Bill {
        operations: each
            .map(|(op, factors)| of_operation(mesh, op, factors, &layouts.values))
            .collect(),
    }
}

/// The cost of one operation. `values` has the layouts of all values.
pub fn of_operation(
    mesh: &Mesh,
    op: &Operation,
    factors: &Factors,
    values: &[Layout],
) -> OperationBill {
    let divided = division(op, factors, values);
    let parts = |axes: &[usize]| axes.iter().map(|own| mesh.parts(&divided[*own])).product();
    let mut counter = Counter { mesh, collectives: SmallVec::new() };
    let made = |places: &[usize]| Layout {
        dims: places.iter().map(|factor| divided[*factor].clone()).collect(),
    };
    for (value, places) in op.operands.iter().zip(&factors.operands) {
        counter.moved(*value, &values[value.index()], &made(places));
    }
    for (value, places) in op.results().zip(&factors.results) {
        let wanted = &values[value.index()];
        let mut own = made(places);
        for (factor, axes) in factors.factors.iter().zip(&divided) {
            if let Division::Reduced(fold) = factor.division {
                for axis in axes {
                    counter.combined(value, &mut own, wanted, (*axis, fold));
                }
            }
        }
        counter.moved(value, &own, wanted);
    }
    OperationBill {
        collectives: counter.collectives,
        parts: divided.iter().map(|axes| mesh.parts(axes)).product(),
        operands: factors.operands.iter().map(|places| parts(places)).collect(),
        results: factors.results.iter().map(|places| parts(places)).collect(),
    }
}

/// How an operation is computed: the mesh axes that divide each factor.
fn division(op: &Operation, factors: &Factors, values: &[Layout]) -> SmallVec<[Axes; 6]> {
    let mut divided: SmallVec<[Axes; 6]> = smallvec::smallvec![Axes::new(); factors.factors.len()];
    let mut used: SmallVec<[Axis; 4]> = SmallVec::new();
    // Results decide, so that they need not be moved. Operands decide what is reduced.
    let results = op.results().zip(&factors.results);
    let operands = op.operands.iter().copied().zip(&factors.operands);
    for (value, places) in results.chain(operands) {
        for (axis, factor) in places.iter().enumerate() {
            let axes = &values[value.index()].dims[axis];
            let kind = factors.factors[*factor].division;
            let is_open = divided[*factor].is_empty() && kind != Division::Whole;
            if is_open && !axes.is_empty() && axes.iter().all(|axis| !used.contains(axis)) {
                used.extend(axes.iter().copied());
                divided[*factor] = axes.clone();
            }
        }
    }
    divided
}

struct Counter<'a> {
    mesh: &'a Mesh,
    collectives: SmallVec<[Collective; 2]>,
}

impl Counter<'_> {
    /// Combines the terms of a result along a mesh axis. Sums become parts at once where the result
    /// is divided along this axis.
    fn combined(
        &mut self,
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
        let size = self.mesh.parts(&[axis]);
        let local = self.parts(made);
        let around = |times: i64| Share { times: times * (size - 1), of: local * size };
        match target {
            Some(dim) => {
                self.add(Kind::ReduceScatter, axis, value, around(1));
                made.dims[dim].push(axis);
            }
            None => self.add(Kind::AllReduce, axis, value, around(2)),
        }
    }

    /// Moves an array from one layout to another: gathers what is divided too much, after axes have
    /// moved between dims. Dividing further needs no data of others.
    fn moved(&mut self, value: Value, from: &Layout, to: &Layout) {
        if from == to {
            return;
        }
        let mut now = from.clone();
        for dim in 0..now.dims.len() {
            while !to.dims[dim].starts_with(&now.dims[dim]) {
                let Some(axis) = now.dims[dim].last().copied() else { break };
                let size = self.mesh.parts(&[axis]);
                let local = self.parts(&now);
                now.dims[dim].pop();
                let target = (0..now.dims.len()).find(|other| {
                    let next = now.dims[*other].len();
                    *other != dim
                        && to.dims[*other].starts_with(&now.dims[*other])
                        && to.dims[*other].get(next) == Some(&axis)
                });
                match target {
                    Some(other) => {
                        let sent = Share { times: size - 1, of: local * size };
                        self.add(Kind::AllToAll, axis, value, sent);
                        now.dims[other].push(axis);
                    }
                    None => {
                        let sent = Share { times: size - 1, of: local };
                        self.add(Kind::AllGather, axis, value, sent);
                    }
                }
            }
        }
    }

    fn add(&mut self, kind: Kind, axis: Axis, value: Value, sent: Share) {
        self.collectives.push(Collective { kind, axis, value, sent });
    }

    /// The number of parts of an array.
    fn parts(&self, layout: &Layout) -> i64 {
        layout.dims.iter().map(|axes| self.mesh.parts(axes)).product()
    }
}
