//! Constant operands of contractions, laid out once as tiles read them.

use mithril_ir::dtype::DType;
use mithril_ir::tensor::Tensor;

/// Where the `y` of a contraction lies, and how its kernel reads it: strips of columns, each as
/// `[k / group][columns of a strip][group]`, by batch one behind the other. The last strip and the
/// last group are filled up with zeros.
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
    /// The neighbours along `k` that lie side by side.
    pub group: i64,
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
        up(self.n.0, self.strip) * up(self.k.0, self.group)
    }

    /// The operand as its kernel reads it.
    pub fn pack(&self, tensor: &Tensor) -> Tensor {
        let count = self.batch.iter().map(|(extent, _)| extent).product::<i64>() * self.matrix();
        let mut packed = vec![0; count as usize * self.dtype.bytes()];
        match self.dtype.bytes() {
            1 => self.copy::<1>(tensor.bytes(), &mut packed),
            2 => self.copy::<2>(tensor.bytes(), &mut packed),
            4 => self.copy::<4>(tensor.bytes(), &mut packed),
            _ => self.copy::<8>(tensor.bytes(), &mut packed),
        }
        Tensor::from_bytes(self.dtype, vec![count as usize], packed).expect("as many as there are")
    }

    /// Copies elements of `N` bytes: whole rows where columns are neighbours, else along `k`.
    fn copy<const N: usize>(&self, source: &[u8], to: &mut [u8]) {
        let width = self.strip as usize * N;
        let depth = (self.k.0 as usize).next_multiple_of(self.group as usize);
        let matrices = to.chunks_exact_mut((self.matrix() as usize * N).max(1));
        for (number, to) in matrices.enumerate() {
            let at = self.offset + self.batch_at(number as i64);
            for (strip, to) in to.chunks_exact_mut((width * depth).max(1)).enumerate() {
                let first = strip as i64 * self.strip;
                let columns = (self.n.0 - first).min(self.strip) as usize;
                let at = |k: i64, column: i64| {
                    (at + k * self.k.1 + (first + column) * self.n.1) as usize * N
                };
                if self.n.1 == 1 && self.group == 1 {
                    for (k, row) in to.chunks_exact_mut(width).enumerate() {
                        row[..columns * N]
                            .copy_from_slice(&source[at(k as i64, 0)..][..columns * N]);
                    }
                    continue;
                }
                let group = self.group as usize;
                for column in 0..columns {
                    for (i, rows) in to.chunks_exact_mut(width * group).enumerate() {
                        let from = (i * group) as i64..self.k.0;
                        let place = rows[column * group * N..][..group * N].chunks_exact_mut(N);
                        for (k, element) in from.zip(place) {
                            element.copy_from_slice(&source[at(k, column as i64)..][..N]);
                        }
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
