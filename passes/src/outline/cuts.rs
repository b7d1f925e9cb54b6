//! Slices of a kernel's arguments whose positions are parameters of the launch, so that kernels
//! that differ only in such positions are shared.

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Operation};
use mithril_ir::shape::Shape;

/// The part of one axis that a slice takes, all in constants: elements before it, in it and after
/// it.
struct AxisCut {
    axis: usize,
    before: i64,
    length: i64,
    after: i64,
}

/// A slice with symbolic bounds, whose values the launch supplies.
pub struct Cut {
    pub starts: Attr,
    pub limits: Attr,
}

/// The parts that a slice takes of its axes; none if its positions are not constants.
fn parts(function: &Function, op: &Operation) -> Option<Vec<AxisCut>> {
    // Only slices have limits.
    op.op.attr_index("limits")?;
    let (Attr::Ints(axes), Attr::Shape(starts), Attr::Shape(limits), Attr::None) =
        (op.attr("axes"), op.attr("starts"), op.attr("limits"), op.attr("steps"))
    else {
        return None;
    };
    let info = function.info(op.operands[0]);
    let dims = &info.ty.shape.dims;
    let part = |(i, &axis): (usize, &i64)| {
        let axis = usize::try_from(axis).ok()?;
        let size = dims.get(axis)?.as_const()?;
        let (start, limit) = (starts.dims[i].as_const()?, limits.dims[i].as_const()?);
        let fits = 0 <= start && start <= limit && limit <= size;
        fits.then_some(AxisCut { axis, before: start, length: limit - start, after: size - limit })
    };
    let parts: Vec<AxisCut> = axes.iter().enumerate().map(part).collect::<Option<_>>()?;
    let once = (1..parts.len()).all(|i| parts[..i].iter().all(|part| part.axis != parts[i].axis));
    (once && info.known.is_none() && info.ty.shape.lead.is_none()).then_some(parts)
}

/// Whether the launch can supply the positions of a slice.
pub fn is_cut(function: &Function, op: &Operation) -> bool {
    parts(function, op).is_some()
}

/// A slice whose positions are replaced by symbols: `symbol` makes one for a number. `whole`
/// becomes the symbolic shape of the sliced value.
pub fn cut(
    function: &Function,
    op: &Operation,
    whole: &mut Shape,
    mut symbol: impl FnMut(i64) -> Dim,
) -> Option<Cut> {
    let (mut starts, mut limits) = (Vec::new(), Vec::new());
    for part in parts(function, op)? {
        let start = symbol(part.before);
        let limit = &start + &Dim::Const(part.length);
        // Symbols are not negative, so the slice is in bounds whatever their values.
        whole.dims[part.axis] = &limit + &symbol(part.after);
        starts.push(start);
        limits.push(limit);
    }
    Some(Cut { starts: Shape::new(starts).into(), limits: Shape::new(limits).into() })
}
