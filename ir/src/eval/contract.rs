//! Contraction: products summed over pairs of axes.

use super::array::{Array, Data, Walk, strides};
use super::{at, check_axes, others};
use crate::dtype::DType;
use crate::scalar::Scalar;
use crate::scalar::round::round;

/// Which axes of the two operands are paired.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct DotDims {
    /// Batch axes: both operands and the result have them; paired by index in the lists.
    pub lhs_batch: Vec<usize>,
    pub rhs_batch: Vec<usize>,
    /// Contracted axes: summed over; paired by index in the lists.
    pub lhs_contract: Vec<usize>,
    pub rhs_contract: Vec<usize>,
}

/// The sum of products over the contracted axes. The result has the batch dims, then the free dims
/// of `lhs`, then those of `rhs`. Products and sums round to `acc` at each step (integers: modulo
/// 2⁶⁴), and the result to `out`; an empty sum is 0. On bool the result is whether any pair is
/// true.
///
/// # Errors
/// For invalid axes or sizes that differ, or where some of the dtypes are floats and some are not.
pub fn dot_general(
    lhs: &Array,
    rhs: &Array,
    dims: &DotDims,
    acc: DType,
    out: DType,
) -> Result<Array, String> {
    let left = Side::new(lhs, &dims.lhs_batch, &dims.lhs_contract)?;
    let right = Side::new(rhs, &dims.rhs_batch, &dims.rhs_contract)?;
    for (what, l, r) in
        [("batch", &left.batch, &right.batch), ("contracted", &left.contract, &right.contract)]
    {
        if l.0 != r.0 {
            return Err(format!("{what} dims differ: {:?} and {:?}", l.0, r.0));
        }
    }
    if lhs.dtype.is_float() != out.is_float() || acc.is_float() != out.is_float() {
        return Err(format!("{} does not accumulate in {acc} into {out}", lhs.dtype));
    }
    let shape = [&left.batch.0[..], &left.free.0, &right.free.0].concat();
    let pairs: Vec<(usize, usize)> = walk(&left.contract).zip(walk(&right.contract)).collect();
    let frees: Vec<usize> = walk(&right.free).collect();
    let mut elements = Vec::with_capacity(shape.iter().product());
    for (lb, rb) in walk(&left.batch).zip(walk(&right.batch)) {
        for lf in walk(&left.free) {
            for rf in &frees {
                elements.push(dot((lhs, lb + lf), (rhs, rb + rf), &pairs, acc)?);
            }
        }
    }
    let wide = if out.is_float() { DType::F64 } else { DType::I64 };
    Ok(Array::collect(out, shape, elements.into_iter().map(|v| v.cast(wide, out))))
}

/// The sizes and strides of some dims.
type Dims = (Vec<usize>, Vec<isize>);

struct Side {
    batch: Dims,
    free: Dims,
    contract: Dims,
}

impl Side {
    fn new(x: &Array, batch: &[usize], contract: &[usize]) -> Result<Side, String> {
        let bound = [batch, contract].concat();
        check_axes(&bound, x.shape.len())?;
        let steps = strides(&x.shape);
        let pick = |axes: &[usize]| (at(&x.shape, axes), at(&steps, axes));
        let free = others(&bound, x.shape.len());
        Ok(Side { batch: pick(batch), free: pick(&free), contract: pick(contract) })
    }
}

fn walk(dims: &Dims) -> Walk {
    Walk::new(&dims.0, &dims.1, 0)
}

/// Computes one element of the result, from the offsets of its row in both operands.
fn dot(
    (lhs, l): (&Array, usize),
    (rhs, r): (&Array, usize),
    pairs: &[(usize, usize)],
    acc: DType,
) -> Result<Scalar, String> {
    match (&lhs.data, &rhs.data) {
        (Data::Float(a), Data::Float(b)) => {
            let product = |i: usize, j: usize| round(acc, a[l + i] * b[r + j]);
            let add = |sum: f64, (i, j): &(usize, usize)| round(acc, sum + product(*i, *j));
            Ok(Scalar::F(pairs.iter().fold(0.0, add)))
        }
        (Data::Int(a), Data::Int(b)) => Ok(Scalar::I(
            pairs
                .iter()
                .fold(0, |sum: i64, (i, j)| sum.wrapping_add(a[l + i].wrapping_mul(b[r + j]))),
        )),
        (Data::Float(_), Data::Int(_)) | (Data::Int(_), Data::Float(_)) => {
            Err(format!("{} and {} do not multiply", lhs.dtype, rhs.dtype))
        }
    }
}
