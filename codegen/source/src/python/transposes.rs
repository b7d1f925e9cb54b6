//! Expressions that transpose arrays by the method `transpose`.

use super::expr::{Argument, Expr};

/// The array that an expression transposes by the method `transpose` with all axes, and their
/// order.
pub fn transposed(expr: &Expr) -> Option<(&Expr, Vec<usize>)> {
    let Expr::Call(head, args) = expr else { return None };
    let Expr::Attribute(array, name) = &**head else { return None };
    let axis = |arg: &Argument| match &arg.value {
        Expr::Literal(text) => text.parse().ok(),
        _ => None,
    };
    let order: Vec<usize> = args.iter().map(axis).collect::<Option<_>>()?;
    // With two axes, the method of some frameworks swaps these two.
    let is_order = order.len() > 2 && (0..order.len()).all(|axis| order.contains(&axis));
    (name == "transpose" && is_order).then_some((&**array, order))
}

/// The array with its axes in this order.
pub fn in_order(array: Expr, order: &[usize]) -> Expr {
    let axes = order.iter().map(|axis| Argument::plain(Expr::int(*axis as i64)));
    array.attribute("transpose").call(axes)
}

/// The expression with a single transpose, or none, in place of two.
pub fn composed(expr: Expr) -> Expr {
    let Some((array, outer)) = transposed(&expr) else { return expr };
    let Some((array, inner)) = transposed(array) else { return expr };
    if inner.len() != outer.len() {
        return expr;
    }
    let order: Vec<usize> = outer.iter().map(|axis| inner[*axis]).collect();
    match order.is_sorted() {
        true => array.clone(),
        false => in_order(array.clone(), &order),
    }
}
