//! Strided views: the position in memory of each element of a view, including views of values that
//! are padded with zeros.

use std::ops::Range;

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Operation, Value};
use mithril_ir::op::access::{Access, Pieces};
use mithril_ir::op::view::{AxisMap, IndexMap};

/// The layout of a value in the dense memory of another value.
#[derive(Clone, Debug)]
pub struct Strided {
    /// The value that owns the memory.
    pub root: Value,
    pub offset: Dim,
    /// The stride of each axis, in elements.
    pub strides: Vec<Dim>,
    /// Axes that are padded with zeros.
    pub paddings: Vec<Padding>,
}

/// An axis with zeros around and between its elements.
#[derive(Clone, Debug)]
pub struct Padding {
    /// Maps the index of the value to the position along the padded axis, counted from the first
    /// element.
    pub place: AxisMap,
    /// The distance between elements along the padded axis; positions between them are zeros.
    pub spacing: i64,
    /// The number of elements.
    pub extent: Dim,
    /// The stride in memory between elements, if `spacing` is above 1. Otherwise it is part of the
    /// strides of the value.
    pub stride: Dim,
}

/// Axes that are collapsed into one: their total extent and the stride between elements.
#[derive(Clone, Debug)]
pub struct Run {
    pub extent: Dim,
    pub stride: Dim,
    /// The dims that were collapsed.
    pub dims: Vec<Dim>,
}

/// Collapses neighbouring axes that one stride steps through. Dims of 1 join any run.
pub fn collapse(axes: impl Iterator<Item = (Dim, Dim)>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (dim, stride) in axes {
        let single = dim.as_const() == Some(1);
        match runs.last_mut() {
            Some(run) if single => run.dims.push(dim),
            Some(run) if run.extent.as_const() == Some(1) => {
                run.dims.push(dim.clone());
                (run.extent, run.stride) = (dim, stride);
            }
            Some(run) if run.stride == &stride * &dim => {
                run.dims.push(dim.clone());
                (run.extent, run.stride) = (&run.extent * &dim, stride);
            }
            _ => runs.push(Run { extent: dim.clone(), stride, dims: vec![dim] }),
        }
    }
    if runs.is_empty() {
        runs.push(Run { extent: Dim::Const(1), stride: Dim::Const(0), dims: vec![] });
    }
    runs
}

/// The layout of a value that is a strided view of another. `definitions` are those of the
/// function. `None` if the views in between are not strided.
pub fn strided(f: &Function, definitions: &[Option<u32>], value: Value) -> Option<Strided> {
    let own = located(f, definitions, value, false)?;
    debug_assert!(own.paddings.is_empty());
    Some(own)
}

/// The same, also through paddings with zeros.
pub fn padded(f: &Function, definitions: &[Option<u32>], value: Value) -> Option<Strided> {
    located(f, definitions, value, true)
}

fn located(f: &Function, definitions: &[Option<u32>], value: Value, pads: bool) -> Option<Strided> {
    let dims = &f.ty(value).shape.dims;
    let op = definitions[value.index()].map(|at| &f.ops[at as usize]);
    let inner = |op: &Operation| located(f, definitions, op.operands[0], pads);
    match op.map(|op| (op, op.op.access)) {
        Some((op, Access::View(map))) => {
            at(&map(&f.view(op)), &f.ty(op.operands[0]).shape.dims, dims, inner(op)?)
        }
        Some((op, Access::Pieces(Pieces::Pad))) if pads && has_zeros(f, definitions, op) => {
            padded_at(op, &f.ty(op.operands[0]).shape.dims, inner(op)?)
        }
        _ => Some(Strided {
            root: value,
            offset: Dim::Const(0),
            strides: dense(dims),
            paddings: Vec::new(),
        }),
    }
}

/// Whether the padding value is known to be zero.
fn has_zeros(f: &Function, definitions: &[Option<u32>], pad: &Operation) -> bool {
    let value = definitions[pad.operands[1].index()].map(|at| &f.ops[at as usize]);
    let literal = value.filter(|op| op.op.attr_index("value").is_some());
    match literal.map(|op| op.attr("value")) {
        Some(Attr::Tensor(zero)) => zero.len() == 1 && zero.element_f64(0) == 0.0,
        _ => false,
    }
}

/// Row-major strides, in elements.
pub fn dense(dims: &[Dim]) -> Vec<Dim> {
    (0..dims.len()).map(|axis| product(&dims[axis + 1..])).collect()
}

/// The layout of a view. `own` are the dims of its operand, `inner` is the operand's layout.
fn at(map: &IndexMap, own: &[Dim], dims: &[Dim], inner: Strided) -> Option<Strided> {
    match map {
        IndexMap::Affine(axes) => {
            let mut out = Strided { strides: vec![Dim::Const(0); dims.len()], ..inner };
            for (map, stride) in axes.iter().zip(&inner.strides) {
                out.offset = &out.offset + &(&map.offset * stride);
                for &(axis, coefficient) in &map.terms {
                    let step = stride * &Dim::Const(coefficient);
                    out.strides[axis] = &out.strides[axis] + &step;
                }
            }
            for padding in &mut out.paddings {
                padding.place = composed(&padding.place, axes);
            }
            Some(out)
        }
        IndexMap::Reshape(runs) => {
            let mut out = inner;
            for padding in &mut out.paddings {
                padding.place = kept(&padding.place, runs, own, dims)?;
            }
            out.strides = reshaped(runs, own, dims, &out.strides)?;
            Some(out)
        }
    }
}

/// Composes a map from the operand's index to a position with the maps `axes` of a view. The result
/// maps the view's index to the position.
fn composed(place: &AxisMap, axes: &[AxisMap]) -> AxisMap {
    let mut out = AxisMap { offset: place.offset.clone(), terms: Default::default() };
    for &(axis, by) in &place.terms {
        let map = &axes[axis];
        out.offset = &out.offset + &(&map.offset * by);
        for &(to, coefficient) in &map.terms {
            match out.terms.iter_mut().find(|(own, _)| *own == to) {
                Some((_, own)) => *own += by * coefficient,
                None => out.terms.push((to, by * coefficient)),
            }
        }
    }
    out
}

/// The map from the index of a reshape to a position, given the map from its operand's index, if
/// the reshape does not change the axes that the position depends on.
fn kept(
    place: &AxisMap,
    runs: &[(Range<usize>, Range<usize>)],
    own: &[Dim],
    dims: &[Dim],
) -> Option<AxisMap> {
    let long = |range: &Range<usize>, dims: &[Dim]| -> Vec<usize> {
        range.clone().filter(|axis| dims[*axis].as_const() != Some(1)).collect()
    };
    let mut out = AxisMap { offset: place.offset.clone(), terms: Default::default() };
    for &(axis, by) in &place.terms {
        if own[axis].as_const() == Some(1) {
            continue;
        }
        let (to, from) = runs.iter().find(|(_, from)| from.contains(&axis))?;
        match (&long(to, dims)[..], &long(from, own)[..]) {
            (&[to], [_]) => out.terms.push((to, by)),
            _ => return None,
        }
    }
    Some(out)
}

/// The layout of a padded value. `dims` are those of its operand, `inner` is the operand's layout.
fn padded_at(pad: &Operation, dims: &[Dim], inner: Strided) -> Option<Strided> {
    let mut out = inner;
    let list = |name: &str| match pad.attr(name) {
        Attr::Ints(list) => list.to_vec(),
        _ => vec![0; dims.len()],
    };
    let (low, high, interior) = (list("low"), list("high"), list("interior"));
    for (axis, dim) in dims.iter().enumerate() {
        if (low[axis], high[axis], interior[axis]) == (0, 0, 0) {
            continue;
        }
        let place =
            AxisMap { offset: Dim::Const(-low[axis]), terms: [(axis, 1)].into_iter().collect() };
        let mut padding = Padding {
            place,
            spacing: 1 + interior[axis],
            extent: dim.clone(),
            stride: Dim::Const(0),
        };
        let zero = || Dim::Const(0);
        if padding.spacing > 1 {
            // With zeros between elements, finding the position in an inner padding would need a
            // division.
            let read = |own: &Padding| own.place.terms.iter().any(|(to, _)| *to == axis);
            if out.paddings.iter().any(read) {
                return None;
            }
            padding.stride = std::mem::replace(&mut out.strides[axis], zero());
        } else {
            for own in &mut out.paddings {
                let by = own.place.terms.iter().find(|(to, _)| *to == axis).map(|(_, by)| *by);
                own.place.offset = &own.place.offset + &Dim::Const(-low[axis] * by.unwrap_or(0));
            }
            out.offset = &out.offset + &(&out.strides[axis] * -low[axis]);
        }
        out.paddings.push(padding);
    }
    Some(out)
}

/// The strides after a reshape, if each group of axes it reshapes collapses into one.
fn reshaped(
    runs: &[(Range<usize>, Range<usize>)],
    own: &[Dim],
    dims: &[Dim],
    strides: &[Dim],
) -> Option<Vec<Dim>> {
    let mut out = Vec::with_capacity(dims.len());
    for (to, from) in runs {
        let joined = collapse(from.clone().map(|axis| (own[axis].clone(), strides[axis].clone())));
        let [run] = &joined[..] else {
            return None;
        };
        for axis in to.clone() {
            let inside = product(&dims[axis + 1..to.end]);
            out.push(&inside * &run.stride);
        }
    }
    Some(out)
}

fn product(dims: &[Dim]) -> Dim {
    dims.iter().cloned().product()
}
