//! Checks of the symbols of a call, which ensure that all sizes are as planned.

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Bound, Function};
use mithril_ir::loc::Loc;
use mithril_runtime::program::UNLIMITED;
use mithril_runtime::size::Size;

use super::expression::c_expression;
use super::{Dimension, Workspace};
use crate::program::{Plan, size};

/// A relation that must hold; otherwise the call returns an error.
#[derive(Clone, PartialEq, Debug)]
pub struct Check {
    pub left: Size,
    pub relation: Bound,
    pub right: Size,
    /// The check as text, with the parameters' names and the block: `n == m of block sum`.
    pub text: String,
}

/// Returns the checks of a function, in addition to the range of its symbols. Divisors are checked
/// first. `sizes` are the sizes that a call evaluates.
///
/// Errors: a dim cannot be derived from the arguments.
pub fn checks(
    function: &Function,
    plans: &[&Plan],
    sizes: &[&Size],
    symbols: &[Dimension],
) -> Result<Vec<Check>> {
    let stated = stated(function, plans[0], symbols)?;
    let mut divisors = Vec::new();
    let sides = stated.iter().flat_map(|check| [&check.left, &check.right]);
    for size in sides.chain(sizes.iter().copied()) {
        add_divisors(size, &mut divisors);
    }
    let at_least = |left: Size, bound: i64| {
        let text = format!("{} >= {bound}", c_expression(&left, symbols));
        Check { left, relation: Bound::AtLeast, right: Size::Const(bound), text }
    };
    let mut checks: Vec<Check> = divisors.into_iter().map(|size| at_least(size, 1)).collect();
    checks.extend(stated);
    for buffer in plans.iter().flat_map(|plan| &plan.program.buffers) {
        let check = at_least(buffer.bytes.clone(), 0);
        let never_negative = range(&buffer.bytes, SAMPLE).is_some_and(|(low, _)| low >= 0);
        if !never_negative && !checks.contains(&check) {
            checks.push(check);
        }
    }
    Ok(checks)
}

/// A size that is not negative for symbols up to this value is assumed to be never negative.
const SAMPLE: i64 = 1 << 12;

/// Returns the checks from guards, constraints and the types of arrays.
fn stated(function: &Function, plan: &Plan, symbols: &[Dimension]) -> Result<Vec<Check>> {
    let mut checks: Vec<Check> = Vec::new();
    let mut add = |left: &Dim, relation: Bound, right: &Dim, of: &Loc| -> Result<()> {
        let of = of.blocks().map(|blocks| format!(" of {blocks}")).unwrap_or_default();
        let text = format!("{} {relation} {}{of}", named(left, symbols), named(right, symbols));
        let [left, right] = [size(left, &plan.symbols)?, size(right, &plan.symbols)?];
        let check = Check { left, relation, right, text };
        // A relation that always holds needs no check.
        let known = check.left.symbols() + check.right.symbols() == 0 && check.holds(&[]);
        if !known && !checks.contains(&check) {
            checks.push(check);
        }
        Ok(())
    };
    let results = function.results.iter().map(|result| result.value);
    for value in function.arguments().map(|(value, _)| value).chain(results) {
        for dim in function.ty(value).shape.dims.iter().filter(|dim| dim.as_symbol().is_none()) {
            add(dim, Bound::AtLeast, &Dim::Const(0), &Loc::unknown())?;
        }
    }
    for guard in &function.guards {
        let (left, relation, right) = guard.relation();
        let relation = match relation {
            ">=" => Bound::AtLeast,
            "<=" => Bound::AtMost,
            _ => Bound::Equal,
        };
        add(left, relation, right, &guard.loc)?;
    }
    for constraint in &function.constraints {
        add(&constraint.left, constraint.relation, &constraint.right, &Loc::unknown())?;
    }
    Ok(checks)
}

/// Returns a dim with the parameters' names as symbols.
pub fn named(dim: &Dim, symbols: &[Dimension]) -> Dim {
    dim.substitute(&|symbol| {
        let own = symbols.iter().find(|own| own.symbol == *symbol)?;
        Some(Dim::symbol(own.name.as_str()))
    })
}

impl Check {
    /// Whether the relation holds for these values of the symbols.
    pub fn holds(&self, symbols: &[i64]) -> bool {
        match (self.left.eval(symbols), self.right.eval(symbols)) {
            (Some(left), Some(right)) => self.relation.holds(left, right),
            _ => false,
        }
    }
}

/// All sizes that a call evaluates to launch its kernels.
pub fn sizes<'a>(plans: &'a [&Plan], workspace: &'a Workspace) -> impl Iterator<Item = &'a Size> {
    let programs = plans.iter().map(|plan| &plan.program);
    let buffers = programs.clone().flat_map(|program| program.buffers.iter().map(|b| &b.bytes));
    let launches = programs.clone().flat_map(|program| &program.launches);
    let launches =
        launches.flat_map(|launch| launch.dims.iter().chain([&launch.tasks, &launch.scratch]));
    let trips = programs.clone().flat_map(|program| program.loops.iter().map(|own| &own.trips));
    let trips = trips.filter(|trips| **trips != UNLIMITED);
    buffers.chain(launches).chain(trips).chain(workspace.sizes())
}

/// Adds the divisors of a size, in the order of evaluation.
fn add_divisors(size: &Size, divisors: &mut Vec<Size>) {
    match size {
        Size::Const(_) | Size::Symbol(_) => {}
        Size::Sum(of) | Size::Product(of) => of.iter().for_each(|s| add_divisors(s, divisors)),
        Size::Min(of) | Size::Max(of) => {
            [&of.0, &of.1].into_iter().for_each(|s| add_divisors(s, divisors));
        }
        Size::FloorDiv(of) | Size::Mod(of) => {
            [&of.0, &of.1].into_iter().for_each(|s| add_divisors(s, divisors));
            let positive = matches!(of.1, Size::Const(value) if value > 0);
            if !positive && !divisors.contains(&of.1) {
                divisors.push(of.1.clone());
            }
        }
    }
}

/// Returns the largest 2ⁿ - 1 such that no size overflows for symbols up to it.
///
/// Errors: a size always overflows.
pub fn limit(sizes: &[&Size], checks: &[Check]) -> Result<i64> {
    let sides = checks.iter().flat_map(|check| [&check.left, &check.right]);
    let sizes: Vec<&Size> = sides.chain(sizes.iter().copied()).collect();
    let fits = |limit: &i64| sizes.iter().all(|size| range(size, *limit).is_some());
    let limits = (0..=62).rev().map(|bits| (1i64 << bits) - 1);
    limits.into_iter().find(fits).ok_or_else(|| {
        Box::new(Diagnostic::of(
            ErrorKind::Memory,
            "an array of a function is too large for memory",
        ))
    })
}

/// Returns the minimum and maximum of a size for symbols between 0 and `limit` and positive
/// divisors. Returns `None` if an intermediate value may overflow.
fn range(size: &Size, limit: i64) -> Option<(i64, i64)> {
    let pair = |of: &(Size, Size)| Some((range(&of.0, limit)?, range(&of.1, limit)?));
    Some(match size {
        Size::Const(value) => (*value, *value),
        Size::Symbol(_) => (0, limit),
        Size::Sum(of) => of.iter().try_fold((0i64, 0i64), |(low, high), part| {
            let (a, b) = range(part, limit)?;
            Some((low.checked_add(a)?, high.checked_add(b)?))
        })?,
        Size::Product(of) => of.iter().try_fold((1i64, 1i64), |(low, high), part| {
            let (a, b) = range(part, limit)?;
            let corners = [low.checked_mul(a)?, low.checked_mul(b)?];
            let corners = [corners, [high.checked_mul(a)?, high.checked_mul(b)?]].concat();
            Some((*corners.iter().min()?, *corners.iter().max()?))
        })?,
        Size::FloorDiv(of) => {
            let ((low, high), (lowest, _)) = pair(of)?;
            let lowest = lowest.max(1);
            (low.div_euclid(lowest).min(0), high.div_euclid(lowest).max(0))
        }
        Size::Mod(of) => (0, pair(of)?.1.1.max(1) - 1),
        Size::Min(of) => {
            let (a, b) = pair(of)?;
            (a.0.min(b.0), a.1.min(b.1))
        }
        Size::Max(of) => {
            let (a, b) = pair(of)?;
            (a.0.max(b.0), a.1.max(b.1))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_all_values() {
        let (n, m) = (Size::Symbol(0), Size::Symbol(1));
        let sizes = [
            n.clone() * -3 + 7,
            n.clone() * m.clone() * 4 + n.clone(),
            (n.clone() + -5).floor_div(m.clone()),
            (n.clone() + -5).modulo(m.clone() + 1),
            n.clone().min(m.clone()) + -2,
            n.clone().max(m * -1),
        ];
        for size in sizes {
            let (low, high) = range(&size, 7).unwrap();
            for (n, m) in (0..8).flat_map(|n| (1..8).map(move |m| (n, m))) {
                let value = size.eval(&[n, m]).unwrap();
                assert!((low..=high).contains(&value), "{size} at {n}, {m}: {value}");
            }
        }
        assert_eq!(range(&(n.clone() * n * 4), 1 << 31), None);
    }

    #[test]
    fn divisors_come_in_order() {
        let inner = Size::Symbol(0).floor_div(Size::Symbol(1));
        let mut divisors = Vec::new();
        add_divisors(&Size::Symbol(2).modulo(inner.clone()), &mut divisors);
        assert_eq!(divisors, [Size::Symbol(1), inner]);
    }
}
