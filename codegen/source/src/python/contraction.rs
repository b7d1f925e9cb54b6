//! General sums of products as matrix products where they are such, else as an Einstein sum.

use mithril_ir::attr::Attr;
use mithril_ir::shape::Shape;

use super::facts::Facts;

/// How one side of `@` is to be turned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Plain,
    /// The transpose of a matrix.
    Transposed,
    /// The last two axes exchanged.
    Swapped,
}

/// Axes of a contraction as the operation names them.
struct Axes {
    batch: Vec<usize>,
    contract: Vec<usize>,
    /// Trailing dims, and whether a rank variable stands before them.
    count: usize,
    lead: bool,
}

fn axes(facts: &Facts, side: usize, shape: &Shape) -> Option<Axes> {
    let (batch, contract) = match side {
        0 => ("x_batch", "x_contract"),
        _ => ("y_batch", "y_contract"),
    };
    let count = shape.dims.len();
    let from_front = |name: &str| -> Option<Vec<usize>> {
        let Some(Attr::Ints(axes)) = facts.attr(name) else {
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

fn both(facts: &Facts) -> Option<(Axes, Axes)> {
    let [x, y] = facts.op.operands[..] else {
        return None;
    };
    Some((
        axes(facts, 0, &facts.function.ty(x).shape)?,
        axes(facts, 1, &facts.function.ty(y).shape)?,
    ))
}

/// The two sides of `@`, where the contraction is one matrix product per batch index.
pub fn matmul(facts: &Facts) -> Option<(Side, Side)> {
    let (x, y) = both(facts)?;
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
    let turned = |swapped: bool| if swapped { Side::Swapped } else { Side::Plain };
    Some((turned(*from_x == batch), turned(*from_y == batch + 1)))
}

/// Whether one side is a number that the other is multiplied by.
pub fn scales(facts: &Facts) -> bool {
    let number = |axes: &Axes| axes.count == 0 && !axes.lead;
    both(facts).is_some_and(|(x, y)| number(&x) || number(&y))
}

/// The subscripts of `einsum`; `None` where there are more axes than letters.
pub fn equation(facts: &Facts) -> Option<String> {
    let (x, y) = both(facts)?;
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
