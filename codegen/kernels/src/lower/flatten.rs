//! Flattens the space of elementwise kernels to a single axis, because such kernels do not depend
//! on the shape of their space.

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Operation};
use mithril_ir::op::Kind;
use mithril_ir::op::access::{Access, Constant};
use mithril_ir::op::view::{AxisMap, IndexMap};
use mithril_ir::shape::Shape;
use smallvec::smallvec;

use super::reduce::product;
use mithril_passes::outline::schedule::LoopNest;

/// Returns the kernel with its space flattened to one axis. Returns `None` if an operation depends
/// on the shape, or if the space has a single axis already.
pub fn flatten(f: &Function, loops: &LoopNest) -> Option<(Function, LoopNest)> {
    let space = Shape::new(loops.space.iter().cloned());
    let one = |shape: &Shape| shape.dims.iter().all(|dim| dim.as_const() == Some(1));
    let fits = f.values.iter().all(|info| info.ty.shape == space || one(&info.ty.shape));
    let plain = f.ops.iter().all(|op| match op.op.access {
        Access::Constant(Constant::Literal) => one(&space) || f.ty(op.result()).shape != space,
        Access::Constant(Constant::Known) => true,
        Access::View(map) => {
            let from = &f.ty(op.operands[0]).shape;
            has_shape_alone(op) && (one(from) || keeps_index(&map(&f.view(op)), from))
        }
        _ => op.op.kind == Kind::Elementwise,
    });
    if space.dims.len() < 2 || !fits || !plain {
        return None;
    }
    let line: Shape = Shape { lead: None, dims: smallvec![product(&space.dims)] };
    let mut out = f.clone();
    for info in &mut out.values {
        info.ty.shape = match info.ty.shape == space {
            true => line.clone(),
            false => Shape::new([Dim::Const(1)]),
        };
    }
    for op in &mut out.ops {
        if let Access::View(_) = op.op.access {
            let shape = out.values[op.first.index()].ty.shape.clone();
            let axes = op.op.attr_index("axes");
            for (i, attr) in op.attrs.iter_mut().enumerate() {
                match attr {
                    Attr::Shape(own) => *own = shape.clone().into(),
                    other if Some(i) == axes => *other = Attr::None,
                    _ => {}
                }
            }
        }
    }
    Some((out, LoopNest::over(&line.dims)))
}

/// Whether the attributes of a view say no more than the shape of its result, so that the view is
/// valid for another shape.
fn has_shape_alone(op: &Operation) -> bool {
    op.op.attrs.iter().all(|attr| matches!(attr.name, "shape" | "axes"))
}

/// Whether a view of an operand with the shape of its result reads the element at the same index.
fn keeps_index(map: &IndexMap, operand: &Shape) -> bool {
    let keeps = |(axis, map): (usize, &AxisMap)| {
        map.same_axis() == Some(axis) || operand.dims[axis].as_const() == Some(1)
    };
    map.axes().is_some_and(|axes| axes.iter().enumerate().all(keeps))
}
