//! Lowers scalar expressions to loop code. Some patterns of nodes have faster or more accurate
//! code.

use mithril_ir::dtype::DType;
use mithril_ir::scalar::expr::{Expr, Kind, Node};
use mithril_ir::scalar::{Prim, Scalar};

use super::{apply, arithmetic, exp, register_dtype, unary_float};
use crate::builder::Builder;
use crate::code::{Ty, V};
use crate::scalar::value::build;

/// Computes `expr` on register values `args`, whose dtypes are `own`. Scalar arguments are
/// broadcast. Like [`Expr::eval_into`], except that intermediate values are not rounded to 16-bit
/// floats.
pub fn expression(
    b: &mut Builder,
    expr: &Expr,
    dtype: DType,
    own: &[DType],
    args: &[V],
    attrs: &[Scalar],
    lanes: u32,
) -> V {
    let seen = |i: u16| shape(expr, dtype, i);
    let needed = needed(expr, &seen);
    let scalars: Vec<bool> = args.iter().map(|&v| b.ty(v).lanes == 1).collect();
    let dtype_of = |i: u16| match (expr.kind(i), expr.nodes()[i as usize]) {
        (Kind::Bool, _) => DType::Bool,
        (Kind::Foreign, Node::Var(v)) => own[v as usize],
        _ => dtype,
    };
    // The scalars of nodes that are the same for all lanes.
    let one = |i: u16| match expr.nodes()[i as usize] {
        Node::Var(v) if lanes > 1 && scalars[v as usize] => Some(args[v as usize]),
        _ => None,
    };
    let mut values: Vec<Option<V>> = vec![None; needed.len()];
    for (i, &node) in expr.nodes().iter().enumerate().filter(|(i, _)| needed[*i]) {
        let of = |a: u16| values[a as usize].expect("operands come first");
        let own = dtype_of(i as u16);
        let value = match (seen(i as u16), node) {
            (Some(Pattern::Sigmoid(x)), _) => build(b, [of(x)], |[x]| exp::sigmoid(x)),
            (Some(Pattern::OneAndTanh(x)), _) => build(b, [of(x)], |[x]| exp::sigmoid(x + x) * 2.0),
            (Some(Pattern::Gate(x, y)), _) => {
                build(b, [of(x), of(y)], |[x, y]| x / (unary_float(Prim::Exp, -(y + y)) + 1.0))
            }
            (Some(Pattern::CubicSigmoid(x, [a, c])), _) => {
                build(b, [of(x)], |[x]| exp::cubic_sigmoid(x, a, c))
            }
            (Some(Pattern::CubicGate(x, [a, c])), _) => {
                build(b, [of(x)], |[x]| exp::cubic_gate(x, 2.0 * a, 2.0 * c))
            }
            (None, Node::Const(x)) => literal(b, own, x, lanes),
            (None, Node::Var(v)) => b.splat(args[v as usize], lanes),
            (None, Node::Attr(a)) => constant(b, own, attribute(attrs[a as usize], own), lanes),
            (None, Node::Prim(prim, args)) => {
                let args = &args[..prim.arity()];
                // Only the operands of `select` have different dtypes. The last one has the dtype
                // of the result.
                let operand = dtype_of(args[args.len() - 1]);
                let values: Vec<V> = args.iter().map(|&a| of(a)).collect();
                match (prim, args.last().and_then(|&a| one(a))) {
                    (Prim::Div, Some(divisor)) if own.is_float() && !b.hides_divisions() => {
                        arithmetic::div_by_uniform(b, values[0], divisor)
                    }
                    _ => apply(b, prim, operand, &values, Some(dtype)),
                }
            }
        };
        values[i] = Some(value);
    }
    values[expr.root() as usize].expect("the root is needed")
}

/// Emits a constant of an expression. Like intermediate values, it is not rounded to narrow floats.
fn literal(b: &mut Builder, dtype: DType, x: f64, lanes: u32) -> V {
    let exact = if dtype.is_float() { register_dtype(dtype) } else { dtype };
    constant(b, dtype, Scalar::number(exact, x), lanes)
}

fn constant(b: &mut Builder, dtype: DType, value: Scalar, lanes: u32) -> V {
    let ty = Ty { dtype: register_dtype(dtype), lanes };
    match value {
        Scalar::F(x) => b.number(ty, x),
        Scalar::I(x) => b.int(ty, x),
    }
}

fn attribute(attr: Scalar, dtype: DType) -> Scalar {
    match attr {
        Scalar::F(_) => attr.cast(DType::F64, dtype),
        Scalar::I(_) => attr.cast(DType::I64, dtype),
    }
}

/// A pattern that is lowered as a unit, with its operands.
enum Pattern {
    /// `1 / (1 + exp(-x))`.
    Sigmoid(u16),
    /// The sigmoid of `x * (c + a * x * x)`, with x, and a and c.
    CubicSigmoid(u16, [f64; 2]),
    /// `1 + tanh(x)`, computed as twice the sigmoid of 2x, which is accurate for negative x.
    OneAndTanh(u16),
    /// `0.5 * x * (1 + tanh(y))`, computed as `x / (1 + exp(-2 y))`.
    Gate(u16, u16),
    /// A gate whose y is a cubic as in `CubicSigmoid`.
    CubicGate(u16, [f64; 2]),
}

/// Returns which nodes are computed by themselves, and not as part of a pattern.
fn needed(expr: &Expr, seen: &dyn Fn(u16) -> Option<Pattern>) -> Vec<bool> {
    let mut needed = vec![false; expr.nodes().len()];
    needed[expr.root() as usize] = true;
    for i in (0..needed.len()).rev().filter(|&i| i <= expr.root() as usize) {
        if !needed[i] {
            continue;
        }
        match (seen(i as u16), expr.nodes()[i]) {
            (Some(Pattern::Sigmoid(x) | Pattern::OneAndTanh(x)), _)
            | (Some(Pattern::CubicSigmoid(x, _) | Pattern::CubicGate(x, _)), _) => {
                needed[x as usize] = true;
            }
            (Some(Pattern::Gate(x, y)), _) => {
                [x, y].iter().for_each(|&v| needed[v as usize] = true)
            }
            (None, Node::Prim(prim, args)) => {
                args[..prim.arity()].iter().for_each(|&a| needed[a as usize] = true);
            }
            (None, _) => {}
        }
    }
    needed
}

fn shape(expr: &Expr, dtype: DType, i: u16) -> Option<Pattern> {
    if !dtype.is_float() {
        return None;
    }
    let matched = Matcher(expr);
    let cubic = |y: u16| {
        let (x, of) = matched.cubic_of(y)?;
        Some(Pattern::CubicSigmoid(x, of))
    };
    let sigmoid = matched.sigmoid(i).or_else(|| matched.sigmoid_by_sign(i));
    let sigmoid = sigmoid.map(|y| cubic(y).unwrap_or(Pattern::Sigmoid(y)));
    let tanh = || matched.one_and_tanh(i).map(Pattern::OneAndTanh);
    sigmoid.or_else(tanh).or_else(|| matched.gate(i))
}

struct Matcher<'a>(&'a Expr);

impl Matcher<'_> {
    fn operands(&self, i: u16, prim: Prim) -> Option<[u16; 3]> {
        match self.0.nodes()[i as usize] {
            Node::Prim(p, args) if p == prim => Some(args),
            _ => None,
        }
    }

    fn is(&self, i: u16, number: f64) -> bool {
        self.0.nodes()[i as usize] == Node::Const(number)
    }

    /// Matches `1 + x`, and returns x.
    fn one_and(&self, i: u16) -> Option<u16> {
        match self.operands(i, Prim::Add)? {
            [one, x, _] if self.is(one, 1.0) => Some(x),
            [x, one, _] if self.is(one, 1.0) => Some(x),
            _ => None,
        }
    }

    /// Matches `1 / (1 + exp(-x))`, and returns x.
    fn sigmoid(&self, i: u16) -> Option<u16> {
        let [one, sum, _] = self.operands(i, Prim::Div)?;
        let [power, ..] = self.operands(self.one_and(sum)?, Prim::Exp)?;
        let [x, ..] = self.operands(power, Prim::Neg)?;
        self.is(one, 1.0).then_some(x)
    }

    /// Matches `select(x >= 0, 1 / (1 + t), t / (1 + t)) where t = exp(-abs(x))`, and returns x.
    fn sigmoid_by_sign(&self, i: u16) -> Option<u16> {
        let [test, above, below] = self.operands(i, Prim::Select)?;
        let [x, zero, _] = self.operands(test, Prim::Ge)?;
        let magnitude = self.sigmoid(above)?;
        let [inner, ..] = self.operands(magnitude, Prim::Abs)?;
        let ([_, sum, _], [t, other, _]) =
            (self.operands(above, Prim::Div)?, self.operands(below, Prim::Div)?);
        let same = inner == x && other == sum && self.one_and(sum)? == t;
        (same && self.is(zero, 0.0)).then_some(x)
    }

    /// Matches `1 + tanh(x)` if the tanh has no other use, and returns x.
    fn one_and_tanh(&self, i: u16) -> Option<u16> {
        let tanh = self.one_and(i)?;
        let [x, ..] = self.operands(tanh, Prim::Tanh)?;
        let users = self.0.nodes().iter().filter(
            |node| matches!(node, Node::Prim(prim, args) if args[..prim.arity()].contains(&tanh)),
        );
        (users.count() == 1).then_some(x)
    }

    fn gate(&self, i: u16) -> Option<Pattern> {
        let [half_x, one_and_tanh, _] = self.operands(i, Prim::Mul)?;
        let [half, x, _] = self.operands(half_x, Prim::Mul)?;
        let y = self.one_and_tanh(one_and_tanh)?;
        let cubic = self.cubic_of(y).filter(|(of, _)| *of == x);
        let whole = || cubic.map_or(Pattern::Gate(x, y), |(x, by)| Pattern::CubicGate(x, by));
        self.is(half, 0.5).then(whole)
    }

    /// Matches `x * (c + a * x * x)`, and returns x, and a and c.
    fn cubic_of(&self, i: u16) -> Option<(u16, [f64; 2])> {
        let number = |i: u16| match self.0.nodes()[i as usize] {
            Node::Const(number) => Some(number),
            _ => None,
        };
        let [first, sum, _] = self.operands(i, Prim::Mul)?;
        let [c, term, _] = self.operands(sum, Prim::Add)?;
        let [a_x, second, _] = self.operands(term, Prim::Mul)?;
        let [a, third, _] = self.operands(a_x, Prim::Mul)?;
        (first == second && first == third).then_some((first, [number(a)?, number(c)?]))
    }
}
