//! Random shapes that have to do with each other, so that many of them fit.

use mithril_ir::dim::Dim;
use mithril_ir::shape::Shape;

use super::Random;

/// Up to four dims, some 0 or 1.
pub fn base(random: &mut Random) -> Vec<usize> {
    let rank = *random.pick(&[0, 1, 2, 2, 3, 3, 4]);
    (0..rank).map(|_| *random.pick(&[0, 1, 2, 2, 3, 3, 4])).collect()
}

/// The shape itself, or the shape of another operand for broadcasting, products, indices or scales.
pub fn variation(base: &[usize], random: &mut Random) -> Vec<usize> {
    let mut shape = base.to_vec();
    match random.below(12) {
        0 => shape.drain(..random.below(base.len() + 1)).for_each(drop),
        1 => shape.iter_mut().for_each(|d| {
            if random.chance(50) {
                *d = 1;
            }
        }),
        2 if base.len() >= 2 => {
            // The right side of a matrix product.
            shape.swap(base.len() - 1, base.len() - 2);
            *shape.last_mut().unwrap() = 3;
        }
        3 => shape = base.last().copied().into_iter().collect(),
        4 => shape = Vec::new(),
        5 => drop(shape.pop()),
        6 if !base.is_empty() => {
            let at = random.below(base.len());
            shape[at] = random.below(5);
        }
        7 => shape = self::base(random),
        8 if base.len() >= 2 => shape = base[base.len() - 2..].iter().rev().copied().collect(),
        // One number for each index of an axis.
        11 if !base.is_empty() => shape = vec![*random.pick(base)],
        _ => {}
    }
    shape
}

/// The same for operands of which there are many: else all of them would hardly ever fit.
pub fn close_variation(base: &[usize], random: &mut Random) -> Vec<usize> {
    match random.below(10) {
        0..=4 => base.to_vec(),
        5..=7 => base[..base.len().saturating_sub(1)].to_vec(),
        8 => base[..base.len().saturating_sub(2)].to_vec(),
        _ => variation(base, random),
    }
}

/// The value of a list of integers.
pub fn ints(name: &str, rank: usize, length: usize, random: &mut Random) -> Vec<i64> {
    let rank = rank as i64;
    match name {
        "steps" | "reps" => (0..length).map(|_| random.range(1, 4)).collect(),
        // Of some of the axes, unless a list before says of how many.
        "sizes" | "strides" | "dilations" if length == rank as usize => {
            let count = random.range(1, rank.max(1) + 1);
            (0..count).map(|_| random.range(1, 4)).collect()
        }
        "sizes" | "strides" | "dilations" => (0..length).map(|_| random.range(1, 4)).collect(),
        "shifts" => (0..length).map(|_| random.range(-2, 3)).collect(),
        "low" | "high" => (0..length).map(|_| random.range(-1, 3)).collect(),
        "interior" => (0..length).map(|_| random.range(0, 3)).collect(),
        _ => {
            // Distinct axes counted either way; all of them where it is a permutation.
            let mut axes: Vec<i64> = (0..rank).collect();
            for i in (1..axes.len()).rev() {
                axes.swap(i, random.below(i + 1));
            }
            if name != "permutation" {
                let most = if random.chance(30) { rank as usize } else { 1 };
                axes.truncate(random.below(most + 1));
            }
            let mut either = |axis: i64| if random.chance(50) { axis } else { axis - rank };
            axes.into_iter().map(&mut either).collect()
        }
    }
}

/// A shape for a result: to reshape, broadcast, sum or cut the operand to.
pub fn target(own: &[usize], base: &[usize], random: &mut Random) -> Shape {
    let mut dims = own.to_vec();
    match random.below(8) {
        0 => dims = base.to_vec(),
        1 => dims = vec![own.iter().product()],
        2 => dims.insert(0, 1 + random.below(3)),
        3 => dims.iter_mut().for_each(|d| {
            if *d == 1 || random.chance(30) {
                *d = if *d == 1 { 3 } else { 1 };
            }
        }),
        4 => dims.iter_mut().for_each(|d| *d = d.saturating_sub(random.below(2))),
        5 => drop(dims.drain(..random.below(own.len() + 1))),
        6 => {
            let split: Vec<usize> =
                own.iter().flat_map(|&d| if d == 4 { vec![2, 2] } else { vec![d] }).collect();
            dims = split.into_iter().rev().collect();
        }
        _ => {
            // One dim left open.
            let mut shape = Shape::fixed(own);
            if !own.is_empty() {
                let at = random.below(own.len());
                shape.dims[at] = Dim::Unknown;
            }
            return shape;
        }
    }
    Shape::fixed(&dims)
}
