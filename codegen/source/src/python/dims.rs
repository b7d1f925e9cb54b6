//! Dims and shapes as Python integers and tuples, read from the shapes of arrays where needed.

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, NeedsRank, Result};
use std::iter;

use mithril_ir::dim::{Dim, Operator, Symbol, Translator};
use mithril_ir::graph::{Operation, Value};
use mithril_ir::shape::Shape;

use super::body::{Binding, Body, Statement};
use super::expr::{Argument, Expr};
use super::template::Filling;

/// How many of the most recent arrays are searched for one of a given shape.
const MAX_RECENT: usize = 32;

/// An axis of a value whose size is a given dim.
struct DimSource {
    value: Value,
    /// Counted from the front, or from the back (negative) if there is a rank variable.
    axis: i64,
}

impl Translator for Body<'_, '_> {
    type Value = Expr;
    type Error = Box<Diagnostic>;

    fn constant(&mut self, value: i64) -> Result<Expr> {
        Ok(Expr::int(value))
    }

    /// The variable of a symbol, assigned from the first available shape that has the symbol as a
    /// dim.
    fn symbol(&mut self, symbol: &Symbol) -> Result<Expr> {
        if let Some(name) = self.symbols.get(symbol) {
            return Ok(Expr::name(name));
        }
        let places = self.shape_sources.symbol(symbol).iter();
        let is_variable =
            |(v, _): &&(Value, usize)| matches!(self.bindings[v.index()], Binding::Variable(_));
        let waiting =
            |(v, _): &&(Value, usize)| matches!(self.bindings[v.index()], Binding::Pending(_));
        let found = places.clone().find(is_variable).or_else(|| places.clone().find(waiting));
        let source = found.map(|(v, at)| self.source(*v, *at));
        let bound = match source {
            Some(source) => self.axis(&source)?,
            None => self.solve(symbol)?,
        };
        let preferred = symbol.as_str().trim_start_matches('_');
        let preferred = match preferred.starts_with(|c: char| c.is_ascii_digit()) {
            true => "size",
            false => preferred,
        };
        let name = self.names.unique(preferred);
        self.statements.push(Statement::Line(format!("{name} = "), bound));
        self.symbols.insert(symbol.clone(), name.clone());
        Ok(Expr::name(name))
    }

    fn unknown(&mut self) -> Result<Expr> {
        Diagnostic::new("a dim must be known before run time")
            .hint("give the shape of the model's inputs with `shapes=`")
            .err()
    }

    fn binary(&mut self, op: Operator, left: Expr, right: Expr) -> Result<Expr> {
        let sign = match op {
            Operator::Add => "+",
            Operator::Sub => "-",
            Operator::Mul => "*",
            Operator::FloorDiv => "//",
            Operator::Mod => "%",
            Operator::Min | Operator::Max => return self.extremum(op, left, vec![right]),
        };
        Ok(left.binary(sign, right))
    }

    fn negate(&mut self, value: Expr) -> Result<Expr> {
        Ok(Expr::Unary("-", Box::new(value)))
    }

    fn power(&mut self, base: Expr, power: u32) -> Result<Expr> {
        Ok(base.binary("**", Expr::int(power.into())))
    }

    fn extremum(&mut self, op: Operator, first: Expr, others: Vec<Expr>) -> Result<Expr> {
        let function = if op == Operator::Min { "min" } else { "max" };
        let operands = iter::once(first).chain(others);
        Ok(Expr::name(function).call(operands.map(Argument::plain)))
    }
}

impl Body<'_, '_> {
    /// A dim as a Python integer.
    /// Errors: a dim that no shape gives.
    pub fn dim(&mut self, dim: &Dim) -> Result<Expr> {
        dim.translate(self)
    }

    /// Whether the shape of an available argument gives the symbol.
    pub fn is_bound(&self, symbol: &Symbol) -> bool {
        let count = self.function.args.len();
        let mut args =
            self.shape_sources.symbol(symbol).iter().take_while(|(v, _)| v.index() < count);
        args.any(|(v, _)| !matches!(self.bindings[v.index()], Binding::Missing))
    }

    fn source(&self, value: Value, at: usize) -> DimSource {
        DimSource { value, axis: axis_number(&self.function.ty(value).shape, at) }
    }

    /// `x.shape[axis]`.
    fn axis(&mut self, source: &DimSource) -> Result<Expr> {
        self.assign_pending(source.value);
        let x = self.array(source.value)?;
        Ok(x.attribute("shape").index([Expr::int(source.axis)]))
    }

    /// Solves for a symbol that arguments have only in linear dims such as `2*n + 1`.
    fn solve(&mut self, symbol: &Symbol) -> Result<Expr> {
        let number = |n: i64| move |_: &Symbol| Some(Dim::Const(n));
        for (value, at, dim) in self.shape_sources.expressions(symbol) {
            let ends = (dim.substitute(&number(0)), dim.substitute(&number(1)));
            let (Some(base), Some(next)) = (ends.0.as_const(), ends.1.as_const()) else {
                continue;
            };
            let Some(step) = next.checked_sub(base) else { continue };
            let linear = Dim::symbol(symbol) * step + base;
            if step == 0 || linear != *dim {
                continue;
            }
            let whole = self.axis(&self.source(value, at))?;
            let rest = match base {
                0 => whole,
                _ if base > 0 => whole.binary("-", Expr::int(base)),
                _ => whole.binary("+", Expr::Literal(base.unsigned_abs().to_string())),
            };
            return Ok(rest.binary("//", Expr::int(step)));
        }
        Diagnostic::new(format!("no shape gives the dim `{symbol}`"))
            .at(format!("function `{}`", self.function.name))
            .hint("give the shape of the model's inputs with `shapes=`")
            .err()
    }

    /// The dims of a shape, in the order of a tuple. An unknown dim is -1.
    /// Errors: a dim or a rank that no shape gives.
    pub fn dims(&mut self, shape: &Shape) -> Result<Vec<Expr>> {
        let mut items = Vec::new();
        if let Some(lead) = &shape.lead {
            items.push(self.lead(lead)?);
        }
        for dim in &shape.dims {
            items.push(match dim {
                Dim::Unknown => Expr::int(-1),
                Dim::Const(_) | Dim::Expr(_) => self.dim(dim)?,
            });
        }
        Ok(items)
    }

    /// `*x.shape[:-1]`: the dims that a rank variable stands for.
    fn lead(&mut self, lead: &Symbol) -> Result<Expr> {
        let values = self.shape_sources.lead(lead).iter();
        let is_variable = |v: &&Value| matches!(self.bindings[v.index()], Binding::Variable(_));
        let waiting = |v: &&Value| matches!(self.bindings[v.index()], Binding::Pending(_));
        let found = values.clone().find(is_variable).or_else(|| values.clone().find(waiting));
        let Some(&value) = found else {
            let mut error = Diagnostic::new(format!("no shape gives the dims `*{lead}`"))
                .at(format!("function `{}`", self.function.name))
                .hint("give the shape of the model's inputs with `shapes=`");
            error.needs_rank = Some(NeedsRank { lead: lead.clone(), trailing: None, rank: None });
            return error.err();
        };
        let count = self.function.ty(value).shape.dims.len();
        Ok(Expr::Starred(Box::new(self.front(value, count)?)))
    }

    /// `x.shape[:-1]`: the dims before the last ones.
    fn front(&mut self, value: Value, last: usize) -> Result<Expr> {
        self.assign_pending(value);
        let shape = self.array(value)?.attribute("shape");
        Ok(match last as i64 {
            0 => shape,
            n => shape.index([Expr::Range([None, Some(Box::new(Expr::int(-n))), None])]),
        })
    }

    /// The target dims of a reshape. If its rows may be empty, -1 cannot determine the number of
    /// rows, so they are counted.
    pub fn reshaped(&mut self, op: &Operation) -> Result<Filling> {
        let Attr::Shape(shape) = op.attr("shape") else {
            return Diagnostic::new("a reshape has a shape").err();
        };
        let own = &self.function.ty(op.operands[0]).shape.dims;
        let rows = match shape.dims.split_first() {
            Some((Dim::Unknown, row)) if shape.lead.is_none() && own.ends_with(row) => Some(row),
            _ => None,
        };
        let may_be_empty = |row: &&[Dim]| row.iter().any(|d| d.lower_bound().is_none_or(|n| n < 1));
        let Some(row) = rows.filter(may_be_empty) else {
            return self.shape_attribute(shape, "args");
        };
        let front = self.front(op.operands[0], row.len())?;
        let count = Expr::name("math").attribute("prod").call([Argument::plain(front)]);
        let mut items = vec![count];
        for dim in row {
            items.push(self.dim(dim)?);
        }
        Ok(Filling::Many(items))
    }

    /// The declared shape of a call's result, as a tuple. Its dims are computed from the arguments;
    /// a dim that occurs only in the result is written as `None`. Returns `None` if no argument
    /// determines the rank.
    pub fn declared_shape(&mut self, shape: &Shape) -> Option<Expr> {
        let mut bound = true;
        let dims = shape.dims.iter();
        dims.for_each(|dim| dim.for_each_symbol(&mut |symbol| bound &= self.is_bound(symbol)));
        let bound = bound && !shape.dims.iter().any(Dim::is_unknown);
        if let (true, Some(same)) = (bound, self.same_shape(shape).ok()?) {
            return Some(same);
        }
        let mut items = Vec::new();
        if let Some(lead) = &shape.lead {
            items.push(self.lead(lead).ok()?);
        }
        for dim in &shape.dims {
            let mut bound = !dim.is_unknown();
            dim.for_each_symbol(&mut |symbol| bound &= self.is_bound(symbol));
            let size = bound.then(|| self.dim(dim).ok()).flatten();
            items.push(size.unwrap_or(Expr::name("None")));
        }
        Some(Expr::Tuple(items))
    }

    /// A shape as one expression: a tuple, or the shape of an array that has the same shape.
    pub fn shape(&mut self, shape: &Shape) -> Result<Expr> {
        if let Some(same) = self.same_shape(shape)? {
            return Ok(same);
        }
        Ok(Expr::Tuple(self.dims(shape)?))
    }

    /// `x.shape` of an available array of this shape. `None` if there is none, or if the shape
    /// consists of numbers.
    pub fn same_shape(&mut self, shape: &Shape) -> Result<Option<Expr>> {
        let open = shape.dims.iter().any(Dim::is_unknown);
        if open || shape.as_fixed().is_some() {
            return Ok(None);
        }
        let (args, all) = (self.function.args.len() as u32, self.bindings.len() as u32);
        let is_variable = |v: &Value| matches!(self.bindings[v.index()], Binding::Variable(_));
        // Prefers arguments, then the most recent arrays, which are close in the text. If all dims
        // already have names, arrays other than arguments are not used.
        let mut named = shape.lead.is_none();
        shape.for_each_symbol(&mut |s| named &= self.symbols.contains_key(s));
        let recent = if named { 0 } else { MAX_RECENT };
        let computed = (args..all).rev().map(Value).filter(is_variable).take(recent);
        // The gradients of the outputs are not available in the forward pass.
        let is_available = |v: &Value| !matches!(self.bindings[v.index()], Binding::Missing);
        let argument = self.shape_sources.arguments(shape).iter().copied().find(is_available);
        let mut computed = computed.filter(|v| self.function.ty(*v).shape == *shape);
        match argument.or_else(|| computed.next()) {
            Some(value) => Ok(Some(self.array(value)?.attribute("shape"))),
            None => Ok(None),
        }
    }
}

fn axis_number(shape: &Shape, at: usize) -> i64 {
    match shape.lead {
        None => at as i64,
        Some(_) => at as i64 - shape.dims.len() as i64,
    }
}
