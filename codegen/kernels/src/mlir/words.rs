//! Types, literals and names in MLIR's syntax.

use std::fmt::{self, Display};

use mithril_ir::dtype::DType;

use crate::code::{Cmp, Fold, Ty};

/// A type in MLIR's syntax. Its integers are signless.
pub struct Mlir(pub Ty);

impl Display for Mlir {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let element = match self.0.dtype {
            d if d.is_float() => d.name().to_string(),
            DType::Bool => "i1".to_string(),
            d => format!("i{}", d.bits()),
        };
        match self.0.lanes {
            1 => f.write_str(&element),
            n => write!(f, "vector<{n}x{element}>"),
        }
    }
}

/// The dtype of an element in memory. Bools are bytes. bf16 is accessed as u16, because LLVM splits
/// masked bf16 vectors into elements and calls a function to recombine them.
pub fn in_memory(dtype: DType) -> DType {
    match dtype {
        DType::Bool => DType::U8,
        DType::BF16 => DType::U16,
        _ => dtype,
    }
}

pub fn is_signed(dtype: DType) -> bool {
    matches!(dtype, DType::I64 | DType::I32 | DType::I16 | DType::I8 | DType::I4)
}

/// Prints a constant with the same bits in every lane, with its type if the syntax requires it.
pub fn constant(ty: Ty, bits: u64) -> String {
    let literal = literal(ty.dtype, bits);
    match (ty.lanes, ty.dtype) {
        (1, DType::Bool) => literal,
        (1, _) => format!("{literal} : {}", Mlir(ty)),
        _ => format!("dense<{literal}> : {}", Mlir(ty)),
    }
}

pub fn literal(dtype: DType, bits: u64) -> String {
    match dtype {
        DType::Bool => (bits & 1 != 0).to_string(),
        d if d.is_float() => format!("0x{bits:0width$X}", width = d.bytes() * 2),
        d => {
            let unused = 64 - d.bits();
            (((bits << unused) as i64) >> unused).to_string()
        }
    }
}

pub fn comparison(op: Cmp, dtype: DType) -> String {
    let name = match op {
        Cmp::Eq => "eq",
        Cmp::Ne => "ne",
        Cmp::Lt => "lt",
        Cmp::Le => "le",
        Cmp::Gt => "gt",
        Cmp::Ge => "ge",
    };
    match (op, dtype) {
        (Cmp::Ne, d) if d.is_float() => "cmpf une".into(),
        (_, d) if d.is_float() => format!("cmpf o{name}"),
        (Cmp::Eq | Cmp::Ne, _) => format!("cmpi {name}"),
        (_, d) if is_signed(d) => format!("cmpi s{name}"),
        _ => format!("cmpi u{name}"),
    }
}

/// Returns the kind and the flags of a reduction. `min` and `max` of floats assume that there is no
/// NaN, so the loop code must handle NaN.
pub fn folding(fold: Fold, dtype: DType) -> (&'static str, &'static str) {
    let (float, signed) = (dtype.is_float(), is_signed(dtype));
    match fold {
        Fold::Add if float => ("add", " fastmath<reassoc>"),
        Fold::Mul if float => ("mul", " fastmath<reassoc>"),
        Fold::Add => ("add", ""),
        Fold::Mul => ("mul", ""),
        Fold::Min if float => ("minnumf", " fastmath<nnan>"),
        Fold::Max if float => ("maxnumf", " fastmath<nnan>"),
        Fold::Min if signed => ("minsi", ""),
        Fold::Max if signed => ("maxsi", ""),
        Fold::Min => ("minui", ""),
        Fold::Max => ("maxui", ""),
        Fold::And => ("and", ""),
        Fold::Or => ("or", ""),
    }
}
