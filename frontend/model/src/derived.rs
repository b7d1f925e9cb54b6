//! Initial values that follow from those of another array: norms of a weight, and estimates of its
//! largest singular vectors, with which the states of a spectral norm begin.

use crate::draw::key;
use crate::init::{Draw, Init, Rule, Singular, Start};

/// The steps of the power iteration before the first call, as in PyTorch.
const STEPS: usize = 15;
/// The least norm by which a vector is divided.
const LEAST: f64 = 1e-12;

impl Start {
    /// The value of the array of this name that follows from another array. `None`: it does not.
    pub fn derived(&self, name: &str, values: &[f64], shape: &[usize]) -> Option<Vec<f64>> {
        if let (true, [count, rest @ ..]) = (self.stacked, shape) {
            let own = Start { stacked: false, ..self.clone() };
            let size = values.len().checked_div(*count).unwrap_or(0).max(1);
            let slices = values.chunks(size).map(|slice| own.derived(name, slice, rest));
            return slices.collect::<Option<Vec<_>>>().map(|slices| slices.concat());
        }
        match self.rule {
            Rule::Known(Init::Norms(norms)) => Some(norms.of(values, shape)),
            Rule::Known(Init::Singular(vector)) => Some(singular(vector, name, values, shape)),
            Rule::Known(_) | Rule::Function(_) => None,
        }
    }
}

/// The singular vector of the array of this name, estimated from random numbers by some steps of the
/// power iteration. Both vectors of a weight, whose names end in `u` and in `v`, begin with the same
/// numbers.
fn singular(vector: Singular, name: &str, values: &[f64], shape: &[usize]) -> Vec<f64> {
    let axis = vector.axis.axis(shape).unwrap_or(0);
    let rows = shape.get(axis).copied().unwrap_or(1);
    let columns = values.len().checked_div(rows).unwrap_or(0);
    let inner: usize = shape.iter().skip(axis + 1).product::<usize>().max(1);
    let other = format!("{}v", name.strip_suffix(['u', 'v']).unwrap_or(name));
    let mut left = vec![0.0; rows];
    let mut right = vec![0.0; columns];
    Draw::fill_normal(key(0, &other), &mut right);
    normalize(&mut right);
    // The matrix has the axis of outputs first, and the others in order.
    let place =
        |at: usize| (at / inner % rows.max(1), at / (inner * rows.max(1)) * inner + at % inner);
    for _ in 0..STEPS {
        left.fill(0.0);
        for (at, value) in values.iter().enumerate() {
            let (row, column) = place(at);
            left[row] += value * right[column];
        }
        normalize(&mut left);
        right.fill(0.0);
        for (at, value) in values.iter().enumerate() {
            let (row, column) = place(at);
            right[column] += value * left[row];
        }
        normalize(&mut right);
    }
    if vector.is_left { left } else { right }
}

fn normalize(vector: &mut [f64]) {
    let norm = vector.iter().map(|value| value * value).sum::<f64>().sqrt().max(LEAST);
    vector.iter_mut().for_each(|value| *value /= norm);
}
