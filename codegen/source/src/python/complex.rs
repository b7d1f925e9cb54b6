//! Complex values. The real and the imaginary part are two operations, of which each takes a part
//! of one call: `np.fft.fft(x).real`. The call is written once for both.

use mithril_ir::graph::Operation;
use mithril_ir::op::access::{Access, Library};

use super::body::Body;
use super::expr::Expr;

impl<'m> Body<'_, 'm> {
    /// Assigns the complex value that an expression takes a part of to a variable, if another
    /// operation takes the other part, or if the expression is longer than a line. Returns the
    /// expression with the variable.
    pub fn with_shared_call(&mut self, op: &'m Operation, expr: Expr) -> Expr {
        let is_fourier = matches!(op.op.access, Access::Library(Library::Fourier(_)));
        let Some(call) = complex_value(&expr).filter(|_| is_fourier) else {
            return expr;
        };
        let text = call.to_string();
        let name = match self.complex_values.get(&text) {
            Some(name) => name.clone(),
            None if self.has_other_part(op) || !expr.fits(self.budget(op.result())) => {
                let name = self.names.unique(op.op.result_name());
                self.write(op.result(), format!("{name} = "), call.clone());
                self.complex_values.insert(text, name.clone());
                name
            }
            None => return expr,
        };
        replaced(expr, &name)
    }

    /// Whether a later operation computes the other part of the same value.
    fn has_other_part(&self, op: &Operation) -> bool {
        let of = op.op.attr_index("of");
        let same = |other: &Operation| {
            let mut attrs = op.attrs.iter().zip(&other.attrs).enumerate();
            attrs.all(|(i, (a, b))| (Some(i) == of) != (a == b))
        };
        let mut others = self.neighbours.siblings(op.op.0.name, &op.operands);
        others.any(|other| other.first > op.first && same(other) && self.is_used(other.result()))
    }
}

/// The complex value of which an expression takes a part, perhaps cast.
fn complex_value(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::Attribute(call, part) if part == "real" || part == "imag" => {
            matches!(**call, Expr::Call(..)).then_some(call)
        }
        Expr::Attribute(inner, _) | Expr::Call(inner, _) => complex_value(inner),
        _ => None,
    }
}

/// The expression with a variable in place of the complex value.
fn replaced(expr: Expr, name: &str) -> Expr {
    match expr {
        Expr::Attribute(_, part) if part == "real" || part == "imag" => {
            Expr::name(name).attribute(&part)
        }
        Expr::Attribute(inner, part) => replaced(*inner, name).attribute(&part),
        Expr::Call(inner, args) => replaced(*inner, name).call(args),
        other => other,
    }
}
