//! Contractions: `result[batch, i, j] = Σₖ x[batch, i, k] · y[batch, k, j]`, as loops over tiles
//! that fit the registers.
//!
//! [`plan`](plan::plan) chooses the sizes from the shape alone, and [`emit`] writes the loops. The
//! caller supplies an [`Epilogue`], which receives vectors of finished results and stores them.

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
pub use plan::{Layout, Plan, Scheme, Shape, plan};

/// An operand. Its outer index is the row of `x` or the column of `y`. The address of an element is
/// `offset + Σ batchᵢ·strideᵢ + outer·stride + k·stride`. A stride of 0 repeats elements. If
/// `gather` is set, it maps the outer index and `k` to addresses, and the strides are not used.
#[derive(Clone, Debug)]
pub struct Side {
    pub mem: Mem,
    pub offset: V,
    pub batch: Vec<V>,
    pub outer: V,
    pub k: V,
    pub gather: Option<gather::Gather>,
}

/// The sizes and operands of a contraction. Extents and strides are index values. The code is
/// specialised for those that are constants.
#[derive(Clone, Debug)]
pub struct Contraction {
    /// The dtype of the operands.
    pub dtype: DType,
    /// The dtype of the results. Floats are accumulated in f64 if `dtype` or `acc` is f64,
    /// otherwise in f32. Integers wrap.
    pub acc: DType,
    pub batch: Vec<V>,
    pub m: V,
    pub n: V,
    pub k: V,
    pub x: Side,
    pub y: Side,
    /// Whether `y` has been packed by [`pack`]. Then its outer and `k` strides are not used.
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
    /// The properties of the contraction that are known when code is generated.
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

    /// The contraction that computes the transposed results `yᵀ·xᵀ`.
    fn swapped(&self) -> Contraction {
        Contraction { m: self.n, n: self.m, x: self.y.clone(), y: self.x.clone(), ..self.clone() }
    }
}

/// The position of a vector of finished results: that of its first lane. The other lanes are in the
/// following columns.
pub struct Position<'a> {
    pub batch: &'a [V],
    pub row: V,
    pub col: V,
}

/// Receives finished results: a vector (or a scalar) of the dtype `acc`, and a mask of the lanes
/// that hold results. Without a mask, all lanes hold results. All lanes of a mask may be false.
pub type Epilogue<'a> = &'a mut dyn FnMut(&mut Builder, &Position, V, Option<V>);

/// Emits the loops of the tasks `first..last`.
pub fn emit(b: &mut Builder, c: &Contraction, plan: &Plan, epilogue: Epilogue) {
    debug_assert!(
        !c.packed || plan.panel_dtype == c.dtype,
        "a packed operand has the dtype of panels"
    );
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
        Scheme::Sweep { rows } => sweep::emit(b, c, plan, rows, epilogue),
        Scheme::Dots => dots::emit(b, c, plan, epilogue),
    }
}

/// Converts a loaded value to the dtype of the multiplication.
fn operand(b: &mut Builder, loaded: V, work: DType) -> V {
    let value = from_memory(b, loaded, b.ty(loaded).dtype);
    b.convert(value, work)
}
