//! Helper functions that generated C defines: primitives that C defines less strictly than the op
//! table, and conversions of narrow floats.

pub mod formula;
mod storage;

use mithril_ir::dtype::DType;
use mithril_ir::scalar::Prim;
use rustc_hash::FxHashSet;

use crate::code::Callee;
use crate::entry::c_type;
use storage::{bits, narrow, to_integer, widen};

/// A helper function. It is printed only if it is used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Function {
    /// A primitive on integers or floats of this dtype.
    Prim(Prim, DType),
    /// A function on floats of this dtype, printed from its formula.
    Formula(Callee, DType),
    /// Selects one of two numbers without a branch.
    Select(DType),
    /// Converts a float to an integer.
    ToInteger { from: DType, to: DType },
    /// Converts a float narrower than 32 bits to f32.
    Widen(DType),
    /// Rounds an f32 to a narrower float.
    Narrow(DType),
    /// Rounds an f64 to odd in f32. Rounding the f32 to a narrower float then gives the same result
    /// as rounding the f64.
    ToOdd,
    /// `x * y + z`, rounded once or twice, whichever is faster.
    MulAdd(DType),
    /// Reinterprets the bits as another dtype.
    Bits { from: DType, to: DType },
}

impl Function {
    pub fn name(self) -> String {
        match self {
            Function::Prim(prim, dtype) => format!("{}_{dtype}", prim.name()),
            Function::Formula(callee, dtype) => formula::name(callee, dtype),
            Function::Select(dtype) => format!("select_{dtype}"),
            Function::ToInteger { from, to } => format!("{to}_of_{from}"),
            Function::Widen(from) => format!("f32_of_{from}"),
            Function::Narrow(to) => format!("{to}_of_f32"),
            Function::ToOdd => "f32_of_f64_to_odd".into(),
            Function::MulAdd(dtype) => format!("mul_add_{dtype}"),
            Function::Bits { from, to } => format!("{to}_bits_of_{from}"),
        }
    }

    /// The functions that this function calls.
    pub fn needs(self) -> Vec<Function> {
        let bits = |from, to| Function::Bits { from, to };
        match self {
            Function::Widen(_) => vec![bits(DType::U32, DType::F32)],
            Function::Narrow(_) => vec![bits(DType::F32, DType::U32)],
            Function::ToOdd => vec![bits(DType::F32, DType::U32), bits(DType::U32, DType::F32)],
            Function::Formula(callee, dtype) => {
                let mut needs = FxHashSet::default();
                formula::parts(callee, dtype, &mut needs);
                needs.into_iter().collect()
            }
            Function::Select(dtype @ (DType::F32 | DType::F64)) => {
                let own = if dtype == DType::F64 { DType::I64 } else { DType::I32 };
                vec![bits(dtype, own), bits(own, dtype)]
            }
            Function::MulAdd(_)
            | Function::Prim(..)
            | Function::Select(_)
            | Function::ToInteger { .. }
            | Function::Bits { .. } => vec![],
        }
    }

    /// The level in the call order: functions only call functions of lower levels.
    pub fn level(self) -> u32 {
        match self {
            Function::Bits { .. } | Function::MulAdd(_) => 0,
            Function::Formula(..) => 2,
            _ => 1,
        }
    }

    /// The definition, with a comment that describes the result.
    pub fn text(self) -> String {
        let name = self.name();
        let (about, result, args, body) = match self {
            Function::Formula(callee, dtype) => {
                formula::parts(callee, dtype, &mut FxHashSet::default())
            }
            Function::Select(dtype) => formula::select(dtype),
            Function::Prim(prim, dtype) if dtype.is_float() => float(prim, dtype),
            Function::Prim(prim, dtype) => integer(prim, dtype),
            Function::ToInteger { from, to } => to_integer(from, to),
            Function::Widen(DType::BF16) => (
                "Converts a bfloat16, given by its bits, to float.".into(),
                "float",
                "uint16_t x".into(),
                "return f32_bits_of_u32((uint32_t)x << 16);".into(),
            ),
            Function::Widen(from) => widen(from),
            Function::Narrow(DType::BF16) => (
                "Rounds to the nearest bfloat16, ties to even, and returns its bits.".into(),
                "uint16_t",
                "float x".into(),
                "const uint32_t bits = u32_bits_of_f32(x);\n\
                 if (x != x) return (uint16_t)(bits >> 16 | 0x40);\n\
                 return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);"
                    .into(),
            ),
            Function::Narrow(to) => narrow(to),
            Function::ToOdd => (
                "Rounds a double to float, toward zero, and sets the last bit if that is inexact \
                 (round to odd). Rounding the result to a narrower type then rounds correctly."
                    .into(),
                "float",
                "double x".into(),
                "const float nearest = (float)x;\n\
                 if (nearest == x || x != x) return nearest;\n\
                 const uint32_t bits = u32_bits_of_f32(nearest);\n\
                 return f32_bits_of_u32((bits - (fabs(nearest) > fabs(x))) | 1);"
                    .into(),
            ),
            Function::MulAdd(dtype) => mul_add(dtype),
            Function::Bits { from, to } => bits(from, to),
        };
        let indented = |line: &str| match line.starts_with('#') {
            true => format!("{line}\n"),
            false => format!("  {line}\n"),
        };
        let body: String = body.lines().map(indented).collect();
        format!("/* {about} */\nstatic inline {result} {name}({args}) {{\n{body}}}\n")
    }
}

/// The description, the result type, the parameters and the body of a function.
type Parts = (String, &'static str, String, String);

/// Parameters `x` and `y`, both of this type.
fn two(ty: &str) -> String {
    format!("{ty} x, {ty} y")
}

fn float(prim: Prim, dtype: DType) -> Parts {
    let ty = c_type(dtype);
    let (f, one) = if dtype == DType::F64 { ("", "1.0") } else { ("f", "1.0f") };
    let zero = if dtype == DType::F64 { "0.0" } else { "0.0f" };
    let half = if dtype == DType::F64 { "0.5" } else { "0.5f" };
    let (about, body) = match prim {
        Prim::Mod => (
            "The remainder of floor division, with the sign of y.",
            format!(
                "{ty} rest = fmod{f}(x, y);\n\
                 if (rest != 0 && (rest < 0) != (y < 0)) rest += y;\n\
                 return rest == 0 ? copysign{f}({zero}, y) : rest;"
            ),
        ),
        // The only other primitive here is the floor division.
        _ => (
            "Floor division, computed from the exact remainder.",
            format!(
                "if (y == 0) return x / y;\n\
                 const {ty} rest = fmod{f}(x, y);\n\
                 {ty} quotient = (x - rest) / y;\n\
                 if (rest != 0 && (rest < 0) != (y < 0)) quotient -= {one};\n\
                 if (quotient == 0) return copysign{f}({zero}, x / y);\n\
                 const {ty} down = floor{f}(quotient);\n\
                 return quotient - down > {half} ? down + {one} : down;"
            ),
        ),
    };
    (about.into(), ty, two(ty), body)
}

/// The unsigned type of the same width, and an unsigned type that C does not promote to a signed
/// type.
fn unsigned(dtype: DType) -> (&'static str, &'static str) {
    match dtype.bits() {
        64 => ("uint64_t", "uint64_t"),
        32 => ("uint32_t", "uint32_t"),
        16 => ("uint16_t", "uint32_t"),
        _ => ("uint8_t", "uint32_t"),
    }
}

fn integer(prim: Prim, dtype: DType) -> Parts {
    let parts = match prim {
        Prim::Div | Prim::FloorDiv | Prim::Mod => quotient(prim, dtype),
        Prim::ShiftLeft | Prim::ShiftRight => shift(prim, dtype),
        Prim::Pow => power(dtype),
        _ => wrapping(prim, dtype),
    };
    let (about, body) = parts;
    let ty = c_type(dtype);
    let args = if matches!(prim, Prim::Neg | Prim::Abs) { format!("{ty} x") } else { two(ty) };
    (about.into(), ty, args, body)
}

fn wrapping(prim: Prim, dtype: DType) -> (&'static str, String) {
    let (ty, (_, wide)) = (c_type(dtype), unsigned(dtype));
    let wraps = |sign: &str| format!("return ({ty})(({wide})x {sign} ({wide})y);");
    match prim {
        Prim::Add => ("x + y, wrapping around.", wraps("+")),
        Prim::Sub => ("x - y, wrapping around.", wraps("-")),
        Prim::Mul => ("x * y, wrapping around.", wraps("*")),
        Prim::Min => ("The minimum.", "return x < y ? x : y;".into()),
        Prim::Max => ("The maximum.", "return x > y ? x : y;".into()),
        Prim::Abs if dtype.is_signed_int() => {
            ("|x|, wrapping around.", format!("return x < 0 ? {} : x;", minus(dtype)))
        }
        Prim::Abs => ("x.", "return x;".into()),
        // The only other primitive here is the negation.
        _ => ("-x, wrapping around.", format!("return {};", minus(dtype))),
    }
}

/// The expression -x, wrapping around.
fn minus(dtype: DType) -> String {
    format!("({})(0 - ({})x)", c_type(dtype), unsigned(dtype).1)
}

/// Truncating division, floor division, and the remainder of floor division.
fn quotient(prim: Prim, dtype: DType) -> (&'static str, String) {
    let (ty, minus) = (c_type(dtype), minus(dtype));
    let below = "rest != 0 && (rest < 0) != (y < 0)";
    let rest = format!("const {ty} rest = ({ty})(x % y);");
    match (prim, dtype.is_signed_int()) {
        (Prim::Mod, false) => ("The remainder; x if y is 0.", "return y == 0 ? x : x % y;".into()),
        (_, false) => {
            ("The quotient; all bits set if y is 0.", format!("return y == 0 ? ({ty})-1 : x / y;"))
        }
        (Prim::Mod, true) => (
            "The remainder of floor division, with the sign of y; x if y is 0.",
            format!(
                "if (y == 0) return x;\nif (y == -1) return 0;\n\
                 {rest}\nreturn {below} ? ({ty})(rest + y) : rest;"
            ),
        ),
        (Prim::Div, true) => (
            "The quotient, truncated; -1 if y is 0. Division by -1 wraps around.",
            format!("if (y == 0) return -1;\nreturn y == -1 ? {minus} : ({ty})(x / y);"),
        ),
        (_, true) => (
            "Floor division; -1 if y is 0. Division by -1 wraps around.",
            format!(
                "if (y == 0) return -1;\nif (y == -1) return {minus};\n\
                 {rest}\nreturn ({ty})(x / y - ({below}));"
            ),
        ),
    }
}

fn shift(prim: Prim, dtype: DType) -> (&'static str, String) {
    let (ty, bits, (same, wide)) = (c_type(dtype), dtype.bits(), unsigned(dtype));
    match (prim, dtype.is_signed_int()) {
        (Prim::ShiftLeft, _) => (
            "x shifted left; 0 if all bits are shifted out.",
            format!("return ({same})y < {bits} ? ({ty})(({wide})x << y) : 0;"),
        ),
        (_, true) => (
            "x shifted right, filled with the sign bit.",
            format!("return ({ty})(x >> (({same})y < {bits} ? y : {}));", bits - 1),
        ),
        (_, false) => (
            "x shifted right; 0 if all bits are shifted out.",
            format!("return y < {bits} ? ({ty})(x >> y) : 0;"),
        ),
    }
}

fn power(dtype: DType) -> (&'static str, String) {
    let (ty, (same, wide)) = (c_type(dtype), unsigned(dtype));
    let negative = match dtype.is_signed_int() {
        true => "if (y < 0) return x == 1 ? 1 : x == -1 ? (y % 2 != 0 ? -1 : 1) : 0;\n",
        false => "",
    };
    let body = format!(
        "{negative}{wide} base = ({wide})x, power = 1;\n\
         for ({same} n = ({same})y; n != 0; n >>= 1) {{\n\
         \x20 if (n & 1) power *= base;\n  base *= base;\n}}\nreturn ({ty})power;"
    );
    ("x to the power of y, wrapping around. Negative powers are truncated.", body)
}

fn mul_add(dtype: DType) -> Parts {
    let (ty, f, fast) = match dtype {
        DType::F64 => ("double", "", "FP_FAST_FMA"),
        _ => ("float", "f", "FP_FAST_FMAF"),
    };
    let body = format!("#ifdef {fast}\nreturn fma{f}(x, y, z);\n#else\nreturn x * y + z;\n#endif");
    let about =
        "x * y + z, rounded once if the processor has an instruction for it, otherwise twice.";
    (about.into(), ty, format!("{ty} x, {ty} y, {ty} z"), body)
}
