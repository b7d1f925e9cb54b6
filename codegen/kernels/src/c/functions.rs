//! The functions that generated C has for itself: what the op table says of a primitive where C
//! leaves it open, and floats of fewer bits.

use mithril_ir::dtype::DType;
use mithril_ir::scalar::Prim;
use mithril_ir::scalar::round::{int_range, mantissa_bits, max_finite};

use crate::entry::c_type;

/// A function, printed where it is used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Function {
    /// A primitive on integers or floats of this dtype.
    Prim(Prim, DType),
    /// A float as an integer.
    Whole { from: DType, to: DType },
    /// The value of a float of fewer bits than 32.
    Widen(DType),
    /// An f32 rounded to one of fewer bits.
    Narrow(DType),
    /// An f64 as an f32 that rounds to fewer bits as the f64 does.
    ToOdd,
    /// `x * y + z`, as is faster.
    MulAdd(DType),
    /// The same bits as another dtype.
    Bits { from: DType, to: DType },
}

impl Function {
    pub fn name(self) -> String {
        match self {
            Function::Prim(prim, dtype) => format!("{}_{dtype}", prim.name()),
            Function::Whole { from, to } => format!("{to}_of_{from}"),
            Function::Widen(from) => format!("f32_of_{from}"),
            Function::Narrow(to) => format!("{to}_of_f32"),
            Function::ToOdd => "f32_of_f64_to_odd".into(),
            Function::MulAdd(dtype) => format!("mul_add_{dtype}"),
            Function::Bits { from, to } => format!("{to}_bits_of_{from}"),
        }
    }

    /// What it calls.
    pub fn needs(self) -> Vec<Function> {
        let bits = |from, to| Function::Bits { from, to };
        match self {
            Function::Widen(_) => vec![bits(DType::U32, DType::F32)],
            Function::Narrow(_) => vec![bits(DType::F32, DType::U32)],
            Function::ToOdd => vec![bits(DType::F32, DType::U32), bits(DType::U32, DType::F32)],
            Function::MulAdd(_)
            | Function::Prim(..)
            | Function::Whole { .. }
            | Function::Bits { .. } => vec![],
        }
    }

    /// Its definition, with a comment that says what it gives.
    pub fn text(self) -> String {
        let name = self.name();
        let (about, result, args, body) = match self {
            Function::Prim(prim, dtype) if dtype.is_float() => float(prim, dtype),
            Function::Prim(prim, dtype) => integer(prim, dtype),
            Function::Whole { from, to } => whole(from, to),
            Function::Widen(DType::BF16) => (
                "The value of a bfloat16 by its bits.".into(),
                "float",
                "uint16_t x".into(),
                "return f32_bits_of_u32((uint32_t)x << 16);".into(),
            ),
            Function::Widen(from) => widen(from),
            Function::Narrow(DType::BF16) => (
                "The bits of the nearest bfloat16, ties to even.".into(),
                "uint16_t",
                "float x".into(),
                "const uint32_t bits = u32_bits_of_f32(x);\n\
                 if (x != x) return (uint16_t)(bits >> 16 | 0x40);\n\
                 return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);"
                    .into(),
            ),
            Function::Narrow(to) => narrow(to),
            Function::ToOdd => (
                "A double cut to a float whose last bit is set where something was cut off: to \
                 round that is to round once."
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

/// What a function is about, the type of its result, its parameters and its body.
type Parts = (String, &'static str, String, String);

/// `x` and `y`, both of this type.
fn two(ty: &str) -> String {
    format!("{ty} x, {ty} y")
}

fn float(prim: Prim, dtype: DType) -> Parts {
    let ty = c_type(dtype);
    let (f, one) = if dtype == DType::F64 { ("", "1.0") } else { ("f", "1.0f") };
    let zero = if dtype == DType::F64 { "0.0" } else { "0.0f" };
    let half = if dtype == DType::F64 { "0.5" } else { "0.5f" };
    let (about, body) = match prim {
        Prim::Min => (
            "The lesser; NaN if either is; -0 before +0.",
            "if (x == y) return signbit(x) ? x : y;\nreturn x < y || x != x ? x : y;".to_string(),
        ),
        Prim::Max => (
            "The greater; NaN if either is; +0 before -0.",
            "if (x == y) return signbit(x) ? y : x;\nreturn x > y || x != x ? x : y;".to_string(),
        ),
        Prim::Mod => (
            "The remainder of the quotient rounded down, with the sign of y.",
            format!(
                "{ty} rest = fmod{f}(x, y);\n\
                 if (rest != 0 && (rest < 0) != (y < 0)) rest += y;\n\
                 return rest == 0 ? copysign{f}({zero}, y) : rest;"
            ),
        ),
        // What else reaches here is a quotient rounded down.
        _ => (
            "The quotient rounded down, from the exact remainder.",
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

/// The unsigned type of the same width, and one that is not promoted to a signed one.
fn unsigned(dtype: DType) -> (&'static str, &'static str) {
    match dtype.bits() {
        64 => ("uint64_t", "uint64_t"),
        32 => ("uint32_t", "uint32_t"),
        16 => ("uint16_t", "uint32_t"),
        _ => ("uint8_t", "uint32_t"),
    }
}

fn integer(prim: Prim, dtype: DType) -> Parts {
    let (ty, signed, bits) = (c_type(dtype), dtype.is_signed_int(), dtype.bits());
    let (same, wide) = unsigned(dtype);
    let wraps = |sign: &str| format!("return ({ty})(({wide})x {sign} ({wide})y);");
    let minus = format!("({ty})(0 - ({wide})x)");
    let below = "rest != 0 && (rest < 0) != (y < 0)";
    let (about, body) = match prim {
        Prim::Add => ("x + y, which wraps.", wraps("+")),
        Prim::Sub => ("x - y, which wraps.", wraps("-")),
        Prim::Mul => ("x * y, which wraps.", wraps("*")),
        Prim::Neg => ("-x, which wraps.", format!("return {minus};")),
        Prim::Abs if signed => {
            ("|x|; of the least, itself.", format!("return x < 0 ? {minus} : x;"))
        }
        Prim::Abs => ("x.", "return x;".into()),
        Prim::Min => ("The lesser.", "return x < y ? x : y;".into()),
        Prim::Max => ("The greater.", "return x > y ? x : y;".into()),
        Prim::Div | Prim::FloorDiv if !signed => {
            ("The quotient; by zero all bits set.", format!("return y == 0 ? ({ty})-1 : x / y;"))
        }
        Prim::Mod if !signed => ("The remainder; by zero x.", "return y == 0 ? x : x % y;".into()),
        Prim::Div => (
            "The quotient toward zero; by zero -1, and of the least by -1 the least.",
            format!("if (y == 0) return -1;\nreturn y == -1 ? {minus} : ({ty})(x / y);"),
        ),
        Prim::FloorDiv => (
            "The quotient rounded down; by zero -1, and of the least by -1 the least.",
            format!(
                "if (y == 0) return -1;\nif (y == -1) return {minus};\n\
                 const {ty} rest = ({ty})(x % y);\nreturn ({ty})(x / y - ({below}));"
            ),
        ),
        Prim::Mod => (
            "The remainder of the quotient rounded down, with the sign of y; by zero x.",
            format!(
                "if (y == 0) return x;\nif (y == -1) return 0;\n\
                 const {ty} rest = ({ty})(x % y);\nreturn {below} ? ({ty})(rest + y) : rest;"
            ),
        ),
        Prim::ShiftLeft => (
            "x shifted left; 0 where all bits are shifted out.",
            format!("return ({same})y < {bits} ? ({ty})(({wide})x << y) : 0;"),
        ),
        Prim::ShiftRight if signed => (
            "x shifted right, the sign bit coming in.",
            format!("return ({ty})(x >> (({same})y < {bits} ? y : {}));", bits - 1),
        ),
        Prim::ShiftRight => (
            "x shifted right; 0 where all bits are shifted out.",
            format!("return y < {bits} ? ({ty})(x >> y) : 0;"),
        ),
        // What else reaches here is a power.
        _ => {
            let negative = match signed {
                true => "if (y < 0) return x == 1 ? 1 : x == -1 ? (y % 2 != 0 ? -1 : 1) : 0;\n",
                false => "",
            };
            (
                "x to the power of y, which wraps; to a negative one what is whole of it.",
                format!(
                    "{negative}{wide} base = ({wide})x, power = 1;\n\
                     for ({same} n = ({same})y; n != 0; n >>= 1) {{\n\
                     \x20 if (n & 1) power *= base;\n  base *= base;\n}}\nreturn ({ty})power;"
                ),
            )
        }
    };
    let args = if matches!(prim, Prim::Neg | Prim::Abs) { format!("{ty} x") } else { two(ty) };
    (about.into(), ty, args, body)
}

/// Toward zero; beyond the range its end, and 0 for NaN.
fn whole(from: DType, to: DType) -> Parts {
    let (ty, (low, high)) = (c_type(to), int_range(to));
    let f = if from == DType::F64 { "" } else { "f" };
    let end = |value: i128| match value {
        v if v == i64::MIN.into() => "INT64_MIN".to_string(),
        v if v == i32::MIN.into() => "INT32_MIN".to_string(),
        v if v == u64::MAX.into() => "UINT64_MAX".to_string(),
        v if v == i64::MAX.into() => "INT64_MAX".to_string(),
        v if v == u32::MAX.into() => "UINT32_MAX".to_string(),
        v => v.to_string(),
    };
    let (low_text, high_text) = (end(low), end(high));
    let bound = |value: i128| format!("{:?}{f}", value as f64);
    let body = format!(
        "if (x >= {}) return {high_text};\nif (x <= {}) return {low_text};\n\
         return x == x ? ({ty})x : 0;",
        bound(high + 1),
        bound(low)
    );
    let about = "Toward zero; beyond the range its end, and 0 for NaN.";
    (about.into(), ty, format!("{} x", c_type(from)), body)
}

/// What the exponents of a dtype are moved by.
fn bias(dtype: DType) -> u32 {
    match dtype {
        DType::F8E4M3 => 7,
        _ => 15,
    }
}

/// The bits of the least NaN, of a dtype without infinity, or of infinity.
fn end(dtype: DType) -> u32 {
    match dtype {
        DType::F8E4M3 => 0x7f,
        DType::F8E5M2 => 0x7c,
        _ => 0x7c00,
    }
}

fn widen(from: DType) -> Parts {
    let (ty, mantissa, width) = (c_type(from), mantissa_bits(from), from.bits());
    let (shift, sign) = (23 - mantissa, 1u32 << (width - 1));
    let ends = match from {
        DType::F8E4M3 => format!("if (code == {:#x}) return NAN;\n", end(from)),
        _ => format!(
            "if (code > {0:#x}) return NAN;\n\
             if (code == {0:#x}) return sign != 0 ? -INFINITY : INFINITY;\n",
            end(from)
        ),
    };
    let scale = 127 - bias(from);
    let body = format!(
        "const uint32_t sign = (uint32_t)(x & {sign:#x}) << {};\n\
         const uint32_t code = x & {:#x};\n{ends}\
         const float magnitude = f32_bits_of_u32(code << {shift}) * 0x1p{scale}f;\n\
         return sign != 0 ? -magnitude : magnitude;",
        32 - width,
        sign - 1
    );
    let about = format!("The value of a float of the dtype {from} by its bits.");
    (about, "float", format!("{ty} x"), body)
}

fn narrow(to: DType) -> Parts {
    let (ty, mantissa, width) = (c_type(to), mantissa_bits(to), to.bits());
    let (shift, bias) = (23 - mantissa, bias(to));
    let nan = match to {
        DType::F16 => 0x7e00,
        DType::F8E5M2 => 0x7e,
        _ => 0x7f,
    };
    // Half a unit beyond the largest value a tie goes to the even one: to it, or beyond it.
    let largest = max_finite(to);
    let unit = 2f64.powi(largest.log2().floor() as i32 - mantissa as i32);
    let tie = largest + unit / 2.0;
    let beyond = if to == DType::F8E4M3 { ">" } else { ">=" };
    let least = 1 - bias as i32;
    let body = format!(
        "const uint32_t bits = u32_bits_of_f32(x);\n\
         const uint32_t sign = bits >> {} & {:#x};\n\
         const float magnitude = fabsf(x);\n\
         if (x != x) return {nan:#x};\n\
         if (magnitude {beyond} {tie:?}f) return ({ty})(sign | {:#x});\n\
         if (magnitude < 0x1p{least}f) {{\n\
         \x20 return ({ty})(sign | (uint32_t)rintf(magnitude * 0x1p{}f));\n}}\n\
         const uint32_t even = (bits & 0x7fffffff) + {:#x} + (bits >> {shift} & 1);\n\
         return ({ty})(sign | (even - ({}u << 23)) >> {shift});",
        32 - width,
        1u32 << (width - 1),
        end(to),
        mantissa as i32 - least,
        (1u32 << (shift - 1)) - 1,
        127 - bias,
    );
    let about = format!("The bits of the nearest float of the dtype {to}, ties to even.");
    (about, ty, "float x".into(), body)
}

fn mul_add(dtype: DType) -> Parts {
    let (ty, f, fast) = match dtype {
        DType::F64 => ("double", "", "FP_FAST_FMA"),
        _ => ("float", "f", "FP_FAST_FMAF"),
    };
    let body = format!("#ifdef {fast}\nreturn fma{f}(x, y, z);\n#else\nreturn x * y + z;\n#endif");
    let about = "x * y + z, rounded once where the processor has an instruction for it.";
    (about.into(), ty, format!("{ty} x, {ty} y, {ty} z"), body)
}

fn bits(from: DType, to: DType) -> Parts {
    let (source, target) = (c_type(from), c_type(to));
    let about = format!("The bits of `{source}` as `{target}`.");
    let body = format!("{target} result;\nmemcpy(&result, &x, sizeof result);\nreturn result;");
    (about, target, format!("{source} x"), body)
}
