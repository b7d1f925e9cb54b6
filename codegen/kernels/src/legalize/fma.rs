//! Expands [`Inst::Fma`] for processors without fused multiply-add.
//!
//! The series of scalar functions require that the product is not rounded before the addition. For
//! f32, the product and the sum are computed in f64. For f64, the rounding errors of both are
//! computed and added (Dekker, Knuth). The error of both is little more than half a unit in the
//! last place.

use mithril_ir::dtype::DType;

use super::{Steps, replace};
use crate::code::{Binary, Cmp, Code, Inst, Unary, V};

/// Mask of the sign, the exponent and the upper half of the fraction of an f64.
const UPPER: u64 = !0 << 27;
/// Half of the last bit of that upper part.
const HALF: u64 = 1 << 26;
/// 2¹⁰²⁰. A larger product may round to infinity although the sum is finite.
const LARGE: u64 = (1020 + 1023) << 52;
/// 2⁻⁶⁰ and 2⁶⁰, by which sums with large products are scaled down and back up.
const DOWN: u64 = (1023 - 60) << 52;
const UP: u64 = (1023 + 60) << 52;

/// Replaces every fused multiply-add.
pub fn expand_fma(code: &mut Code) {
    replace(code, &|steps, stmt| {
        let Inst::Fma(x, y, z) = stmt.inst else { return false };
        let result = stmt.results[0];
        match steps.ty(result).dtype {
            DType::F64 => steps.double([x, y, z], result),
            _ => steps.single([x, y, z], result),
        }
        true
    });
}

impl Steps<'_> {
    /// Computes in f64, where the product of two f32 numbers is exact.
    fn single(&mut self, args: [V; 3], result: V) {
        let wide = self.types[result.0 as usize].with(DType::F64);
        let [x, y, z] = args.map(|arg| self.value(wide, Inst::Convert(arg)));
        let product = self.binary(Binary::Mul, x, y);
        let sum = self.binary(Binary::Add, product, z);
        self.define(result, Inst::Convert(sum));
    }

    fn double(&mut self, [x, y, z]: [V; 3], result: V) {
        let ty = self.types[result.0 as usize];
        let product = self.binary(Binary::Mul, x, y);
        let [large, down, up, one] =
            [LARGE, DOWN, UP, 1f64.to_bits()].map(|bits| self.value(ty, Inst::Const(bits)));
        let size = self.value(ty, Inst::Unary(Unary::Abs, product));
        let is_large = self.value(ty.with(DType::Bool), Inst::Compare(Cmp::Gt, size, large));
        let down = self.value(ty, Inst::Select(is_large, down, one));
        let up = self.value(ty, Inst::Select(is_large, up, one));
        let [x, z] = [x, z].map(|v| self.binary(Binary::Mul, v, down));
        let product = self.binary(Binary::Mul, x, y);
        let ((xh, xl), (yh, yl)) = (self.halves(x), self.halves(y));
        // The rounding error of the product.
        let mut lost = self.binary(Binary::Mul, xh, yh);
        lost = self.binary(Binary::Sub, lost, product);
        for (a, b) in [(xh, yl), (xl, yh), (xl, yl)] {
            let part = self.binary(Binary::Mul, a, b);
            lost = self.binary(Binary::Add, lost, part);
        }
        // The rounding error of the sum.
        let sum = self.binary(Binary::Add, product, z);
        let added = self.binary(Binary::Sub, sum, product);
        let kept = self.binary(Binary::Sub, sum, added);
        let first = self.binary(Binary::Sub, product, kept);
        let second = self.binary(Binary::Sub, z, added);
        let cut = self.binary(Binary::Add, first, second);
        let rest = self.binary(Binary::Add, cut, lost);
        let exact = self.binary(Binary::Add, sum, rest);
        // A sum that is not finite is not corrected, because the correction would be NaN.
        let right = self.value(ty.with(DType::Bool), Inst::Compare(Cmp::Eq, exact, exact));
        let sum = self.value(ty, Inst::Select(right, exact, sum));
        self.define(result, Inst::Binary(Binary::Mul, sum, up));
    }

    /// Splits a number into a sum of two numbers with half as many bits, whose products are exact.
    fn halves(&mut self, x: V) -> (V, V) {
        let ty = self.types[x.0 as usize];
        let bits = self.value(ty.with(DType::U64), Inst::Bitcast(x));
        let [half, upper] =
            [HALF, UPPER].map(|bits| self.value(ty.with(DType::U64), Inst::Const(bits)));
        // Rounds to nearest, so that the lower part has no more bits than the upper one.
        let rounded = self.binary(Binary::Add, bits, half);
        let upper = self.binary(Binary::And, rounded, upper);
        let high = self.value(ty, Inst::Bitcast(upper));
        (high, self.binary(Binary::Sub, x, high))
    }
}
