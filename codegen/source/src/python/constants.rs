//! Constants: numbers are written inline, small arrays at the top of the file, and large ones to an
//! `.npz` next to it.

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::dtype::DType;
use mithril_ir::graph::Operation;
use mithril_ir::naming::last_part;
use mithril_ir::scalar::round::max_finite;
use mithril_ir::shape::Shape;
use mithril_ir::tensor::{Tensor, float_text};

use super::body::{Binding, Body};
use super::expr::{Argument, Expr};
use super::names::{identifier, string};
use super::prelude::defines;
use super::template::{Filling, fill, parse};
use super::unit::File;
use crate::backends::is_foreign;

/// Maximum number of elements of an array that is written out in the source.
const MAX_WRITTEN: usize = 64;

impl<'m> Body<'_, 'm> {
    pub fn constant(&mut self, op: &'m Operation) -> Result<()> {
        let Attr::Tensor(tensor) = op.attr("value") else {
            return Diagnostic::new("a constant has no value").err();
        };
        let value = op.result();
        if tensor.shape().is_empty() {
            self.bindings[value.index()] = Binding::Literal((**tensor).clone());
            return Ok(());
        }
        if let Some(first) = uniform(tensor) {
            let number = self.file.element(&first, 0);
            let shape = Shape::fixed(tensor.shape());
            let backend = self.file.backend;
            let template = match first.element_f64(0) {
                // 0 and -0 are equal, but not the same.
                x if x.to_bits() == 0 => backend.zeros,
                1.0 => backend.ones,
                _ => backend.full,
            };
            let expr = self.make(template, number, tensor.dtype(), Some(&shape))?;
            self.keep(value, expr);
            return Ok(());
        }
        let preferred = self.function.info(value).name.clone();
        let preferred = preferred.or_else(|| op.loc.shortest().map(|path| last_part(path).into()));
        let name = self.file.hoist(tensor, preferred.as_deref().unwrap_or("constant"))?;
        match self.device() {
            // The device is not known until the file is used.
            Expr::Attribute(of, name_of) => {
                let device = Expr::Attribute(of, name_of);
                let moved = Expr::name(name).attribute("to").call([Argument::plain(device)]);
                self.keep(value, moved);
            }
            _ => self.bindings[value.index()] = Binding::Variable(name),
        }
        Ok(())
    }
}

/// The element that a tensor repeats, if all are equal; an arbitrary one if the tensor is empty.
fn uniform(tensor: &Tensor) -> Option<Tensor> {
    let any = || tensor.is_empty().then(|| Tensor::from_i64s(tensor.dtype(), vec![], &[0]));
    tensor.repeated().or_else(any)
}

impl File<'_> {
    /// The name of a constant at the top of the file, where it is added if new.
    fn hoist(&mut self, tensor: &Tensor, preferred: &str) -> Result<String> {
        if let Some(name) = self.hoisted.get(tensor) {
            return Ok(name.clone());
        }
        let mut plain = self.names.unique(&identifier(preferred));
        while defines(self.backend.prelude, &format!("_{plain}")) {
            plain = self.names.unique(&format!("{plain}_values"));
        }
        let name = format!("_{plain}");
        let expr = match tensor.len() <= MAX_WRITTEN {
            true => {
                let items = self.nested(tensor, tensor.shape(), 0);
                self.fill(self.backend.array, items, tensor.dtype())?
            }
            false => {
                self.constants.push((plain.clone(), tensor.clone()));
                self.load(&plain, tensor.dtype())?
            }
        };
        self.assignments.push((name.clone(), expr));
        self.hoisted.insert(tensor.clone(), name.clone());
        Ok(name)
    }

    /// An array of the file's `.npz`, in which dtypes that NumPy lacks are stored as raw bytes.
    fn load(&self, name: &str, dtype: DType) -> Result<Expr> {
        let stored = Expr::name("_constants").index([Expr::Literal(string(name))]);
        if !is_foreign(dtype) {
            return self.fill(self.backend.load, stored, dtype);
        }
        let view = |x: Expr, as_: Expr| x.attribute("view").call([Argument::plain(as_)]);
        if let Some(template) = self.backend.load_bits {
            let bits = if dtype.bytes() == 2 { "int16" } else { "uint8" };
            return self.fill(template, view(stored, Expr::name("np").attribute(bits)), dtype);
        }
        let typed = view(stored, self.dtype(dtype)?);
        self.fill(self.backend.load, typed, dtype)
    }

    fn fill(&self, template: &str, x: Expr, dtype: DType) -> Result<Expr> {
        let parsed = parse(template).map_err(|e| Box::new(Diagnostic::new(e)))?;
        let dtype = self.dtype(dtype)?;
        let mut slot = |name: &str| {
            Ok(Filling::One(match name {
                "x" => x.clone(),
                _ => dtype.clone(),
            }))
        };
        fill(&parsed[0].expr, self.backend.module, &mut |_| true, &mut slot)
    }

    fn nested(&self, tensor: &Tensor, shape: &[usize], start: usize) -> Expr {
        let Some((first, rest)) = shape.split_first() else {
            return self.element(tensor, start);
        };
        let step: usize = rest.iter().product();
        let rows = (0..*first).map(|i| self.nested(tensor, rest, start + i * step));
        Expr::List(rows.collect())
    }

    /// One element as a Python number or bool.
    pub fn element(&self, tensor: &Tensor, i: usize) -> Expr {
        let dtype = tensor.dtype();
        if dtype.is_float() {
            return self.float(dtype, tensor.element_f64(i));
        }
        match tensor.element_text(i).as_str() {
            "true" => Expr::name("True"),
            "false" => Expr::name("False"),
            text => Expr::Literal(text.into()),
        }
    }

    /// A float as the shortest number that rounds to it.
    pub fn float(&self, dtype: DType, x: f64) -> Expr {
        if x.is_finite() {
            // Python parses the text as a double, which must not exceed the largest value of the
            // dtype.
            let short = float_text(dtype, x);
            let beyond =
                short.parse().is_ok_and(|read: f64| read.abs() > x.abs().max(max_finite(dtype)));
            return Expr::Literal(if beyond { format!("{x:?}") } else { short });
        }
        let word = if x.is_nan() { "nan" } else { "inf" };
        let named =
            Expr::name(self.backend.infinities.unwrap_or(self.backend.module)).attribute(word);
        match x < 0.0 {
            true => Expr::Unary("-", Box::new(named)),
            false => named,
        }
    }
}
