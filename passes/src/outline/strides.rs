//! Where the elements of a value lie that is a view of another: at steps from an offset on.

use std::ops::Range;

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Operation, Value};
use mithril_ir::op::access::Access;

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
    let moves = |op: &&Operation| {
        matches!(
            op.op.access,
            Access::Same
                | Access::Transpose
                | Access::Broadcast
                | Access::Reshape
                | Access::Slice
                | Access::Reverse
        )
    };
    let Some(op) = op.filter(moves) else {
        return Some(Strided { root: value, offset: Dim::Const(0), strides: dense(dims) });
    };
    let inner = strided(f, definitions, op.operands[0])?;
    view(op, &f.ty(op.operands[0]).shape.dims, dims, inner)
}

/// From one element to the next, by axis, in row-major memory.
pub fn dense(dims: &[Dim]) -> Vec<Dim> {
    (0..dims.len()).map(|axis| product(&dims[axis + 1..])).collect()
}

fn view(op: &Operation, own: &[Dim], dims: &[Dim], mut inner: Strided) -> Option<Strided> {
    match op.op.access {
        Access::Transpose => {
            let rank = own.len() as i64;
            let from = ints(op, "permutation").iter().map(|p| p.rem_euclid(rank) as usize);
            inner.strides = from.map(|axis| inner.strides[axis].clone()).collect();
        }
        Access::Broadcast => {
            let mut strides = vec![Dim::Const(0); dims.len()];
            let places: Vec<usize> = match op.attr("axes") {
                Attr::Ints(_) => axes(op, dims.len()),
                _ => (dims.len() - own.len()..dims.len()).collect(),
            };
            for (axis, place) in places.into_iter().enumerate() {
                if own[axis].as_const() != Some(1) {
                    strides[place] = inner.strides[axis].clone();
                }
            }
            inner.strides = strides;
        }
        Access::Reshape => inner.strides = reshaped(own, dims, &inner.strides)?,
        Access::Slice => {
            let Attr::Shape(starts) = op.attr("starts") else {
                return None;
            };
            let steps = ints(op, "steps");
            for (i, axis) in axes(op, own.len()).into_iter().enumerate() {
                let start = match &starts.dims[i] {
                    Dim::Unknown => own[axis].clone(),
                    Dim::Const(c) if *c < 0 => &Dim::Const(*c) + &own[axis],
                    dim => dim.clone(),
                };
                let start = start.max(&Dim::Const(0)).min(&own[axis]);
                inner.offset = &inner.offset + &(&start * &inner.strides[axis]);
                let step = Dim::Const(steps.get(i).copied().unwrap_or(1));
                inner.strides[axis] = &inner.strides[axis] * &step;
            }
        }
        Access::Reverse => {
            for axis in axes(op, own.len()) {
                let last = &own[axis] - &Dim::Const(1);
                inner.offset = &inner.offset + &(&last * &inner.strides[axis]);
                inner.strides[axis] = &inner.strides[axis] * &Dim::Const(-1);
            }
        }
        _ => {}
    }
    Some(inner)
}

/// The strides behind a reshape, where each run of dims comes from axes that are one.
fn reshaped(own: &[Dim], dims: &[Dim], strides: &[Dim]) -> Option<Vec<Dim>> {
    let mut out = Vec::with_capacity(dims.len());
    for (to, from) in runs(dims, own) {
        let joined = collapse(from.map(|axis| (own[axis].clone(), strides[axis].clone())));
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

fn ints<'a>(op: &'a Operation, name: &str) -> &'a [i64] {
    match op.attr(name) {
        Attr::Ints(values) => values,
        _ => &[],
    }
}

/// The attribute `axes`, counted from the front; all where it was left out.
fn axes(op: &Operation, rank: usize) -> Vec<usize> {
    match op.attr("axes") {
        Attr::Ints(axes) => axes.iter().map(|a| a.rem_euclid(rank as i64) as usize).collect(),
        _ => (0..rank).collect(),
    }
}

/// The shortest runs of dims of both shapes that have equal products, in order.
pub fn runs(a: &[Dim], b: &[Dim]) -> Vec<(Range<usize>, Range<usize>)> {
    let mut out = Vec::new();
    let (mut i, mut j) = (0, 0);
    while i < a.len() || j < b.len() {
        let (start_a, start_b) = (i, j);
        let (mut x, mut y) = (Dim::Const(1), Dim::Const(1));
        loop {
            // The side that lags takes a dim; where it cannot be told, the rest is one run.
            match (x == y && (i > start_a || j > start_b), i < a.len(), j < b.len()) {
                (true, ..) => break,
                (_, false, false) => break,
                (_, true, false) => {
                    x = &x * &a[i];
                    i += 1;
                }
                (_, false, true) => {
                    y = &y * &b[j];
                    j += 1;
                }
                (_, true, true) if lags(&x, &y) => {
                    x = &x * &a[i];
                    i += 1;
                }
                _ => {
                    y = &y * &b[j];
                    j += 1;
                }
            }
        }
        out.push((start_a..i, start_b..j));
    }
    out
}

/// Whether `x` is to grow before `y`: it divides it, or they are equal.
fn lags(x: &Dim, y: &Dim) -> bool {
    match (x.as_const(), y.as_const()) {
        (Some(x), Some(y)) => x <= y,
        _ => y.exact_div(x).is_some(),
    }
}
