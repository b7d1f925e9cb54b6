//! Reads the integers of an array in place.

use mithril_ir::dtype::DType;

use super::signature::Sizes;

/// The elements of an array of integers.
pub struct Elements<O> {
    data: *const u8,
    dtype: DType,
    sizes: Sizes,
    strides: Sizes,
    /// Keeps the elements alive.
    _owner: O,
}

/// A strided range of positions along an axis.
#[derive(Clone, Copy)]
pub struct Range {
    pub start: i64,
    pub count: i64,
    pub step: i64,
}

/// The valid range of the integers that index an axis.
pub struct Bounds<'a> {
    pub least: i64,
    /// One more than the maximum.
    pub limit: i64,
    /// Values that mean "no index".
    pub ignored: &'a [i64],
}

impl Bounds<'_> {
    fn hold(&self, index: i64) -> bool {
        (self.least..self.limit).contains(&index) || self.ignored.contains(&index)
    }
}

impl<O> Elements<O> {
    /// The elements from `data` on. `strides` are in bytes, one for each axis.
    ///
    /// # Safety
    /// All elements must be readable as long as the owner lives.
    pub unsafe fn new(
        data: *const u8,
        dtype: DType,
        sizes: Sizes,
        strides: Sizes,
        owner: O,
    ) -> Elements<O> {
        Elements { data, dtype, sizes, strides, _owner: owner }
    }

    pub fn sizes(&self) -> &[i64] {
        &self.sizes
    }

    /// The first of these elements that is out of bounds, and its index along each axis. `parts`
    /// has one range for each axis.
    pub fn outside(&self, parts: &[Range], bounds: &Bounds) -> Option<(i64, Vec<i64>)> {
        match self.dtype {
            DType::I64 => self.scan::<i64>(parts, bounds),
            DType::I32 => self.scan::<i32>(parts, bounds),
            DType::I16 => self.scan::<i16>(parts, bounds),
            DType::I8 => self.scan::<i8>(parts, bounds),
            DType::U64 => self.scan::<u64>(parts, bounds),
            DType::U32 => self.scan::<u32>(parts, bounds),
            DType::U16 => self.scan::<u16>(parts, bounds),
            DType::U8 => self.scan::<u8>(parts, bounds),
            // These are not integers, or smaller than a byte. They never index an axis.
            DType::I4
            | DType::U4
            | DType::Bool
            | DType::F64
            | DType::F32
            | DType::F16
            | DType::BF16
            | DType::F8E4M3
            | DType::F8E5M2 => None,
        }
    }

    fn scan<T: Integer>(&self, parts: &[Range], bounds: &Bounds) -> Option<(i64, Vec<i64>)> {
        if parts.iter().any(|part| part.count <= 0) {
            return None;
        }
        // Checks the rows along the last axis. A dense array is checked as a single row.
        let whole = parts.iter().zip(&self.sizes).all(|(part, size)| part.count == *size);
        if whole && self.is_dense() {
            let count: i64 = self.sizes.iter().product();
            let at = self.row::<T>(0, count, size_of::<T>() as i64, bounds)?;
            return Some((self.read::<T>(at * size_of::<T>() as i64), self.place(at)));
        }
        let (inner, outer) = parts.split_last()?;
        let last = outer.len();
        let mut counter = vec![0; last];
        loop {
            let along = |axis: usize, counter: i64| parts[axis].start + counter * parts[axis].step;
            let first: i64 = counter
                .iter()
                .enumerate()
                .map(|(axis, t)| along(axis, *t) * self.strides[axis])
                .sum();
            let first = first + inner.start * self.strides[last];
            let step = inner.step * self.strides[last];
            if let Some(at) = self.row::<T>(first, inner.count, step, bounds) {
                let mut place: Vec<i64> =
                    counter.iter().enumerate().map(|(axis, t)| along(axis, *t)).collect();
                place.push(along(last, at));
                return Some((self.read::<T>(first + at * step), place));
            }
            // Advances to the next row; the last of the outer axes varies fastest.
            let next = (0..last).rev().find(|&axis| counter[axis] + 1 < outer[axis].count)?;
            counter[next] += 1;
            counter[next + 1..].fill(0);
        }
    }

    /// The position in a row of the first element that is out of bounds.
    fn row<T: Integer>(&self, first: i64, count: i64, step: i64, bounds: &Bounds) -> Option<i64> {
        let read = |at: i64| self.read::<T>(first + at * step);
        let begin = self.data.wrapping_offset(first as isize);
        if step == size_of::<T>() as i64 && begin.addr().is_multiple_of(align_of::<T>()) {
            // The sign bit of `wrong` is set if any index is out of bounds, also if a difference
            // wraps around.
            // SAFETY: these elements belong to the array, and the address is aligned.
            let all = unsafe { std::slice::from_raw_parts(begin.cast::<T>(), count as usize) };
            let last = bounds.limit.wrapping_sub(1);
            let signs = all.iter().fold(0, |signs, index| {
                let index = index.wide();
                signs | index.wrapping_sub(bounds.least) | last.wrapping_sub(index)
            });
            if signs >= 0 {
                return None;
            }
        }
        (0..count).find(|&at| !bounds.hold(read(at)))
    }

    fn read<T: Integer>(&self, offset: i64) -> i64 {
        // SAFETY: the offset is that of an element, which lives as long as the owner.
        unsafe { self.data.offset(offset as isize).cast::<T>().read_unaligned() }.wide()
    }

    /// Whether the elements follow each other in row-major order.
    fn is_dense(&self) -> bool {
        let mut stride = self.dtype.bytes() as i64;
        self.sizes.iter().zip(&self.strides).rev().all(|(size, own)| {
            let fits = *size == 1 || *own == stride;
            stride *= size;
            fits
        })
    }

    /// The index along each axis of the element at this row-major position.
    fn place(&self, mut number: i64) -> Vec<i64> {
        let mut place: Vec<i64> = Vec::new();
        for size in self.sizes.iter().rev() {
            place.push(number % size);
            number /= size;
        }
        place.reverse();
        place
    }
}

trait Integer: Copy {
    /// The integer as `i64`, or the largest `i64` if it does not fit.
    fn wide(self) -> i64;
}

macro_rules! integers {
    ($($ty:ty)*) => {$(
        impl Integer for $ty {
            fn wide(self) -> i64 {
                i64::try_from(self).unwrap_or(i64::MAX)
            }
        }
    )*};
}
integers!(i64 i32 i16 i8 u64 u32 u16 u8);
