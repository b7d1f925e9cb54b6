//! The scalar primitives: one table of the operations on an element. The evaluator, C, LLVM and PTX
//! derive elementwise code from it, so every corner case has one defined result, stated in its
//! entry.
//!
//! Rules for all primitives: a result is rounded once to the dtype (to nearest, ties to even;
//! subnormals are kept), integer results wrap, and every NaN is the canonical one. On integers, a
//! float primitive is computed in f64 and cast back; on floats, an integer primitive gives NaN.
//! Arithmetic on bool uses 0 and 1, and the result is whether it is not 0.

use crate::dtype::DType;

pub mod expr;
mod float;
mod int;
mod node;
mod parse;
pub mod round;

/// How the dtype of a primitive's result follows from its operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signature {
    /// Operands and result have one dtype.
    Same,
    /// Operands have one dtype, the result is bool.
    Test,
    /// A bool, then two operands of the result's dtype.
    Select,
    /// The result's dtype is given separately.
    Cast,
}

struct Entry {
    name: &'static str,
    doc: &'static str,
    signature: Signature,
    derivatives: &'static [&'static str],
}

/// The variable names in [`Prim::derivatives`]: the operands in order, then the result.
pub const DERIVATIVE_NAMES: [&str; 4] = ["x", "y", "z", "r"];

macro_rules! prims {
    ($($prim:ident $name:literal $signature:ident $derivatives:tt $doc:literal)*) => {
        /// A scalar primitive.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum Prim { $(#[doc = $doc] $prim,)* }

        impl Prim {
            /// Every primitive, in the table's order.
            pub const ALL: &[Prim] = &[$(Prim::$prim),*];

            fn entry(self) -> &'static Entry {
                const TABLE: &[Entry] = &[$(Entry {
                    name: $name, doc: $doc, signature: Signature::$signature,
                    derivatives: &$derivatives,
                }),*];
                &TABLE[self as usize]
            }
        }
    };
}

// There is one derivative per operand, so their number is the arity.
prims! {
    Neg "neg" Same ["-1"] "-x. Integers wrap: -MIN is MIN."
    Abs "abs" Same ["sign(x)"] "|x|. |MIN| is MIN; unsigned: x."
    Sign "sign" Same ["0"] "-1, 0 or 1. Floats: ±0 and NaN stay as they are."
    Floor "floor" Same ["0"] "The largest integer ≤ x; ±0, ±inf and NaN stay."
    Ceil "ceil" Same ["0"]
        "The smallest integer ≥ x; ±0, ±inf and NaN stay; above -1 and below 0 it is -0."
    Round "round" Same ["0"]
        "The nearest integer, halves to the even one; keeps the sign of zero."
    Exp "exp" Same ["r"] "eˣ. exp(-inf) = 0."
    Expm1 "expm1" Same ["exp(x)"] "eˣ - 1 without cancellation; keeps the sign of zero."
    Log "log" Same ["1 / x"] "Natural logarithm. log(±0) = -inf, log of a negative = NaN."
    Log1p "log1p" Same ["1 / (1 + x)"]
        "log(1 + x) without cancellation. log1p(-1) = -inf; keeps the sign of zero."
    Sqrt "sqrt" Same ["0.5 / r"] "Square root, correctly rounded. sqrt(-0) = -0, of a negative NaN."
    Sin "sin" Same ["cos(x)"] "Sine; sin(±inf) = NaN; keeps the sign of zero."
    Cos "cos" Same ["-sin(x)"] "Cosine; cos(±inf) = NaN."
    Tan "tan" Same ["1 + r * r"] "Tangent; tan(±inf) = NaN; keeps the sign of zero."
    Asin "asin" Same ["1 / sqrt((1 - x) * (1 + x))"] "Arc sine; beyond ±1 NaN."
    Acos "acos" Same ["-1 / sqrt((1 - x) * (1 + x))"] "Arc cosine; beyond ±1 NaN."
    Atan "atan" Same ["1 / (1 + x * x)"] "Arc tangent."
    Sinh "sinh" Same ["cosh(x)"] "Hyperbolic sine."
    Cosh "cosh" Same ["sinh(x)"] "Hyperbolic cosine."
    Tanh "tanh" Same ["1 - r * r"] "Hyperbolic tangent; ±1 at ±inf; keeps the sign of zero."
    Erf "erf" Same ["1.1283791670955126 * exp(-x * x)"]
        "Error function; ±1 at ±inf; keeps the sign of zero."
    IsNan "is_nan" Test ["0"] "Whether x is NaN; false on integers."
    IsInf "is_inf" Test ["0"] "Whether x is +inf or -inf; false on integers."
    Not "not" Same ["0"] "Bool: negation. Integers: every bit flipped."
    Add "add" Same ["1", "1"] "x + y. Integers wrap; bool: or."
    Sub "sub" Same ["1", "-1"] "x - y. Integers wrap; bool: exclusive or."
    Mul "mul" Same ["y", "x"] "x * y. Integers wrap; bool: and."
    Div "div" Same ["1 / y", "-r / y"]
        "x / y. Integers: toward zero; by zero -1 (all bits set), MIN / -1 = MIN."
    FloorDiv "floor_div" Same ["0", "0"]
        "The quotient rounded down. Integers: by zero -1 (all bits set), MIN // -1 = MIN. Floats: \
        as NumPy, from the exact remainder; by zero x / y, inf // y = NaN, a finite x by ±inf 0 \
        or -1; f16 and bf16 are worked in f32."
    Mod "mod" Same ["1", "-(x // y)"]
        "The remainder of floor_div, with the sign of y. Integers: by zero x, MIN % -1 = 0. \
        Floats: as NumPy; by zero NaN, inf % y = NaN, x % ±inf is x where the signs agree, else \
        ±inf, a zero result has the sign of y; f16 and bf16 are worked in f32."
    Pow "pow" Same [
        "select(y == 0, 0, y * x ** (y - 1))",
        "select((x == 0) & (y >= 0), 0, r * log(x))",
    ]
        "xʸ. Floats: IEEE pow (x⁰ = 1ʸ = 1 even for NaN; a negative x to a fraction NaN). \
        Integers: wraps; a negative y gives ±1 for x = ±1, else 0; 0⁰ = 1."
    Atan2 "atan2" Same [
        "select(s == 0, 0, y / select(s == 0, 1, s)) where s = x * x + y * y",
        "select(s == 0, 0, -x / select(s == 0, 1, s)) where s = x * x + y * y",
    ]
        "The angle of the point whose ordinate is x and abscissa y, with the IEEE results at \
        zeros and infinities."
    Min "min" Same [
        "select(x < y, 1, select(x > y, 0, 0.5))",
        "select(y < x, 1, select(y > x, 0, 0.5))",
    ]
        "The smaller operand; NaN if either is; min(-0, +0) = -0 in either order. Bool: and."
    Max "max" Same [
        "select(x > y, 1, select(x < y, 0, 0.5))",
        "select(y > x, 1, select(y < x, 0, 0.5))",
    ]
        "The larger operand; NaN if either is; max(-0, +0) = +0 in either order. Bool: or."
    Eq "eq" Test ["0", "0"] "x = y; false where either is NaN; -0 = +0."
    Ne "ne" Test ["0", "0"] "x ≠ y; true where either is NaN."
    Lt "lt" Test ["0", "0"] "x < y; false where either is NaN; false < true."
    Le "le" Test ["0", "0"] "x ≤ y; false where either is NaN."
    Gt "gt" Test ["0", "0"] "x > y; false where either is NaN."
    Ge "ge" Test ["0", "0"] "x ≥ y; false where either is NaN."
    And "and" Same ["0", "0"] "Bitwise and; on bool logical."
    Or "or" Same ["0", "0"] "Bitwise or; on bool logical."
    Xor "xor" Same ["0", "0"] "Bitwise exclusive or; on bool logical."
    ShiftLeft "shift_left" Same ["0", "0"]
        "x shifted left by y bits, zeros coming in; 0 where y is negative or at least the width."
    ShiftRight "shift_right" Same ["0", "0"]
        "x shifted right by y bits. Unsigned: zeros come in. Signed: the sign bit. A y that is \
        negative or at least the width shifts everything out (0, or -1 for a negative x)."
    Select "select" Select ["0", "select(x, 1, 0)", "select(x, 0, 1)"] "y where x, else z."
    Cast "cast" Cast ["1"]
        "x in another dtype. Float to integer: toward zero, saturating, NaN 0. Integer to float: \
        rounded once. Integer to integer: the low bits. To bool: x ≠ 0 (NaN true). From bool: 0 \
        or 1. Float to float: rounded, overflow to ±inf (f8e4m3, which has no inf: NaN)."
}

impl Prim {
    /// The name in scalar expressions: `floor_div`.
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    pub fn from_name(name: &str) -> Option<Prim> {
        Prim::ALL.iter().copied().find(|p| p.name() == name)
    }

    /// The definition, one or two sentences of prose.
    pub fn doc(self) -> &'static str {
        self.entry().doc
    }

    /// Number of operands, 1 to 3.
    pub fn arity(self) -> usize {
        self.entry().derivatives.len()
    }

    pub fn signature(self) -> Signature {
        self.entry().signature
    }

    /// Whether a machine needs only a few instructions for it, rather than a series expansion.
    pub fn is_cheap(self) -> bool {
        use Prim::*;
        !matches!(
            self,
            Exp | Expm1
                | Log
                | Log1p
                | Sin
                | Cos
                | Tan
                | Asin
                | Acos
                | Atan
                | Sinh
                | Cosh
                | Tanh
                | Erf
                | Pow
                | Atan2
        )
    }

    /// The partial derivative by each operand, as scalar expressions in [`DERIVATIVE_NAMES`]. Ties
    /// split evenly; at jumps the derivative is 0.
    pub fn derivatives(self) -> &'static [&'static str] {
        self.entry().derivatives
    }
}

/// The value of one element. Integers are stored as in [`crate::eval::array::Data`], bools as 0 or
/// 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Scalar {
    F(f64),
    I(i64),
}

impl Scalar {
    /// A bool, as 0 or 1.
    pub fn bool(b: bool) -> Scalar {
        Scalar::I(b.into())
    }

    /// A number as an element of `dtype`: rounded, or cast for integers.
    pub fn number(dtype: DType, x: f64) -> Scalar {
        Scalar::F(x).cast(DType::F64, dtype)
    }

    /// The float, or the stored integer rounded to f64.
    pub fn float(self) -> f64 {
        match self {
            Scalar::F(x) => x,
            Scalar::I(v) => v as f64,
        }
    }

    /// The stored integer, or the float cast to i64.
    pub fn int(self) -> i64 {
        match self {
            Scalar::F(x) => x as i64,
            Scalar::I(v) => v,
        }
    }

    /// Whether it is not zero.
    pub fn truth(self) -> bool {
        match self {
            Scalar::F(x) => x != 0.0,
            Scalar::I(v) => v != 0,
        }
    }

    /// Casts as [`Prim::Cast`] does.
    pub fn cast(self, from: DType, to: DType) -> Scalar {
        match self {
            Scalar::F(x) if to.is_float() => Scalar::F(round::round(to, x)),
            Scalar::F(x) => Scalar::I(round::saturate(to, x)),
            Scalar::I(v) if to.is_float() => Scalar::F(round::from_int(to, round::wide(from, v))),
            Scalar::I(v) => Scalar::I(round::wrap(to, v)),
        }
    }
}

/// Applies `prim` to operands of `dtype` (for select, the dtype of its last two operands). The
/// signature determines the result's dtype; a cast gives `cast_to`, or `dtype` if that is `None`.
///
/// # Panics
/// If there are fewer operands than the arity.
pub fn apply(prim: Prim, dtype: DType, args: &[Scalar], cast_to: Option<DType>) -> Scalar {
    let [x, y] = [args[0], if prim.arity() > 1 { args[1] } else { args[0] }];
    match prim.signature() {
        Signature::Select => {
            if x.truth() {
                y
            } else {
                args[2]
            }
        }
        Signature::Cast => x.cast(dtype, cast_to.unwrap_or(dtype)),
        Signature::Test if dtype.is_float() => {
            Scalar::bool(float::test(prim, x.float(), y.float()))
        }
        Signature::Test => {
            let [x, y] = [x, y].map(|v| round::wide(dtype, v.int()));
            Scalar::bool(int::test(prim, x, y))
        }
        Signature::Same if dtype.is_float() => {
            let r = float::apply(prim, dtype, x.float(), y.float());
            Scalar::F(round::round(dtype, r))
        }
        Signature::Same => Scalar::I(round::wrap(dtype, int::apply(prim, dtype, x.int(), y.int()))),
    }
}
