//! Writes contractions as matrix products if possible, otherwise as `einsum`.

use mithril_ir::attr::Attr;
use mithril_ir::graph::{Function, Operation};
use mithril_ir::shape::Shape;

/// A contraction, in its function.
pub type Site<'a> = (&'a Function, &'a Operation);

/// How a side of `@` transposes its operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Plain,
    /// The transpose of a matrix.
    Transposed,
    /// The last two axes exchanged.
    Swapped,
}

/// The axes of one operand of a contraction, counted from the front.
struct Axes {
    batch: Vec<usize>,
    contract: Vec<usize>,
    /// The number of dims after the rank variable, and whether there is one.
    count: usize,
    lead: bool,
}

fn axes(op: &Operation, side: usize, shape: &Shape) -> Option<Axes> {
    let (batch, contract) = match side {
        0 => ("x_batch", "x_contract"),
        _ => ("y_batch", "y_contract"),
    };
    let count = shape.dims.len();
    let from_front = |name: &str| -> Option<Vec<usize>> {
        let Attr::Ints(axes) = op.attr(name) else {
            return Some(Vec::new());
        };
        axes.iter().map(|a| shape.axis_from_back(*a).ok().map(|back| count - back)).collect()
    };
    Some(Axes {
        batch: from_front(batch)?,
        contract: from_front(contract)?,
        count,
        lead: shape.lead.is_some(),
    })
}

fn both((function, op): Site) -> Option<(Axes, Axes)> {
    let [x, y] = op.operands[..] else {
        return None;
    };
    Some((axes(op, 0, &function.ty(x).shape)?, axes(op, 1, &function.ty(y).shape)?))
}

/// The two sides of `@`, if the contraction is one matrix product per batch index.
pub fn matmul((function, op): Site) -> Option<(Side, Side)> {
    let (x, y) = both((function, op))?;
    let ([from_x], [from_y]) = (&x.contract[..], &y.contract[..]) else {
        return None;
    };
    let batch = x.batch.len();
    if batch == 0 {
        let left = match (x.count, x.lead) {
            (n, _) if *from_x + 1 == n => Side::Plain,
            (2, false) => Side::Transposed,
            _ => return None,
        };
        let right = match (y.count, y.lead, from_y) {
            (1 | 2, false, 0) => Side::Plain,
            (2, false, 1) => Side::Transposed,
            _ => return None,
        };
        return Some((left, right));
    }
    let in_order = |axes: &Axes| {
        !axes.lead && axes.count == batch + 2 && axes.batch.iter().copied().eq(0..batch)
    };
    if !in_order(&x) || !in_order(&y) {
        return None;
    }
    let side = |swapped: bool| if swapped { Side::Swapped } else { Side::Plain };
    Some((side(*from_x == batch), side(*from_y == batch + 1)))
}

/// The contracted axes of both operands, if there are some, and no batch axes: the arguments of
/// `tensordot`.
pub fn contracted((function, op): Site) -> Option<[Vec<usize>; 2]> {
    let (x, y) = both((function, op))?;
    let batched = x.lead || y.lead || !x.batch.is_empty();
    (!batched && !x.contract.is_empty()).then_some([x.contract, y.contract])
}

/// Whether one side is a number that the other is multiplied by.
pub fn scales((function, op): Site) -> bool {
    let number = |axes: &Axes| axes.count == 0 && !axes.lead;
    both((function, op)).is_some_and(|(x, y)| number(&x) || number(&y))
}

/// The subscripts of `einsum`; `None` if there are more axes than letters.
pub fn equation((function, op): Site) -> Option<String> {
    let (x, y) = both((function, op))?;
    let mut letters = ('a'..='z').chain('A'..='Z');
    let mut left = vec![None; x.count];
    let mut right = vec![None; y.count];
    let mut out = String::new();
    for (a, b) in x.batch.iter().zip(&y.batch) {
        let letter = letters.next()?;
        (left[*a], right[*b]) = (Some(letter), Some(letter));
        out.push(letter);
    }
    let mut side = |axes: &Axes, names: &mut [Option<char>]| {
        for (at, name) in names.iter_mut().enumerate().take(axes.count) {
            if name.is_none() && !axes.contract.contains(&at) {
                let letter = letters.next()?;
                *name = Some(letter);
                out.push(letter);
            }
        }
        Some(())
    };
    side(&x, &mut left)?;
    side(&y, &mut right)?;
    for (a, b) in x.contract.iter().zip(&y.contract) {
        let letter = letters.next()?;
        (left[*a], right[*b]) = (Some(letter), Some(letter));
    }
    let text = |names: &[Option<char>]| names.iter().flatten().collect::<String>();
    let dots = if x.lead { "..." } else { "" };
    Some(format!("{dots}{},{}->{dots}{out}", text(&left), text(&right)))
}
