//! Inverse trigonometric functions.

use super::poly::{by_dtype, horner};
use super::value::Val;

/// (asin(x) / x - 1) / x², a polynomial in x², up to x² = ¼.
const ASIN_F32: [f64; 6] = [
    0.16666659712791443,
    0.07500521093606949,
    0.04451363533735275,
    0.03183605521917343,
    0.01432918943464756,
    0.03767312690615654,
];
const ASIN_F64: [f64; 13] = [
    0.16666666666666669,
    0.07499999999998425,
    0.04464285714637338,
    0.03038194413708521,
    0.022372173002005745,
    0.017352391265906313,
    0.013971235301162371,
    0.011478952689927567,
    0.010324318290690684,
    0.005450878180048017,
    0.017419357984227668,
    -0.014881409421021383,
    0.028778442630682865,
];

/// (atan(x) / x - 1) / x², a polynomial in x², up to 1 in f32 and up to tan²(π/8) in f64.
const ATAN_F32: [f64; 9] = [
    -0.33333301544189453,
    0.1999862641096115,
    -0.14265091717243195,
    0.1095665767788887,
    -0.08416461199522018,
    0.05817808210849762,
    -0.031394440680742264,
    0.011028897948563099,
    -0.00181867356877774,
];
const ATAN_F64: [f64; 11] = [
    -0.3333333333333333,
    0.19999999999995316,
    -0.1428571428462415,
    0.11111111011855053,
    -0.09090904440257404,
    0.07692179995767043,
    -0.06664466550797124,
    0.058577598393204436,
    -0.05083418645056546,
    0.039173122599895756,
    -0.01910537296613873,
];

/// π in two parts.
fn pi(x: Val) -> (f64, f64) {
    match x.is_f64() {
        true => (std::f64::consts::PI, 1.2246467991473532e-16),
        false => (3.1415927410125732, -8.742277657347586e-08),
    }
}

/// Returns the series of |x| up to ½, and twice the series of √((1 - |x|) / 2) above it, which the
/// caller completes. Also returns the mask of the second case.
fn asin_parts<'a>(x: Val<'a>) -> (Val<'a>, Val<'a>) {
    let a = x.abs();
    let large = a.gt(0.5);
    let square = ((a.number(1.0) - a) * 0.5).when(large, a * a);
    let root = square.sqrt().when(large, a);
    let series = (root * square).mul_add(by_dtype(square, &ASIN_F32, &ASIN_F64), root);
    ((series + series).when(large, series), large)
}

pub fn asin(x: Val) -> Val {
    let (part, large) = asin_parts(x);
    let (high, low) = pi(x);
    let rest = (part.number(high / 2.0) - part) + low / 2.0;
    rest.when(large, part).sign_of(x)
}

pub fn acos(x: Val) -> Val {
    let (part, large) = asin_parts(x);
    let (high, low) = pi(x);
    let below = x.lt(0.0);
    let base = |whole: f64| {
        let end = x.number(whole).when(below, 0.0);
        end.when(large, whole / 2.0)
    };
    let signed = ((-part).when(large, part).bits() ^ x.sign_bit()).float();
    (base(high) - signed) + base(low)
}

/// The arc tangent of a quotient between 0 and 1.
fn of_quotient<'a>(num: Val<'a>, den: Val<'a>) -> Val<'a> {
    if !num.is_f64() {
        let z = num / den;
        let square = z * z;
        return (z * square).mul_add(horner(square, &ATAN_F32), z);
    }
    let large = num.gt(den * 0.41421356237309503);
    let z = (num - den).when(large, num) / (num + den).when(large, den);
    let square = z * z;
    let series = (z * square).mul_add(horner(square, &ATAN_F64), z);
    (series + std::f64::consts::FRAC_PI_4).when(large, series)
}

pub fn atan(x: Val) -> Val {
    let a = x.abs();
    let over = a.gt(1.0);
    let one = a.number(1.0);
    let part = of_quotient(one.when(over, a), a.when(over, one));
    let (high, low) = pi(x);
    let rest = (part.number(high / 2.0) - part) + low / 2.0;
    rest.when(over, part).sign_of(x)
}

/// The angle of the point (x, y).
pub fn atan2<'a>(y: Val<'a>, x: Val<'a>) -> Val<'a> {
    let (ay, ax) = (y.abs(), x.abs());
    let steep = ay.gt(ax);
    let (num, den) = (ax.when(steep, ay), ay.when(steep, ax));
    // 0 / 0 counts as 0, and inf / inf counts as 1.
    let one = den.number(1.0);
    let endless = num.eq(f64::INFINITY) & den.eq(f64::INFINITY);
    let (num, den) = (one.when(endless, num), one.when(endless | den.eq(0.0), den));
    // Avoids overflow of the sum.
    let scale = num.number(0.25).when(den.gt(2f64.powi(100)), 1.0);
    let part = of_quotient(num * scale, den * scale);
    let (high, low) = pi(x);
    let part = ((part.number(high / 2.0) - part) + low / 2.0).when(steep, part);
    let left = x.bits().lt(0);
    let part = ((part.number(high) - part) + low).when(left, part);
    part.sign_of(y)
}
