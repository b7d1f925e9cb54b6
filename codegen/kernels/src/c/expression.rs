//! C expressions as text, with their precedence, which determines parentheses.

use mithril_ir::dtype::DType;

use crate::entry::c_type;

/// The precedence of an expression, tightest first. Operands of [`Level::Other`] operators get
/// parentheses unless they are unary expressions or atoms.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Names, calls, elements of arrays, numbers.
    Atom,
    /// Casts and signs.
    Unary,
    Product,
    Sum,
    Comparison,
    /// Bit operations, shifts and conditional expressions.
    Other,
}

#[derive(Clone, Debug)]
pub struct Expr {
    pub text: String,
    pub level: Level,
    /// Whether it reads memory, so that it must be evaluated before memory changes.
    pub reads: bool,
    /// The operands, if the expression is a sum.
    pub sum: Option<(String, String)>,
}

impl Expr {
    pub fn atom(text: impl Into<String>) -> Expr {
        Expr::new(text, Level::Atom)
    }

    pub fn new(text: impl Into<String>, level: Level) -> Expr {
        Expr { text: text.into(), level, reads: false, sum: None }
    }

    pub fn reading(self, reads: bool) -> Expr {
        Expr { reads: self.reads | reads, ..self }
    }

    /// The text, in parentheses if its precedence is lower than `level`.
    pub fn at(&self, level: Level) -> String {
        if self.level <= level { self.text.clone() } else { format!("({})", self.text) }
    }

    /// A binary operation such as `x + y`. The right operand must bind more tightly.
    pub fn binary(x: &Expr, sign: &str, y: &Expr, level: Level) -> Expr {
        let right = match level {
            Level::Product => Level::Unary,
            Level::Sum => Level::Product,
            _ => Level::Sum,
        };
        let left = if level == Level::Comparison { Level::Sum } else { level };
        let (left, right) = match level {
            Level::Other => (x.at(Level::Unary), y.at(Level::Unary)),
            _ => (x.at(left), y.at(right)),
        };
        let text = format!("{left} {sign} {right}");
        let sum = (sign == "+").then_some((left, right));
        Expr { text, level, reads: x.reads | y.reads, sum }
    }

    /// A function call.
    pub fn call(name: &str, args: &[Expr]) -> Expr {
        let texts: Vec<&str> = args.iter().map(|arg| arg.text.as_str()).collect();
        let reads = args.iter().any(|arg| arg.reads);
        Expr::atom(format!("{name}({})", texts.join(", "))).reading(reads)
    }

    pub fn cast(ty: &str, x: &Expr) -> Expr {
        Expr::new(format!("({ty}){}", x.at(Level::Unary)), Level::Unary).reading(x.reads)
    }

    /// `condition ? yes : no`.
    pub fn choice(condition: &Expr, yes: &Expr, no: &Expr) -> Expr {
        let [condition, yes, no] = [condition, yes, no].map(|x| (x.at(Level::Comparison), x.reads));
        let text = format!("{} ? {} : {}", condition.0, yes.0, no.0);
        Expr::new(text, Level::Other).reading(condition.1 | yes.1 | no.1)
    }
}

/// The words in a text: names, keywords and numbers.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

/// The C type of a variable of a dtype.
pub fn variable_type(dtype: DType) -> &'static str {
    if dtype == DType::Bool { "bool" } else { c_type(dtype) }
}

/// The literal for a number that is given by its bits.
pub fn literal(dtype: DType, bits: u64) -> Expr {
    let (text, negative) = match dtype {
        DType::Bool => ((bits & 1 != 0).to_string(), false),
        DType::F64 => (decimal(f64::from_bits(bits), ""), f64::from_bits(bits).is_sign_negative()),
        DType::F32 => {
            let x = f32::from_bits(bits as u32);
            (if x.is_finite() { format!("{x:?}f") } else { decimal(x.into(), "f") }, x < 0.0)
        }
        _ if dtype.is_float() => (format!("0x{bits:x}"), false),
        _ => integer(dtype, bits),
    };
    let negative = negative || text.starts_with('-');
    Expr::new(text, if negative { Level::Unary } else { Level::Atom })
}

/// The shortest decimal that parses to the same number.
fn decimal(x: f64, end: &str) -> String {
    match x {
        x if x.is_nan() => "NAN".into(),
        f64::INFINITY => "INFINITY".into(),
        f64::NEG_INFINITY => "-INFINITY".into(),
        x => format!("{x:?}{end}"),
    }
}

fn integer(dtype: DType, bits: u64) -> (String, bool) {
    let unused = 64 - dtype.bits();
    let value = ((bits << unused) as i64) >> unused;
    if dtype.is_unsigned_int() {
        let value = bits << unused >> unused;
        return match dtype {
            DType::U64 if value > u32::MAX.into() => (format!("UINT64_C({value})"), false),
            DType::U32 | DType::U64 => (format!("{value}u"), false),
            _ => (value.to_string(), false),
        };
    }
    match value {
        i64::MIN => ("INT64_MIN".into(), false),
        // `-2147483648` would have a wider type, because it negates the literal 2147483648.
        v if dtype == DType::I32 && v == i32::MIN.into() => ("INT32_MIN".into(), false),
        v if i32::try_from(v).is_err() => (format!("INT64_C({v})"), false),
        v => (v.to_string(), v < 0),
    }
}
