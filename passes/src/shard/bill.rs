//! What a sharded function costs: the work of a device, and the collectives that move data between
//! devices.

use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Operation, Value};
use mithril_ir::op;
use mithril_ir::op::access::Fold;
use mithril_ir::shape::Type;
use smallvec::{SmallVec, smallvec};

use super::attention;
use super::layout::{Axes, Axis, Layout, Mesh};
use super::propagate::{Layouts, Relations};
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
    /// Each device sends what it has to the next one.
    Permute,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::AllGather => "all-gather",
            Kind::AllReduce => "all-reduce",
            Kind::ReduceScatter => "reduce-scatter",
            Kind::AllToAll => "all-to-all",
            Kind::Permute => "collective-permute",
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
    let sizes: Vec<f64> = function.values.iter().map(|info| size(&info.ty)).collect();
    let values = (&layouts.values[..], &sizes[..]);
    let each = |at| of_operation(function, mesh, &layouts.relations, at, values);
    Bill { operations: (0..function.ops.len()).map(each).collect() }
}

/// The bytes of a tensor, for comparisons: dims without a number count as a thousand.
fn size(ty: &Type) -> f64 {
    let dims = ty.shape.dims.iter().map(|dim| dim.as_const().unwrap_or(1000) as f64);
    dims.product::<f64>() * f64::from(ty.dtype.bits()) / 8.0
}

/// The cost of one operation. `values` has the layouts and the bytes of all values. If a mesh axis
/// divides several factors, the one that is computed in parts is the one for which least is sent.
/// What an earlier operation has gathered in the same way is not gathered again.
pub fn of_operation(
    function: &Function,
    mesh: &Mesh,
    relations: &Relations,
    at: usize,
    (values, sizes): (&[Layout], &[f64]),
) -> OperationBill {
    let (op, factors) = (&function.ops[at], &relations.factors[at]);
    let sent = |bill: &OperationBill| -> f64 {
        let each = bill.collectives.iter();
        each.map(|own| own.sent.number() * sizes[own.value.index()]).sum()
    };
    let earlier = relations.earlier(at).iter();
    let gathered: SmallVec<[Collective; 2]> = earlier
        .flat_map(|other| {
            let own = of_operation(function, mesh, relations, *other, (values, sizes));
            let is_kept = move |kind| match kind {
                Kind::AllGather => true,
                Kind::Permute => attention::share_kernel(op, &function.ops[*other]),
                Kind::AllReduce | Kind::ReduceScatter | Kind::AllToAll => false,
            };
            own.collectives.into_iter().filter(move |own| is_kept(own.kind))
        })
        .collect();
    let all = divisions(op, factors, values);
    let bills = all.iter().map(|divided| {
        let mut bill = divided_as(function, (mesh, relations), (op, factors), values, divided);
        bill.collectives.retain(|own| !gathered.contains(own));
        bill
    });
    let least = bills.map(|bill| (sent(&bill), bill)).reduce(|one, other| {
        let (less, more) = (one.0 <= other.0, other.1.parts > one.1.parts);
        if less && !(one.0 == other.0 && more) { one } else { other }
    });
    least.map(|(_, bill)| bill).unwrap_or_default()
}

/// The cost of an operation that is divided in this way.
fn divided_as(
    function: &Function,
    (mesh, relations): (&Mesh, &Relations),
    (op, factors): (&Operation, &Factors),
    values: &[Layout],
    divided: &[Axes],
) -> OperationBill {
    let parts = |axes: &[usize]| axes.iter().map(|own| mesh.parts(&divided[*own])).product();
    let mut counter = Counter { mesh, collectives: SmallVec::new() };
    let made = |places: &[usize]| Layout {
        dims: places.iter().map(|factor| divided[*factor].clone()).collect(),
    };
    // A barrier waits for its further operands, and does not read them.
    let read = if op.op.kind == op::Kind::Barrier { 1 } else { op.operands.len() };
    for (value, places) in op.operands.iter().zip(&factors.operands).take(read) {
        counter.moved(*value, &values[value.index()], &made(places));
    }
    for (value, places) in op.results().zip(&factors.results) {
        let wanted = &values[value.index()];
        let mut own = made(places);
        let last = |axis| relations.sums.combined(op, axis, values);
        for (factor, axes) in factors.factors.iter().zip(divided) {
            if let Division::Reduced(fold) = factor.division {
                for axis in axes {
                    match last(*axis) {
                        Some(later) => counter.all_reduced(later, &values[later.index()], *axis),
                        None => counter.combined(value, &mut own, wanted, (*axis, fold)),
                    }
                }
            }
        }
        counter.moved(value, &own, wanted);
    }
    let operands = op.operands.iter().copied().zip(&factors.operands);
    for (value, places) in operands.chain(op.results().zip(&factors.results)) {
        for (axes, factor) in values[value.index()].dims.iter().zip(places) {
            if let Division::Passed { by } = factors.factors[*factor].division {
                let wide = (32 / i64::from(function.ty(value).dtype.bits())).max(1);
                let has = |axis: &Axis| axes.contains(axis) && divided[by].contains(axis);
                counter.in_rings(value, wide, has);
            }
        }
    }
    OperationBill {
        collectives: counter.collectives,
        parts: divided.iter().map(|axes| mesh.parts(axes)).product(),
        operands: factors.operands.iter().map(|places| parts(places)).collect(),
        results: factors.results.iter().map(|places| parts(places)).collect(),
    }
}

/// The mesh axes that divide each factor.
type Divided = SmallVec<[Axes; 6]>;

/// The ways to compute an operation: each mesh axis divides one of the factors that it divides in an
/// operand or a result.
fn divisions(op: &Operation, factors: &Factors, values: &[Layout]) -> SmallVec<[Divided; 1]> {
    let none: Divided = smallvec![Axes::new(); factors.factors.len()];
    // For each factor the axes of the value that has the most.
    let mut wanted = none.clone();
    let results = op.results().zip(&factors.results);
    let operands = op.operands.iter().copied().zip(&factors.operands);
    for (value, places) in results.chain(operands) {
        for (axes, factor) in values[value.index()].dims.iter().zip(places) {
            let divides = factors.factors[*factor].division.divides();
            if divides && axes.len() > wanted[*factor].len() {
                wanted[*factor] = axes.clone();
            }
        }
    }
    let mut axes: SmallVec<[Axis; 4]> = wanted.iter().flatten().copied().collect();
    axes.sort_unstable();
    axes.dedup();
    let mut all: SmallVec<[Divided; 1]> = smallvec![none];
    for axis in axes {
        let has = |factor: &usize| wanted[*factor].contains(&axis);
        let of: SmallVec<[usize; 2]> = (0..wanted.len()).filter(has).collect();
        let each = all.into_iter().flat_map(|divided| {
            let with = |factor: &usize| {
                let mut divided = divided.clone();
                divided[*factor].push(axis);
                divided
            };
            of.iter().map(with).collect::<SmallVec<[Divided; 1]>>()
        });
        all = each.collect();
    }
    // Axes of one factor are in the order of the value.
    for divided in &mut all {
        for (own, wanted) in divided.iter_mut().zip(&wanted) {
            own.sort_unstable_by_key(|axis| wanted.iter().position(|other| other == axis));
        }
    }
    all
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
        let target = wanted.dims.iter().position(|axes| axes.contains(&axis));
        let target = target.filter(|dim| {
            let (own, wanted) = (&made.dims[*dim], &wanted.dims[*dim]);
            fold == Fold::Sum && wanted.starts_with(own) && wanted.get(own.len()) == Some(&axis)
        });
        match target {
            Some(dim) => {
                let size = self.mesh.parts(&[axis]);
                let sent = Share { times: size - 1, of: self.parts(made) * size };
                self.add(Kind::ReduceScatter, axis, value, sent);
                made.dims[dim].push(axis);
            }
            None => self.all_reduced(value, made, axis),
        }
    }

    /// Combines the terms of an array of this layout on all devices along a mesh axis.
    fn all_reduced(&mut self, value: Value, layout: &Layout, axis: Axis) {
        let size = self.mesh.parts(&[axis]);
        let sent = Share { times: 2 * (size - 1), of: self.parts(layout) * size };
        self.add(Kind::AllReduce, axis, value, sent);
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

    /// Along these axes, what would be gathered goes round the devices, and so do sums of terms. As
    /// many elements are sent. The sums are of at least 32 bits, `wide` times those of the value.
    fn in_rings(&mut self, value: Value, wide: i64, has: impl Fn(&Axis) -> bool) {
        for own in self.collectives.iter_mut().filter(|own| own.value == value && has(&own.axis)) {
            match own.kind {
                Kind::AllGather => own.kind = Kind::Permute,
                Kind::ReduceScatter => {
                    own.kind = Kind::Permute;
                    own.sent.times *= wide;
                }
                Kind::AllReduce | Kind::AllToAll | Kind::Permute => {}
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
