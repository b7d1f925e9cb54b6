//! Contractions: `result[batch, i, j] = Σₖ x[batch, i, k] · y[batch, k, j]`, as loops over tiles
//! that fit the registers.
//!
//! [`plan`](plan::plan) chooses the sizes by the shape alone, [`emit`] gives the loops. What
//! becomes of a result is the caller's: an [`Epilogue`] is given vectors of finished results.

mod amx;
mod direct;
mod dots;
pub mod gather;
pub(crate) mod lanes;
mod pack;
mod panels;
pub mod plain;
pub mod plan;
mod sweep;
mod task;
mod tile;

use mithril_ir::dtype::DType;

use crate::builder::Builder;
use crate::code::{Mem, V};
use crate::scalar::from_memory;
pub use pack::pack;
pub use plan::{Isa, Layout, Plan, Scheme, Shape, plan};

/// An operand: the element of a batch, an outer index (the row of `x`, the column of `y`) and `k`
/// is number `offset + Σ batchᵢ·strideᵢ + outer·stride + k·stride` of its memory. Strides of zero
/// repeat elements. Where it is gathered, the outer index and `k` count as that says, not by strides.
#[derive(Clone, Debug)]
pub struct Side {
    pub mem: Mem,
    pub offset: V,
    pub batch: Vec<V>,
    pub outer: V,
    pub k: V,
    pub gather: Option<gather::Gather>,
}

/// What is contracted. Extents and strides are indices; where they are constants of the builder,
/// the code is for them alone.
#[derive(Clone, Debug)]
pub struct Contraction {
    /// Of the operands.
    pub dtype: DType,
    /// Of the results. Floats are summed up in f32, in f64 where one of the two dtypes is; integers
    /// wrap.
    pub acc: DType,
    pub batch: Vec<V>,
    pub m: V,
    pub n: V,
    pub k: V,
    pub x: Side,
    pub y: Side,
    /// Whether `y` is what [`pack`] makes of it. Then its strides are not read, but for those of
    /// the batch.
    pub packed: bool,
}

impl Side {
    fn layout(&self, b: &Builder) -> Layout {
        match (b.constant(self.outer), b.constant(self.k)) {
            _ if self.gather.is_some() => Layout::Gathered,
            (_, Some(1)) => Layout::AlongK,
            (Some(1), _) => Layout::AlongOuter,
            _ => Layout::Strided,
        }
    }
}

impl Contraction {
    /// What is known of it when code is generated.
    pub fn shape(&self, b: &Builder) -> Shape {
        Shape {
            dtype: self.dtype,
            acc: self.acc,
            m: b.constant(self.m),
            n: b.constant(self.n),
            k: b.constant(self.k),
            x: self.x.layout(b),
            x_stride: b.constant(self.x.outer),
            y: if self.packed { Layout::Packed } else { self.y.layout(b) },
        }
    }

    /// The results as those of `yᵀ·xᵀ`.
    fn swapped(&self) -> Contraction {
        Contraction { m: self.n, n: self.m, x: self.y.clone(), y: self.x.clone(), ..self.clone() }
    }
}

/// Where finished results are: the first of them, and the others in the columns behind it.
pub struct Position<'a> {
    pub batch: &'a [V],
    pub row: V,
    pub col: V,
}

/// Takes finished results: a vector of the dtype `acc` (or a scalar) and which lanes of it are
/// results, all without a mask. A mask may have no lane at all.
pub type Epilogue<'a> = &'a mut dyn FnMut(&mut Builder, &Position, V, Option<V>);

/// The loops of the tasks `first..last`.
pub fn emit(b: &mut Builder, c: &Contraction, plan: &Plan, epilogue: Epilogue) {
    debug_assert!(!c.packed || plan.held == c.dtype, "panels hold what was packed");
    if plan.swapped {
        let c = c.swapped();
        let mut lane_by_lane = |b: &mut Builder, at: &Position, value: V, mask: Option<V>| {
            let scratch = plan.lane_scratch(b, c.acc);
            lanes::each(b, scratch, value, mask, |b, lane, value| {
                let row = b.add(at.col, lane);
                epilogue(b, &Position { batch: at.batch, row, col: at.row }, value, None);
            });
        };
        return nest(b, &c, plan, &mut lane_by_lane);
    }
    nest(b, c, plan, epilogue);
}

fn nest(b: &mut Builder, c: &Contraction, plan: &Plan, epilogue: Epilogue) {
    match plan.scheme {
        Scheme::Direct => direct::emit(b, c, plan, epilogue),
        Scheme::Panels => panels::emit(b, c, plan, epilogue),
        Scheme::Sweep => sweep::emit(b, c, plan, epilogue),
        Scheme::Dots => dots::emit(b, c, plan, epilogue),
    }
}

/// What was loaded, in the dtype that is multiplied.
fn operand(b: &mut Builder, loaded: V, work: DType) -> V {
    let held = from_memory(b, loaded, b.ty(loaded).dtype);
    b.convert(held, work)
}
