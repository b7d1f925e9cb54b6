//! Scalar primitives as machine code against the table's own evaluator.

mod machine;
mod precise;
mod samples;
mod speed;

use mithril_ir::dtype::DType;
use mithril_ir::scalar::expr::Expr;
use mithril_ir::scalar::{self, Prim, Scalar, Signature, round};
use mithril_kernels::builder::Builder;
use mithril_kernels::code::V;
use mithril_kernels::scalar::{apply, exp2_nonpositive, expression, register_dtype};

use machine::{Body, Kernel};
use samples::{Array, pairs, singles};

const INTS: [DType; 9] = [
    DType::I64,
    DType::I32,
    DType::I16,
    DType::I8,
    DType::U64,
    DType::U32,
    DType::U16,
    DType::U8,
    DType::Bool,
];

/// How far functions of floats may be off, in units in the last place, where that is not 0.
fn tolerance(prim: Prim, dtype: DType) -> f64 {
    match prim {
        Prim::Exp
        | Prim::Expm1
        | Prim::Log
        | Prim::Log1p
        | Prim::Sin
        | Prim::Cos
        | Prim::Tan
        | Prim::Asin
        | Prim::Acos
        | Prim::Atan
        | Prim::Sinh
        | Prim::Cosh
        | Prim::Tanh
        | Prim::Erf
        | Prim::Pow
        | Prim::Atan2 => match dtype {
            // The evaluator is itself off by one or two.
            DType::F64 => 5.5,
            _ => 2.0,
        },
        _ => 0.5,
    }
}

fn same_or_test(prim: Prim) -> bool {
    matches!(prim.signature(), Signature::Same | Signature::Test)
}

/// The unit in the last place of a float near `x`.
fn ulp(dtype: DType, x: f64) -> f64 {
    let (least, digits) = match dtype {
        DType::F64 => (-1022, 52),
        _ => (-126, 23),
    };
    let exponent = ((x.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(least);
    2f64.powi(exponent) * 2f64.powi(-digits)
}

/// How far `got` is from what the evaluator gives in f64, in units in the last place.
fn error(dtype: DType, got: f64, want: f64) -> f64 {
    let rounded = round::round(dtype, want);
    if got.to_bits() == rounded.to_bits() || (got.is_nan() && rounded.is_nan()) {
        return if want.is_finite() && rounded.is_finite() {
            (got - want).abs() / ulp(dtype, want)
        } else {
            0.0
        };
    }
    if got.is_nan() || rounded.is_nan() || (got == 0.0 && rounded == 0.0) {
        return f64::INFINITY;
    }
    let at_end = |x: f64| x.clamp(-2f64.powi(1023), 2f64.powi(1023));
    (at_end(got) - at_end(want)).abs() / ulp(dtype, at_end(want))
}

struct Worst {
    error: f64,
    at: String,
}

/// The largest error of `got`, which is what `prim` gave on `args`.
fn worst(prim: Prim, dtype: DType, args: &[&Array], got: &Array) -> Worst {
    let mut worst = Worst { error: 0.0, at: String::new() };
    for i in 0..got.len() {
        let values: Vec<Scalar> = args.iter().map(|a| a.get(i)).collect();
        let exact = matches!(prim, Prim::FloorDiv | Prim::Mod) || !got.dtype.is_float();
        let within = if exact { register_dtype(dtype) } else { DType::F64 };
        let want = scalar::apply(prim, within, &values, None);
        let error = match (got.get(i), want) {
            (Scalar::F(got), Scalar::F(want)) => error(register_dtype(dtype), got, want),
            (got, want) if got == want => 0.0,
            _ => f64::INFINITY,
        };
        if error > worst.error {
            let got = got.get(i);
            worst = Worst { error, at: format!("{values:?} gives {got:?}, not {want:?}") };
        }
    }
    worst
}

/// Applies every primitive of these to `args`, and compares.
fn check(prims: &[Prim], dtype: DType, args: &[&Array], lanes: u32) {
    let bodies: Vec<_> = prims
        .iter()
        .map(|&prim| move |b: &mut Builder, v: &[V]| apply(b, prim, dtype, v, None))
        .collect();
    let result = |prim: Prim| match prim.signature() {
        Signature::Test => DType::Bool,
        _ => register_dtype(dtype),
    };
    let bodies: Vec<(DType, Body)> =
        prims.iter().zip(&bodies).map(|(p, body)| (result(*p), body as Body)).collect();
    let dtypes: Vec<DType> = args.iter().map(|a| a.dtype).collect();
    let kernel = Kernel::new(&dtypes, &bodies, lanes);
    let inputs: Vec<&[u8]> = args.iter().map(|a| &a.bytes[..]).collect();
    let outputs = kernel.run(&inputs, args[0].len());
    let mut wrong = vec![];
    for (&prim, bytes) in prims.iter().zip(outputs) {
        let got = Array { dtype: result(prim), bytes };
        let worst = worst(prim, dtype, args, &got);
        if dtype.is_float() && got.dtype.is_float() {
            println!("{} {dtype} x{lanes}: {:.3} at {}", prim.name(), worst.error, worst.at);
        }
        if worst.error > tolerance(prim, dtype) {
            wrong.push(format!("{} {dtype} x{lanes}: {} {}", prim.name(), worst.error, worst.at));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn of_arity(arity: usize) -> Vec<Prim> {
    Prim::ALL.iter().copied().filter(|&p| same_or_test(p) && p.arity() == arity).collect()
}

/// Whether a primitive's result on integers depends on a function's last bit.
fn by_series(prim: Prim) -> bool {
    tolerance(prim, DType::F32) > 1.0 && prim != Prim::Pow
}

#[test]
fn integers_are_exact() {
    let exact =
        |arity| -> Vec<Prim> { of_arity(arity).into_iter().filter(|&p| !by_series(p)).collect() };
    for dtype in INTS {
        let [x, y] = pairs(dtype, 3000);
        for lanes in [1, 8, 16] {
            check(&exact(1), dtype, &[&x], lanes);
            check(&exact(2), dtype, &[&x, &y], lanes);
        }
    }
}

#[test]
fn floats_of_one_operand() {
    for (dtype, count) in [(DType::F32, 1 << 20), (DType::F64, 200_000)] {
        let x = singles(dtype, count);
        check(&of_arity(1), dtype, &[&x], 16);
        let x = singles(dtype, 1000);
        for lanes in [1, 4, 8] {
            check(&of_arity(1), dtype, &[&x], lanes);
        }
    }
}

#[test]
fn floats_of_two_operands() {
    for (dtype, count) in [(DType::F32, 1 << 18), (DType::F64, 1 << 16)] {
        let [x, y] = pairs(dtype, count);
        check(&of_arity(2), dtype, &[&x, &y], 16);
        let [x, y] = pairs(dtype, 1000);
        for lanes in [1, 4, 8] {
            check(&of_arity(2), dtype, &[&x, &y], lanes);
        }
    }
}

#[test]
fn halves_are_computed_in_f32() {
    for dtype in [DType::F16, DType::BF16] {
        let [x, y] = pairs(dtype, 20_000);
        check(&of_arity(1), dtype, &[&x], 16);
        check(&of_arity(2), dtype, &[&x, &y], 16);
    }
}

#[test]
fn functions_of_integers_are_those_of_f64() {
    let prims: Vec<Prim> = Prim::ALL.iter().copied().filter(|&p| by_series(p)).collect();
    for dtype in INTS {
        let [x, y] = pairs(dtype, 100);
        for &prim in &prims {
            let body = |b: &mut Builder, v: &[V]| apply(b, prim, dtype, &v[..prim.arity()], None);
            let kernel = Kernel::new(&[dtype, dtype], &[(dtype, &body)], 8);
            let got = kernel.run(&[&x.bytes, &y.bytes], x.len()).remove(0);
            let got = Array { dtype, bytes: got };
            for i in 0..x.len() {
                let args = [x.get(i), y.get(i)];
                let want = scalar::apply(prim, dtype, &args[..prim.arity()], None);
                let [a, b] = [got.get(i), want].map(|v| round::wide(dtype, v.int()) as f64);
                assert!(
                    (a - b).abs() <= b.abs() * 1e-15,
                    "{prim:?} {dtype} {args:?}: {a}, not {b}"
                );
            }
        }
    }
}

#[test]
fn casts_are_exact() {
    for from in DType::ALL {
        let dtypes = DType::ALL;
        let [x, _] = pairs(from, 10_000);
        for lanes in [1, 16] {
            let bodies: Vec<_> = dtypes
                .iter()
                .map(|&to| move |b: &mut Builder, v: &[V]| apply(b, Prim::Cast, from, v, Some(to)))
                .collect();
            let bodies: Vec<(DType, Body)> =
                dtypes.iter().zip(&bodies).map(|(&to, body)| (to, body as Body)).collect();
            let outputs = Kernel::new(&[from], &bodies, lanes).run(&[&x.bytes], x.len());
            for (&dtype, bytes) in dtypes.iter().zip(outputs) {
                let got = Array { dtype, bytes };
                for i in 0..x.len() {
                    let want = x.get(i).cast(from, dtype);
                    let same = match (got.get(i), want) {
                        (Scalar::F(a), Scalar::F(b)) => error(DType::F64, a, b) == 0.0,
                        (a, b) => a == b,
                    };
                    assert!(
                        same,
                        "{:?} {from} to {dtype}: {:?}, not {want:?}",
                        x.get(i),
                        got.get(i)
                    );
                }
            }
        }
    }
}

/// The largest error of an expression of `x` in f32 where it is not tiny, by its value in f64.
fn of_expression(text: &str, accurate: &str, least: f64) -> f64 {
    let [plain, exact] = [text, accurate]
        .map(|text| Expr::parse(text, &["x"], &[]).unwrap_or_else(|e| panic!("{e}")));
    let dtype = DType::F32;
    let body = |b: &mut Builder, v: &[V]| expression(b, &plain, dtype, &[dtype], v, &[], 16);
    let x = singles(dtype, 1 << 18);
    let got = Kernel::new(&[dtype], &[(dtype, &body)], 16).run(&[&x.bytes], x.len()).remove(0);
    let got = Array { dtype, bytes: got };
    let errors = (0..x.len()).map(|i| {
        let want = exact.eval(DType::F64, &[x.get(i)], &[]).float();
        let counted = want.is_nan() || want.abs() > least;
        let error = if counted { error(dtype, got.get(i).float(), want) } else { 0.0 };
        (error, x.get(i).float())
    });
    let (worst, at) = errors.fold((0.0, 0.0), |w, e| if e.0 > w.0 { e } else { w });
    println!("{text}: {worst:.3} at {at}");
    worst
}

#[test]
fn expressions() {
    const BY_SIGN: &str = "select(x >= 0, 1 / (1 + t), t / (1 + t)) where t = exp(-abs(x))";
    for text in ["1 / (1 + exp(-x))", BY_SIGN] {
        assert!(of_expression(text, BY_SIGN, 0.0) <= 2.0);
    }
    let by_tanh = "0.5 * x * (1 + tanh(x))";
    let by_sigmoid = "x * select(x >= 0, 1 / (1 + t), t / (1 + t)) where t = exp(-2 * abs(x))";
    assert!(of_expression(by_tanh, by_sigmoid, 1e-30) <= 3.0);
    let cube = "x * (0.7978845608028654 + 0.035677408136300125 * x * x)";
    let [by_tanh, by_sigmoid] = [
        format!("0.5 * x * (1 + tanh({cube}))"),
        format!("x * select(x >= 0, 1 / (1 + t), t / (1 + t)) where t = exp(-2 * abs({cube}))"),
    ];
    // The power is of a rounded cube: where only that is rounded, the errors are 11 and 24.
    assert!(of_expression(&by_tanh, &by_sigmoid, 1e-2) <= 7.0);
    assert!(of_expression(&by_tanh, &by_sigmoid, 1e-6) <= 29.0);
    let softplus = "max(x, 0) + log1p(exp(-abs(x)))";
    assert!(of_expression(softplus, softplus, 0.0) <= 3.0);
    assert!(of_expression("max(x, 0)", "max(x, 0)", -1.0) == 0.0);
    for power in ["2", "3", "4", "(-1)", "0.5", "(-0.5)", "1", "0", "1.75"] {
        let text = format!("x ** {power}");
        assert!(of_expression(&text, &text, -1.0) <= 2.0);
    }
}

#[test]
fn powers_of_two_for_softmax() {
    for dtype in [DType::F32, DType::F64] {
        let all = singles(dtype, 100_000);
        let nonpositive = (0..all.len()).map(|i| Scalar::F(-all.get(i).float().abs()));
        let x = Array::new(dtype, nonpositive);
        let body = |b: &mut Builder, v: &[V]| exp2_nonpositive(b, v[0]);
        let got = Kernel::new(&[dtype], &[(dtype, &body)], 8).run(&[&x.bytes], x.len()).remove(0);
        let got = Array { dtype, bytes: got };
        let least = if dtype == DType::F64 { -1022.0 } else { -126.0 };
        let mut worst = 0f64;
        for i in 0..x.len() {
            let (x, got) = (x.get(i).float(), got.get(i).float());
            match x < least {
                true => assert!((0.0..=2f64.powf(least)).contains(&got), "2 ** {x} is {got}"),
                false => worst = worst.max(error(dtype, got, x.exp2())),
            }
            assert!(x != f64::NEG_INFINITY || got == 0.0);
        }
        println!("exp2_nonpositive {dtype}: {worst:.3}");
        assert!(worst <= 2.0);
    }
}
