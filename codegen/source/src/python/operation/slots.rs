//! The slots of a template, filled with operands, attributes and other facts of an operation.

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::dtype::DType;
use mithril_ir::graph::Operation;
use mithril_ir::op::{Arity, Kind};
use mithril_ir::shape::Shape;

use crate::python::body::Body;
use crate::python::contraction::{self, Side};
use crate::python::expr::{Argument, Expr};
use crate::python::facts::OperandForm;
use crate::python::names::string;
use crate::python::prelude::defines;
use crate::python::slices::{backward_pads, paddings, slice_object};
use crate::python::template::Filling;

impl<'m> Body<'_, 'm> {
    /// What fills a slot: an operand, an attribute, or another fact of the operation. `forced_array` is the
    /// operand that must be an array.
    ///
    /// Errors: an unknown slot.
    pub(super) fn slot(
        &mut self,
        op: &'m Operation,
        name: &str,
        forced_array: Option<usize>,
    ) -> Result<Filling> {
        let (name, form) = name.split_once('.').unwrap_or((name, ""));
        if let Some(at) = op.op.operands.iter().position(|o| o.name == name) {
            return self.operand(op, at, form, forced_array);
        }
        if let Some(at) = op.op.attr_index(name) {
            return self.attribute(op, &op.attrs[at], form);
        }
        let dtype = self.function.ty(op.result()).dtype;
        let one = |expr| Ok(Filling::One(expr));
        match name {
            "dtype" | "narrow" => one(self.file.dtype(dtype)?),
            "device" => one(self.device()),
            "result" => self.shape_attribute(&self.function.ty(op.result()).shape, form),
            "slices" => Ok(Filling::Many(self.slices(op)?)),
            "bounds" => {
                let slices = self.slices(op)?.into_iter().map(slice_object);
                one(Expr::Tuple(slices.collect()))
            }
            "padding" => one(Expr::List(paddings(op, &["low", "high", "interior"]))),
            "widths" => one(Expr::Tuple(paddings(op, &["low", "high"]))),
            "pads" => one(Expr::Tuple(backward_pads(op))),
            "summed" | "kept" => one(self.with_facts(op, forced_array, |facts| {
                let (axes, kept) = facts.summed().unwrap_or_default();
                match (name, &axes[..]) {
                    ("kept", _) => Expr::name(if kept { "True" } else { "False" }),
                    (_, [axis]) => Expr::int(*axis),
                    (_, axes) => Expr::Tuple(axes.iter().map(|a| Expr::int(*a)).collect()),
                }
            })),
            "part" | "parts" => one(self.with_facts(op, forced_array, |facts| {
                let (at, count) = facts.part().unwrap_or_default();
                Expr::int(if name == "part" { at } else { count } as i64)
            })),
            "target" => self.reshaped(op),
            "input" | "weights" | "bias" => match self.linear(op) {
                Some(layer) => one(self.linear_part(&layer, name, form == "T")?),
                None => Diagnostic::new("only a linear layer has weights and a bias").err(),
            },
            "left" => self.side(op, 0),
            "right" => self.side(op, 1),
            "equation" => self.equation(op),
            "contracted" => one(self.contracted(op)),
            "mesh" => one(self.mesh()?),
            "spec" => Ok(Filling::Many(self.spec(op)?)),
            "split" => Ok(Filling::Many(self.split(op)?)),
            "wanted" => one(Expr::Tuple(self.wanted(op, form))),
            _ => Diagnostic::new(format!(
                "the template of `{}` names the unknown `{name}`",
                op.op.name
            ))
            .err(),
        }
    }

    /// The axes of each operand that a contraction sums over.
    fn contracted(&self, op: &Operation) -> Expr {
        let sides = contraction::contracted((self.function, op)).unwrap_or_default();
        let tuple = |axes: Vec<usize>| {
            Expr::Tuple(axes.into_iter().map(|axis| Expr::int(axis as i64)).collect())
        };
        Expr::Tuple(sides.into_iter().map(tuple).collect())
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
        forced_array: Option<usize>,
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
        let is_number = self.operand_forms(op, forced_array)[at] != OperandForm::Array;
        let may = form == "number" || (form.is_empty() && op.op.kind == Kind::Elementwise);
        let number = match is_number && may {
            true => self.number(value)?,
            false => None,
        };
        let x = match number {
            Some(number) => number,
            None => self.array(value)?,
        };
        let is_thin = shape.dims.len() > 1 && shape.dims.iter().any(|d| d.as_const() == Some(1));
        let rows = form == "rows" && is_thin && defines(self.file.backend.prelude, "_row_major");
        Ok(Filling::One(match rows {
            true => Expr::name("_row_major").call([Argument::plain(x)]),
            false => x,
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
                    "same" if v.iter().all(|n| *n == v[0]) && !v.is_empty() => Expr::int(v[0]),
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
            "dims" => Ok(Filling::Many(self.dims(shape)?)),
            "one" if single => Ok(Filling::One(self.dim(&shape.dims[0])?)),
            _ => Ok(Filling::One(self.shape(shape)?)),
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
                let swap = if self.file.backend.lazy { "transpose" } else { "swapaxes" };
                x.attribute(swap).call(axes)
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
