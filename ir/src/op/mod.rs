//! The op table: one declaration per operation, with a field for every fact.
//!
//! Outside the table, code matches on an op's [`Kind`], never on single ops. Facts that follow from
//! other fields (broadcast gradients, costs, stubs, reference pages) are derived, not declared.

use std::hash::{Hash, Hasher};
use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use crate::algebra::{Rule, Var};
use crate::attr::{Attr, AttrKind};
use crate::diagnostic::Result;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::eval::Array;
use crate::evaluate::{Calls, Inputs};
use crate::scalar::Prim;
use crate::scalar::expr::Expr;
use crate::shape::{Shape, Type};
use crate::signature::CallTypes;

pub mod access;
mod arrange;
mod attention;
pub mod batch;
mod channels;
mod contraction;
mod control;
mod convolution;
mod elementwise;
pub mod fourier;
mod function;
mod grouped;
mod index;
pub mod infer;
mod layers;
mod layout;
mod linear_algebra;
mod math;
mod nn;
mod order;
mod orthogonal;
mod partials;
mod pool;
mod pullback;
mod random;
mod reduce;
pub mod reference;
mod special;

pub mod view;
mod window;

pub use control::scan_attrs;
pub use function::mesh_axes;
pub use infer::Infer;
pub use partials::partials;

/// The kind of an operation, which is all that code outside the table may match on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// One scalar expression, broadcast over its operands.
    Elementwise,
    /// Reduces axes, or scans along one.
    Reduce,
    /// Sums of products over contracted axes.
    Contraction,
    /// Moves or repeats elements; only shapes decide how.
    Layout,
    /// Reads or writes at indices that are data.
    Index,
    /// Orders elements along an axis.
    Order,
    /// Factorises matrices, or solves systems of equations.
    Matrix,
    /// Draws from an explicit key.
    Random,
    /// A literal tensor or a ramp.
    Constant,
    /// Reads a dim as a number.
    Dim,
    /// The identity, as a barrier to optimization or to differentiation.
    Barrier,
    /// A function of other operations, which a target may implement as a whole.
    Composite,
    /// Names functions of the module.
    Call,
}

/// The dtypes that an operand may have.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    Any,
    /// Floats and integers.
    Number,
    Float,
    /// Floats of at least 32 bits.
    Wide,
    Int,
    /// Integers and bool.
    Bits,
    Bool,
    /// A random key: `tensor<2 x u32>`.
    Key,
}

/// The number of values that a use of the operation may give for an operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arity {
    One,
    /// May be left out, together with all operands after it.
    Optional,
    /// Any number; only for the last operand.
    Many,
}

/// One operand of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Operand {
    pub name: &'static str,
    pub class: Class,
    pub arity: Arity,
    /// Whether its dtype must equal that of all other shared operands.
    pub shared: bool,
}

/// An operand with the shared dtype.
pub const fn operand(name: &'static str, class: Class) -> Operand {
    Operand { name, class, arity: Arity::One, shared: true }
}

impl Operand {
    /// The operand with a dtype of its own, not the shared one.
    pub const fn own_dtype(self) -> Operand {
        Operand { shared: false, ..self }
    }

    pub const fn optional(self) -> Operand {
        Operand { arity: Arity::Optional, ..self }
    }

    pub const fn many(self) -> Operand {
        Operand { arity: Arity::Many, ..self }
    }
}

/// One attribute of an operation.
#[derive(Clone, Copy, Debug)]
pub struct AttrDef {
    pub name: &'static str,
    pub kind: AttrKind,
    pub default: Default,
    /// Whether it names axes of the first operand or of the result.
    pub axes: bool,
}

/// The value of an attribute that is not given.
#[derive(Clone, Copy, Debug)]
pub enum Default {
    Required,
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
}

pub const fn attr(name: &'static str, kind: AttrKind, default: Default) -> AttrDef {
    AttrDef { name, kind, default, axes: false }
}

impl AttrDef {
    /// The attribute as one that names axes.
    pub const fn axes(self) -> AttrDef {
        AttrDef { axes: true, ..self }
    }
}

impl Default {
    /// The default as an attribute; `None` if the attribute is required.
    pub fn value(self) -> Option<Attr> {
        Some(match self {
            Default::Required => return None,
            Default::None => Attr::None,
            Default::Bool(v) => Attr::Bool(v),
            Default::Int(v) => Attr::Int(v),
            Default::Float(v) => Attr::Float(v),
        })
    }
}

/// How the shape of the result is computed.
#[derive(Clone, Copy)]
pub enum ShapeRule {
    /// All operands broadcast together.
    Broadcast,
    /// The shape of the first operand.
    First,
    Rule(fn(&mut Infer) -> Result<Shape>),
    /// The types of the results, from the signature of the named function.
    Call(fn(&mut CallTypes) -> Result<Vec<Type>>),
}

/// How the dtype of the result is computed.
#[derive(Clone, Copy)]
pub enum DTypeRule {
    /// The dtype that the shared operands have.
    Shared,
    Fixed(DType),
    /// The value of the attribute of this name.
    Attr(&'static str),
    /// The dtype in the types that [`ShapeRule::Call`] gives.
    Call,
}

/// What the operation computes.
#[derive(Clone, Copy)]
pub enum Meaning {
    /// A scalar expression over the names of operands and attributes.
    Scalar(&'static str),
    Kernel(fn(&Inputs) -> Result<Array, String>),
    /// A function of other operations.
    Decompose(for<'a> fn(&Rule<'a>) -> Var<'a>),
    /// Runs the functions that it names, as `call` or `scan` do.
    Call(fn(&Calls) -> Result<Vec<Array>>),
}

/// How an operation is differentiated in reverse mode.
#[derive(Clone, Copy)]
pub enum Gradient {
    /// Derived from its scalar expression or its decomposition.
    Derived,
    /// Partial derivatives by operand: scalar expressions over the names of operands and
    /// attributes, and `r` for the result.
    Partials(&'static [&'static str]),
    /// Computes cotangents by operand; `None` where there is none.
    Rule(GradientRule),
    /// No gradient: the result does not depend on its operands, or is piecewise constant.
    Zero,
    /// The gradient of the function that it calls once.
    Callee,
    /// The gradient of the callee; the backward pass recomputes the callee's inner values.
    Recompute,
    /// The second function that it names takes operands, results and cotangents, and returns the
    /// operands' cotangents.
    Vjp,
    /// The gradient of the body that it repeats, iterated in reverse order.
    Scan,
    /// The gradient of the one of two functions that the condition chooses.
    Branches,
    /// The gradient of a scan over the maximum number of steps.
    While,
}

/// Computes cotangents by operand; `None` where there is none.
pub type GradientRule = for<'a> fn(&Rule<'a>) -> Vec<Option<Var<'a>>>;

/// A gradient that uses a dedicated operation, and is better than [`OpDef::gradient`] for targets
/// that support it.
#[derive(Clone, Copy)]
pub struct Pullback {
    /// The name of that operation, which the target must support.
    pub by: &'static str,
    /// The operands that the rule covers. If another one needs a gradient, [`OpDef::gradient`] is
    /// used.
    pub wrt: &'static [usize],
    pub rule: GradientRule,
}

/// The symbolic elements of a result, where they are known.
pub type Known = fn(&Infer) -> Option<Vec<Dim>>;

/// One operation. The types of the fields say what each one means.
pub struct OpDef {
    pub name: &'static str,
    /// The name that generated code gives to an unnamed result; if empty, the operation's name.
    pub noun: &'static str,
    pub doc: &'static str,
    pub kind: Kind,
    pub operands: &'static [Operand],
    pub attrs: &'static [AttrDef],
    pub shape: ShapeRule,
    pub dtype: DTypeRule,
    pub meaning: Meaning,
    /// How generated loops compute an element of the result.
    pub access: access::Access,
    /// The operand whose elements are indices along an axis.
    pub indexes: Option<access::Indexes>,
    pub gradient: Gradient,
    pub pullback: Option<Pullback>,
    /// How calls for each index of a batch axis become one operation.
    pub batch: batch::Batch,
    /// Computes the result's elements as dims from those of its operands, for small integers.
    pub known: Option<Known>,
    /// Float-safety notes and where results differ between targets, for the reference page.
    pub note: &'static str,
}

/// The default fields, which families of operations override.
pub const BASE: OpDef = OpDef {
    name: "",
    noun: "",
    doc: "",
    kind: Kind::Composite,
    operands: &[],
    attrs: &[],
    shape: ShapeRule::First,
    dtype: DTypeRule::Shared,
    meaning: Meaning::Call(function::run_callee),
    access: access::Access::Meaning,
    indexes: None,
    gradient: Gradient::Derived,
    pullback: None,
    batch: batch::Batch::Derived,
    known: None,
    note: "",
};

/// A reference to an entry of the op table; compared by identity.
#[derive(Clone, Copy)]
pub struct Op(pub &'static OpDef);

impl std::ops::Deref for Op {
    type Target = OpDef;

    fn deref(&self) -> &OpDef {
        self.0
    }
}

impl PartialEq for Op {
    fn eq(&self, other: &Op) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Op {}

impl Hash for Op {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::from_ref(self.0).hash(state);
    }
}

impl std::fmt::Debug for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl OpDef {
    /// The name that generated code gives to an unnamed result.
    pub fn result_name(&self) -> &'static str {
        if self.noun.is_empty() { self.name } else { self.noun }
    }

    /// The index of the attribute; `None` if the op has none of that name.
    pub fn attr_index(&self, name: &str) -> Option<usize> {
        self.attrs.iter().position(|a| a.name == name)
    }

    /// The operand that value `index` belongs to.
    pub fn operand(&self, index: usize) -> &'static Operand {
        &self.operands[index.min(self.operands.len() - 1)]
    }

    /// The minimum and maximum number of operands. A variadic operand that decides the dtype must
    /// have at least one value.
    pub fn arity(&self) -> (usize, Option<usize>) {
        let needed = |o: &&Operand| match o.arity {
            Arity::One => true,
            Arity::Many => o.shared,
            Arity::Optional => false,
        };
        let least = self.operands.iter().filter(needed).count();
        let many = self.operands.iter().any(|o| o.arity == Arity::Many);
        (least, (!many).then_some(self.operands.len()))
    }
}

const TABLES: &[&[OpDef]] = &[
    elementwise::OPS,
    math::OPS,
    reduce::OPS,
    contraction::OPS,
    layout::OPS,
    index::OPS,
    random::OPS,
    function::OPS,
    control::OPS,
    nn::OPS,
    arrange::OPS,
    attention::OPS,
    pullback::OPS,
    order::OPS,
    index::PICK,
    window::OPS,
    pool::OPS,
    convolution::OPS,
    channels::OPS,
    special::OPS,
    index::COMBINE,
    fourier::OPS,
    linear_algebra::OPS,
    orthogonal::OPS,
    grouped::OPS,
    arrange::MASKS,
];

/// Every operation, in the order of [`TABLES`].
pub fn table() -> impl Iterator<Item = Op> {
    TABLES.iter().flat_map(|ops| ops.iter()).map(Op)
}

static BY_NAME: LazyLock<FxHashMap<&'static str, Op>> =
    LazyLock::new(|| table().map(|op| (op.0.name, op)).collect());

/// The operation with this name.
pub fn find(name: &str) -> Option<Op> {
    BY_NAME.get(name).copied()
}

/// The operation with this name, which must be in the table (a test checks all uses).
pub fn get(name: &str) -> Op {
    find(name).unwrap_or_else(|| panic!("the op table has no `{name}`"))
}

static EXPRS: LazyLock<FxHashMap<&'static str, Expr>> = LazyLock::new(|| {
    table()
        .filter_map(|op| match op.meaning {
            Meaning::Scalar(text) => Some((op.0.name, parse(op, text, &[]))),
            _ => None,
        })
        .collect()
});

/// The scalar expression of an elementwise operation.
pub fn expr(op: Op) -> Option<&'static Expr> {
    EXPRS.get(op.name)
}

/// Parses an expression over an op's operands and attributes, and further value names.
pub fn parse(op: Op, text: &str, more: &[&str]) -> Expr {
    let values: Vec<&str> =
        op.operands.iter().map(|o| o.name).chain(more.iter().copied()).collect();
    let attrs: Vec<&str> = op.attrs.iter().map(|a| a.name).collect();
    Expr::parse(text, &values, &attrs)
        .unwrap_or_else(|error| panic!("the expression of `{}`: {error}", op.name))
}

static BY_PRIM: LazyLock<FxHashMap<Prim, Op>> = LazyLock::new(|| {
    use crate::scalar::expr::Node;
    let direct = |op: Op| match expr(op)?.nodes() {
        [operands @ .., Node::Prim(prim, args)] => {
            let plain = operands.iter().all(|n| matches!(n, Node::Var(_)));
            let in_order = (0..prim.arity())
                .all(|i| operands.get(args[i] as usize) == Some(&Node::Var(i as u8)));
            (plain && in_order).then_some((*prim, op))
        }
        _ => None,
    };
    table().filter_map(direct).collect()
});

/// The operation that consists of only this scalar primitive.
pub fn of_prim(prim: Prim) -> Op {
    *BY_PRIM
        .get(&prim)
        .unwrap_or_else(|| panic!("no operation consists of only the primitive {prim:?}"))
}

static COMMUTING: LazyLock<Vec<Op>> = LazyLock::new(|| {
    use Prim::{Add, And, Eq, Max, Min, Mul, Ne, Or, Xor};
    [Add, Mul, Min, Max, Eq, Ne, And, Or, Xor].map(of_prim).to_vec()
});

/// Whether swapping its two operands gives a bit-identical result.
pub fn commutes(op: Op) -> bool {
    COMMUTING.contains(&op)
}
