//! Constant values given to terminals.

use mithril_ir::dtype::DType;
use mithril_ir::scalar::round;
use mithril_ir::tensor::Tensor;

/// A constant. A *weak* one, such as a plain number, takes the dtype of the operands it meets;
/// an array keeps its own.
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

    /// Numbers without a dtype of their own: f64, i64 or bool, as written.
    pub fn weak(tensor: Tensor) -> Literal {
        Literal { tensor, weak: true }
    }

    /// The dtype it has where nothing else decides.
    pub fn default_dtype(&self, float: DType, index: DType) -> DType {
        match self.tensor.dtype() {
            own if !self.weak => own,
            DType::Bool => DType::Bool,
            own if own.is_float() => float,
            _ => index,
        }
    }

    /// The value in this dtype; `None` where it has none: an integer out of its range, a fraction
    /// as an integer, a truth value as a number, an array of another dtype.
    pub fn in_dtype(&self, dtype: DType) -> Option<Tensor> {
        let own = self.tensor.dtype();
        if own == dtype {
            return Some(self.tensor.clone());
        }
        if !self.weak || own == DType::Bool || dtype == DType::Bool {
            return None;
        }
        let shape = self.tensor.shape().to_vec();
        if own.is_int() {
            if !self.is_in_range(dtype) {
                return None;
            }
            return Some(Tensor::from_i64s(dtype, shape, &self.tensor.to_i64s()));
        }
        dtype.is_float().then(|| Tensor::from_f64s(dtype, shape, &self.tensor.to_f64s()))
    }

    /// Whether these integers are integers of `dtype` too; floats take any, rounded.
    pub fn is_in_range(&self, dtype: DType) -> bool {
        if !dtype.is_int() {
            return true;
        }
        let own = self.tensor.dtype();
        let (least, greatest) = round::int_range(dtype);
        let values = self.tensor.to_i64s();
        values.iter().all(|v| (least..=greatest).contains(&round::wide(own, *v)))
    }

    /// As a person would write it: `2.0`, `[1, 2, …]`.
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
