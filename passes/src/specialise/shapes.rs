//! The shapes option of `specialise`: `x=[32 x 784],batch=32`.

use mithril_ir::diagnostic::{Diagnostic, Result, did_you_mean};
use mithril_ir::dim::{Dim, Symbol};
use mithril_ir::graph::Function;
use mithril_ir::shape::{Shape, Type};
use mithril_ir::signature::{Binding, bind};
use rustc_hash::FxHashSet;

use crate::pass::OptionValue;
use crate::target::Targets;

/// Shapes of arguments and sizes of symbols, by name.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Shapes {
    pub args: Vec<(String, Shape)>,
    pub symbols: Vec<(String, Dim)>,
}

impl OptionValue for Shapes {
    const LIST: bool = true;

    fn parse(text: &str, _: Targets) -> Result<Shapes, String> {
        let form = || "names with shapes or sizes, such as x=[32 x 784],batch=32".to_string();
        let mut shapes = Shapes::default();
        for item in parts(text, ",").into_iter().filter(|item| !item.is_empty()) {
            let (name, value) = item.split_once('=').ok_or_else(form)?;
            let (name, value) = (name.trim().to_string(), value.trim());
            let inner = value.strip_prefix('[').and_then(|v| v.strip_suffix(']'));
            match inner {
                Some(dims) => shapes.args.push((name, shape(dims).ok_or_else(form)?)),
                None => shapes.symbols.push((name, value.parse().map_err(|_| form())?)),
            }
        }
        Ok(shapes)
    }

    fn print(&self) -> String {
        let args = self.args.iter().map(|(name, shape)| format!("{name}={shape}"));
        let symbols = self.symbols.iter().map(|(name, dim)| format!("{name}={dim}"));
        args.chain(symbols).collect::<Vec<_>>().join(",")
    }
}

/// Parses dims separated by ` x ` or commas.
fn shape(text: &str) -> Option<Shape> {
    let dims = parts(text, ",").into_iter().flat_map(|part| parts(part, " x "));
    let dims = dims.filter(|dim| !dim.is_empty());
    let dims: Option<Vec<Dim>> = dims.map(|dim| dim.parse().ok()).collect();
    dims.map(Shape::new)
}

/// Splits at separators outside brackets, and trims the parts.
fn parts<'t>(text: &'t str, separator: &str) -> Vec<&'t str> {
    let (mut found, mut start, mut depth) = (Vec::new(), 0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '[' | '(' => depth += 1,
            ']' | ')' => depth -= 1,
            _ if depth == 0 && at >= start && text[at..].starts_with(separator) => {
                found.push(text[start..at].trim());
                start = at + separator.len();
            }
            _ => {}
        }
    }
    found.push(text[start..].trim());
    found
}

impl Shapes {
    /// The types of a function's arguments with these shapes.
    /// Errors: a name that is neither an argument nor a symbol, or a shape that does not fit.
    pub fn types(&self, function: &Function) -> Result<Vec<Type>> {
        self.names_exist(function)?;
        let mut binding = Binding::default();
        let mut bound: FxHashSet<Symbol> = FxHashSet::default();
        for (name, dim) in &self.symbols {
            bound.insert(Symbol::from(name.as_str()));
            binding.bind_dim(Symbol::from(name.as_str()), dim.clone());
        }
        let shape_of = |name: &str| self.args.iter().find(|(n, _)| n == name).map(|(_, s)| s);
        for (value, arg) in function.arguments() {
            if let Some(shape) = shape_of(&arg.name) {
                bind_symbols(&function.ty(value).shape, shape, &mut binding, &mut bound);
            }
        }
        let types = function.arguments().map(|(value, arg)| {
            let ty = function.ty(value);
            match shape_of(&arg.name) {
                Some(shape) => Type::new(ty.dtype, shape.clone()),
                None => binding.ty(ty),
            }
        });
        let types: Vec<Type> = types.collect();
        bind(function, &types.iter().collect::<Vec<_>>(), &mut Vec::new())?;
        Ok(types)
    }

    fn names_exist(&self, function: &Function) -> Result<()> {
        let mut symbols: Vec<String> = Vec::new();
        for (value, _) in function.arguments() {
            let shape = &function.ty(value).shape;
            for dim in &shape.dims {
                dim.for_each_symbol(&mut |symbol| symbols.push(symbol.to_string()));
            }
        }
        let args = || function.args.iter().map(|a| &*a.name);
        let unknown = |what: &str, name: &str, hint: Option<String>| {
            let mut error = Diagnostic::new(format!("there is no {what} `{name}`"));
            error.hint = hint;
            error.at(format!("function `{}`", function.name)).err()
        };
        if let Some((name, _)) = self.args.iter().find(|(name, _)| !args().any(|a| a == name)) {
            return unknown("argument", name, did_you_mean(name, args()));
        }
        match self.symbols.iter().find(|(name, _)| !symbols.contains(name)) {
            None => Ok(()),
            Some((name, _)) => {
                let hint = did_you_mean(name, symbols.iter().map(String::as_str));
                unknown("symbol", name, hint)
            }
        }
    }
}

/// Binds the symbols of an argument's shape to the dims of the user's shape.
fn bind_symbols(own: &Shape, actual: &Shape, binding: &mut Binding, bound: &mut FxHashSet<Symbol>) {
    let Some(front) = actual.dims.len().checked_sub(own.dims.len()) else {
        return;
    };
    if let Some(lead) = own.lead.as_ref().filter(|lead| bound.insert((*lead).clone())) {
        binding.bind_lead(lead.clone(), Shape::new(actual.dims[..front].iter().cloned()));
    }
    for (dim, size) in own.dims.iter().zip(&actual.dims[front..]) {
        if let Some(symbol) = dim.as_symbol().filter(|s| bound.insert((*s).clone())) {
            binding.bind_dim(symbol.clone(), size.clone());
        }
    }
}
