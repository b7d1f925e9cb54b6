//! Functions that C's library lacks, or that do not vectorise there, printed from the formulas of
//! native code. They have no branches, so that compilers can vectorise loops that call them.

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
        Callee::RankNanLast => "rank",
        Callee::RankNanFirst => "rank_nan_first",
        Callee::OfRank => "of_rank",
    };
    format!("{name}_{dtype}")
}

/// Its description, result type, parameters and body. Adds the functions that it calls to `needs`.
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
        Callee::Prim(Prim::Min) => "The lesser; NaN if either is; -0 before +0.",
        Callee::Prim(Prim::Max) => "The greater; NaN if either is; +0 before -0.",
        Callee::Prim(Prim::Exp) => "e to the power of x.",
        Callee::Prim(Prim::Expm1) => "e to the power of x, less 1.",
        Callee::Prim(Prim::Log) => "The natural logarithm.",
        Callee::Prim(Prim::Log1p) => "The natural logarithm of 1 + x.",
        Callee::Prim(Prim::Erf) => "The error function.",
        Callee::Prim(Prim::Atan2) => "The angle of the point (y, x).",
        Callee::Prim(prim) => return format!("The function {} of x.", prim.name()),
        Callee::Sigmoid => "1 / (1 + exp(-x)).",
        Callee::RankNanLast => "An integer in the order of floats: -0 before +0, NaN last.",
        Callee::RankNanFirst => "An integer in the order of floats: NaN first, -0 before +0.",
        Callee::OfRank => "The float of such an integer.",
    };
    text.into()
}

/// Selects `x` or `y` without a branch.
pub fn select(dtype: DType) -> Parts {
    let ty = variable_type(dtype);
    let args = format!("bool condition, {ty} x, {ty} y");
    let about = "x where the condition holds, else y; both are there, and nothing branches.";
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
