//! Functions that the C library lacks or does not vectorize. They are printed from the formulas of
//! native code, without branches, so that compilers can vectorize loops that call them.

use mithril_ir::dtype::DType;
use mithril_ir::scalar::Prim;
use rustc_hash::FxHashSet;

use super::{Function, Parts};
use crate::c::expression::variable_type;
use crate::c::kernel::print_body;
use crate::code::Callee;
use crate::scalar::definition;

pub fn name(callee: Callee, dtype: DType) -> String {
    let name = match callee {
        Callee::Prim(prim) => prim.name(),
        Callee::Sigmoid => "sigmoid",
        Callee::SortKeyNanLast => "sort_key",
        Callee::SortKeyNanFirst => "sort_key_nan_first",
        Callee::FromSortKey => "from_sort_key",
    };
    format!("{name}_{dtype}")
}

/// Returns the description, result type, parameters and body of a function. Adds the functions that
/// it calls to `needs`.
pub fn parts(callee: Callee, dtype: DType, needs: &mut FxHashSet<Function>) -> Parts {
    let definition = definition(callee, dtype);
    let names = &["x", "y"][..definition.parameters.len()];
    let body = print_body(&definition, names, needs);
    let parameters: Vec<String> =
        names.iter().map(|name| format!("{} {name}", variable_type(dtype))).collect();
    let result = variable_type(definition.code.ty(definition.result).dtype);
    (about(callee), result, parameters.join(", "), body)
}

fn about(callee: Callee) -> String {
    let text = match callee {
        Callee::Prim(Prim::Min) => "The minimum; NaN if either is NaN; -0 is less than +0.",
        Callee::Prim(Prim::Max) => "The maximum; NaN if either is NaN; -0 is less than +0.",
        Callee::Prim(Prim::Exp) => "e to the power of x.",
        Callee::Prim(Prim::Expm1) => "e to the power of x, minus 1.",
        Callee::Prim(Prim::Log) => "The natural logarithm.",
        Callee::Prim(Prim::Log1p) => "The natural logarithm of 1 + x.",
        Callee::Prim(Prim::Erf) => "The error function.",
        Callee::Prim(Prim::Atan2) => "The angle of the point (y, x).",
        Callee::Prim(prim) => return format!("The function {} of x.", prim.name()),
        Callee::Sigmoid => "1 / (1 + exp(-x)).",
        Callee::SortKeyNanLast => {
            "Maps floats to integers in the same order: -0 before +0, NaN last."
        }
        Callee::SortKeyNanFirst => {
            "Maps floats to integers in the same order: NaN first, -0 before +0."
        }
        Callee::FromSortKey => "Maps such an integer back to its float.",
    };
    text.into()
}

/// Selects `x` or `y` without a branch.
pub fn select(dtype: DType) -> Parts {
    let ty = variable_type(dtype);
    let args = format!("bool condition, {ty} x, {ty} y");
    let about = "x if the condition holds, otherwise y, without a branch.";
    let mask = if dtype.bits() == 64 { "int64_t" } else { "int32_t" };
    let body = match dtype {
        DType::F32 | DType::F64 => {
            let bits = if dtype == DType::F64 { "i64" } else { "i32" };
            format!(
                "const {mask} mask = -({mask})condition;\n\
                 const {mask} chosen = ({bits}_bits_of_{dtype}(x) & mask) | \
                 ({bits}_bits_of_{dtype}(y) & ~mask);\n\
                 return {dtype}_bits_of_{bits}(chosen);"
            )
        }
        _ => format!("const {ty} mask = -({ty})condition;\nreturn (x & mask) | (y & ~mask);"),
    };
    (about.into(), ty, args, body)
}
