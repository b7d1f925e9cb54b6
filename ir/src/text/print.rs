//! Prints modules as text. Invalid modules are printed too, for debugging.

use std::fmt::{self, Display, Formatter, Write};

use rustc_hash::FxHashSet;

use super::{VERSION, is_identifier};
use crate::attr::Attr;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::graph::{Function, Module, Operation, Role, Value};
use crate::loc::Loc;
use crate::shape::Type;
use crate::tensor::{Tensor, float_text, parse_element};

/// The maximum number of elements that are written as a list.
const MAX_ELEMENTS: usize = 64;
/// The maximum number of equal elements that are written as one.
pub(super) const MAX_EQUAL: usize = 1 << 24;

impl Display for Module {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        writeln!(f, "mithril {VERSION}")?;
        for function in self.functions.values() {
            let entry = if self.entries.contains(&function.name) { "entry " } else { "" };
            write!(f, "\n{entry}{function}")?;
        }
        Ok(())
    }
}

impl Display for Function {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let labels = labels(self);
        if self.external {
            f.write_str("extern ")?;
        }
        write!(f, "func {}(", FunctionName(&self.name))?;
        write_arguments(self, &labels, f)?;
        f.write_str(") -> (")?;
        write_results(self, f)?;
        f.write_str(")")?;
        for (i, c) in self.constraints.iter().enumerate() {
            f.write_str(if i == 0 { " where " } else { ", " })?;
            write!(f, "{} {} {}", Side(&c.left), c.relation, Side(&c.right))?;
        }
        if let Some(name) = &self.computes {
            write!(f, " computes {}", Quoted(name))?;
        }
        let lines = self.bodies.len() + self.guards.len() + self.ops.len();
        if self.external && lines == 0 {
            return f.write_str("\n");
        }
        f.write_str(" {\n")?;
        for body in &self.bodies {
            write!(f, "  body {}", body.target)?;
            for (i, line) in body.text.split('\n').enumerate() {
                write!(f, "{}{}", if i == 0 { " " } else { "\n    " }, Quoted(line))?;
            }
            f.write_str("\n")?;
        }
        for op in &self.ops {
            f.write_str("  ")?;
            write_operation(self, &labels, op, f)?;
            f.write_str("\n")?;
        }
        for guard in &self.guards {
            write!(f, "  guard {} == {}", Side(&guard.left), Side(&guard.right))?;
            write_loc(&guard.loc, f)?;
            f.write_str("\n")?;
        }
        if !self.external {
            f.write_str("  return")?;
            let values = self.results.iter().map(|r| r.value);
            write_values(values, &labels, " ", f)?;
            f.write_str("\n")?;
        }
        f.write_str("}\n")
    }
}

/// The name of each value, if it is an identifier and no earlier value has it.
fn labels(function: &Function) -> Vec<Option<&str>> {
    let mut seen = FxHashSet::default();
    function
        .values
        .iter()
        .map(|info| info.name.as_deref())
        .map(|name| name.filter(|n| is_identifier(n) && seen.insert(*n)))
        .collect()
}

fn write_value(value: Value, labels: &[Option<&str>], f: &mut Formatter) -> fmt::Result {
    match labels.get(value.index()).copied().flatten() {
        Some(name) => write!(f, "%{name}"),
        None => write!(f, "%{}", value.0),
    }
}

fn write_values(
    values: impl Iterator<Item = Value>,
    labels: &[Option<&str>],
    before: &str,
    f: &mut Formatter,
) -> fmt::Result {
    for (i, value) in values.enumerate() {
        f.write_str(if i == 0 { before } else { ", " })?;
        write_value(value, labels, f)?;
    }
    Ok(())
}

fn write_type(ty: Option<&Type>, f: &mut Formatter) -> fmt::Result {
    match ty {
        Some(ty) => ty.fmt(f),
        None => f.write_str("tensor<missing>"),
    }
}

fn write_arguments(function: &Function, labels: &[Option<&str>], f: &mut Formatter) -> fmt::Result {
    for (i, (value, arg)) in function.arguments().enumerate() {
        f.write_str(if i == 0 { "" } else { ", " })?;
        write_value(value, labels, f)?;
        f.write_str(": ")?;
        write_type(function.values.get(i).map(|v| &v.ty), f)?;
        if arg.role != Role::Data {
            write!(f, " {}", arg.role.name())?;
        }
        if labels.get(i).copied().flatten() != Some(&*arg.name) {
            write!(f, " {}", Quoted(&arg.name))?;
        }
        if arg.donated {
            f.write_str(" donated")?;
        }
    }
    Ok(())
}

fn write_results(function: &Function, f: &mut Formatter) -> fmt::Result {
    for (i, result) in function.results.iter().enumerate() {
        f.write_str(if i == 0 { "" } else { ", " })?;
        match is_identifier(&result.name) {
            true => f.write_str(&result.name)?,
            false => Quoted(&result.name).fmt(f)?,
        }
        f.write_str(": ")?;
        write_type(function.values.get(result.value.index()).map(|v| &v.ty), f)?;
        if let Some(state) = &result.state {
            write!(f, " state {}", Quoted(state))?;
        }
    }
    Ok(())
}

fn write_operation(
    function: &Function,
    labels: &[Option<&str>],
    op: &Operation,
    f: &mut Formatter,
) -> fmt::Result {
    write_values(op.results(), labels, "", f)?;
    f.write_str(if op.results == 0 { "" } else { " = " })?;
    f.write_str(op.op.name)?;
    f.write_str("(")?;
    write_values(op.operands.iter().copied(), labels, "", f)?;
    f.write_str(")")?;
    Attributes(op).fmt(f)?;
    for (i, value) in op.results().enumerate() {
        f.write_str(if i == 0 { " : " } else { ", " })?;
        write_type(function.values.get(value.index()).map(|v| &v.ty), f)?;
    }
    write_loc(&op.loc, f)
}

/// The attributes of an operation that differ from their defaults, in braces.
pub(super) struct Attributes<'a>(pub &'a Operation);

impl Display for Attributes<'_> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let mut separator = " {";
        for (def, attr) in self.0.op.attrs.iter().zip(&self.0.attrs) {
            if def.default.value().as_ref() == Some(attr) {
                continue;
            }
            write!(f, "{separator}{} = ", def.name)?;
            write_attr(attr, f)?;
            separator = ", ";
        }
        f.write_str(if separator == ", " { "}" } else { "" })
    }
}

fn write_loc(loc: &Loc, f: &mut Formatter) -> fmt::Result {
    for (i, path) in loc.paths().iter().enumerate() {
        f.write_str(if i == 0 { " @ " } else { ", " })?;
        Quoted(path).fmt(f)?;
    }
    Ok(())
}

fn write_attr(attr: &Attr, f: &mut Formatter) -> fmt::Result {
    match attr {
        Attr::None => f.write_str("none"),
        Attr::Bool(v) => v.fmt(f),
        Attr::Int(v) => v.fmt(f),
        Attr::Float(v) => f.write_str(&float_text(DType::F64, *v)),
        Attr::Str(v) => Quoted(v).fmt(f),
        Attr::DType(v) => v.fmt(f),
        Attr::Shape(v) => v.fmt(f),
        Attr::Function(name) => FunctionName(name).fmt(f),
        Attr::Tensor(tensor) => write_tensor(tensor, f),
        Attr::Ints(values) => {
            f.write_str("[")?;
            for (i, v) in values.iter().enumerate() {
                write!(f, "{}{v}", if i == 0 { "" } else { ", " })?;
            }
            f.write_str("]")
        }
    }
}

/// Writes one element if all are equal, a list if there are few, otherwise the bytes.
fn write_tensor(tensor: &Tensor, f: &mut Formatter) -> fmt::Result {
    let shape = crate::shape::Shape::fixed(tensor.shape());
    write!(f, "dense<{}, ", Type::new(tensor.dtype(), shape))?;
    let count = tensor.len();
    let width = tensor.dtype().bytes();
    let bytes = tensor.bytes();
    let equal = (1..=MAX_EQUAL).contains(&count) && bytes[width..] == bytes[..bytes.len() - width];
    let shown = if equal { 1 } else { count };
    if shown > MAX_ELEMENTS || !(0..shown).all(|i| has_text(tensor, i)) {
        f.write_str("hex\"")?;
        for byte in &bytes {
            write!(f, "{byte:02x}")?;
        }
        return f.write_str("\">");
    }
    if equal {
        return write!(f, "{}>", tensor.element_text(0));
    }
    f.write_str("[")?;
    for i in 0..count {
        let separator = if i == 0 { "" } else { ", " };
        write!(f, "{separator}{}", tensor.element_text(i))?;
    }
    f.write_str("]>")
}

/// Whether the element's text is parsed back to the same bits: not every NaN's is.
fn has_text(tensor: &Tensor, i: usize) -> bool {
    parse_element(tensor.dtype(), &tensor.element_text(i)) == Ok(tensor.element_bits(i))
        || !tensor.dtype().is_float()
}

/// A side of a guard or a constraint. A comment may follow, so `//` must be in parentheses.
struct Side<'a>(&'a Dim);

impl Display for Side<'_> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self.0 {
            Dim::Const(c) => c.fmt(f),
            dim if dim.prints_as_atom() => dim.fmt(f),
            dim => write!(f, "({dim})"),
        }
    }
}

struct FunctionName<'a>(&'a str);

impl Display for FunctionName<'_> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match is_identifier(self.0) {
            true => write!(f, "@{}", self.0),
            false => write!(f, "@{}", Quoted(self.0)),
        }
    }
}

struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.write_char('"')?;
        let special = |c: char| matches!(c, '"' | '\\') || c.is_control();
        let mut rest = self.0;
        while let Some(at) = rest.find(special) {
            let (plain, from) = rest.split_at(at);
            f.write_str(plain)?;
            let mut chars = from.chars();
            match chars.next() {
                Some('\n') => f.write_str("\\n")?,
                Some('\r') => f.write_str("\\r")?,
                Some('\t') => f.write_str("\\t")?,
                Some(c) if c.is_control() => write!(f, "\\u{{{:x}}}", c as u32)?,
                Some(c) => write!(f, "\\{c}")?,
                None => {}
            }
            rest = chars.as_str();
        }
        f.write_str(rest)?;
        f.write_char('"')
    }
}
