//! How the elements of a result are computed: the facts about an operation that loop generation
//! needs.

use super::Op;
use super::infer::find_attr;
use super::view::ViewMap;
use crate::attr::Attr;
use crate::dim::Dim;
use crate::scalar::Prim;
use crate::scalar::expr::Node;
use crate::shape::{Shape, Type};

/// How loops compute one element of an operation's result.
#[derive(Clone, Copy, Debug)]
pub enum Access {
    /// By the operation's meaning: a scalar expression, a decomposition, or a callee.
    Meaning,
    /// By a formula of the index, without operands.
    Constant(Constant),
    /// An element of the operand, at the index that the map gives.
    View(ViewMap),
    /// An element of one of several operands; the index decides which one.
    Pieces(Pieces),
    /// An element at an index that is data.
    Gather(Gather),
    /// A reduction over axes.
    Fold(Fold),
    /// A sum of products.
    Contract,
    /// The sum of all updates whose index, which is data, is this one.
    Scatter(Scatter),
    /// A random number, computed from a key and the index.
    Random(Random),
    /// Not computed element by element: a library kernel computes the whole result.
    Library(Library),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Constant {
    Literal,
    Iota,
    /// The result's elements are dims, which are known.
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
    /// Adds whole slices, at indices along one axis.
    Rows,
    /// Combines single elements, each with its own index along one axis: by addition,
    /// multiplication, maximum or minimum.
    Along(Fold),
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
    /// The index of the largest or smallest element along an axis.
    ArgExtremum {
        max: bool,
    },
    /// The cumulative sum or product along an axis.
    Cumulative(Fold),
    /// The elements along an axis in sorted order, or their indices.
    Sort {
        indices: bool,
    },
    Attention(Attention),
    /// A discrete Fourier transform along an axis.
    Fourier(Fourier),
    Matrix(Matrix),
    /// The products of rows with the matrices of their groups, or the sums over each group of outer
    /// products.
    Grouped {
        outer: bool,
    },
}

/// The kinds of Fourier transforms.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fourier {
    Forward,
    Inverse,
    /// From real numbers to the first half of their spectrum.
    Real,
    /// From the first half of a spectrum to real numbers.
    InverseReal,
}

/// What a kernel of linear algebra computes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Matrix {
    Cholesky,
    TriangularSolve,
    Solve,
    Determinant,
    /// The sign of the determinant, or the logarithm of its magnitude.
    LogDeterminant,
    Qr,
    /// Eigenvalues and eigenvectors of symmetric matrices.
    Eigen,
    /// Singular values and vectors.
    Singular,
}

/// The outputs of attention kernels. One kernel computes the first three, another the gradients.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Attention {
    Output,
    /// The log-sum-exp of each query's scores.
    LogSumExp,
    /// The row maximum: the largest score of each query.
    RowMax,
    Gradient,
}

/// Describes the axis into which an operation's indices point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Indexes {
    /// The position of the operand that holds the indices.
    pub operand: usize,
    pub extent: Extent,
    /// Whether a negative index counts from the end.
    pub from_end: bool,
}

/// The size of the indexed axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// The dim of the first operand along the axis that the named attribute gives.
    Along(&'static str),
    /// The last dim of the first operand.
    Last,
    /// The value of the named attribute.
    Count(&'static str),
    /// One more than the only dim of the shape that is the named attribute: the elements are
    /// lengths.
    UpTo(&'static str),
}

impl Extent {
    /// The dim, computed from an operation's attributes and its first operand; `None` where the
    /// operand's rank must be known first.
    pub fn dim(self, op: Op, attrs: &[Attr], first: &Type) -> Option<Dim> {
        let number = |name: &str| find_attr(op, attrs, name).as_int();
        let dims = &first.shape.dims;
        let back = match self {
            Extent::Along(axis) => first.shape.axis_from_back(number(axis)).ok()?,
            Extent::Last => 1,
            Extent::Count(attr) => return Some(Dim::Const(number(attr))),
            Extent::UpTo(attr) => {
                let shape = find_attr(op, attrs, attr).as_shape();
                return Some(shape.dims.first()? + &Dim::Const(1));
            }
        };
        dims.len().checked_sub(back).map(|at| dims[at].clone())
    }
}

/// Which elements of its operands an elementwise operation copies unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passes {
    /// The elements of its only operand, perhaps cast to another dtype.
    All,
    /// Those of the second operand where the first is true, of the third elsewhere.
    Chosen,
    /// None; the result is whether its two operands are equal, or whether they differ.
    Equal(bool),
    None,
}

/// Which elements an elementwise operation copies, derived from its scalar expression.
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

/// The operator of a reduction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fold {
    Sum,
    Product,
    Max,
    Min,
    Any,
    All,
}

/// The axes of the operand that a reduction removes, and the positions of the others in the result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoldAxes {
    /// Whether each axis of the operand is reduced.
    pub folded: Vec<bool>,
    /// For each axis of the operand, its axis in the result; `None` if it is reduced.
    pub places: Vec<Option<usize>>,
}

/// The axes of a reduction, an arg-extremum included, computed from its attributes and the types of
/// its operand and result. The ranks must be known.
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

/// Which axes of `wide` are repeated when `narrow` is broadcast to it.
fn repeated(wide: &Shape, narrow: &Shape) -> Vec<bool> {
    let lead = wide.dims.len() - narrow.dims.len();
    let stays = |axis: usize| axis >= lead && narrow.dims[axis - lead] == wide.dims[axis];
    (0..wide.dims.len()).map(|axis| !stays(axis)).collect()
}
