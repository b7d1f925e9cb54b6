//! The dtypes in which blocks compute.

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dtype::DType;

/// The dtypes of a block's floats, as far as they differ from the model around it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Numerics {
    /// The dtype of its params and of what it computes. Float inputs are cast to it, and float
    /// outputs to the dtype of the model around the block.
    pub dtype: Option<DType>,
    /// The dtype in which products and sums are accumulated.
    pub acc: Option<DType>,
}

impl Numerics {
    /// Errors: dtypes that are no floats; an `acc` that is narrower than `dtype`.
    pub fn new(dtype: Option<DType>, acc: Option<DType>) -> Result<Numerics> {
        for (keyword, given) in [("dtype", dtype), ("acc", acc)] {
            if let Some(other) = given.filter(|given| !given.is_float()) {
                return Diagnostic::of(
                    ErrorKind::DType,
                    format!("`{keyword}` of a block must be a dtype of floats"),
                )
                .got(other.array_name())
                .expected("float64, float32, float16 or bfloat16")
                .err();
            }
        }
        let numerics = Numerics { dtype, acc };
        if let (Some(dtype), Some(acc)) = (dtype, acc) {
            check_width(dtype, acc)?;
        }
        Ok(numerics)
    }

    /// Whether the block computes as the model around it does.
    pub fn is_inherited(&self) -> bool {
        *self == Numerics::default()
    }
}

/// Errors: sums of `dtype` cannot be accumulated in `acc`.
pub(crate) fn check_width(dtype: DType, acc: DType) -> Result<()> {
    if acc == dtype || acc.bits() > dtype.bits() {
        return Ok(());
    }
    Diagnostic::of(ErrorKind::DType, "`acc` of a block must not be narrower than its dtype")
        .got(format!("acc={} for {}", acc.array_name(), dtype.array_name()))
        .expected(format!("{} or a wider dtype", dtype.array_name()))
        .err()
}
