//! Partial derivatives of elementwise operations.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use super::{BY_PRIM, Gradient, Op, parse, table};
use crate::scalar::expr::Expr;

static PARTIALS: LazyLock<FxHashMap<&'static str, Vec<Expr>>> = LazyLock::new(|| {
    let own = |op: Op| match op.gradient {
        Gradient::Partials(texts) => {
            Some(texts.iter().map(|text| parse(op, text, &["r"])).collect())
        }
        _ => None,
    };
    table().filter_map(|op| Some((op.0.name, own(op).or_else(|| prim_partials(op))?))).collect()
});

/// The derivatives of the primitive, if the op consists of only one.
fn prim_partials(op: Op) -> Option<Vec<Expr>> {
    let prim = BY_PRIM.iter().find(|(_, direct)| **direct == op)?.0;
    let mut names = crate::scalar::DERIVATIVE_NAMES[..prim.arity()].to_vec();
    names.push("r");
    let parse = |text: &&str| Expr::parse(text, &names, &[]).expect("derivatives parse");
    Some(prim.derivatives().iter().map(parse).collect())
}

/// The partial derivatives of an elementwise op by operand, over its operands and then its result;
/// `None` if they can be derived from its expression.
pub fn partials(op: Op) -> Option<&'static [Expr]> {
    PARTIALS.get(op.name).map(Vec::as_slice)
}
