//! One operation as an expression: its template filled with operands and attributes.

use std::rc::Rc;

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dtype::DType;
use mithril_ir::graph::{Operation, Role, Value};
use mithril_ir::op::{Arity, DTypeRule, Kind};
use mithril_ir::shape::Shape;
use mithril_ir::tensor::Tensor;

use super::body::{Binding, Body};
use super::contraction::{self, Side};
use super::expr::{Argument, Expr};
use super::facts::{Facts, Weak};
use super::framework::is_foreign;
use super::names::string;
use super::slices::{backward_pads, paddings, slice_object};
use super::template::{Alternative, Filling, fill};

/// Functions that have the same name in Python's `math` as in array modules.
const MATH: [&str; 10] =
    ["sqrt", "exp", "log", "log1p", "expm1", "sin", "cos", "tan", "tanh", "erf"];

impl<'m> Body<'_, 'm> {
    /// The expression of an operation's result. Inlined operands get variables until it fits on a
    /// line.
    pub fn spell(&mut self, op: &'m Operation) -> Result<Expr> {
        let budget = self.budget(op.result());
        let forced = self.forced(op);
        loop {
            let alternative = self.choose(op, forced)?;
            self.settle_repeated(op, &alternative);
            let expr = self.put_in(op, &alternative, forced)?;
            if expr.fits(budget) {
                return Ok(expr);
            }
            let settled = match op.operands.len() > budget / 2 {
                // Not even the names of the operands fit on a line.
                true => self.settle_all(op),
                false => self.settle_longest(op),
            };
            if !settled {
                return Ok(expr);
            }
        }
    }

    /// Computes an elementwise operation whose operands are all numbers as a Python number, if
    /// possible.
    pub fn numeric(&mut self, op: &'m Operation) -> Result<Option<Binding>> {
        let weak = self.weak(op, None);
        let numbers = weak.iter().all(|w| *w != Weak::Array);
        if op.op.kind != Kind::Elementwise || !numbers {
            return Ok(None);
        }
        let dtype = self.function.ty(op.result()).dtype;
        if let (DTypeRule::Attr(_), [value]) = (op.op.dtype, &op.operands[..]) {
            let held = match &self.held[value.index()] {
                Binding::Literal(tensor) => Binding::Literal(recast(tensor, dtype)),
                _ => match self.number(*value)? {
                    Some(number) if dtype.is_float() => Binding::Number(number),
                    _ => return Ok(None),
                },
            };
            return Ok(Some(held));
        }
        let literal = weak.iter().all(|w| matches!(w, Weak::Literal(_)));
        if literal || !dtype.is_float() {
            return Ok(None);
        }
        let alternative = self.choose(op, None)?;
        let expr = self.put_in(op, &alternative, None)?;
        let module = self.file.backend.module;
        let expr = match &expr {
            Expr::Call(head, args) => match &**head {
                Expr::Attribute(of, name)
                    if **of == Expr::name(module) && MATH.contains(&name.as_str()) =>
                {
                    Expr::name("math").attribute(name).call(args.clone())
                }
                _ => return Ok(None),
            },
            _ => expr,
        };
        let mut arrays = false;
        expr.visit(&mut |e| arrays |= *e == Expr::name(module));
        Ok((!arrays).then_some(Binding::Number(expr)))
    }

    /// The forms in which the operands are available. The operand `forced` counts as an array.
    fn weak(&self, op: &Operation, forced: Option<usize>) -> Vec<Weak> {
        let each = op.operands.iter().enumerate().map(|(i, value)| {
            let dtype = self.function.ty(*value).dtype;
            if forced == Some(i) || (!self.file.backend.mixes && is_foreign(dtype)) {
                return Weak::Array;
            }
            // A bool counts as a number only where it is repeated, which gives an array of ones or
            // zeros.
            let repeated = op.op.kind == Kind::Layout && op.operands.len() == 1;
            match &self.held[value.index()] {
                Binding::Literal(t) if repeated || t.dtype() != DType::Bool => {
                    Weak::Literal(t.element_f64(0))
                }
                Binding::Number(_) => Weak::Number,
                Binding::Known(dims) if self.is_scalar(*value) => match dims[0].as_const() {
                    Some(v) => Weak::Literal(v as f64),
                    None => Weak::Number,
                },
                _ => Weak::Array,
            }
        });
        each.collect()
    }

    fn is_scalar(&self, value: Value) -> bool {
        self.function.ty(value).shape.rank() == Some(0)
    }

    /// The operand that must be an array, if otherwise only Python numbers would decide the dtype
    /// of an elementwise result.
    fn forced(&self, op: &Operation) -> Option<usize> {
        if op.op.kind != Kind::Elementwise {
            return None;
        }
        let weak = self.weak(op, None);
        let decides = |i: &usize| op.op.operand(*i).shared;
        let mut deciding = (0..op.operands.len()).filter(decides);
        match deciding.clone().any(|i| weak[i] == Weak::Array) {
            true => None,
            false => deciding.next(),
        }
    }

    fn with_facts<R>(
        &self,
        op: &Operation,
        forced: Option<usize>,
        read: impl FnOnce(&Facts) -> R,
    ) -> R {
        let weak = self.weak(op, forced);
        let dtype = self.function.ty(op.result()).dtype;
        read(&Facts {
            op,
            function: self.function,
            neighbours: &self.neighbours,
            used: &self.file.operations,
            weak: &weak,
            widens: self.file.widens(dtype),
            picks: self.picked(op).is_some(),
            devices: self.placed().is_some(),
        })
    }

    fn choose(&mut self, op: &Operation, forced: Option<usize>) -> Result<Rc<Alternative>> {
        let parsed = self.file.template(op.op);
        let found = self.with_facts(op, forced, |facts| {
            parsed.iter().find(|a| a.guards.iter().all(|g| facts.holds(g)))
        });
        match found {
            Some(alternative) => Ok(alternative.clone()),
            None => Diagnostic::of(
                ErrorKind::Unsupported,
                format!("Backend does not support operation {}", op.op.name),
            )
            .at(format!("block `{}`", op.loc))
            .got(format!("{} for {}", op.op.name, self.file.backend.label))
            .err(),
        }
    }

    /// Assigns operands that the template names twice to variables, so that they are computed once.
    fn settle_repeated(&mut self, op: &Operation, alternative: &Alternative) {
        let mut slots: Vec<String> = Vec::new();
        alternative.expr.visit(&mut |e| {
            if let Expr::Slot(name) = e {
                slots.push(name.clone());
            }
        });
        for (i, value) in op.operands.iter().enumerate() {
            let name = op.op.operand(i).name;
            if slots.iter().filter(|s| *s == name).count() > 1 {
                self.settle(*value);
            }
        }
    }

    /// Assigns all inlined operands to variables; returns false if there is none.
    fn settle_all(&mut self, op: &Operation) -> bool {
        let pending = |value: &&Value| matches!(self.held[value.index()], Binding::Pending(_));
        let folded: Vec<Value> = op.operands.iter().filter(pending).copied().collect();
        folded.iter().for_each(|value| self.settle(*value));
        !folded.is_empty()
    }

    /// Assigns the longest inlined operand to a variable; returns false if there is none.
    fn settle_longest(&mut self, op: &Operation) -> bool {
        let width = |value: &Value| match &self.held[value.index()] {
            Binding::Pending(expr) => Some(expr.width()),
            _ => None,
        };
        let longest = op.operands.iter().filter(|v| width(v).is_some());
        match longest.max_by_key(|v| width(v)).copied() {
            Some(value) => {
                self.settle(value);
                true
            }
            None => false,
        }
    }

    fn put_in(
        &mut self,
        op: &'m Operation,
        alternative: &Alternative,
        forced: Option<usize>,
    ) -> Result<Expr> {
        let mut slots: Vec<(String, bool)> = Vec::new();
        self.with_facts(op, forced, |facts| {
            alternative.expr.visit(&mut |e| {
                if let Expr::Slot(name) = e {
                    slots.push((name.clone(), facts.is_default(name)));
                }
            });
        });
        let mut default = |name: &str| slots.iter().any(|(slot, at)| slot == name && *at);
        let module = self.file.backend.module;
        let mut slot = |name: &str| self.slot(op, name, forced);
        let filled = fill(&alternative.expr, module, &mut default, &mut slot)?;
        self.brought_back(op, alternative, filled)
    }

    /// Casts a result back to its dtype, if Python numbers in the template promote it because it is
    /// not one of the framework's own.
    fn brought_back(&self, op: &Operation, alternative: &Alternative, expr: Expr) -> Result<Expr> {
        let dtype = self.function.ty(op.result()).dtype;
        if self.file.backend.mixes || !is_foreign(dtype) || op.op.kind != Kind::Elementwise {
            return Ok(expr);
        }
        let is_float = |name: &str| {
            let at = op.op.attr_index(name);
            at.is_some_and(|at| matches!(op.attrs[at], Attr::Float(_)))
        };
        let mut numbers = false;
        alternative.expr.visit(&mut |e| {
            numbers |= match e {
                Expr::Literal(_) => true,
                Expr::Slot(name) => is_float(name),
                _ => false,
            }
        });
        match numbers {
            true => {
                let dtype = Argument::plain(self.file.dtype(dtype)?);
                Ok(expr.attribute("astype").call([dtype]))
            }
            false => Ok(expr),
        }
    }

    fn slot(&mut self, op: &'m Operation, name: &str, forced: Option<usize>) -> Result<Filling> {
        let (name, form) = name.split_once('.').unwrap_or((name, ""));
        if let Some(at) = op.op.operands.iter().position(|o| o.name == name) {
            return self.operand(op, at, form, forced);
        }
        if let Some(at) = op.op.attr_index(name) {
            return self.attribute(op, &op.attrs[at], form);
        }
        let dtype = self.function.ty(op.result()).dtype;
        let one = |expr| Ok(Filling::One(expr));
        match name {
            "dtype" | "narrow" => one(self.file.dtype(dtype)?),
            "device" => one(self.device()),
            "result" => one(self.shape(&self.function.ty(op.result()).shape)?),
            "slices" => Ok(Filling::Many(self.slices(op)?)),
            "bounds" => {
                let slices = self.slices(op)?.into_iter().map(slice_object);
                one(Expr::Tuple(slices.collect()))
            }
            "padding" => one(Expr::List(paddings(op, &["low", "high", "interior"]))),
            "widths" => one(Expr::Tuple(paddings(op, &["low", "high"]))),
            "pads" => one(Expr::Tuple(backward_pads(op))),
            "summed" | "kept" => one(self.with_facts(op, forced, |facts| {
                let (axes, kept) = facts.summed().unwrap_or_default();
                match (name, &axes[..]) {
                    ("kept", _) => Expr::name(if kept { "True" } else { "False" }),
                    (_, [axis]) => Expr::int(*axis),
                    (_, axes) => Expr::Tuple(axes.iter().map(|a| Expr::int(*a)).collect()),
                }
            })),
            "target" => self.reshaped(op),
            "left" => self.side(op, 0),
            "right" => self.side(op, 1),
            "equation" => self.equation(op),
            "wanted" => one(Expr::Tuple(self.wanted(op, form))),
            _ => Diagnostic::new(format!(
                "the template of `{}` names the unknown `{name}`",
                op.op.name
            ))
            .err(),
        }
    }

    /// For each of `count` parts, whether an operation computes it.
    fn wanted(&self, op: &Operation, count: &str) -> Vec<Expr> {
        let there = |part: i64| {
            let is = |other: &Operation| *other.attr("of") == Attr::Int(part);
            self.neighbours.siblings(op.op.0.name, &op.operands).any(is)
        };
        let truth = |yes| Expr::name(if yes { "True" } else { "False" });
        (0..count.parse().unwrap_or(0)).map(|part| truth(there(part))).collect()
    }

    fn operand(
        &mut self,
        op: &'m Operation,
        at: usize,
        form: &str,
        forced: Option<usize>,
    ) -> Result<Filling> {
        if op.op.operands[at].arity == Arity::Many {
            let mut items = Vec::new();
            for value in &op.operands[at.min(op.operands.len())..] {
                items.push(match (form, self.number(*value)?) {
                    ("number", Some(number)) => number,
                    _ => self.array(*value)?,
                });
            }
            return Ok(Filling::Many(items));
        }
        let Some(value) = op.operands.get(at).copied() else {
            return Ok(Filling::One(Expr::name("None")));
        };
        let picked = if form == "picked" { self.picked(op) } else { None };
        if let Some((slice, axes)) = picked {
            return Ok(Filling::One(self.pick(slice, &axes)?));
        }
        let shape = &self.function.ty(value).shape;
        if form == "last" {
            let last = shape.dims.last().cloned();
            return Ok(Filling::One(self.dim(&last.unwrap_or(1.into()))?));
        }
        let weak = self.weak(op, forced)[at] != Weak::Array;
        let may = form == "number" || (form.is_empty() && op.op.kind == Kind::Elementwise);
        let number = match weak && may {
            true => self.number(value)?,
            false => None,
        };
        Ok(Filling::One(match number {
            Some(number) => number,
            None => self.array(value)?,
        }))
    }

    fn attribute(&mut self, op: &Operation, attr: &'m Attr, form: &str) -> Result<Filling> {
        Ok(Filling::One(match attr {
            Attr::None => Expr::name("None"),
            Attr::Bool(true) => Expr::name("True"),
            Attr::Bool(false) => Expr::name("False"),
            Attr::Int(v) if form == "word" => Expr::int(i64::from(*v as u32)),
            Attr::Int(v) if form == "front" && *v < 0 => {
                Expr::int(*v + self.function.ty(op.result()).shape.dims.len() as i64)
            }
            Attr::Int(v) => Expr::int(*v),
            Attr::Float(v) => self.file.float(DType::F64, *v),
            Attr::Str(text) => Expr::Literal(string(text)),
            Attr::DType(dtype) => self.file.dtype(*dtype)?,
            Attr::Ints(v) => {
                let items: Vec<Expr> = v.iter().map(|n| Expr::int(*n)).collect();
                match form {
                    "args" => return Ok(Filling::Many(items)),
                    "tuple" => Expr::Tuple(items),
                    _ if items.len() == 1 => Expr::int(v[0]),
                    _ => Expr::Tuple(items),
                }
            }
            Attr::Shape(shape) => return self.shape_attribute(shape, form),
            Attr::Function(_) | Attr::Tensor(_) => {
                return Diagnostic::new("a template names a function or a tensor").err();
            }
        }))
    }

    pub fn shape_attribute(&mut self, shape: &Shape, form: &str) -> Result<Filling> {
        if form == "tuple" || (form == "args" && shape.dims.is_empty() && shape.lead.is_none()) {
            return Ok(Filling::One(Expr::Tuple(self.dims(shape)?)));
        }
        let single = shape.lead.is_none() && shape.dims.len() == 1;
        match form {
            "args" => match self.same_shape(shape)? {
                Some(same) if !single => Ok(Filling::One(same)),
                _ => Ok(Filling::Many(self.dims(shape)?)),
            },
            "one" if single => Ok(Filling::One(self.dim(&shape.dims[0])?)),
            _ => Ok(Filling::One(self.shape(shape)?)),
        }
    }

    /// The value as an array expression.
    pub fn array(&mut self, value: Value) -> Result<Expr> {
        self.touch(value);
        let dtype = self.function.ty(value).dtype;
        match self.held[value.index()].clone() {
            Binding::Variable(name) => Ok(Expr::Name(name)),
            Binding::Pending(expr) => Ok(expr),
            Binding::Number(number) => self.number_as(number, dtype),
            Binding::Literal(tensor) => {
                let number = self.file.element(&tensor, 0);
                self.number_as(number, dtype)
            }
            Binding::Known(dims) if self.is_scalar(value) => {
                let number = self.dim(&dims[0])?;
                self.number_as(number, dtype)
            }
            Binding::Known(dims) => {
                let mut items = Vec::new();
                for dim in dims.iter() {
                    items.push(self.dim(dim)?);
                }
                self.make(self.file.backend.array, Expr::List(items), dtype, None)
            }
            Binding::Missing => Diagnostic::new("a value is read before it is computed")
                .at(format!("function `{}`", self.function.name))
                .err(),
        }
    }

    /// The value as a Python number, if it is one.
    fn number(&mut self, value: Value) -> Result<Option<Expr>> {
        Ok(match self.held[value.index()].clone() {
            Binding::Number(number) => Some(number),
            Binding::Literal(tensor) if tensor.dtype() != DType::Bool => {
                Some(self.file.element(&tensor, 0))
            }
            Binding::Known(dims) if self.is_scalar(value) => Some(self.dim(&dims[0])?),
            _ => None,
        })
    }

    fn number_as(&mut self, number: Expr, dtype: DType) -> Result<Expr> {
        self.make(self.file.backend.scalar, number, dtype, None)
    }

    /// Fills a template of the backend that creates an array.
    pub fn make(
        &mut self,
        template: &str,
        x: Expr,
        dtype: DType,
        shape: Option<&Shape>,
    ) -> Result<Expr> {
        let parsed = super::template::parse(template).map_err(|e| Box::new(Diagnostic::new(e)))?;
        let (device, dtype) = (self.device(), self.file.dtype(dtype)?);
        let shape = match shape {
            Some(shape) => self.shape(shape)?,
            None => Expr::name("None"),
        };
        let nowhere = device == Expr::name("None");
        let mut default = |slot: &str| slot == "device" && nowhere;
        let mut slot = |name: &str| {
            Ok(Filling::One(match name {
                "x" => x.clone(),
                "dtype" => dtype.clone(),
                "shape" => shape.clone(),
                _ => device.clone(),
            }))
        };
        fill(&parsed[0].expr, self.file.backend.module, &mut default, &mut slot)
    }

    /// The device that new arrays must have, read from an argument; `None` if there is none or it
    /// does not matter.
    pub fn device(&mut self) -> Expr {
        match self.placed() {
            Some((value, name)) => {
                self.touch(value);
                Expr::name(name).attribute("device")
            }
            None => Expr::name("None"),
        }
    }

    /// The argument whose device new arrays share, and its variable.
    fn placed(&self) -> Option<(Value, String)> {
        let arguments = || self.function.arguments();
        let data = arguments().find(|(_, a)| a.role == Role::Data);
        let (value, _) = data.or_else(|| arguments().next())?;
        match &self.held[value.index()] {
            Binding::Variable(name) if self.file.backend.devices => Some((value, name.clone())),
            _ => None,
        }
    }

    fn side(&mut self, op: &'m Operation, at: usize) -> Result<Filling> {
        let sides = contraction::matmul((self.function, op));
        let x = self.array(op.operands[at])?;
        let (left, right) = sides.unwrap_or((Side::Plain, Side::Plain));
        Ok(Filling::One(match if at == 0 { left } else { right } {
            Side::Plain => x,
            Side::Transposed => x.attribute("T"),
            Side::Swapped => {
                let axes = [-1, -2].map(|axis| Argument::plain(Expr::int(axis)));
                x.attribute("swapaxes").call(axes)
            }
        }))
    }

    fn equation(&mut self, op: &'m Operation) -> Result<Filling> {
        match contraction::equation((self.function, op)) {
            Some(text) => Ok(Filling::One(Expr::Literal(string(&text)))),
            None => Diagnostic::new("a contraction has more axes than there are letters").err(),
        }
    }
}

fn recast(tensor: &Tensor, dtype: DType) -> Tensor {
    match tensor.dtype().is_float() {
        true => Tensor::from_f64s(dtype, vec![], &[tensor.element_f64(0)]),
        false => Tensor::from_i64s(dtype, vec![], &[tensor.element_i64(0)]),
    }
}
