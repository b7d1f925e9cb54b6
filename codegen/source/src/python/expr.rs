//! Python expressions. Templates are parsed into them, and statements are printed from them.

use std::fmt::{self, Write};

/// A Python expression. `Slot` occurs only in templates.
#[derive(Clone, PartialEq, Debug)]
pub enum Expr {
    Name(String),
    /// A number or a string, as its text.
    Literal(String),
    Unary(&'static str, Box<Expr>),
    Binary(Box<Expr>, &'static str, Box<Expr>),
    Attribute(Box<Expr>, String),
    Call(Box<Expr>, Vec<Argument>),
    Index(Box<Expr>, Vec<Expr>),
    /// `start:stop:step` inside an index.
    Range([Option<Box<Expr>>; 3]),
    Tuple(Vec<Expr>),
    List(Vec<Expr>),
    Dict(Vec<(String, Expr)>),
    Starred(Box<Expr>),
    /// Parameters and the body.
    Lambda(Vec<String>, Box<Expr>),
    Slot(String),
}

/// An argument of a call.
#[derive(Clone, PartialEq, Debug)]
pub struct Argument {
    pub keyword: Option<String>,
    pub value: Expr,
    /// In templates: the optional segment it belongs to.
    pub segment: Option<u32>,
}

/// One element of the tuple that a call returns.
#[derive(Debug)]
pub struct CallPart {
    pub call: Expr,
    pub at: usize,
    pub count: usize,
}

/// The maximum number of parts of a call.
pub const MAX_PARTS: usize = 16;

/// The precedence of an expression: a weaker one inside a stronger one needs parentheses.
pub type Strength = u8;

pub const COMPARISON: Strength = 1;
pub const UNARY: Strength = 8;
pub const POWER: Strength = 9;
const POSTFIX: Strength = 10;

/// Binary operators with their precedence. An operator stands before its own prefixes: `**` before
/// `*`.
pub const OPERATORS: &[(&str, Strength)] = &[
    ("**", POWER),
    ("//", 7),
    ("<<", 5),
    (">>", 5),
    ("==", COMPARISON),
    ("!=", COMPARISON),
    ("<=", COMPARISON),
    (">=", COMPARISON),
    ("<", COMPARISON),
    (">", COMPARISON),
    ("|", 2),
    ("^", 3),
    ("&", 4),
    ("+", 6),
    ("-", 6),
    ("*", 7),
    ("/", 7),
    ("%", 7),
    ("@", 7),
];

/// The precedence of a binary operator of the table.
pub fn strength(operator: &str) -> Strength {
    let found = OPERATORS.iter().find(|(text, _)| *text == operator);
    found.map_or(POSTFIX, |(_, strength)| *strength)
}

impl Argument {
    pub fn plain(value: Expr) -> Argument {
        Argument { keyword: None, value, segment: None }
    }
}

impl Expr {
    pub fn name(text: impl Into<String>) -> Expr {
        Expr::Name(text.into())
    }

    pub fn int(value: i64) -> Expr {
        Expr::Literal(value.to_string())
    }

    pub fn attribute(self, name: &str) -> Expr {
        Expr::Attribute(Box::new(self), name.into())
    }

    pub fn call(self, args: impl IntoIterator<Item = Argument>) -> Expr {
        Expr::Call(Box::new(self), args.into_iter().collect())
    }

    pub fn index(self, items: impl IntoIterator<Item = Expr>) -> Expr {
        Expr::Index(Box::new(self), items.into_iter().collect())
    }

    pub fn binary(self, operator: &'static str, right: Expr) -> Expr {
        Expr::Binary(Box::new(self), operator, Box::new(right))
    }

    /// The part of a call that `call[at / count]` stands for in templates. `None` if the call has
    /// no such part.
    pub fn part(&self) -> Option<CallPart> {
        let number = |expr: &Expr| match expr {
            Expr::Literal(text) => text.parse().ok(),
            _ => None,
        };
        match self {
            Expr::Index(call, items) => match &items[..] {
                [Expr::Binary(at, "/", count)] => {
                    let (at, count) = (number(at)?, number(count)?);
                    let exists = at < count && count <= MAX_PARTS;
                    exists.then(|| CallPart { call: (**call).clone(), at, count })
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// The length of the text on one line.
    pub fn width(&self) -> usize {
        let mut count = Count { chars: 0, max_width: usize::MAX };
        let _ = write!(count, "{self}");
        count.chars
    }

    /// Whether the text on one line is no longer than this.
    pub fn fits(&self, max_width: usize) -> bool {
        write!(Count { chars: 0, max_width }, "{self}").is_ok()
    }

    pub fn strength(&self) -> Strength {
        match self {
            Expr::Binary(_, operator, _) => strength(operator),
            Expr::Unary(..) => UNARY,
            Expr::Literal(text) if text.starts_with('-') => UNARY,
            Expr::Starred(_) | Expr::Range(_) | Expr::Lambda(..) => 0,
            Expr::Name(_)
            | Expr::Literal(_)
            | Expr::Attribute(..)
            | Expr::Call(..)
            | Expr::Index(..)
            | Expr::Tuple(_)
            | Expr::List(_)
            | Expr::Dict(_)
            | Expr::Slot(_) => POSTFIX,
        }
    }

    /// Whether the other expression is this one or a part of it.
    pub fn contains(&self, other: &Expr) -> bool {
        let mut found = false;
        self.visit(&mut |part| found |= part == other);
        found
    }

    /// Calls `f` on the expression and all its subexpressions.
    pub fn visit(&self, f: &mut dyn FnMut(&Expr)) {
        f(self);
        match self {
            Expr::Name(_) | Expr::Literal(_) | Expr::Slot(_) => {}
            Expr::Unary(_, x) | Expr::Starred(x) | Expr::Attribute(x, _) | Expr::Lambda(_, x) => {
                x.visit(f)
            }
            Expr::Binary(x, _, y) => {
                x.visit(f);
                y.visit(f);
            }
            Expr::Call(x, args) => {
                x.visit(f);
                args.iter().for_each(|a| a.value.visit(f));
            }
            Expr::Index(x, items) => {
                x.visit(f);
                items.iter().for_each(|i| i.visit(f));
            }
            Expr::Range(parts) => parts.iter().flatten().for_each(|p| p.visit(f)),
            Expr::Tuple(items) | Expr::List(items) => items.iter().for_each(|i| i.visit(f)),
            Expr::Dict(items) => items.iter().for_each(|(_, v)| v.visit(f)),
        }
    }

    /// Whether no spaces stand between it and a `:`, in the style of ruff.
    fn is_simple(&self) -> bool {
        match self {
            Expr::Name(_) | Expr::Literal(_) => true,
            Expr::Unary(_, x) => matches!(**x, Expr::Name(_) | Expr::Literal(_)),
            _ => false,
        }
    }

    fn needs_no_power_spaces(&self) -> bool {
        match self {
            Expr::Name(_) | Expr::Literal(_) => true,
            Expr::Unary(_, x) => matches!(**x, Expr::Literal(_)),
            Expr::Attribute(x, _) => x.needs_no_power_spaces(),
            _ => false,
        }
    }

    /// Writes the expression, in parentheses if its precedence is less than `least`.
    fn write(&self, f: &mut fmt::Formatter, least: Strength) -> fmt::Result {
        if self.strength() < least { write!(f, "({self})") } else { write!(f, "{self}") }
    }

    /// Writes the expression in front of a postfix. A number needs parentheses before a dot.
    fn write_head(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Expr::Literal(text) if !text.starts_with(['"', '\'']) => write!(f, "({text})"),
            _ => self.write(f, POSTFIX),
        }
    }
}

/// Counts characters. Writing fails when there are more than `max_width`.
struct Count {
    chars: usize,
    max_width: usize,
}

impl Write for Count {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.chars += text.chars().count();
        if self.chars > self.max_width { Err(fmt::Error) } else { Ok(()) }
    }
}

/// The precedence that a binary operator requires of its left and right operands.
pub fn operand_strengths(operator: &str) -> (Strength, Strength) {
    match strength(operator) {
        // `**` is the only right-associative operator, and binds less tightly than a sign on its
        // right.
        POWER => (POWER + 1, UNARY),
        // Without parentheses, Python would chain comparisons.
        COMPARISON => (COMPARISON + 1, COMPARISON + 1),
        own => (own, own + 1),
    }
}

fn join<T>(
    f: &mut fmt::Formatter,
    items: &[T],
    mut write: impl FnMut(&mut fmt::Formatter, &T) -> fmt::Result,
) -> fmt::Result {
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            f.write_str(", ")?;
        }
        write(f, item)?;
    }
    Ok(())
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match &self.keyword {
            Some(name) => write!(f, "{name}={}", self.value),
            None => write!(f, "{}", self.value),
        }
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Expr::Name(text) | Expr::Literal(text) => f.write_str(text),
            Expr::Slot(name) => write!(f, "{{{name}}}"),
            Expr::Unary(operator, x) => {
                f.write_str(operator)?;
                x.write(f, UNARY)
            }
            Expr::Binary(x, operator, y) => {
                let (left, right) = operand_strengths(operator);
                x.write(f, left)?;
                match *operator == "**" && x.needs_no_power_spaces() && y.needs_no_power_spaces() {
                    true => f.write_str(operator)?,
                    false => write!(f, " {operator} ")?,
                }
                y.write(f, right)
            }
            Expr::Attribute(x, name) => {
                x.write_head(f)?;
                write!(f, ".{name}")
            }
            Expr::Call(x, args) => {
                x.write_head(f)?;
                f.write_str("(")?;
                join(f, args, |f, a| write!(f, "{a}"))?;
                f.write_str(")")
            }
            Expr::Index(x, items) => {
                x.write_head(f)?;
                f.write_str("[")?;
                join(f, items, |f, i| write!(f, "{i}"))?;
                f.write_str("]")
            }
            Expr::Range(parts) => write_range(f, parts),
            Expr::Tuple(items) => {
                f.write_str("(")?;
                join(f, items, |f, i| write!(f, "{i}"))?;
                f.write_str(if items.len() == 1 { ",)" } else { ")" })
            }
            Expr::List(items) => {
                f.write_str("[")?;
                join(f, items, |f, i| write!(f, "{i}"))?;
                f.write_str("]")
            }
            Expr::Dict(items) => {
                f.write_str("{")?;
                join(f, items, |f, (key, value)| write!(f, "{key}: {value}"))?;
                f.write_str("}")
            }
            Expr::Lambda(params, x) if params.is_empty() => write!(f, "lambda: {x}"),
            Expr::Lambda(params, x) => write!(f, "lambda {}: {x}", params.join(", ")),
            Expr::Starred(x) => {
                f.write_str("*")?;
                x.write(f, COMPARISON + 1)
            }
        }
    }
}

/// Writes a range, with spaces around the colons if a bound is more than a name or a number.
fn write_range(f: &mut fmt::Formatter, parts: &[Option<Box<Expr>>; 3]) -> fmt::Result {
    let wide = parts.iter().flatten().any(|p| !p.is_simple());
    let [start, stop, step] = parts;
    if let Some(start) = start {
        write!(f, "{start}")?;
    }
    f.write_str(if wide && start.is_some() { " :" } else { ":" })?;
    if let Some(stop) = stop {
        f.write_str(if wide { " " } else { "" })?;
        write!(f, "{stop}")?;
    }
    if let Some(step) = step {
        f.write_str(if wide { " :" } else { ":" })?;
        f.write_str(if wide { " " } else { "" })?;
        write!(f, "{step}")?;
    }
    Ok(())
}
