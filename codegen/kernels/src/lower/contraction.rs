//! Kernels of a contraction and what is done to its results.

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::Result;
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Operation};
use mithril_passes::outline::strides::{Run, Strided, collapse, strided};

use super::index::{Index, Ix};
use super::layout::ints;
use super::nest::{Nest, held};
use super::{Isa, Lowered, rows};
use crate::builder::Builder;
use crate::code::{Mem, V};
use crate::contract::{Contraction, Position, Side, emit, plain, plan};

/// An operand's axes by what they are for.
struct Parts {
    mem: Mem,
    strided: Strided,
    batch: Vec<usize>,
    rest: Vec<usize>,
    contract: Vec<usize>,
}

pub fn lower(function: &Function, dot: &Operation, isa: &Isa) -> Result<Lowered> {
    let mut nest = Nest::new(function, isa);
    let sides = [0, 1].map(|side| parts(&nest, dot, side));
    let [Some(x), Some(y)] = sides else {
        return rows::lower(function, isa);
    };
    let runs_of = |nest: &Nest, side: usize, parts: &Parts, axes: &[usize]| {
        let dims = nest.dims(dot.operands[side]);
        collapse(axes.iter().map(|&a| (dims[a].clone(), parts.strided.strides[a].clone())))
    };
    let (xk, yk) = (runs_of(&nest, 0, &x, &x.contract), runs_of(&nest, 1, &y, &y.contract));
    let ([xk], [yk]) = (&xk[..], &yk[..]) else {
        return rows::lower(function, isa);
    };
    let mut setup = Setup { batch: Vec::new(), m: None, n: None };
    for (&a, &b) in x.batch.iter().zip(&y.batch) {
        let extent = nest.dims(dot.operands[0])[a].clone();
        let strides = [x.strided.strides[a].clone(), y.strided.strides[b].clone()];
        let run = Run { dims: vec![extent.clone()], extent, stride: Dim::Const(0) };
        setup.batch.push((Part::Batch, run, strides));
    }
    setup.rest(runs_of(&nest, 0, &x, &x.rest), Part::Rows);
    setup.rest(runs_of(&nest, 1, &y, &y.rest), Part::Columns);
    let k = xk.extent.clone();
    let strides = [xk.stride.clone(), yk.stride.clone()];
    Ok(setup.emit(&mut nest, dot, [&x, &y], k, strides, isa))
}

/// What a loop of the contraction stands for in the result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Batch,
    Rows,
    Columns,
}

/// The loops of a contraction.
struct Setup {
    batch: Vec<(Part, Run, [Dim; 2])>,
    m: Option<Run>,
    n: Option<Run>,
}

impl Setup {
    /// Of the axes that one side has alone the last run is the rows or the columns; the others
    /// repeat the other side.
    fn rest(&mut self, mut all: Vec<Run>, part: Part) {
        let last = all.pop();
        for run in all {
            let strides = match part {
                Part::Rows => [run.stride.clone(), Dim::Const(0)],
                _ => [Dim::Const(0), run.stride.clone()],
            };
            self.batch.push((part, run, strides));
        }
        match part {
            Part::Rows => self.m = last,
            _ => self.n = last,
        }
    }

    fn emit(
        &self,
        nest: &mut Nest,
        dot: &Operation,
        sides: [&Parts; 2],
        k: Dim,
        k_strides: [Dim; 2],
        isa: &Isa,
    ) -> Lowered {
        let dtype = nest.dtype(dot.operands[0]);
        let acc = match dot.attr("acc") {
            Attr::DType(acc) => held(*acc),
            _ => held(dtype),
        };
        let one = Dim::Const(1);
        let extent = |run: &Option<Run>| run.as_ref().map_or(one.clone(), |r| r.extent.clone());
        let (m, n) = (extent(&self.m), extent(&self.n));
        let side = |nest: &mut Nest, at: usize, outer: &Option<Run>| {
            let stride = outer.as_ref().map_or(Dim::Const(0), |run| run.stride.clone());
            Side {
                mem: sides[at].mem,
                offset: nest.dim(&sides[at].strided.offset),
                batch: self.batch.iter().map(|(_, _, strides)| nest.dim(&strides[at])).collect(),
                outer: nest.dim(&stride),
                k: nest.dim(&k_strides[at]),
            }
        };
        let contraction = Contraction {
            dtype,
            acc,
            batch: self.batch.iter().map(|(_, run, _)| nest.dim(&run.extent)).collect(),
            m: nest.dim(&m),
            n: nest.dim(&n),
            k: nest.dim(&k),
            x: side(nest, 0, &self.m),
            y: side(nest, 1, &self.n),
            packed: false,
        };
        let shape = contraction.shape(&nest.b);
        let mut b = std::mem::replace(&mut nest.b, Builder::new(0, 0));
        let mut epilogue = |b: &mut Builder, at: &Position, value: V, mask: Option<V>| {
            std::mem::swap(b, &mut nest.b);
            nest.enter();
            self.results(nest, dot, at.batch, [at.row, at.col], value, mask);
            nest.leave();
            std::mem::swap(b, &mut nest.b);
        };
        if isa.is_portable() {
            let scratch = plain::emit(&mut b, &contraction, &k, &mut epilogue);
            return Lowered { code: b.finish(), tasks: one, grain: 1, scratch };
        }
        let plan = plan(&shape, isa);
        emit(&mut b, &contraction, &plan, &mut epilogue);
        let batch: Vec<Dim> = self.batch.iter().map(|(_, run, _)| run.extent.clone()).collect();
        let tasks = plan.tasks(&batch, &m, &n);
        let scratch = Dim::from(plan.scratch_bytes() as i64);
        Lowered { code: b.finish(), tasks, grain: 1, scratch }
    }

    /// Writes what the kernel makes of a vector of the contraction's results.
    fn results(
        &self,
        nest: &mut Nest,
        dot: &Operation,
        batch: &[V],
        [row, col]: [V; 2],
        value: V,
        mask: Option<V>,
    ) {
        nest.lanes = nest.b.ty(value).lanes;
        nest.mask = if nest.lanes == 1 { None } else { mask };
        nest.aligned = false;
        let col = if nest.lanes == 1 { Ix::At(col) } else { Ix::Lanes(col) };
        let index = self.index(nest, batch, Ix::At(row), col);
        let value = nest.b.convert(value, held(nest.dtype(dot.result())));
        nest.learn(dot.result(), index.clone(), value);
        let f = nest.f;
        for (at, result) in f.results.iter().enumerate() {
            let v = nest.pull(result.value, &index);
            nest.write(nest.results[at], nest.dims(result.value), &index, v);
        }
    }

    /// The position in the result: batch, what `x` has alone, what `y` has alone.
    fn index(&self, nest: &mut Nest, batch: &[V], row: Ix, col: Ix) -> Index {
        let mut index = Index::new();
        let mut add = |nest: &mut Nest, run: &Run, ix: Ix| {
            let place = match &run.dims[..] {
                [_] => [ix].into_iter().collect(),
                dims => nest.unflat(dims, ix),
            };
            for (dim, ix) in run.dims.iter().zip(place) {
                let ix = if dim.as_const() == Some(1) { nest.zero() } else { ix };
                index.push(ix);
            }
        };
        for part in [Part::Batch, Part::Rows, Part::Columns] {
            for ((own, run, _), &at) in self.batch.iter().zip(batch) {
                if *own == part {
                    add(nest, run, Ix::At(at));
                }
            }
            match (part, &self.m, &self.n) {
                (Part::Rows, Some(run), _) => add(nest, run, row),
                (Part::Columns, _, Some(run)) => add(nest, run, col),
                _ => {}
            }
        }
        index
    }
}

/// The axes of an operand, where its elements lie in steps.
fn parts(nest: &Nest, dot: &Operation, side: usize) -> Option<Parts> {
    let value = dot.operands[side];
    let strided = strided(nest.f, &nest.definitions, value)?;
    let mem = nest.arg(strided.root)?;
    let rank = nest.dims(value).len();
    let front = |name: &str| -> Vec<usize> {
        ints(dot, name).iter().map(|a| a.rem_euclid(rank as i64) as usize).collect()
    };
    let [batch, contract] = match side {
        0 => [front("x_batch"), front("x_contract")],
        _ => [front("y_batch"), front("y_contract")],
    };
    let rest = (0..rank).filter(|a| !batch.contains(a) && !contract.contains(a)).collect();
    Some(Parts { mem, strided, batch, rest, contract })
}
