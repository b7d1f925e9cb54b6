//! One operation as an expression: its template filled with operands and attributes.

mod mesh;
mod slots;

use std::rc::Rc;

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dtype::DType;
use mithril_ir::graph::{Operation, Role, Value};
use mithril_ir::op::{DTypeRule, Kind};
use mithril_ir::shape::Shape;
use mithril_ir::tensor::Tensor;

use super::body::{Binding, Body};
use super::expr::{Argument, Expr};
use super::facts::{Facts, OperandForm};
use super::template::{Alternative, Filling, fill};
use crate::backends::is_foreign;

/// Functions that have the same name in Python's `math` as in array modules.
const MATH: [&str; 10] =
    ["sqrt", "exp", "log", "log1p", "expm1", "sin", "cos", "tan", "tanh", "erf"];

impl<'m> Body<'_, 'm> {
    /// The expression of an operation's result. Inlined operands get variables until it fits on a
    /// line.
    pub fn spell(&mut self, op: &'m Operation) -> Result<Expr> {
        let budget = self.budget(op.result());
        let forced_array = self.forced_array(op);
        loop {
            let alternative = self.choose(op, forced_array)?;
            self.assign_repeated(op, &alternative);
            let expr = self.fill_template(op, &alternative, forced_array)?;
            if expr.fits(budget) {
                return Ok(expr);
            }
            let read = self.read_values(op);
            let settled = match read.len() > budget / 2 {
                // Not even the names of the operands fit on a line.
                true => self.assign_all_pending(&read),
                false => self.assign_longest(&read, &expr),
            };
            if !settled {
                return Ok(expr);
            }
        }
    }

    /// Computes an elementwise operation whose operands are all numbers as a Python number, if
    /// possible.
    pub fn numeric(&mut self, op: &'m Operation) -> Result<Option<Binding>> {
        let operand_forms = self.operand_forms(op, None);
        let numbers = operand_forms.iter().all(|w| *w != OperandForm::Array);
        if op.op.kind != Kind::Elementwise || !numbers {
            return Ok(None);
        }
        let dtype = self.function.ty(op.result()).dtype;
        if let (DTypeRule::Attr(_), [value]) = (op.op.dtype, &op.operands[..]) {
            let binding = match &self.bindings[value.index()] {
                Binding::Literal(tensor) => Binding::Literal(recast(tensor, dtype)),
                _ => match self.number(*value)? {
                    Some(number) if dtype.is_float() => Binding::Number(number),
                    _ => return Ok(None),
                },
            };
            return Ok(Some(binding));
        }
        let literal = operand_forms.iter().all(|w| matches!(w, OperandForm::Literal(_)));
        if literal || !dtype.is_float() {
            return Ok(None);
        }
        let alternative = self.choose(op, None)?;
        let expr = self.fill_template(op, &alternative, None)?;
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

    /// The forms in which the operands are available. The operand `forced_array` counts as an
    /// array.
    fn operand_forms(&self, op: &Operation, forced_array: Option<usize>) -> Vec<OperandForm> {
        let each = op.operands.iter().enumerate().map(|(i, value)| {
            let dtype = self.function.ty(*value).dtype;
            if forced_array == Some(i) || (!self.file.backend.mixes && is_foreign(dtype)) {
                return OperandForm::Array;
            }
            // A bool counts as a number only where it is repeated, which gives an array of ones or
            // zeros.
            let repeated = op.op.kind == Kind::Layout && op.operands.len() == 1;
            match &self.bindings[value.index()] {
                Binding::Literal(t) if repeated || t.dtype() != DType::Bool => {
                    OperandForm::Literal(t.element_f64(0))
                }
                Binding::Number(_) => OperandForm::Number,
                Binding::Known(dims) if self.is_scalar(*value) => match dims[0].as_const() {
                    Some(v) => OperandForm::Literal(v as f64),
                    None => OperandForm::Number,
                },
                _ => OperandForm::Array,
            }
        });
        each.collect()
    }

    fn is_scalar(&self, value: Value) -> bool {
        self.function.ty(value).shape.rank() == Some(0)
    }

    /// The operand that must be written as an array. `None` unless all operands that determine the
    /// dtype of an elementwise result would be Python numbers.
    fn forced_array(&self, op: &Operation) -> Option<usize> {
        if op.op.kind != Kind::Elementwise {
            return None;
        }
        let operand_forms = self.operand_forms(op, None);
        let decides = |i: &usize| op.op.operand(*i).shared;
        let mut deciding = (0..op.operands.len()).filter(decides);
        match deciding.clone().any(|i| operand_forms[i] == OperandForm::Array) {
            true => None,
            false => deciding.next(),
        }
    }

    pub fn with_facts<R>(
        &self,
        op: &Operation,
        forced_array: Option<usize>,
        read: impl FnOnce(&Facts) -> R,
    ) -> R {
        let operand_forms = self.operand_forms(op, forced_array);
        let dtype = self.function.ty(op.result()).dtype;
        read(&Facts {
            op,
            function: self.function,
            neighbours: &self.neighbours,
            used: &self.file.operations,
            operand_forms: &operand_forms,
            widens: self.file.widens(dtype),
            is_picked: self.picked(op).is_some(),
            weights: self.linear(op).map(|layer| self.function.ty(layer.product.operands[1])),
            is_mixed: self.file.mixed_precision,
            devices: self.device_argument().is_some(),
        })
    }

    fn choose(&mut self, op: &Operation, forced_array: Option<usize>) -> Result<Rc<Alternative>> {
        let (own, parsed) = (self.in_place(op), self.file.template(op.op));
        let found = self.with_facts(op, forced_array, |facts| {
            own.iter().chain(&*parsed).find(|a| a.guards.iter().all(|g| facts.holds(g)))
        });
        match found {
            Some(alternative) => Ok(alternative.clone()),
            None => Diagnostic::of(
                ErrorKind::Unsupported,
                format!("Backend does not support operation {}", op.op.name),
            )
            .at(format!("block `{}`", op.loc))
            .got(format!("{} for {}", op.op.name, self.file.backend.label))
            .hint(format!(
                "the class of a custom backend may have a template for it: \
                 `spellings = {{\"{}\": \"@…\"}}`",
                op.op.name
            ))
            .err(),
        }
    }

    /// Assigns operands that the template names twice to variables, so that they are computed once.
    fn assign_repeated(&mut self, op: &Operation, alternative: &Alternative) {
        let mut slots: Vec<String> = Vec::new();
        alternative.expr.visit(&mut |e| {
            if let Expr::Slot(name) = e {
                slots.push(name.clone());
            }
        });
        for (i, value) in op.operands.iter().enumerate() {
            let name = op.op.operand(i).name;
            if slots.iter().filter(|s| *s == name).count() > 1 {
                self.assign_pending(*value);
            }
        }
    }

    /// Assigns all inlined values to variables; returns false if there is none.
    fn assign_all_pending(&mut self, values: &[Value]) -> bool {
        let pending = |value: &&Value| matches!(self.bindings[value.index()], Binding::Pending(_));
        let folded: Vec<Value> = values.iter().filter(pending).copied().collect();
        folded.iter().for_each(|value| self.assign_pending(*value));
        !folded.is_empty()
    }

    /// Assigns the longest value that is inlined in the expression to a variable; returns false if
    /// there is none. Transposes that cancelled are not in it.
    fn assign_longest(&mut self, values: &[Value], expr: &Expr) -> bool {
        let width = |value: &Value| match &self.bindings[value.index()] {
            Binding::Pending(inlined) if expr.contains(inlined) => Some(inlined.width()),
            _ => None,
        };
        let longest = values.iter().filter(|v| width(v).is_some());
        match longest.max_by_key(|v| width(v)).copied() {
            Some(value) => {
                self.assign_pending(value);
                true
            }
            None => false,
        }
    }

    fn fill_template(
        &mut self,
        op: &'m Operation,
        alternative: &Alternative,
        forced_array: Option<usize>,
    ) -> Result<Expr> {
        let mut slots: Vec<(String, bool)> = Vec::new();
        self.with_facts(op, forced_array, |facts| {
            alternative.expr.visit(&mut |e| {
                if let Expr::Slot(name) = e {
                    slots.push((name.clone(), facts.is_default(name)));
                }
            });
        });
        let mut default = |name: &str| slots.iter().any(|(slot, at)| slot == name && *at);
        let module = self.file.backend.module;
        let mut slot = |name: &str| self.slot(op, name, forced_array);
        let filled = fill(&alternative.expr, module, &mut default, &mut slot)?;
        self.cast_back(op, alternative, filled)
    }

    /// Casts a result back to its dtype if Python numbers in the template may promote it: they do
    /// for dtypes of `ml_dtypes`, which the framework does not know.
    fn cast_back(&self, op: &Operation, alternative: &Alternative, expr: Expr) -> Result<Expr> {
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

    /// The value as an array expression.
    pub fn array(&mut self, value: Value) -> Result<Expr> {
        self.mark_read(value);
        let dtype = self.function.ty(value).dtype;
        match self.bindings[value.index()].clone() {
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
        Ok(match self.bindings[value.index()].clone() {
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
        match self.device_argument() {
            Some((value, name)) => {
                self.mark_read(value);
                Expr::name(name).attribute("device")
            }
            None => Expr::name("None"),
        }
    }

    /// The argument whose device new arrays share, and its variable.
    fn device_argument(&self) -> Option<(Value, String)> {
        let arguments = || self.function.arguments();
        let data = arguments().find(|(_, a)| a.role == Role::Data);
        let (value, _) = data.or_else(|| arguments().next())?;
        match &self.bindings[value.index()] {
            Binding::Variable(name) if self.file.backend.devices => Some((value, name.clone())),
            _ => None,
        }
    }
}

fn recast(tensor: &Tensor, dtype: DType) -> Tensor {
    match tensor.dtype().is_float() {
        true => Tensor::from_f64s(dtype, vec![], &[tensor.element_f64(0)]),
        false => Tensor::from_i64s(dtype, vec![], &[tensor.element_i64(0)]),
    }
}
