//! Constant operands of contractions, laid out once as tiles read them.

use bytes::Bytes;
use mithril_ir::dtype::DType;
use mithril_ir::tensor::Tensor;
use mithril_runtime::memory::{Block, OutOfMemory};
use std::ops::Range;

/// Where the `y` of a contraction lies, and how its kernel reads it: strips of columns, each as
/// `[k / group][columns of a strip][group]`, by batch one behind the other. The last strip and the
/// last unit are filled up with zeros.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Packing {
    /// Which argument of the kernel it is.
    pub arg: usize,
    pub dtype: DType,
    pub offset: i64,
    /// Extents and strides, in elements: of the batch, of the columns, and along `k`.
    pub batch: Vec<(i64, i64)>,
    pub n: (i64, i64),
    pub k: (i64, i64),
    /// The columns of a strip.
    pub strip: i64,
    /// The neighbours along `k` that lie side by side, and of what their number is a multiple.
    pub group: i64,
    pub unit: i64,
}

impl Packing {
    /// From one batch to the next, by axis.
    pub fn batch_strides(&self) -> Vec<i64> {
        let mut stride = self.matrix();
        let from_last = self.batch.iter().rev().map(|(extent, _)| {
            let own = stride;
            stride *= extent;
            own
        });
        let mut strides: Vec<i64> = from_last.collect();
        strides.reverse();
        strides
    }

    /// The elements of one matrix.
    fn matrix(&self) -> i64 {
        let up = |size: i64, unit: i64| (size as u64).next_multiple_of(unit as u64) as i64;
        up(self.n.0, self.strip) * up(self.k.0, self.unit)
    }

    /// The elements of all matrices.
    fn count(&self) -> usize {
        (self.batch.iter().map(|(extent, _)| extent).product::<i64>() * self.matrix()) as usize
    }

    /// How many bytes the operand has as its kernel reads it.
    pub fn bytes(&self) -> usize {
        self.count() * self.dtype.bytes()
    }

    /// The operand as its kernel reads it.
    ///
    /// Errors: no memory for it.
    pub fn pack(&self, tensor: &Tensor) -> Result<Tensor, OutOfMemory> {
        let mut packed = Block::lasting(self.bytes())?;
        let to = packed.as_mut_slice();
        match self.dtype.bytes() {
            1 => self.copy::<1>(tensor.bytes(), to),
            2 => self.copy::<2>(tensor.bytes(), to),
            4 => self.copy::<4>(tensor.bytes(), to),
            _ => self.copy::<8>(tensor.bytes(), to),
        }
        let packed = Tensor::from_bytes(self.dtype, vec![self.count()], Bytes::from_owner(packed));
        Ok(packed.expect("as many as there are"))
    }

    /// Copies elements of `N` bytes: whole rows where columns are neighbours, else along `k`.
    fn copy<const N: usize>(&self, source: &[u8], to: &mut [u8]) {
        let matrix = (self.matrix() as usize * N).max(1);
        for (number, to) in to.chunks_exact_mut(matrix).enumerate() {
            let first = self.offset + self.batch_at(number as i64);
            // Strides of what is read backwards are negative.
            let at = |k: usize, column: usize| {
                (first + k as i64 * self.k.1 + column as i64 * self.n.1) as usize * N
            };
            match self.n.1 == 1 && self.group == 1 {
                true => self.copy_rows::<N>(source, at, to),
                false => self.copy_columns::<N>(source, at, to),
            }
        }
    }

    /// The bytes of a strip, where elements have `N`.
    fn strip_bytes<const N: usize>(&self) -> usize {
        let depth = (self.k.0 as usize).next_multiple_of(self.unit as usize);
        (self.strip as usize * N * depth).max(1)
    }

    /// The columns of the strip of this number, the last of which may be short.
    fn columns(&self, strip: usize) -> Range<usize> {
        let first = strip * self.strip as usize;
        first..(self.n.0 as usize).min(first + self.strip as usize)
    }

    /// Copies a matrix some rows at a time, as what is near in one order is far in the other.
    fn copy_rows<const N: usize>(
        &self,
        source: &[u8],
        at: impl Fn(usize, usize) -> usize,
        to: &mut [u8],
    ) {
        const ROWS: usize = 16;
        let width = self.strip as usize * N;
        let rows = self.k.0 as usize;
        for first in (0..rows).step_by(ROWS) {
            let some = first..rows.min(first + ROWS);
            for (strip, to) in to.chunks_exact_mut(self.strip_bytes::<N>()).enumerate() {
                let columns = self.columns(strip);
                let to = to[first * width..].chunks_exact_mut(width);
                for (row, to) in some.clone().zip(to) {
                    let bytes = columns.len() * N;
                    to[..bytes].copy_from_slice(&source[at(row, columns.start)..][..bytes]);
                }
            }
        }
    }

    fn copy_columns<const N: usize>(
        &self,
        source: &[u8],
        at: impl Fn(usize, usize) -> usize,
        to: &mut [u8],
    ) {
        let (width, group) = (self.strip as usize * N, self.group as usize);
        for (strip, to) in to.chunks_exact_mut(self.strip_bytes::<N>()).enumerate() {
            for (place, column) in self.columns(strip).enumerate() {
                for (i, rows) in to.chunks_exact_mut(width * group).enumerate() {
                    let some = i * group..self.k.0 as usize;
                    let to = rows[place * group * N..][..group * N].chunks_exact_mut(N);
                    for (k, element) in some.zip(to) {
                        element.copy_from_slice(&source[at(k, column)..][..N]);
                    }
                }
            }
        }
    }

    /// Where the matrix of this number begins.
    fn batch_at(&self, mut number: i64) -> i64 {
        let mut at = 0;
        for (extent, stride) in self.batch.iter().rev() {
            at += number % extent * stride;
            number /= extent;
        }
        at
    }
}
