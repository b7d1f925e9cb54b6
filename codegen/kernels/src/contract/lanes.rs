//! Operations on the lanes of vectors: masks, transposition, horizontal sums.

use mithril_ir::dtype::DType;

use crate::builder::Builder;
use crate::code::{Binary, Cmp, Fold, Mem, Ty, V};
use crate::loops::Loops;

/// Returns a mask of the lanes below `count`, or `None` if all of them are known to be.
pub fn below(b: &mut Builder, count: V, lanes: u32) -> Option<V> {
    if b.constant(count).is_some_and(|count| count >= lanes as i64) {
        return None;
    }
    let max = b.index(lanes as i64);
    let zero = b.index(0);
    let count = b.binary(Binary::Min, count, max);
    let count = b.binary(Binary::Max, count, zero);
    let small = b.convert(count, DType::I32);
    let wide = b.splat(small, lanes);
    let iota = b.iota(Ty::vector(DType::I32, lanes));
    Some(b.compare(Cmp::Lt, iota, wide))
}

/// Runs `body` for each lane in the mask. The mask must consist of the first lanes.
pub fn each(
    b: &mut Builder,
    scratch: Mem,
    value: V,
    mask: Option<V>,
    body: impl FnOnce(&mut Builder, V, V),
) {
    let (zero, lanes) = (b.index(0), b.ty(value).lanes);
    if lanes == 1 {
        return body(b, zero, value);
    }
    b.store(scratch, zero, value, None);
    let count = match mask {
        None => b.index(lanes as i64),
        Some(mask) => {
            let wide = b.convert(mask, DType::I32);
            let count = b.fold(Fold::Add, wide);
            b.convert(count, DType::I64)
        }
    };
    b.each(zero, count, 1, |b, lane| {
        let value = b.load(scratch, lane, 1, None);
        body(b, lane, value);
    });
}

/// Interleaves the lanes of two vectors, as one step of a transposition. Interleaves units of
/// `width` lanes inside each 16-byte part, or whole parts if `width` is at least a part. Processors
/// have instructions for these shuffles.
fn interleave(b: &mut Builder, x: V, y: V, width: u32) -> (V, V) {
    let ty = b.ty(x);
    let part = (16 / ty.dtype.bytes() as u32).min(ty.lanes);
    let from = |lane: u32, half: u32| match width < part {
        true => {
            let (unit, low) = (lane % part / width, lane % width);
            let side = unit % 2 * ty.lanes;
            let unit = unit / 2 + half * (part / width / 2);
            side + lane / part * part + unit * width + low
        }
        false => {
            let (which, low) = (lane / part * 2, lane % part);
            let parts = ty.lanes / part;
            which / parts * ty.lanes + (which % parts + half) * part + low
        }
    };
    let pick = |half| (0..ty.lanes).map(|lane| from(lane, half)).collect::<Vec<_>>();
    (b.shuffle(x, y, &pick(0)), b.shuffle(x, y, &pick(1)))
}

/// Transposes a square matrix, given as one vector per row.
pub fn transpose(b: &mut Builder, rows: &[V]) -> Vec<V> {
    let count = rows.len();
    let mut rows = rows.to_vec();
    let mut width = 1;
    while width < count {
        for i in (0..count).filter(|i| i & width == 0) {
            let (first, second) = interleave(b, rows[i], rows[i + width], width as u32);
            (rows[i], rows[i + width]) = (first, second);
        }
        width *= 2;
    }
    // Interleaving leaves the rows in bit-reversed order within each 16-byte part.
    let part = (16 / b.ty(rows[0]).dtype.bytes()).min(count);
    let bits = part.trailing_zeros();
    let place = |i: usize| match bits {
        0 => i,
        _ => i / part * part + ((i % part).reverse_bits() >> (usize::BITS - bits)),
    };
    (0..count).map(|i| rows[place(i)]).collect()
}

/// Sums the lanes of each vector. The number of vectors is a power of two. Returns a vector with
/// one sum per lane, or a scalar for a single vector.
pub fn sums(b: &mut Builder, vectors: &[V]) -> V {
    let (lanes, count) = (b.ty(vectors[0]).lanes, vectors.len() as u32);
    let mut vectors = vectors.to_vec();
    let mut width = 1;
    while width < lanes {
        let add = |pair: &[V]| {
            let (even, odd) = interleave(b, pair[0], pair[pair.len() - 1], width);
            b.add(even, odd)
        };
        vectors = vectors.chunks(2).map(add).collect();
        width *= 2;
    }
    match count {
        1 => b.extract(vectors[0], 0),
        _ if count == lanes => vectors[0],
        _ => b.shuffle(vectors[0], vectors[0], &(0..count).collect::<Vec<_>>()),
    }
}
