//! What is seen of a block of values.

use super::{Attention, Head, ROWS, STEPS};
use crate::code::{Binary, V};

impl Attention<'_> {
    /// O += Vᵀ·P over some keys.
    pub fn values(
        &mut self,
        values: Head,
        k0: V,
        span: [i64; 2],
        vector: i64,
        shrink: Option<&[V]>,
    ) {
        let cols = self.columns(vector);
        let [from, to] = span.map(|i| self.nest.b.index(i));
        let (zero, width) = (self.nest.b.index(0), self.nest.b.index(self.value_width));
        let last = self.nest.b.offset(self.keys, -1);
        self.repeat(zero, width, ROWS, &[], |own, d, _| {
            let elements: Vec<V> = (0..ROWS).map(|i| own.nest.b.offset(d, i)).collect();
            let mut start = Vec::new();
            for &element in &elements {
                for (j, &col) in cols.iter().enumerate() {
                    let so_far = own.load(own.out, element, col);
                    start.push(match shrink {
                        Some(factors) => own.nest.b.mul(so_far, factors[j]),
                        None => so_far,
                    });
                }
            }
            let sums = own.repeat(from, to, STEPS, &start, |own, key, sums| {
                let mut sums = sums.to_vec();
                for step in 0..STEPS {
                    let key = own.nest.b.offset(key, step);
                    let row = own.nest.b.add(k0, key);
                    let row = own.nest.b.binary(Binary::Min, row, last);
                    let p: Vec<V> = cols.iter().map(|&c| own.load(own.scores, key, c)).collect();
                    own.multiply_across(values, row, &elements, &p, &mut sums);
                }
                sums
            });
            for (i, &element) in elements.iter().enumerate() {
                for (j, &col) in cols.iter().enumerate() {
                    own.store(own.out, element, col, sums[i * cols.len() + j]);
                }
            }
            vec![]
        });
    }

    /// Adds to each sum an element of a row times a vector.
    pub fn multiply_across(
        &mut self,
        head: Head,
        row: V,
        elements: &[V],
        vectors: &[V],
        sums: &mut [V],
    ) {
        for (i, &d) in elements.iter().enumerate() {
            let at = self.element(head, row, d);
            let element = self.nest.b.load(head.mem, at, 1, None);
            let element = self.nest.b.splat(element, self.lanes);
            for (j, &v) in vectors.iter().enumerate() {
                let sum = &mut sums[i * vectors.len() + j];
                *sum = self.nest.b.fma(element, v, *sum);
            }
        }
    }
}
