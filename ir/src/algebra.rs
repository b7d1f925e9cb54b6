//! The algebra over values under construction. The decompositions and gradients of the op table and
//! the rewrite rules are written in it.

use std::ops;

use smallvec::SmallVec;

use crate::attr::Attr;
use crate::builder::Builder;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::graph::Value;
use crate::op::infer::{as_ints, find_attr};
use crate::op::{self, Op};
use crate::scalar::Prim;
use crate::scalar::expr::{Expr, Node};
use crate::shape::{Shape, Type};
use crate::tensor::Tensor;

/// A value of a function under construction. The builder keeps any errors.
#[derive(Clone, Copy)]
pub struct Var<'a> {
    pub builder: &'a Builder,
    pub value: Value,
}

/// The arguments of a decomposition or a gradient rule of the op table.
pub struct Rule<'a> {
    pub builder: &'a Builder,
    pub op: Op,
    pub operands: SmallVec<[Var<'a>; 3]>,
    pub attrs: SmallVec<[Attr; 2]>,
    /// The type of the result.
    pub ty: Type,
    /// The result and its cotangent. Only gradient rules have them.
    pub result: Option<(Var<'a>, Var<'a>)>,
}

impl<'a> Rule<'a> {
    pub fn arg(&self, i: usize) -> Var<'a> {
        self.operands[i]
    }

    /// An operand that may have been left out.
    pub fn optional(&self, i: usize) -> Option<Var<'a>> {
        self.operands.get(i).copied()
    }

    /// The result of the operation that is differentiated.
    pub fn y(&self) -> Var<'a> {
        self.result.expect("only gradient rules read the result").0
    }

    /// The cotangent of the result.
    pub fn g(&self) -> Var<'a> {
        self.result.expect("only gradient rules read the cotangent").1
    }

    pub fn attr(&self, name: &str) -> &Attr {
        find_attr(self.op, &self.attrs, name)
    }

    pub fn int(&self, name: &str) -> i64 {
        self.attr(name).as_int()
    }

    pub fn ints(&self, name: &str) -> Option<&[i64]> {
        as_ints(self.attr(name))
    }

    pub fn float(&self, name: &str) -> Option<f64> {
        match self.attr(name) {
            Attr::Float(v) => Some(*v),
            _ => None,
        }
    }

    pub fn bool(&self, name: &str) -> bool {
        matches!(self.attr(name), Attr::Bool(true))
    }

    pub fn dtype(&self, name: &str) -> Option<DType> {
        match self.attr(name) {
            Attr::DType(dtype) => Some(*dtype),
            _ => None,
        }
    }

    pub fn shape_attr(&self, name: &str) -> &Shape {
        self.attr(name).as_shape()
    }

    /// Adds any operation on any operands, such as `iota` or a random draw.
    pub fn build(&self, name: &str, operands: &[Var<'a>], attrs: &[(&str, Attr)]) -> Var<'a> {
        build(self.builder, name, operands, attrs)
    }
}

/// Adds an operation. After an error it returns a placeholder value, which no finished function
/// uses.
pub fn build<'a>(
    builder: &'a Builder,
    name: &str,
    operands: &[Var<'a>],
    attrs: &[(&str, Attr)],
) -> Var<'a> {
    let values: SmallVec<[Value; 3]> = operands.iter().map(|v| v.value).collect();
    let value = builder.op(name, &values, attrs).unwrap_or_else(|error| {
        builder.fail(error);
        values.first().copied().unwrap_or_else(|| builder.constant(Tensor::scalar(DType::F32, 0.0)))
    });
    Var { builder, value }
}

impl<'a> Var<'a> {
    pub fn ty(self) -> Type {
        self.builder.ty(self.value)
    }

    pub fn shape(self) -> Shape {
        self.ty().shape
    }

    pub fn dtype(self) -> DType {
        self.ty().dtype
    }

    /// The rank. Where it is unknown, the builder keeps an error, and 0 is returned.
    pub fn rank(self) -> usize {
        self.shape().need_rank().unwrap_or_else(|error| {
            self.builder.fail(error);
            0
        })
    }

    /// The same value, called `name` in generated source unless it already has a name.
    pub fn named(self, name: &str) -> Var<'a> {
        if self.builder.with(|f| f.info(self.value).name.is_none()) {
            self.builder.set_name(self.value, Some(name.into()));
        }
        self
    }

    /// Adds an operation with this value as its only operand.
    pub fn unary(self, name: &str, attrs: &[(&str, Attr)]) -> Var<'a> {
        build(self.builder, name, &[self], attrs)
    }

    /// Adds an operation on this value and another.
    pub fn binary(self, name: &str, other: Var<'a>) -> Var<'a> {
        build(self.builder, name, &[self, other], &[])
    }

    /// A scalar of this value's dtype.
    pub fn scalar(self, value: f64) -> Var<'a> {
        let tensor = Tensor::scalar(self.dtype(), value);
        Var { builder: self.builder, value: self.builder.constant(tensor) }
    }

    /// A value of this one's shape with `value` in every element.
    pub fn full_like(self, value: f64) -> Var<'a> {
        let shape = self.shape();
        self.scalar(value).broadcast_to(shape)
    }

    pub fn exp(self) -> Var<'a> {
        self.unary("exp", &[])
    }

    pub fn log(self) -> Var<'a> {
        self.unary("log", &[])
    }

    pub fn sqrt(self) -> Var<'a> {
        self.unary("sqrt", &[])
    }

    pub fn cast(self, dtype: DType) -> Var<'a> {
        if self.dtype() == dtype { self } else { self.unary("cast", &[("dtype", dtype.into())]) }
    }

    /// Casts f16 and bf16 to f32; other dtypes stay.
    pub fn widened(self) -> Var<'a> {
        self.cast(self.dtype().widened())
    }

    pub fn stop_gradient(self) -> Var<'a> {
        self.unary("stop_gradient", &[])
    }

    /// Reduces by `sum`, `max`, `mean`, … over `axes` (all axes where `None`).
    pub fn reduce(self, name: &str, axes: Option<&[i64]>, keepdim: bool) -> Var<'a> {
        self.unary(name, &[("axes", axes.into()), ("keepdim", keepdim.into())])
    }

    pub fn sum(self, axes: Option<&[i64]>, keepdim: bool) -> Var<'a> {
        self.reduce("sum", axes, keepdim)
    }

    /// Takes elements of `yes` where the condition (this value) holds, and of `no` elsewhere.
    pub fn select(self, yes: Var<'a>, no: Var<'a>) -> Var<'a> {
        build(self.builder, "select", &[self, yes, no], &[])
    }

    /// Reshapes, or returns the value itself where it has this shape already.
    pub fn reshape(self, shape: Shape) -> Var<'a> {
        if self.shape() == shape { self } else { self.unary("reshape", &[("shape", shape.into())]) }
    }

    pub fn broadcast_to(self, shape: Shape) -> Var<'a> {
        if self.shape() == shape {
            return self;
        }
        self.unary("broadcast_in_dim", &[("shape", shape.into())])
    }

    /// Reverses broadcasting from `shape` to this value's shape: sums over the repeated axes. Where
    /// a rank is unknown, `sum_to` finds the axes at run time.
    pub fn sum_to(self, shape: Shape) -> Var<'a> {
        let own = self.shape();
        if own == shape {
            return self;
        }
        if own.lead.is_some() && own.dims == shape.dims && shape.lead.is_none() {
            let rows = [Dim::Unknown].into_iter().chain(own.dims);
            return self.reshape(Shape::new(rows)).sum(Some(&[0]), false);
        }
        let (Some(rank), Some(kept)) = (own.rank(), shape.rank()) else {
            return self.unary("sum_to", &[("shape", shape.into())]);
        };
        let new: Vec<i64> = (0..rank.saturating_sub(kept) as i64).collect();
        let summed = if new.is_empty() { self } else { self.sum(Some(&new), false) };
        let repeated = |i: &i64| {
            let one = |dim: &Dim| dim.as_const() == Some(1);
            one(&shape.dims[*i as usize]) && !one(&own.dims[*i as usize + new.len()])
        };
        let repeated: Vec<i64> = (0..kept as i64).filter(repeated).collect();
        if repeated.is_empty() { summed } else { summed.sum(Some(&repeated), true) }
    }

    pub fn expand_dims(self, axes: &[i64]) -> Var<'a> {
        self.unary("expand_dims", &[("axes", axes.into())])
    }

    pub fn squeeze(self, axes: &[i64]) -> Var<'a> {
        self.unary("squeeze", &[("axes", axes.into())])
    }

    pub fn transpose(self, permutation: &[i64]) -> Var<'a> {
        self.unary("transpose", &[("permutation", permutation.into())])
    }

    /// Swaps the last two axes.
    pub fn swap_last(self) -> Var<'a> {
        self.unary("swap_axes", &[("first", (-2).into()), ("second", (-1).into())])
    }

    /// Whether this value is a result of [`Var::swap_last`].
    pub fn is_swapped(self) -> bool {
        self.builder.with(|f| {
            let producer = f.ops.iter().rev().find(|op| op.results().any(|v| v == self.value));
            producer.is_some_and(|op| {
                let last = |name, axis| matches!(op.attr(name), Attr::Int(own) if *own == axis);
                op.op.name == "swap_axes" && last("first", -2) && last("second", -1)
            })
        })
    }

    pub fn matmul(self, other: Var<'a>) -> Var<'a> {
        self.binary("matmul", other)
    }

    /// The dim of an axis as an `i64` scalar.
    pub fn dim(self, axis: i64) -> Var<'a> {
        self.unary("dim", &[("axis", axis.into())])
    }

    /// The product of the dims of these axes (all where `None`), as a scalar of this dtype.
    pub fn count(self, axes: Option<&[i64]>) -> Var<'a> {
        let shape = self.shape();
        if let Some(Dim::Const(n)) = count_dims(&shape, axes) {
            return self.scalar(n as f64);
        }
        self.unary("element_count", &[("axes", axes.into())]).cast(self.dtype())
    }
}

/// The product of the dims of these axes, where they are known.
pub fn count_dims(shape: &Shape, axes: Option<&[i64]>) -> Option<Dim> {
    match axes {
        None => shape.elements(),
        Some(axes) => axes
            .iter()
            .map(|&a| {
                shape.axis_from_back(a).ok().map(|b| shape.dims[shape.dims.len() - b].clone())
            })
            .collect::<Option<Vec<Dim>>>()
            .map(|dims| dims.into_iter().product()),
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident, $op:literal) => {
        impl<'a> ops::$trait for Var<'a> {
            type Output = Var<'a>;

            fn $method(self, other: Var<'a>) -> Var<'a> {
                self.binary($op, other)
            }
        }

        impl<'a> ops::$trait<f64> for Var<'a> {
            type Output = Var<'a>;

            fn $method(self, other: f64) -> Var<'a> {
                self.binary($op, self.scalar(other))
            }
        }
    };
}

operator!(Add, add, "add");
operator!(Sub, sub, "sub");
operator!(Mul, mul, "mul");
operator!(Div, div, "div");

impl<'a> ops::Neg for Var<'a> {
    type Output = Var<'a>;

    fn neg(self) -> Var<'a> {
        self.unary("neg", &[])
    }
}

/// Expands the scalar expression of an elementwise operation into operations of the op table, one
/// per primitive. `values` are the operands, followed by the further names that the expression was
/// parsed with.
pub fn expand<'a>(
    builder: &'a Builder,
    expr: &Expr,
    values: &[Var<'a>],
    attrs: &[Attr],
    dtype: DType,
) -> Var<'a> {
    let mut terms =
        Terms { builder, expr, values, attrs, dtype, built: vec![None; expr.nodes().len()] };
    terms.term(expr.root())
}

/// Multiplies `g` by a scalar expression, factor by factor: `select(c, a, 0)` becomes `select(c, g
/// * a, 0)`, so that an infinite or NaN `g` does not turn the 0 into NaN. `None`: the expression is
/// 0.
pub fn scale<'a>(g: Var<'a>, expr: &Expr, values: &[Var<'a>], attrs: &[Attr]) -> Option<Var<'a>> {
    let dtype = g.dtype();
    let built = vec![None; expr.nodes().len()];
    Terms { builder: g.builder, expr, values, attrs, dtype, built }.scaled(g, expr.root())
}

/// The state of an expansion, with the nodes of the expression that have been built so far.
struct Terms<'a, 'e> {
    builder: &'a Builder,
    expr: &'e Expr,
    values: &'e [Var<'a>],
    attrs: &'e [Attr],
    dtype: DType,
    built: Vec<Option<Var<'a>>>,
}

impl<'a> Terms<'a, '_> {
    fn number(&self, at: u16) -> Option<f64> {
        match self.expr.nodes()[at as usize] {
            Node::Const(x) => Some(x),
            Node::Attr(i) => Some(self.attrs[i as usize].as_float()),
            Node::Prim(Prim::Neg, args) => self.number(args[0]).map(|x| -x),
            Node::Var(_) | Node::Prim(..) => None,
        }
    }

    fn term(&mut self, at: u16) -> Var<'a> {
        if let Some(var) = self.built[at as usize] {
            return var;
        }
        let var = match self.expr.nodes()[at as usize] {
            Node::Var(i) => self.values[i as usize],
            Node::Const(_) | Node::Attr(_) => {
                let number = self.number(at).unwrap_or(f64::NAN);
                let value = self.builder.constant(Tensor::scalar(self.dtype, number));
                Var { builder: self.builder, value }
            }
            Node::Prim(prim, args) => {
                let operands: Vec<Var<'a>> =
                    args[..prim.arity()].iter().map(|&a| self.term(a)).collect();
                build(self.builder, op::of_prim(prim).0.name, &operands, &[])
            }
        };
        self.built[at as usize] = Some(var);
        var
    }

    fn scaled(&mut self, g: Var<'a>, at: u16) -> Option<Var<'a>> {
        match self.number(at) {
            Some(0.0) => return None,
            Some(1.0) => return Some(g),
            Some(-1.0) => return Some(-g),
            // A product with NaN would be NaN in second derivatives of the other branch, too.
            Some(x) if x.is_nan() => return Some(g.full_like(x)),
            Some(x) => return Some(g * x),
            None => {}
        }
        match self.expr.nodes()[at as usize] {
            Node::Prim(Prim::Neg, args) => self.scaled(g, args[0]).map(|v| -v),
            Node::Prim(Prim::Div, args) => {
                let divisor = self.term(args[1]);
                self.scaled(g, args[0]).map(|v| v / divisor)
            }
            Node::Prim(Prim::Select, args) => {
                let (yes, no) = (self.scaled(g, args[1]), self.scaled(g, args[2]));
                if yes.is_none() && no.is_none() {
                    return None;
                }
                let zero = g.scalar(0.0);
                let condition = self.term(args[0]);
                Some(condition.select(yes.unwrap_or(zero), no.unwrap_or(zero)))
            }
            _ => Some(g * self.term(at)),
        }
    }
}
