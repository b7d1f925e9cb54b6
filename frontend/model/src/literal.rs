//! Constant values given to terminals.

use mithril_ir::diagnostic::{Diagnostic, ErrorKind};
use mithril_ir::dtype::DType;
use mithril_ir::scalar::round;
use mithril_ir::tensor::Tensor;

/// A constant. A *weak* constant, such as a plain number, takes the dtype of the operands it is
/// used with. An array keeps its dtype, except that an integer array becomes float where floats are
/// expected, if the conversion is exact.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Literal {
    pub tensor: Tensor,
    pub weak: bool,
}

impl Literal {
    /// An array, which keeps its dtype.
    pub fn array(tensor: Tensor) -> Literal {
        Literal { tensor, weak: false }
    }

    /// Numbers without a fixed dtype, stored as written: f64, i64 or bool.
    pub fn weak(tensor: Tensor) -> Literal {
        Literal { tensor, weak: true }
    }

    /// The dtype of the literal if no operand decides it.
    pub fn default_dtype(&self, float: DType, index: DType) -> DType {
        match self.tensor.dtype() {
            own if !self.weak => own,
            DType::Bool => DType::Bool,
            own if own.is_float() => float,
            _ => index,
        }
    }

    /// The value converted to this dtype. `None` for an integer that the dtype cannot represent
    /// exactly, a fraction as an integer, a bool as a number, or a non-integer array of another
    /// dtype.
    pub fn in_dtype(&self, dtype: DType) -> Option<Tensor> {
        let own = self.tensor.dtype();
        if own == dtype {
            return Some(self.tensor.clone());
        }
        if own == DType::Bool || dtype == DType::Bool {
            return None;
        }
        let shape = self.tensor.shape().to_vec();
        if own.is_int() && (self.weak || dtype.is_float()) {
            return self.in_number_dtype(dtype, shape);
        }
        if !self.weak {
            return None;
        }
        dtype.is_float().then(|| Tensor::from_f64s(dtype, shape, &self.tensor.to_f64s()))
    }

    /// The error for a value that `in_dtype` cannot convert to the dtype of the terminal.
    pub fn conversion_error(&self, terminal: &str, dtype: DType) -> Diagnostic {
        let own = self.tensor.dtype();
        let what = Diagnostic::of(
            ErrorKind::DType,
            format!("the value {} of `{terminal}` does not fit {dtype}", self.text()),
        );
        if own.is_int() && dtype.is_float() {
            return what
                .got("an integer that is rounded")
                .expected(format!("integers that {dtype} holds exactly"))
                .hint("write it as a float, which may be rounded: `16777217.0`");
        }
        if self.weak && own.is_int() && dtype.is_int() {
            let (least, greatest) = round::int_range(dtype);
            return what
                .got("an integer out of range")
                .expected(format!("{least} to {greatest}: integers do not wrap silently"))
                .hint("cast the other operands to a wider dtype with `Cast`");
        }
        what.got(own)
            .expected(format!("{dtype}, as the other operands: there is no implicit promotion"))
            .hint(own.conversion(&|other| other.is_like(dtype)))
    }

    /// Converts integers to `dtype`, if each of them can be represented exactly.
    fn in_number_dtype(&self, dtype: DType, shape: Vec<usize>) -> Option<Tensor> {
        let own = self.tensor.dtype();
        let values = self.tensor.to_i64s();
        let mut wide = values.iter().map(|v| round::wide(own, *v));
        if dtype.is_float() {
            let floats = wide.clone().map(|v| round::from_int(dtype, v)).collect::<Vec<f64>>();
            // A value beyond the dtype's range becomes infinity, which saturates to a different
            // integer.
            let exact = wide.zip(&floats).all(|(v, float)| *float as i128 == v);
            return exact.then(|| Tensor::from_f64s(dtype, shape, &floats));
        }
        let (least, greatest) = round::int_range(dtype);
        let fits = wide.all(|v| (least..=greatest).contains(&v));
        fits.then(|| Tensor::from_i64s(dtype, shape, &values))
    }

    /// The value as a user would write it: `2.0`, `[1, 2, …]`.
    pub fn text(&self) -> String {
        let shown = (0..self.tensor.len().min(4)).map(|i| self.tensor.element_text(i));
        let shown = shown.collect::<Vec<_>>().join(", ");
        match self.tensor.shape() {
            [] => shown,
            _ if self.tensor.len() > 4 => format!("[{shown}, …]"),
            _ => format!("[{shown}]"),
        }
    }
}

impl From<f64> for Literal {
    fn from(v: f64) -> Literal {
        Literal::weak(Tensor::scalar(DType::F64, v))
    }
}

impl From<i64> for Literal {
    fn from(v: i64) -> Literal {
        Literal::weak(Tensor::from_i64s(DType::I64, vec![], &[v]))
    }
}

impl From<bool> for Literal {
    fn from(v: bool) -> Literal {
        Literal::weak(Tensor::from_i64s(DType::Bool, vec![], &[v.into()]))
    }
}

impl From<Tensor> for Literal {
    fn from(tensor: Tensor) -> Literal {
        Literal::array(tensor)
    }
}
