//! `unmerge`: contracts over several axes where a reshape has merged them into one.

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::Result;
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Module, Operation, Value};
use mithril_ir::op::Kind;
use mithril_ir::op::infer::as_ints;
use mithril_ir::op::view::IndexMap;
use mithril_ir::shape::Shape;
use smallvec::SmallVec;

use crate::context::PassContext;
use crate::pass::Pass;
use crate::rebuild::{Rebuild, each_function};

pass! {
    /// Contracts over several axes where a reshape has merged them into one: `x` over batches and
    /// positions, for the gradient of a weight. So devices that have some of the positions each
    /// compute a term, whereas a merged axis can be divided along the batches alone.
    pub struct Unmerge("unmerge") {}
}

impl Pass for Unmerge {
    fn run(&self, module: &Module, cx: &mut PassContext) -> Result<Module> {
        each_function(module, |function| unmerged(module, function, cx))
    }
}

fn unmerged(
    module: &Module,
    function: &Function,
    cx: &mut PassContext,
) -> Result<Option<Function>> {
    let definitions = function.definitions();
    let producer = |value: Value| definitions[value.index()].map(|at| &function.ops[at as usize]);
    let found = |op: &Operation| Contraction::of(function, op, &producer);
    if function.ops.iter().all(|op| found(op).is_none()) {
        return Ok(None);
    }
    let mut rebuild = Rebuild::new(module, function);
    for op in &function.ops {
        let Some(own) = found(op) else {
            rebuild.keep(op)?;
            continue;
        };
        rebuild.builder.set_loc(op.loc.clone());
        let operands = [&own.x, &own.y].map(|own| {
            let value = rebuild.builder.var(rebuild.value(own.value));
            value.reshape(Shape::new(own.dims.iter().cloned())).value
        });
        let value = rebuild.builder.push(op.op, &operands, own.attrs(op))?;
        rebuild.replace(op.result(), value);
        cx.count("contractions-unmerged", 1);
    }
    rebuild.finish().map(Some)
}

/// What a contraction may read in the place of an operand: a value from before a reshape merged
/// contracted axes.
struct Operand {
    value: Value,
    /// The dims to which the value is reshaped.
    dims: Vec<Dim>,
    /// The axes of these dims that each axis of the given operand stands for.
    axes: Vec<Vec<usize>>,
}

impl Operand {
    /// Looks through transposes of the contracted axes, and the reshape that merges some of them.
    fn of<'f>(
        function: &Function,
        value: Value,
        contracted: &[usize],
        producer: &dyn Fn(Value) -> Option<&'f Operation>,
    ) -> Operand {
        let dims = function.ty(value).shape.dims.to_vec();
        let axes = (0..dims.len()).map(|axis| vec![axis]).collect();
        let mut own = Operand { value, dims, axes };
        loop {
            let op = producer(own.value).filter(|op| op.op.kind == Kind::Layout);
            let read = op.and_then(|op| merged(function, op, &function.index_map(op)?));
            let (Some(op), Some(read)) = (op, read) else { return own };
            let merges = read.iter().any(|axes| axes.len() > 1);
            let next = own.before(function, op, &read, contracted);
            if !next.keeps_order(contracted) {
                return own;
            }
            own = next;
            if merges {
                return own;
            }
        }
    }

    /// This operand with the operand of a view in the place of its value. `read` has the axes that
    /// each axis of the view has merged.
    fn before(
        &self,
        function: &Function,
        op: &Operation,
        read: &[Vec<usize>],
        contracted: &[usize],
    ) -> Operand {
        let from = &function.ty(op.operands[0]).shape.dims;
        let is_contracted = |axis: usize| contracted.iter().any(|own| self.axes[*own] == [axis]);
        let is_permutation = read.iter().all(|axes| axes.len() == 1);
        let (mut dims, mut places) = (Vec::new(), vec![Vec::new(); read.len()]);
        if is_permutation {
            dims = from.to_vec();
            places = read.to_vec();
        } else {
            for (axis, axes) in read.iter().enumerate() {
                let own = match is_contracted(axis) {
                    true => axes.iter().map(|own| from[*own].clone()).collect(),
                    false => vec![self.dims[axis].clone()],
                };
                places[axis] = (dims.len()..dims.len() + own.len()).collect();
                dims.extend(own);
            }
        }
        let axes = self.axes.iter().map(|own| places[own[0]].clone()).collect();
        Operand { value: op.operands[0], dims, axes }
    }

    /// Whether the axes but these follow one another.
    fn keeps_order(&self, contracted: &[usize]) -> bool {
        let others = self.axes.iter().enumerate().filter(|(at, _)| !contracted.contains(at));
        others.map(|(_, axes)| axes).is_sorted()
    }
}

/// For each axis of a view's result, the axes of its operand that it has merged, the outermost
/// first. `None` for views that do anything else.
fn merged(function: &Function, op: &Operation, map: &IndexMap) -> Option<Vec<Vec<usize>>> {
    let [from, to] = [op.operands[0], op.result()].map(|value| &function.ty(value).shape);
    from.rank().and(to.rank())?;
    let mut read = vec![Vec::new(); to.dims.len()];
    match map {
        IndexMap::Affine(axes) => {
            for (axis, own) in axes.iter().enumerate() {
                let place = own.same_axis().filter(|place| to.dims[*place] == from.dims[axis])?;
                read[place].push(axis);
            }
            if axes.len() != to.dims.len() {
                return None;
            }
        }
        IndexMap::Reshape(pairs) => {
            for (result, operand) in pairs {
                let [axis] = result.clone().collect::<Vec<_>>()[..] else { return None };
                read[axis].extend(operand.clone());
            }
        }
    }
    let one_each = read.iter().map(Vec::len).sum::<usize>() == from.dims.len();
    (one_each && read.iter().all(|axes| !axes.is_empty())).then_some(read)
}

/// A contraction of the values that its operands are views of.
struct Contraction {
    x: Operand,
    y: Operand,
    /// Axes of the operands: the batches and the contracted ones of each.
    axes: [Vec<usize>; 4],
}

const NAMES: [&str; 4] = ["x_batch", "y_batch", "x_contract", "y_contract"];

impl Contraction {
    /// `None` if this is not a contraction over a merged axis.
    fn of<'f>(
        function: &Function,
        op: &Operation,
        producer: &dyn Fn(Value) -> Option<&'f Operation>,
    ) -> Option<Contraction> {
        if op.op.kind != Kind::Contraction || op.op.name != "dot_general" {
            return None;
        }
        let axes = NAMES.map(|name| {
            let operand = op.operands[usize::from(name.starts_with('y'))];
            let rank = function.ty(operand).shape.dims.len() as i64;
            let own = as_ints(op.attr(name)).unwrap_or_default().iter();
            own.map(|axis| axis.rem_euclid(rank) as usize).collect::<Vec<_>>()
        });
        let operand = |at: usize, contracted: &[usize]| {
            Operand::of(function, op.operands[at], contracted, producer)
        };
        let (x, y) = (operand(0, &axes[2]), operand(1, &axes[3]));
        let own = Contraction { x, y, axes };
        let [_, _, x_sum, y_sum] = &own.axes;
        let alike = x_sum.iter().zip(y_sum).all(|(one, other)| {
            let (one, other) = (&own.x.axes[*one], &own.y.axes[*other]);
            one.iter()
                .map(|axis| &own.x.dims[*axis])
                .eq(other.iter().map(|axis| &own.y.dims[*axis]))
        });
        let merges = x_sum.iter().any(|axis| own.x.axes[*axis].len() > 1);
        (merges && alike).then_some(own)
    }

    /// The attributes of the operation with other axes.
    fn attrs(&self, op: &Operation) -> SmallVec<[Attr; 2]> {
        let mut attrs = op.attrs.clone();
        let operands = [&self.x, &self.y, &self.x, &self.y];
        for ((name, axes), operand) in NAMES.iter().zip(&self.axes).zip(operands) {
            let own = axes.iter().flat_map(|own| &operand.axes[*own]).map(|axis| *axis as i64);
            if let Some(at) = op.op.attr_index(name) {
                attrs[at] = Attr::ints(own);
            }
        }
        attrs
    }
}
