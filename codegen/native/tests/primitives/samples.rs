//! What the primitives are tried on.

use std::f64::consts::{FRAC_PI_2, FRAC_PI_4};

use mithril_ir::dtype::DType;
use mithril_ir::scalar::{Scalar, round};

/// The bytes of an element, and its value.
pub fn encode(dtype: DType, value: Scalar, bytes: &mut Vec<u8>) {
    let bits = match value {
        Scalar::F(x) => round::encode(dtype, x),
        Scalar::I(v) => v as u64,
    };
    bytes.extend(&bits.to_le_bytes()[..dtype.bytes()]);
}

pub fn decode(dtype: DType, bytes: &[u8]) -> Scalar {
    let mut wide = [0; 8];
    wide[..dtype.bytes()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(wide);
    match dtype.is_float() {
        true => Scalar::F(round::decode(dtype, bits)),
        false => Scalar::I(round::wrap(dtype, bits as i64)),
    }
}

/// An array of elements.
pub struct Array {
    pub dtype: DType,
    pub bytes: Vec<u8>,
}

impl Array {
    pub fn new(dtype: DType, values: impl IntoIterator<Item = Scalar>) -> Array {
        let mut bytes = vec![];
        values.into_iter().for_each(|v| encode(dtype, v, &mut bytes));
        Array { dtype, bytes }
    }

    pub fn get(&self, i: usize) -> Scalar {
        let size = self.dtype.bytes();
        decode(self.dtype, &self.bytes[i * size..][..size])
    }

    pub fn len(&self) -> usize {
        self.bytes.len() / self.dtype.bytes()
    }
}

/// Numbers by a linear congruence: the same everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 32) ^ (self.0 << 21)
    }

    /// Between -1 and 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() as u32) as f64 / 2f64.powi(31) - 1.0
    }
}

/// Values at which something changes.
pub fn corners(dtype: DType) -> Vec<Scalar> {
    if dtype == DType::Bool {
        return [0, 1].map(Scalar::I).into();
    }
    if !dtype.is_float() {
        let (low, high) = round::int_range(dtype);
        let width = dtype.bits() as i128;
        let near = |x: i128| [x - 2, x - 1, x, x + 1, x + 2];
        let all = [0, low, high, width, low / 2, high / 2, 10, -10, 1000];
        let powers = (0..width).step_by(7).map(|n| 1 << n);
        let all = all.into_iter().chain(powers).flat_map(near);
        return all.filter(|x| (low..=high).contains(x)).map(|x| Scalar::I(x as i64)).collect();
    }
    let max = round::max_finite(dtype);
    let digits = round::mantissa_bits(dtype) as i32;
    let least = match dtype {
        DType::F64 => -1022,
        DType::F32 | DType::BF16 => -126,
        _ => -14,
    };
    let small = [least - digits, least - 1, least, -digits, -digits - 1, -digits / 2];
    let mut all = vec![0.0, max, f64::INFINITY, max / 2.0, 1.0 + 2f64.powi(-digits)];
    all.extend(small.map(|e| 2f64.powi(e)));
    all.extend((-8..8).map(|e| 1.5 * 2f64.powi(e)));
    all.extend([0.25, 0.5, FRAC_PI_4, 1.0, FRAC_PI_2, 2.0, 2.5, 3.0, 3.5]);
    all.extend([7.0, 10.0, 31.0, 32.0, 88.7, 89.0, 104.0, 127.0, 128.0, 255.0, 256.0, 65504.0]);
    all.extend([709.7, 745.0, 32767.0, 65535.0, 2147483647.0, 2147483648.0, 4294967295.0]);
    all.extend([9.2e18, 9223372036854775808.0, 1.8e19, 18446744073709551616.0, 1e30, 8388607.5]);
    let both = all.into_iter().flat_map(|x| [x, -x]).chain([f64::NAN]);
    both.map(|x| Scalar::F(round::round(dtype, x))).collect()
}

/// Every pair of corners, and pairs of any bits and of near numbers; for 8 bits every pair.
pub fn pairs(dtype: DType, count: usize) -> [Array; 2] {
    let mut list: Vec<[Scalar; 2]> = vec![];
    let corners = corners(dtype);
    list.extend(corners.iter().flat_map(|&x| corners.iter().map(move |&y| [x, y])));
    if dtype.bits() == 8 && dtype != DType::Bool {
        let all = || (0..=255u8).map(|bits| decode(dtype, &[bits]));
        list.extend(all().flat_map(|x| all().map(move |y| [x, y])));
    }
    let mut random = Random(1);
    let any = |random: &mut Random| decode(dtype, &random.bits().to_le_bytes()[..dtype.bytes()]);
    for i in 0..count {
        let pair = match i % 3 {
            0 => [any(&mut random), any(&mut random)],
            1 => [10.0, 4.0].map(|scale| Scalar::number(dtype, random.unit() * scale)),
            _ => [any(&mut random), Scalar::number(dtype, random.unit() * 70.0)],
        };
        list.push(pair);
    }
    list.resize(list.len().next_multiple_of(16), list[0]);
    [0, 1].map(|i| Array::new(dtype, list.iter().map(|pair| pair[i])))
}

/// Corners, every exponent with many mantissas, and numbers of everyday size.
pub fn singles(dtype: DType, count: usize) -> Array {
    let mut list = corners(dtype);
    let stride = ((u64::MAX >> (64 - dtype.bits())) / count as u64) | 1;
    let strided = (0..count as u64)
        .map(|i| decode(dtype, &i.wrapping_mul(stride).to_le_bytes()[..dtype.bytes()]));
    list.extend(strided);
    let mut random = Random(7);
    for scale in [1.0, 10.0, 100.0, 100000.0] {
        let near = (0..count / 4).map(|_| Scalar::number(dtype, random.unit() * scale));
        list.extend(near);
    }
    list.resize(list.len().next_multiple_of(16), list[0]);
    Array::new(dtype, list)
}
