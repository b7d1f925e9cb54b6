//! Elementwise kernels over one space do not depend on its shape, so they run along a single axis.

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::graph::Function;
use mithril_ir::op::Kind;
use mithril_ir::op::access::{Access, Constant};
use mithril_ir::op::view::View;
use mithril_ir::shape::Shape;
use smallvec::smallvec;

use super::fold::product;
use mithril_passes::outline::schedule::LoopNest;

/// The kernel with its space flattened to one axis; `None` where an operation depends on the shape,
/// or where there is only one axis.
pub fn flatten(f: &Function, loops: &LoopNest) -> Option<(Function, LoopNest)> {
    let space = Shape::new(loops.space.iter().cloned());
    let one = |shape: &Shape| shape.dims.iter().all(|dim| dim.as_const() == Some(1));
    let fits = f.values.iter().all(|info| info.ty.shape == space || one(&info.ty.shape));
    let simple = |access: Access, kind: Kind| {
        kind == Kind::Elementwise
            || matches!(
                access,
                Access::Constant(Constant::Literal)
                    | Access::View(View::Broadcast)
                    | Access::View(View::Identity)
                    | Access::Constant(Constant::Known)
            )
    };
    let literal = |access: Access| access == Access::Constant(Constant::Literal) && !one(&space);
    let plain = f.ops.iter().all(|op| {
        simple(op.op.access, op.op.kind)
            && !(literal(op.op.access) && f.ty(op.result()).shape == space)
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
        if op.op.access == Access::View(View::Broadcast) {
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
