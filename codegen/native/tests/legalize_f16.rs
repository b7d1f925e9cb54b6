//! Conversions of f16 on processors without them: the same numbers, and no call.

use mithril_ir::dtype::DType;
use mithril_ir::tensor::Tensor;
use mithril_kernels::builder::Builder;
use mithril_kernels::legalize::f16::expand_f16;
use mithril_kernels::loops::Loops;
use mithril_kernels::mlir;
use mithril_native::{Options, Stage, compile};
use mithril_runtime::code::Code;

/// Converts arrays, eight elements at a time, by object code for level 2 of x86-64.
fn converted(from: DType, to: DType, bytes: &[u8]) -> Vec<u8> {
    let mut b = Builder::new(2, 1);
    let (input, output) = (b.buffer(0, from, true), b.buffer(1, to, false));
    let (zero, n) = (b.index(0), b.dim(0));
    b.each(zero, n, 8, |b, i| {
        let x = b.load(input, i, 8, None);
        let y = b.convert(x, to);
        b.store(output, i, y, None);
    });
    let mut code = b.finish();
    expand_f16(&mut code);
    let options =
        Options { cpu: "x86-64-v2".into(), features: String::new(), ..Options::default() };
    let object = compile(&mlir::print(&code), &options, Stage::Object);
    // An object that calls a function for it does not load.
    let code = Code::load(&object.unwrap_or_else(|e| panic!("{e}")));
    let code = code.unwrap_or_else(|e| panic!("{e}"));
    let count = bytes.len() / from.bytes();
    assert_eq!(count % 8, 0);
    let mut result = vec![0xFB; count * to.bytes()];
    let buffers = [bytes.as_ptr().cast_mut(), result.as_mut_ptr()];
    let kernel = code.kernel("kernel").expect("the kernel");
    // SAFETY: the kernel reads and writes as many elements of each array as the dim says.
    unsafe { kernel(std::ptr::null_mut(), buffers.as_ptr(), [count as i64].as_ptr(), 0, 1) };
    result
}

/// The number of the bits of an f16, by its definition.
fn value(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 0x3ff));
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15),
    }
}

#[test]
fn every_f16_converts_exactly_to_f32() {
    let halves: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let got = converted(DType::F16, DType::F32, &halves);
    for (bits, got) in (0..=u16::MAX).zip(got.chunks_exact(4)) {
        let got = f32::from_le_bytes([got[0], got[1], got[2], got[3]]);
        let want = value(bits) as f32;
        let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
        assert!(same, "{bits:#x}: {got:e}, expected {want:e}");
    }
}

/// Each f16, the midpoints between neighbours, and the f32 numbers on both sides of these.
#[test]
fn f32_rounds_to_the_nearest_f16() {
    let mut singles: Vec<f32> = Vec::new();
    for bits in 0..0x7c01u16 {
        let next = if bits < 0x7bff { value(bits + 1) } else { 65536.0 };
        for x in [value(bits), (value(bits) + next) / 2.0].map(|x| x as f32) {
            for x in [x, x.next_up(), x.next_down()] {
                singles.extend([x, -x]);
            }
        }
    }
    singles.extend([f32::NAN, f32::MAX, f32::MIN, f32::MIN_POSITIVE, 1e-45, 65519.9, 65520.0]);
    singles.resize(singles.len().next_multiple_of(8), 0.0);
    let bytes: Vec<u8> = singles.iter().flat_map(|x| x.to_le_bytes()).collect();
    let got = converted(DType::F32, DType::F16, &bytes);
    let wide: Vec<f64> = singles.iter().map(|&x| f64::from(x)).collect();
    let want = Tensor::from_f64s(DType::F16, vec![wide.len()], &wide);
    for ((x, got), want) in singles.iter().zip(got.chunks_exact(2)).zip(want.bytes().chunks(2)) {
        let nan = value(u16::from_le_bytes([got[0], got[1]])).is_nan();
        assert!(got == want || x.is_nan() && nan, "{x:e}: {got:x?}, expected {want:x?}");
    }
}
