//! Where the elements of a result come from: what generated loops need to know of an operation.

use super::Op;
use super::infer::{as_int, find_attr};
use crate::attr::Attr;
use crate::dim::Dim;
use crate::scalar::Prim;
use crate::scalar::expr::Node;
use crate::shape::{Shape, Type};

/// How loops get one element of the result. Elementwise operations have their expression,
/// composites their decomposition, calls their callee: [`Access::Meaning`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    Meaning,
    /// Literals.
    Literal,
    Iota,
    /// The result's known elements, which are dims.
    Known,
    /// The operand's, unchanged.
    Same,
    Broadcast,
    Reshape,
    Transpose,
    Slice,
    Reverse,
    Concat,
    Pad,
    Take,
    TakeAlong,
    SliceUpdate,
    DynamicSlice,
    DynamicUpdate,
    /// One value of all elements over axes.
    Fold(Fold),
    /// The index of the greatest or the least element along an axis.
    Find {
        greatest: bool,
    },
    /// The sum or the product of each element and all before it along an axis.
    Running(Fold),
    /// Elements in order, or their places.
    Sort {
        places: bool,
    },
    ScatterAdd,
    ScatterAddAlong,
    Contract,
    /// A kernel of its own, where the shapes allow it; else the decomposition.
    Attention,
    /// What it sums up for each query, and its gradients: results of the kernel of attention or of
    /// one for all gradients.
    AttentionLogSumExp,
    AttentionGreatest,
    AttentionGradient,
    RandomBits,
    Uniform,
    Normal,
    KeySplit,
    KeyFold,
}

/// What the indices of an operation are places in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Indexes {
    /// The number of the operand that holds them.
    pub operand: usize,
    pub extent: Extent,
    /// Whether a negative one counts from the end.
    pub from_end: bool,
}

/// How many places there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// The dim of the first operand along the axis that this attribute names.
    Along(&'static str),
    /// The last dim of the first operand.
    Last,
    /// The attribute itself.
    Count(&'static str),
}

impl Extent {
    /// The dim, by the attributes and the first operand of an operation; none where its rank must be
    /// known first.
    pub fn dim(self, op: Op, attrs: &[Attr], first: &Type) -> Option<Dim> {
        let number = |name: &str| as_int(find_attr(op, attrs, name));
        let dims = &first.shape.dims;
        let back = match self {
            Extent::Along(axis) => first.shape.axis_from_back(number(axis)).ok()?,
            Extent::Last => 1,
            Extent::Count(attr) => return Some(Dim::Const(number(attr))),
        };
        dims.len().checked_sub(back).map(|at| dims[at].clone())
    }
}

/// Which elements of its operands an elementwise operation passes on as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passes {
    /// Those of its only operand, perhaps in another dtype.
    All,
    /// Those of the second operand where the first holds, and of the third elsewhere.
    Chosen,
    /// None; the result says where its two operands are equal, or where they are not.
    Equal(bool),
    None,
}

/// What an elementwise operation passes on: that follows from its scalar expression.
pub fn passes(op: Op) -> Passes {
    let nodes = super::expr(op).map_or(&[][..], |expr| expr.nodes());
    match nodes.last() {
        Some(Node::Prim(Prim::Cast, _)) if op.operands.len() == 1 && nodes.len() == 2 => {
            Passes::All
        }
        Some(Node::Prim(Prim::Select, _)) if super::of_prim(Prim::Select) == op => Passes::Chosen,
        Some(Node::Prim(Prim::Eq, _)) if super::of_prim(Prim::Eq) == op => Passes::Equal(true),
        Some(Node::Prim(Prim::Ne, _)) if super::of_prim(Prim::Ne) == op => Passes::Equal(false),
        Some(Node::Prim(..) | Node::Var(_) | Node::Attr(_) | Node::Const(_)) | None => Passes::None,
    }
}

/// What folding makes of elements.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fold {
    Sum,
    Product,
    Max,
    Min,
    Any,
    All,
}

/// Which axes of its operand a fold takes away, and where the others are in the result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoldAxes {
    /// By axis of the operand.
    pub folded: Vec<bool>,
    /// The axis of the result for each axis of the operand that stays.
    pub places: Vec<Option<usize>>,
}

/// The axes of a fold or a find, by its attributes and the types of its operand and result; ranks
/// are known.
pub fn fold_axes(op: Op, attrs: &[Attr], operand: &Type, result: &Type) -> FoldAxes {
    let rank = operand.shape.dims.len();
    let attr = |name: &str| op.attr_index(name).map(|i| &attrs[i]);
    let front = |axis: i64| axis.rem_euclid(rank.max(1) as i64) as usize;
    let mut folded = vec![true; rank];
    match (attr("axes"), attr("axis"), attr("shape")) {
        (Some(Attr::Ints(axes)), ..) => {
            folded.fill(false);
            axes.iter().for_each(|&axis| folded[front(axis)] = true);
        }
        (_, Some(Attr::Int(axis)), _) => {
            folded.fill(false);
            folded[front(*axis)] = true;
        }
        (_, _, Some(Attr::Shape(_))) => folded = repeated(&operand.shape, &result.shape),
        _ => {}
    }
    let lost = rank - result.shape.dims.len();
    let kept = result.shape.dims.len() == rank;
    let summed_to = attr("shape").is_some();
    let mut next = 0;
    let places = (0..rank).map(|axis| {
        let place = match (folded[axis], kept, summed_to) {
            (true, ..) => return None,
            (_, true, _) => axis,
            (_, _, true) => axis - lost,
            _ => next,
        };
        next += 1;
        Some(place)
    });
    let places = places.collect();
    FoldAxes { folded, places }
}

/// Which axes of `wide` broadcasting `narrow` to it repeats.
fn repeated(wide: &Shape, narrow: &Shape) -> Vec<bool> {
    let lead = wide.dims.len() - narrow.dims.len();
    let stays = |axis: usize| axis >= lead && narrow.dims[axis - lead] == wide.dims[axis];
    (0..wide.dims.len()).map(|axis| !stays(axis)).collect()
}

/// Start and limit of a slice within `0..=dim`: negative numbers count from the end, `?` is the
/// end; symbolic ones count from the front.
pub fn slice_bounds(start: &Dim, limit: &Dim, dim: &Dim) -> (Dim, Dim) {
    let place = |bound: &Dim| match bound.as_const() {
        Some(b) if b < 0 => dim - &(-bound).min(dim),
        _ => bound.max(&Dim::Const(0)).min(dim),
    };
    (place(start), if limit.is_unknown() { dim.clone() } else { place(limit) })
}
