//! Lowers kernels that consist of a contraction and operations on its results.

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::Result;
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Operation};
use mithril_passes::outline::schedule::Read;
use mithril_passes::outline::strides::{self, Run, Strided, collapse, padded, strided};

use super::index::{Index, Ix};
use super::layout::ints;
use super::lowered::Lowered;
use super::nest::{Nest, register_dtype};
use super::packing::Packing;
use crate::builder::Builder;
use crate::code::{Mem, V};
use crate::contract::gather::{Axis, Gather, Padding};
use crate::contract::{Contraction, Position, Side, emit, plain, plan};
use crate::isa::Isa;
use crate::loops::Loops;

/// An operand, with its axes grouped by role.
struct Operand {
    mem: Mem,
    read: Read,
    strided: Strided,
    batch: Vec<usize>,
    rest: Vec<usize>,
    contract: Vec<usize>,
}

/// Lowers the kernel of `dot`. If `packing` is given, it describes the layout of `y`.
pub fn lower(
    function: &Function,
    dot: &Operation,
    reads: &[Read; 2],
    isa: &Isa,
    packing: Option<&Packing>,
) -> Result<Lowered> {
    let mut nest = Nest::new(function, isa);
    let setup = Setup::of(&nest, dot, reads).expect("the schedule matches the operands' layouts");
    let lowered = setup.emit(&mut nest, dot, isa, packing);
    nest.fault.take().map_or(Ok(lowered), Err)
}

/// Returns the packing that the kernel of `dot` prefers for a constant `y`, or `None` if it reads
/// `y` unpacked.
pub fn packing(
    function: &Function,
    dot: &Operation,
    reads: &[Read; 2],
    isa: &Isa,
) -> Option<Packing> {
    if isa.source.vectorizes || reads[1] == Read::Gathered {
        return None;
    }
    let mut nest = Nest::new(function, isa);
    let setup = Setup::of(&nest, dot, reads)?;
    let y = &setup.sides[1];
    let arg = y.strided.root.index();
    let contraction = setup.contraction(&mut nest, dot, true);
    let plan = plan(&contraction.shape(&nest.b), isa);
    let known = |dim: &Dim| dim.as_const();
    let run = |run: &Option<Run>| match run {
        Some(run) => Some((known(&run.extent)?, known(&run.stride)?)),
        None => Some((1, 0)),
    };
    let own = setup.batch.iter().filter(|(.., strides)| !is_zero(&strides[1]));
    let batch = own.map(|(_, run, strides)| Some((known(&run.extent)?, known(&strides[1])?)));
    let reads = function.ops.iter().flat_map(|op| &op.operands);
    let read_once = reads.filter(|value| value.index() == arg).count() == 1;
    // `y` is not packed if it is a single column, which is read in place, or if its dtype must be
    // converted, which the kernel does while it copies `y`.
    let (n, dtype) = (run(&setup.n)?, function.ty(y.strided.root).dtype);
    let fits = read_once && n.0 > 1 && plan.panel_dtype == dtype;
    Some(Packing {
        arg,
        dtype,
        offset: known(&y.strided.offset)?,
        batch: batch.collect::<Option<_>>()?,
        n,
        k: (known(&setup.k)?, known(&setup.k_strides[1])?),
        strip: plan.strip(),
        group: plan.group,
        unit: plan.unit,
    })
    .filter(|_| fits)
}

fn is_zero(dim: &Dim) -> bool {
    dim.as_const() == Some(0)
}

/// The group of result axes that a loop of the contraction runs over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LoopKind {
    Batch,
    Rows,
    Columns,
}

/// The loops of a contraction.
struct Setup {
    sides: [Operand; 2],
    batch: Vec<(LoopKind, Run, [Dim; 2])>,
    m: Option<Run>,
    n: Option<Run>,
    k: Dim,
    k_strides: [Dim; 2],
}

impl Setup {
    /// Returns `None` if an operand does not have the layout that `reads` names.
    fn of(nest: &Nest, dot: &Operation, reads: &[Read; 2]) -> Option<Setup> {
        let (x, y) = (operand(nest, dot, 0, reads[0])?, operand(nest, dot, 1, reads[1])?);
        let runs_of = |side: usize, own: &Operand, axes: &[usize]| {
            let dims = nest.dims(dot.operands[side]);
            collapse(axes.iter().map(|&a| (dims[a].clone(), own.strided.strides[a].clone())))
        };
        let stride_along_k = |side: usize, own: &Operand| match own.read {
            Read::Gathered => Some(Dim::Const(0)),
            Read::Strided => match &runs_of(side, own, &own.contract)[..] {
                [run] => Some(run.stride.clone()),
                _ => None,
            },
        };
        let k_strides = [stride_along_k(0, &x)?, stride_along_k(1, &y)?];
        let k = x.contract.iter().map(|&a| nest.dims(dot.operands[0])[a].clone()).product();
        let mut batch = Vec::new();
        for (&a, &b) in x.batch.iter().zip(&y.batch) {
            let extent = nest.dims(dot.operands[0])[a].clone();
            let strides = [x.strided.strides[a].clone(), y.strided.strides[b].clone()];
            let run = Run { dims: vec![extent.clone()], extent, stride: Dim::Const(0) };
            batch.push((LoopKind::Batch, run, strides));
        }
        // The remaining axes of a gathered operand are merged to one index.
        let rest = |side: usize, own: &Operand| match own.read {
            Read::Strided => runs_of(side, own, &own.rest),
            Read::Gathered => {
                let dims = nest.dims(dot.operands[side]);
                let dims: Vec<Dim> = own.rest.iter().map(|&a| dims[a].clone()).collect();
                let extent = dims.iter().cloned().product();
                vec![Run { extent, stride: Dim::Const(0), dims }]
            }
        };
        let (rows, columns) = (rest(0, &x), rest(1, &y));
        let mut setup = Setup { sides: [x, y], batch, m: None, n: None, k, k_strides };
        setup.assign_rest(rows, LoopKind::Rows);
        setup.assign_rest(columns, LoopKind::Columns);
        Some(setup)
    }

    /// Assigns the axes that only one operand has. The last run becomes the rows or columns. The
    /// other runs become batch axes, along which the other operand is repeated (stride 0).
    fn assign_rest(&mut self, mut all: Vec<Run>, kind: LoopKind) {
        let last = all.pop();
        for run in all {
            let strides = match kind {
                LoopKind::Rows => [run.stride.clone(), Dim::Const(0)],
                _ => [Dim::Const(0), run.stride.clone()],
            };
            self.batch.push((kind, run, strides));
        }
        match kind {
            LoopKind::Rows => self.m = last,
            _ => self.n = last,
        }
    }

    fn contraction(&self, nest: &mut Nest, dot: &Operation, packed: bool) -> Contraction {
        let dtype = nest.dtype(dot.operands[0]);
        let acc = match dot.attr("acc") {
            Attr::DType(acc) => register_dtype(*acc),
            _ => register_dtype(dtype),
        };
        let [m, n] = [&self.m, &self.n].map(extent);
        let x = self.side(nest, dot, 0, &self.m);
        let y = self.side(nest, dot, 1, &self.n);
        Contraction {
            dtype,
            acc,
            batch: self.batch.iter().map(|(_, run, _)| nest.dim(&run.extent)).collect(),
            m: nest.dim(&m),
            n: nest.dim(&n),
            k: nest.dim(&self.k),
            x,
            y,
            packed,
        }
    }

    fn side(&self, nest: &mut Nest, dot: &Operation, at: usize, outer: &Option<Run>) -> Side {
        let stride = outer.as_ref().map_or(Dim::Const(0), |run| run.stride.clone());
        Side {
            mem: self.sides[at].mem,
            offset: nest.dim(&self.sides[at].strided.offset),
            batch: self.batch.iter().map(|(_, _, strides)| nest.dim(&strides[at])).collect(),
            outer: nest.dim(&stride),
            k: nest.dim(&self.k_strides[at]),
            gather: self.gather(nest, dot, at),
        }
    }

    /// Returns how an operand is gathered, or `None` if it is strided.
    fn gather(&self, nest: &mut Nest, dot: &Operation, at: usize) -> Option<Gather> {
        let side = &self.sides[at];
        if side.read == Read::Strided {
            return None;
        }
        let dims = nest.dims(dot.operands[at]);
        let mut axes = |axes: &[usize]| -> Vec<Axis> {
            let axis = |&a: &usize| {
                let stride = nest.dim(&side.strided.strides[a]);
                Axis { extent: nest.dim(&dims[a]), stride }
            };
            axes.iter().map(axis).collect()
        };
        let (outer, k) = (axes(&side.rest), axes(&side.contract));
        // Batch indices come first in the order of the outer loops.
        let padding = |own: &strides::Padding| {
            let steps = |axes: &[usize]| -> Vec<i64> {
                let by = |a: &usize| own.place.terms.iter().find(|(to, _)| to == a);
                axes.iter().map(|a| by(a).map_or(0, |(_, by)| *by)).collect()
            };
            Padding {
                offset: nest.dim(&own.place.offset),
                batch: steps(&side.batch),
                outer: steps(&side.rest),
                k: steps(&side.contract),
                spacing: own.spacing,
                extent: nest.dim(&own.extent),
                stride: nest.dim(&own.stride),
            }
        };
        let paddings = side.strided.paddings.iter().map(padding).collect();
        Some(Gather { outer, k, paddings })
    }

    fn emit(
        &self,
        nest: &mut Nest,
        dot: &Operation,
        isa: &Isa,
        packing: Option<&Packing>,
    ) -> Lowered {
        let mut contraction = self.contraction(nest, dot, packing.is_some());
        if let Some(packing) = packing {
            let mut strides = packing.batch_strides().into_iter();
            contraction.y.offset = nest.b.index(0);
            for ((.., own), stride) in self.batch.iter().zip(&mut contraction.y.batch) {
                if !is_zero(&own[1]) {
                    *stride = nest.b.index(strides.next().unwrap_or(0));
                }
            }
        }
        let shape = contraction.shape(&nest.b);
        let mut b = std::mem::replace(&mut nest.b, Builder::new(0, 0));
        let mut epilogue = |b: &mut Builder, at: &Position, value: V, mask: Option<V>| {
            std::mem::swap(b, &mut nest.b);
            nest.enter();
            self.results(nest, dot, at.batch, [at.row, at.col], value, mask);
            nest.leave();
            std::mem::swap(b, &mut nest.b);
        };
        if isa.source.vectorizes {
            let scratch = plain::emit(&mut b, &contraction, &self.k, &mut epilogue);
            let tasks = Dim::Const(1);
            return Lowered { code: b.finish(), tasks, grain: 1, scratch, partials: vec![] };
        }
        let plan = plan(&shape, isa);
        emit(&mut b, &contraction, &plan, &mut epilogue);
        let batch: Vec<Dim> = self.batch.iter().map(|(_, run, _)| run.extent.clone()).collect();
        let tasks = plan.tasks(&batch, &extent(&self.m), &extent(&self.n));
        let scratch = Dim::from(plan.scratch_bytes() as i64);
        Lowered { code: b.finish(), tasks, grain: 1, scratch, partials: vec![] }
    }

    /// Takes a vector of the contraction's results, and computes and stores the kernel's results
    /// for it.
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
        nest.multiples.clear();
        let col = if nest.lanes == 1 { Ix::Uniform(col) } else { Ix::Ascending(col) };
        let index = self.index(nest, batch, Ix::Uniform(row), col);
        let value = nest.b.convert(value, register_dtype(nest.dtype(dot.result())));
        nest.memoize(dot.result(), index.clone(), value);
        let f = nest.f;
        for (at, result) in f.results.iter().enumerate() {
            let v = nest.pull(result.value, &index);
            nest.write(nest.results[at], nest.dims(result.value), &index, v);
        }
    }

    /// Returns the index in the result: batch axes first, then the axes of `x` alone, then the axes
    /// of `y` alone.
    fn index(&self, nest: &mut Nest, batch: &[V], row: Ix, col: Ix) -> Index {
        let mut index = Index::new();
        let mut add = |nest: &mut Nest, run: &Run, ix: Ix| {
            let place = match &run.dims[..] {
                [_] => [ix].into_iter().collect(),
                dims => nest.unravel(dims, ix),
            };
            for (dim, ix) in run.dims.iter().zip(place) {
                let ix = if dim.as_const() == Some(1) { nest.zero() } else { ix };
                index.push(ix);
            }
        };
        for kind in [LoopKind::Batch, LoopKind::Rows, LoopKind::Columns] {
            for ((own, run, _), &at) in self.batch.iter().zip(batch) {
                if *own == kind {
                    add(nest, run, Ix::Uniform(at));
                }
            }
            match (kind, &self.m, &self.n) {
                (LoopKind::Rows, Some(run), _) => add(nest, run, row),
                (LoopKind::Columns, _, Some(run)) => add(nest, run, col),
                _ => {}
            }
        }
        index
    }
}

fn extent(run: &Option<Run>) -> Dim {
    run.as_ref().map_or(Dim::Const(1), |run| run.extent.clone())
}

/// Groups the axes of an operand by role. Returns `None` if the operand does not have the layout
/// that `read` names.
fn operand(nest: &Nest, dot: &Operation, side: usize, read: Read) -> Option<Operand> {
    let value = dot.operands[side];
    let strided = match read {
        Read::Strided => strided(nest.f, &nest.definitions, value)?,
        Read::Gathered => padded(nest.f, &nest.definitions, value)?,
    };
    let mem = nest.arg(strided.root)?;
    let rank = nest.dims(value).len();
    let axes_of = |name: &str| -> Vec<usize> {
        ints(dot, name).iter().map(|a| a.rem_euclid(rank as i64) as usize).collect()
    };
    let [batch, contract] = match side {
        0 => [axes_of("x_batch"), axes_of("x_contract")],
        _ => [axes_of("y_batch"), axes_of("y_contract")],
    };
    let rest = (0..rank).filter(|a| !batch.contains(a) && !contract.contains(a)).collect();
    Some(Operand { mem, read, strided, batch, rest, contract })
}
