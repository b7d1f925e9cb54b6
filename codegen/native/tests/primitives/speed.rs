//! How long the series take: what falls back to scalar code is found by it.

use std::time::Instant;

use mithril_ir::dtype::DType;
use mithril_ir::scalar::expr::Expr;
use mithril_ir::scalar::{Prim, Scalar, Signature};
use mithril_kernels::builder::Builder;
use mithril_kernels::code::V;
use mithril_kernels::host;
use mithril_kernels::scalar::{apply, exp2_nonpositive, expression};

use crate::machine::Kernel;
use crate::of_arity;
use crate::samples::{Array, Random};

/// Few enough elements to stay in the nearest cache.
const COUNT: usize = 1024;
const TURNS: usize = 64;

/// Nanoseconds an element, the best of interleaved turns.
fn times(kernels: &[(String, Kernel)], inputs: &[&Array]) -> Vec<f64> {
    let inputs: Vec<&[u8]> = inputs.iter().map(|a| &a.bytes[..]).collect();
    let mut best = vec![f64::INFINITY; kernels.len()];
    for _ in 0..TURNS {
        for ((_, kernel), best) in kernels.iter().zip(&mut best) {
            let mut outputs = kernel.outputs(COUNT);
            let start = Instant::now();
            for _ in 0..16 {
                kernel.run_into(&inputs, &mut outputs, COUNT);
            }
            *best = best.min(start.elapsed().as_nanos() as f64 / (16 * COUNT) as f64);
        }
    }
    best
}

/// A primitive's kernel, with `x` given again to what takes two operands.
fn kernel(prim: Prim, dtype: DType) -> (String, Kernel) {
    let body = |b: &mut Builder, v: &[V]| apply(b, prim, dtype, &v[..prim.arity()], None);
    (prim.name().into(), Kernel::new(&[dtype, dtype], &[(dtype, &body)], 16))
}

#[test]
fn series_are_vectors() {
    // Of registers of 64 bytes: shorter ones take as many times as long. Without fused operations
    // each multiplication with an addition takes up to seventeen steps.
    let host = host::chosen(None).unwrap_or_else(|e| panic!("{e}"));
    let steps = if host.isa.fma { 1.0 } else { 2.0 };
    let times_as_long = steps * 64.0 / f64::from(host.isa.bytes);
    for (dtype, limit) in [(DType::F32, 12.0), (DType::F64, 40.0)] {
        let limit = limit * times_as_long;
        let mut random = Random(3);
        let mut near = |low: f64, high: f64| {
            let scale = (high - low) / 2.0;
            let values: Vec<Scalar> = (0..COUNT)
                .map(|_| Scalar::number(dtype, low + scale * (1.0 + random.unit())))
                .collect();
            Array::new(dtype, values)
        };
        let [x, y] = [near(0.1, 0.9), near(-4.0, 4.0)];
        let prims = of_arity(1).into_iter().chain(of_arity(2));
        let mut kernels: Vec<(String, Kernel)> =
            prims.filter(|&p| p.signature() == Signature::Same).map(|p| kernel(p, dtype)).collect();
        let body = |b: &mut Builder, v: &[V]| exp2_nonpositive(b, v[0]);
        kernels
            .push(("exp2_nonpositive".into(), Kernel::new(&[dtype, dtype], &[(dtype, &body)], 16)));
        let sigmoid = Expr::parse("1 / (1 + exp(-x))", &["x"], &[]).expect("an expression");
        let body =
            |b: &mut Builder, v: &[V]| expression(b, &sigmoid, dtype, &[dtype], &v[..1], &[], 16);
        kernels.push(("sigmoid".into(), Kernel::new(&[dtype, dtype], &[(dtype, &body)], 16)));
        let times = times(&kernels, &[&x, &y]);
        for ((name, _), time) in kernels.iter().zip(&times) {
            println!("{name} {dtype}: {time:.3} ns");
            assert!(*time < limit, "{name} {dtype} takes {time} ns an element");
        }
    }
}
