//! Values with operators, so that formulas are readable. A number on the right becomes a constant
//! of the left operand's type.

use std::cell::RefCell;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Shl, Shr, Sub};

use mithril_ir::dtype::DType;
use mithril_ir::scalar::Prim;

use crate::builder::Builder;
use crate::code::{Binary, Callee, Cmp, Fold, Ty, Unary, V};
use crate::loops::Loops;

type Shared<'a> = RefCell<&'a mut Builder>;

/// A value, with the builder that emits operations on it.
#[derive(Clone, Copy)]
pub struct Val<'a> {
    b: &'a Shared<'a>,
    v: V,
}

/// Builds the code of `formula` on `args`.
pub fn build<const N: usize>(
    b: &mut Builder,
    args: [V; N],
    formula: impl for<'a> FnOnce([Val<'a>; N]) -> Val<'a>,
) -> V {
    let shared = RefCell::new(&mut *b);
    formula(args.map(|v| Val { b: &shared, v })).v
}

/// The right operand of an operator.
pub trait Operand<'a> {
    fn like(self, left: Val<'a>) -> Val<'a>;
}

impl<'a> Operand<'a> for Val<'a> {
    fn like(self, _: Val<'a>) -> Val<'a> {
        self
    }
}

impl<'a> Operand<'a> for f64 {
    fn like(self, left: Val<'a>) -> Val<'a> {
        left.number(self)
    }
}

impl<'a> Operand<'a> for i64 {
    fn like(self, left: Val<'a>) -> Val<'a> {
        left.int(self)
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $binary:ident)*) => {$(
        impl<'a, T: Operand<'a>> $trait<T> for Val<'a> {
            type Output = Val<'a>;

            fn $method(self, right: T) -> Val<'a> {
                self.binary(Binary::$binary, right)
            }
        }
    )*};
}

operators! {
    Add add Add
    Sub sub Sub
    Mul mul Mul
    Div div Div
    BitAnd bitand And
    BitOr bitor Or
    BitXor bitxor Xor
    Shl shl Shl
    Shr shr Shr
}

impl<'a> Neg for Val<'a> {
    type Output = Val<'a>;

    fn neg(self) -> Val<'a> {
        self.unary(Unary::Neg)
    }
}

impl<'a> Not for Val<'a> {
    type Output = Val<'a>;

    fn not(self) -> Val<'a> {
        self.unary(Unary::Not)
    }
}

impl<'a> Val<'a> {
    fn with(self, v: V) -> Val<'a> {
        Val { b: self.b, v }
    }

    pub fn ty(self) -> Ty {
        self.b.borrow().ty(self.v)
    }

    pub fn dtype(self) -> DType {
        self.ty().dtype
    }

    pub fn is_f64(self) -> bool {
        self.dtype() == DType::F64
    }

    /// A float constant of this type.
    pub fn number(self, x: f64) -> Val<'a> {
        let ty = self.ty();
        self.with(self.b.borrow_mut().number(ty, x))
    }

    /// An integer constant of this type, from its low bits.
    pub fn int(self, x: i64) -> Val<'a> {
        let ty = self.ty();
        self.with(self.b.borrow_mut().int(ty, x))
    }

    /// Returns the value if it is a float constant.
    pub fn constant(self) -> Option<f64> {
        self.b.borrow().constant_number(self.v)
    }

    pub fn unary(self, op: Unary) -> Val<'a> {
        self.with(self.b.borrow_mut().unary(op, self.v))
    }

    pub fn binary(self, op: Binary, right: impl Operand<'a>) -> Val<'a> {
        let right = right.like(self);
        self.with(self.b.borrow_mut().binary(op, self.v, right.v))
    }

    fn compare(self, op: Cmp, right: impl Operand<'a>) -> Val<'a> {
        let right = right.like(self);
        self.with(self.b.borrow_mut().compare(op, self.v, right.v))
    }

    pub fn eq(self, right: impl Operand<'a>) -> Val<'a> {
        self.compare(Cmp::Eq, right)
    }

    pub fn ne(self, right: impl Operand<'a>) -> Val<'a> {
        self.compare(Cmp::Ne, right)
    }

    pub fn lt(self, right: impl Operand<'a>) -> Val<'a> {
        self.compare(Cmp::Lt, right)
    }

    pub fn le(self, right: impl Operand<'a>) -> Val<'a> {
        self.compare(Cmp::Le, right)
    }

    pub fn gt(self, right: impl Operand<'a>) -> Val<'a> {
        self.compare(Cmp::Gt, right)
    }

    pub fn ge(self, right: impl Operand<'a>) -> Val<'a> {
        self.compare(Cmp::Ge, right)
    }

    pub fn is_nan(self) -> Val<'a> {
        self.ne(self)
    }

    /// The minimum instruction. Returns `right` if both are equal or either is NaN.
    pub fn native_min(self, right: impl Operand<'a>) -> Val<'a> {
        self.binary(Binary::Min, right)
    }

    /// The maximum instruction. Returns `right` if both are equal or either is NaN.
    pub fn native_max(self, right: impl Operand<'a>) -> Val<'a> {
        self.binary(Binary::Max, right)
    }

    /// Clamps to at most `bound`; NaN stays NaN.
    pub fn at_most(self, bound: impl Operand<'a>) -> Val<'a> {
        bound.like(self).native_min(self)
    }

    /// Clamps to at least `bound`; NaN stays NaN.
    pub fn at_least(self, bound: impl Operand<'a>) -> Val<'a> {
        bound.like(self).native_max(self)
    }

    /// `self * factor + term`, rounded once. Formulas are fused only where they call this.
    pub fn mul_add(self, factor: impl Operand<'a>, term: impl Operand<'a>) -> Val<'a> {
        let (factor, term) = (factor.like(self), term.like(self));
        self.with(self.b.borrow_mut().fma(self.v, factor.v, term.v))
    }

    /// `self * 2ⁿ` for a whole number `n`, rounded once. Returns `None` if the processor lacks the
    /// instruction.
    pub fn scale(self, n: Val<'a>) -> Option<Val<'a>> {
        let scaled = self.b.borrow_mut().scale(self.v, n.v)?;
        Some(self.with(scaled))
    }

    /// Whether the processor has the instruction for [`Val::scale`].
    pub fn scales(self) -> bool {
        let ty = self.ty();
        self.b.borrow().scales(ty)
    }

    /// Selects `yes` where this bool is true, otherwise `no`.
    pub fn pick(self, yes: Val<'a>, no: impl Operand<'a>) -> Val<'a> {
        let no = no.like(yes);
        self.with(self.b.borrow_mut().select(self.v, yes.v, no.v))
    }

    /// Selects `self` where the condition holds, otherwise `other`.
    pub fn when(self, condition: Val<'a>, other: impl Operand<'a>) -> Val<'a> {
        condition.pick(self, other)
    }

    /// Whether a bool holds in any lane, as a scalar.
    pub fn any(self) -> Val<'a> {
        self.with(self.b.borrow_mut().fold(Fold::Or, self.v))
    }

    /// Converts to another dtype, see [`crate::code::Inst::Convert`].
    pub fn convert(self, dtype: DType) -> Val<'a> {
        self.with(self.b.borrow_mut().convert(self.v, dtype))
    }

    pub fn bitcast(self, dtype: DType) -> Val<'a> {
        self.with(self.b.borrow_mut().bitcast(self.v, dtype))
    }

    /// The bits of a float as a signed integer.
    pub fn bits(self) -> Val<'a> {
        self.bitcast(if self.is_f64() { DType::I64 } else { DType::I32 })
    }

    /// Reinterprets bits as a float.
    pub fn float(self) -> Val<'a> {
        self.bitcast(if self.dtype().bits() == 64 { DType::F64 } else { DType::F32 })
    }

    /// Whether primitives become calls of C functions.
    pub fn calls(self) -> bool {
        self.b.borrow().source().calls
    }

    /// Suggests a name for the value in printed C.
    pub fn named(self, what: &'static str) -> Val<'a> {
        self.b.borrow_mut().hint(self.v, what);
        self
    }

    /// Calls a primitive with this operand and possibly another one. The result has this dtype.
    pub fn call_prim(self, prim: Prim, other: Option<Val<'a>>, dtype: DType) -> Val<'a> {
        let args: Vec<V> = [Some(self), other].into_iter().flatten().map(|x| x.v).collect();
        self.with(self.b.borrow_mut().call(Callee::Prim(prim), dtype, &args))
    }

    /// Calls a function with this as its only operand.
    pub fn call(self, callee: Callee, dtype: DType) -> Val<'a> {
        self.with(self.b.borrow_mut().call(callee, dtype, &[self.v]))
    }

    pub fn abs(self) -> Val<'a> {
        self.unary(Unary::Abs)
    }

    pub fn sqrt(self) -> Val<'a> {
        self.unary(Unary::Sqrt)
    }

    /// The nearest whole number, ties to even.
    pub fn round(self) -> Val<'a> {
        self.unary(Unary::RoundEven)
    }

    /// Rounds toward zero. -0 may become +0.
    pub fn trunc(self) -> Val<'a> {
        let floor = self.abs().unary(Unary::Floor);
        floor.sign_of(self)
    }

    /// The sign bit of a float, with all other bits zero.
    pub fn sign_bit(self) -> Val<'a> {
        let bits = self.bits();
        bits & (1 << (bits.dtype().bits() - 1))
    }

    /// Sets the sign of this float, whose sign bit is clear, to that of `other`.
    pub fn sign_of(self, other: Val<'a>) -> Val<'a> {
        (self.bits() | other.sign_bit()).float()
    }

    /// Emits `rare` if `condition` holds in any lane, otherwise `common`. Both compute all lanes,
    /// and may only use the values passed to them. `rare` becomes a private function of the kernel
    /// with this name (see [`Builder::call_private`]).
    pub fn choose<const N: usize>(
        condition: Val<'a>,
        args: [Val<'a>; N],
        name: &'static str,
        rare: impl for<'b> FnOnce([Val<'b>; N]) -> Vec<Val<'b>>,
        common: impl for<'b> FnOnce([Val<'b>; N]) -> Vec<Val<'b>>,
    ) -> Vec<Val<'a>> {
        let any = condition.any();
        let args = args.map(|x| x.v);
        let results = any.b.borrow_mut().choose(
            any.v,
            |b| {
                b.call_private(name, &args, |b, params| {
                    region(b, std::array::from_fn(|i| params[i]), rare)
                })
            },
            |b| region(b, args, common),
        );
        results.into_iter().map(|v| any.with(v)).collect()
    }

    /// Emits a loop that runs `step` `count` times. `step` takes the carried values and returns the
    /// next ones.
    pub fn repeat<const N: usize>(
        count: i64,
        carried: [Val<'a>; N],
        step: impl for<'b> FnOnce([Val<'b>; N]) -> Vec<Val<'b>>,
    ) -> Vec<Val<'a>> {
        let shared = carried[0];
        let mut b = shared.b.borrow_mut();
        let (from, to) = (b.index(0), b.index(count));
        let results = b.repeat(from, to, 1, &carried.map(|x| x.v), |b, _, inner| {
            region(b, std::array::from_fn(|i| inner[i]), step)
        });
        drop(b);
        results.into_iter().map(|v| shared.with(v)).collect()
    }
}

fn region<const N: usize>(
    b: &mut Builder,
    args: [V; N],
    body: impl for<'b> FnOnce([Val<'b>; N]) -> Vec<Val<'b>>,
) -> Vec<V> {
    let shared = RefCell::new(&mut *b);
    body(args.map(|v| Val { b: &shared, v })).into_iter().map(|x| x.v).collect()
}
