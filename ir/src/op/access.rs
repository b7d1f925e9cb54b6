//! Where the elements of a result come from: what generated loops need to know of an operation.

use super::Op;
use super::infer::{as_int, find_attr};
use super::view::View;
use crate::attr::Attr;
use crate::dim::Dim;
use crate::scalar::Prim;
use crate::scalar::expr::Node;
use crate::shape::{Shape, Type};

/// How loops compute one element of an operation's result.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// By the operation's meaning: a scalar expression, a decomposition, or a callee.
    Meaning,
    /// By a formula of the position alone.
    Constant(Constant),
    /// An element of the operand, at the position that the view's map gives.
    View(View),
    /// An element of one of several operands, which depends on the position.
    Pieces(Pieces),
    /// An element at a position that is data.
    Gather(Gather),
    /// The reduction of all elements over axes.
    Fold(Fold),
    /// A sum of products.
    Contract,
    /// The sum of all updates whose position, which is data, is this one.
    Scatter(Scatter),
    /// A random number, from a key and the position.
    Random(Random),
    /// Not by itself: a library kernel computes the whole result.
    Library(Library),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Constant {
    Literal,
    Iota,
    /// The result's known elements, which are dims.
    Known,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Pieces {
    Concat,
    Pad,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Gather {
    Take,
    TakeAlong,
    SliceUpdate,
    DynamicSlice,
    DynamicUpdate,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scatter {
    /// Whole slices, at indices along one axis.
    Rows,
    /// Single elements, each with an index of its own along one axis.
    Along,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Random {
    Bits,
    Uniform,
    Normal,
    KeySplit,
    KeyFold,
}

/// A library kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Library {
    /// The index of the largest or of the smallest element along an axis.
    ArgExtremum {
        max: bool,
    },
    /// The sum or the product of each element and all elements before it along an axis.
    Cumulative(Fold),
    /// The elements along an axis in order, or their indices.
    Sort {
        indices: bool,
    },
    Attention(Attention),
}

/// What a kernel of attention computes. One kernel computes the first three, another the gradients.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Attention {
    Output,
    /// The logarithm of the sum of the exponentials of each query's scores.
    LogSumExp,
    /// The largest score of each query.
    RowMax,
    Gradient,
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
