//! Where the elements of a value lie that is a view of another: at steps from an offset on.

use std::ops::Range;

use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Value};
use mithril_ir::op::access::Access;
use mithril_ir::op::view::IndexMap;

/// Where the elements of a value lie in the dense memory of another.
#[derive(Clone, Debug)]
pub struct Strided {
    /// The value whose memory it is.
    pub root: Value,
    pub offset: Dim,
    /// From one element to the next, by axis.
    pub strides: Vec<Dim>,
}

/// Axes that are one to loops: how long they are together, and how far it is from one to the next.
#[derive(Clone, Debug)]
pub struct Run {
    pub extent: Dim,
    pub stride: Dim,
    /// The dims it stands for.
    pub dims: Vec<Dim>,
}

/// Neighbouring axes as one, where going through them is going on in steps. Dims of 1 go along.
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

/// Where a value lies that is another behind views which only change steps. `definitions` are the
/// function's; `None` where there is another view between.
pub fn strided(f: &Function, definitions: &[Option<u32>], value: Value) -> Option<Strided> {
    let dims = &f.ty(value).shape.dims;
    let op = definitions[value.index()].map(|at| &f.ops[at as usize]);
    let Some((op, Access::View(view))) = op.map(|op| (op, op.op.access)) else {
        return Some(Strided { root: value, offset: Dim::Const(0), strides: dense(dims) });
    };
    let (own, shape) = (&f.ty(op.operands[0]).shape, &f.ty(value).shape);
    let inner = strided(f, definitions, op.operands[0])?;
    at(&view.map(op.op, &op.attrs, own, shape), &own.dims, dims, inner)
}

/// From one element to the next, by axis, in row-major memory.
pub fn dense(dims: &[Dim]) -> Vec<Dim> {
    (0..dims.len()).map(|axis| product(&dims[axis + 1..])).collect()
}

/// Where the elements of a view lie whose operand has these dims and lies like `inner`.
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
            Some(out)
        }
        IndexMap::Reshape(runs) => {
            let strides = reshaped(runs, own, dims, &inner.strides)?;
            Some(Strided { strides, ..inner })
        }
    }
}

/// The strides behind a reshape, where each run of dims comes from axes that are one.
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
