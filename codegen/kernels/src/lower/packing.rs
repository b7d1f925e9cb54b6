//! Packs constant operands of contractions: stores them once, in the order in which tiles read
//! them.

use bytes::Bytes;
use mithril_ir::dtype::DType;
use mithril_ir::tensor::{Layout, Tensor};
use mithril_runtime::memory::{Block, OutOfMemory};
use std::ops::Range;

/// A constant whose elements are stored packed.
pub struct Packed {
    packing: Packing,
    elements: usize,
    bytes: Bytes,
}

impl Layout for Packed {
    fn restore(&self) -> Bytes {
        let packing = &self.packing;
        let mut to = vec![0; self.elements * packing.dtype.bytes()];
        match packing.dtype.bytes() {
            1 => packing.unpack::<1>(&self.bytes, &mut to),
            2 => packing.unpack::<2>(&self.bytes, &mut to),
            4 => packing.unpack::<4>(&self.bytes, &mut to),
            _ => packing.unpack::<8>(&self.bytes, &mut to),
        }
        to.into()
    }
}

/// The original layout of the operand `y` of a contraction, and the parameters of its packed
/// layout. The packed layout consists of strips of columns, each stored as
/// `[k / group][columns of a strip][group]`. The matrices of a batch follow each other. The last
/// strip and the last unit of `k` are padded with zeros.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Packing {
    /// The index of the argument.
    pub arg: usize,
    pub dtype: DType,
    pub offset: i64,
    /// The original extents and strides of the batch axes, the columns and `k`, in elements.
    pub batch: Vec<(i64, i64)>,
    pub n: (i64, i64),
    pub k: (i64, i64),
    /// The number of columns of a strip.
    pub strip: i64,
    /// The number of neighbours along `k` that are stored next to each other, and the number to a
    /// multiple of which `k` is padded.
    pub group: i64,
    pub unit: i64,
}

impl Packing {
    /// The strides of the packed batch axes.
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

    /// The number of packed elements of one matrix.
    fn matrix(&self) -> i64 {
        let up = |size: i64, unit: i64| (size as u64).next_multiple_of(unit as u64) as i64;
        up(self.n.0, self.strip) * up(self.k.0, self.unit)
    }

    /// The number of packed elements of all matrices.
    fn count(&self) -> usize {
        (self.batch.iter().map(|(extent, _)| extent).product::<i64>() * self.matrix()) as usize
    }

    /// The size of the packed operand, in bytes.
    pub fn bytes(&self) -> usize {
        self.count() * self.dtype.bytes()
    }

    /// Packs the operand.
    ///
    /// Errors: out of memory.
    pub fn pack(&self, tensor: &Tensor) -> Result<Tensor, OutOfMemory> {
        let whole = |bytes: Bytes| {
            let packed = Tensor::from_bytes(self.dtype, vec![self.count()], bytes);
            packed.expect("the packed elements fill the tensor")
        };
        if let Some(layout) = tensor.layout::<Packed>()
            && layout.packing.is_same(self)
        {
            return Ok(whole(layout.bytes.clone()));
        }
        let mut packed = Block::lasting(self.bytes())?;
        let (from, to) = (&tensor.bytes(), packed.as_mut_slice());
        match self.dtype.bytes() {
            1 => self.copy::<1>(from, to),
            2 => self.copy::<2>(from, to),
            4 => self.copy::<4>(from, to),
            _ => self.copy::<8>(from, to),
        }
        Ok(whole(Bytes::from_owner(packed)))
    }

    /// Returns the layout with which the packed elements can replace the tensor's own elements.
    /// Returns `None` if the operand is only a part of the tensor, because the other elements would
    /// be lost.
    pub fn layout(&self, tensor: &Tensor, packed: Bytes) -> Option<Packed> {
        let elements = tensor.len();
        let whole = self.dtype == tensor.dtype() && self.is_whole(elements);
        whole.then(|| Packed { packing: self.clone(), elements, bytes: packed })
    }

    /// Whether both packings are the same except for the argument's index.
    fn is_same(&self, other: &Packing) -> bool {
        *self == Packing { arg: self.arg, ..other.clone() }
    }

    /// Whether the operand reads each of `elements` elements exactly once.
    fn is_whole(&self, elements: usize) -> bool {
        let mut axes: Vec<(i64, i64)> =
            self.batch.iter().copied().chain([self.n, self.k]).filter(|axis| axis.0 != 1).collect();
        // An axis with a negative stride begins at its highest address.
        let back = |(extent, stride): &(i64, i64)| (extent - 1) * stride.min(&0);
        let first = self.offset + axes.iter().map(back).sum::<i64>();
        axes.sort_by_key(|(_, stride)| stride.abs());
        let mut count = 1;
        let dense = axes.iter().all(|(extent, stride)| {
            let next = stride.abs() == count;
            count *= extent;
            next
        });
        first == 0 && dense && elements > 0 && count == elements as i64
    }

    /// Unpacks elements to their original order. Copies whole rows of strips if columns are
    /// contiguous, otherwise single elements.
    fn unpack<const N: usize>(&self, packed: &[u8], to: &mut [u8]) {
        let matrix = (self.matrix() as usize * N).max(1);
        let (width, group) = (self.strip as usize * N, self.group as usize);
        for (number, packed) in packed.chunks_exact(matrix).enumerate() {
            let first = self.offset + self.batch_at(number as i64);
            let at = |k: usize, column: usize| {
                (first + k as i64 * self.k.1 + column as i64 * self.n.1) as usize * N
            };
            for (strip, packed) in packed.chunks_exact(self.strip_bytes::<N>()).enumerate() {
                let columns = self.columns(strip);
                if self.n.1 == 1 && group == 1 {
                    let bytes = columns.len() * N;
                    for (row, from) in
                        packed.chunks_exact(width).take(self.k.0 as usize).enumerate()
                    {
                        to[at(row, columns.start)..][..bytes].copy_from_slice(&from[..bytes]);
                    }
                    continue;
                }
                for (place, column) in columns.enumerate() {
                    for (i, rows) in packed.chunks_exact(width * group).enumerate() {
                        let rows_here = i * group..self.k.0 as usize;
                        let from = rows[place * group * N..][..group * N].chunks_exact(N);
                        for (k, element) in rows_here.zip(from) {
                            to[at(k, column)..][..N].copy_from_slice(element);
                        }
                    }
                }
            }
        }
    }

    /// Packs elements of `N` bytes. Copies whole rows if columns are contiguous, otherwise along
    /// `k`.
    fn copy<const N: usize>(&self, source: &[u8], to: &mut [u8]) {
        let matrix = (self.matrix() as usize * N).max(1);
        for (number, to) in to.chunks_exact_mut(matrix).enumerate() {
            let first = self.offset + self.batch_at(number as i64);
            // Strides of reversed axes are negative.
            let at = |k: usize, column: usize| {
                (first + k as i64 * self.k.1 + column as i64 * self.n.1) as usize * N
            };
            match self.n.1 == 1 && self.group == 1 {
                true => self.copy_rows::<N>(source, at, to),
                false => self.copy_columns::<N>(source, at, to),
            }
        }
    }

    /// The size of a strip in bytes, for elements of `N` bytes.
    fn strip_bytes<const N: usize>(&self) -> usize {
        let depth = (self.k.0 as usize).next_multiple_of(self.unit as usize);
        (self.strip as usize * N * depth).max(1)
    }

    /// The columns of strip number `strip`. The last strip may be short.
    fn columns(&self, strip: usize) -> Range<usize> {
        let first = strip * self.strip as usize;
        first..(self.n.0 as usize).min(first + self.strip as usize)
    }

    /// Packs a matrix a few rows at a time, because neighbours in one layout are far apart in the
    /// other.
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
            let rows_here = first..rows.min(first + ROWS);
            for (strip, to) in to.chunks_exact_mut(self.strip_bytes::<N>()).enumerate() {
                let columns = self.columns(strip);
                let to = to[first * width..].chunks_exact_mut(width);
                for (row, to) in rows_here.clone().zip(to) {
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
                    let rows_here = i * group..self.k.0 as usize;
                    let to = rows[place * group * N..][..group * N].chunks_exact_mut(N);
                    for (k, element) in rows_here.zip(to) {
                        element.copy_from_slice(&source[at(k, column)..][..N]);
                    }
                }
            }
        }
    }

    /// Returns the offset of matrix `number` of the batch, in elements.
    fn batch_at(&self, mut number: i64) -> i64 {
        let mut at = 0;
        for (extent, stride) in self.batch.iter().rev() {
            at += number % extent * stride;
            number /= extent;
        }
        at
    }
}
