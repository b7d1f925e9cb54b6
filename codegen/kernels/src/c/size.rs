//! Prints sizes as readable C expressions.

use mithril_runtime::align::ALIGN;
use mithril_runtime::size::Size;

use super::expression::{Expr, Level};
use crate::entry::Dimension;

/// The name and the text of a function that sizes use.
pub const ROUND_UP: (&str, &str) = (
    "mithril_round_up",
    "/* Rounds up to a multiple of 64. */\n\
     static inline int64_t mithril_round_up(int64_t x) { return (x + 63) / 64 * 64; }\n",
);

/// Prints a size as a C expression. `symbols` gives the parameter of each symbol.
pub fn expression(size: &Size, symbols: &[Dimension]) -> Expr {
    let pair = |name: &str, of: &(Size, Size)| {
        Expr::call(name, &[expression(&of.0, symbols), expression(&of.1, symbols)])
    };
    if let Some(inner) = rounded(size) {
        return Expr::call(ROUND_UP.0, &[expression(&inner, symbols)]);
    }
    match size {
        Size::Const(value) => number(*value),
        Size::Symbol(at) => Expr::atom(symbols[*at].name.clone()),
        Size::Sum(of) => sum(of, symbols),
        Size::Product(of) => {
            // Constant factors come last, for readability.
            let fixed: i64 = of.iter().filter_map(constant).product();
            let others = of.iter().filter(|part| constant(part).is_none());
            let others: Vec<Expr> = others.map(|part| expression(part, symbols)).collect();
            let last = (fixed != 1 || others.is_empty()).then(|| number(fixed));
            match fixed {
                0 => number(0),
                _ => join(others.into_iter().chain(last), "*", Level::Product),
            }
        }
        Size::FloorDiv(of) => pair("mithril_floordiv", of),
        Size::Mod(of) => pair("mithril_mod", of),
        Size::Min(of) => pair("mithril_min", of),
        Size::Max(of) => pair("mithril_max", of),
    }
}

fn sum(of: &[Size], symbols: &[Dimension]) -> Expr {
    let mut parts: Vec<&Size> = Vec::new();
    let mut fixed = 0;
    let mut open: Vec<&Size> = of.iter().rev().collect();
    while let Some(part) = open.pop() {
        match part {
            Size::Const(value) => fixed += value,
            Size::Sum(of) => open.extend(of.iter().rev()),
            other => parts.push(other),
        }
    }
    let parts: Vec<Expr> = parts
        .into_iter()
        .map(|part| expression(part, symbols))
        .filter(|part| part.text != "0")
        .collect();
    let last = (fixed != 0 || parts.is_empty()).then(|| number(fixed));
    join(parts.into_iter().chain(last), "+", Level::Sum)
}

fn join(parts: impl Iterator<Item = Expr>, sign: &str, level: Level) -> Expr {
    let joined = parts.reduce(|a, b| match b.text.strip_prefix('-') {
        Some(less) if sign == "+" => Expr::binary(&a, "-", &Expr::atom(less), level),
        _ => Expr::binary(&a, sign, &b, level),
    });
    joined.unwrap_or_else(|| number(0))
}

fn number(value: i64) -> Expr {
    match i32::try_from(value) {
        Ok(value) if value < 0 => Expr::new(value.to_string(), Level::Unary),
        Ok(value) => Expr::atom(value.to_string()),
        Err(_) => Expr::atom(format!("INT64_C({value})")),
    }
}

fn constant(size: &Size) -> Option<i64> {
    match size {
        Size::Const(value) => Some(*value),
        _ => None,
    }
}

/// Matches `(x + 64 - 1) floordiv 64 * 64`, and returns x.
fn rounded(size: &Size) -> Option<Size> {
    let align = Size::Const(ALIGN as i64);
    let Size::Product(of) = size else { return None };
    let [Size::FloorDiv(quotient), factor] = &of[..] else { return None };
    if *factor != align || quotient.1 != align {
        return None;
    }
    let Size::Sum(parts) = &quotient.0 else { return None };
    let fixed: i64 = parts.iter().filter_map(constant).sum();
    let others = parts.iter().filter(|part| constant(part).is_none()).cloned();
    (fixed == ALIGN as i64 - 1).then(|| others.fold(Size::Const(0), |sum, part| sum + part))
}
