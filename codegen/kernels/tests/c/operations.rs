//! Tests every operation of the table.

use mithril_ir::dtype::DType;
use mithril_ir::evaluate::evaluate;
use mithril_ir::graph::Module;
use mithril_ir::op::{Class, Kind, Op};
use mithril_ir::tensor::Tensor;

use crate::cases::{Case, Random, every, operations};
use crate::compiled::{Check, expect_no_failures};
use crate::uses::{converted, rounds_each_step, widened};

/// The number of cases per operation on floats that models use, and on any dtype: of all tests, and
/// of a sample.
const COUNT: [usize; 2] = [4, 2];

fn check(fixed: &Case, form: &Case, inputs: &[Tensor]) -> Option<Check> {
    let (function, reference) = (form.function()?, fixed.function()?);
    let expected = evaluate(&Module::new(), &reference, inputs).ok()?;
    let precise = widened(fixed).and_then(|wide| precise(&wide, inputs, &expected));
    let name = function.name.to_string();
    Some(Check {
        about: format!("{} {form:?}\nof {inputs:?}", fixed.op.name),
        module: Module::of(function),
        function: name,
        inputs: inputs.to_vec(),
        expected,
        precise,
    })
}

/// Computes the results of a case in f64, and converts them to the dtypes of `like`.
fn precise(wide: &Case, inputs: &[Tensor], like: &[Tensor]) -> Option<Vec<Tensor>> {
    let function = wide.function()?;
    let types = function.arguments().map(|(value, _)| function.ty(value).dtype);
    let inputs: Vec<Tensor> = inputs.iter().zip(types).map(|(t, ty)| converted(t, ty)).collect();
    let results = evaluate(&Module::new(), &function, &inputs).ok()?;
    Some(results.iter().zip(like).map(|(t, own)| converted(t, own.dtype())).collect())
}

fn uses(op: Op, random: &mut Random) -> Vec<Case> {
    let dtypes = [Some(DType::F32), None, Some(DType::F64), None];
    let count = if every() { COUNT[0] } else { COUNT[1] };
    let found = (0..count).map_while(|at| Case::find(op, random, dtypes[at % 4]));
    found.filter(|case| !rounds_each_step(case)).collect()
}

/// Checks of every operation on ordinary numbers, with constant and with symbolic dims.
pub fn checks() -> Vec<Check> {
    let mut checks = Vec::new();
    for op in operations() {
        let mut random = Random::named(op.name, 0);
        for case in uses(op, &mut random) {
            let inputs = case.tensors(&mut random);
            for form in [case.clone(), case.symbolic()] {
                checks.extend(check(&case, &form, &inputs));
            }
        }
    }
    checks
}

const DTYPES: [DType; 12] = [
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::BF16,
    DType::F16,
    DType::F32,
    DType::F64,
];

/// Checks of every operation on ordinary numbers of every supported dtype, with dims of up to 33,
/// some of which are symbols. These have loops with many iterations.
pub fn long(seed: u64) -> Vec<Check> {
    let mut checks = Vec::new();
    for op in operations() {
        let mut random = Random::named(op.name, seed.wrapping_mul(1_000_003) + 40_000);
        let accepts = |dtype: &DType| {
            let mut shared = op.operands.iter().filter(|operand| operand.shared);
            shared.next().is_none_or(|operand| operand.class.accepts(*dtype))
        };
        for dtype in DTYPES.into_iter().filter(accepts) {
            // Tries several cases, because those with only scalars cannot be resized.
            let mut found = (0..10)
                .filter_map(|_| Case::find(op, &mut random, Some(dtype))?.resized(&mut random));
            let Some(case) = found.find(|case| !rounds_each_step(case)) else { continue };
            let inputs = case.tensors(&mut random);
            let form = case.opened(&mut random);
            checks.extend(check(&case, &form, &inputs));
        }
    }
    checks
}

#[test]
fn on_numbers() {
    expect_no_failures(&checks());
}

/// Tensors with zeros of both signs, the limits of every dtype, infinities and NaN.
fn extremes(case: &Case, random: &mut Random) -> Vec<Tensor> {
    let mut tensors = case.tensors(random);
    for (i, tensor) in tensors.iter_mut().enumerate() {
        if case.op.operand(i).class == Class::Key {
            continue;
        }
        let dtype = tensor.dtype();
        let shape = tensor.shape().to_vec();
        let count = tensor.len();
        *tensor = match dtype.is_float() {
            true => {
                let values =
                    [0.0, -0.0, 1.0, -1.5, 2.5, 1e-40, f64::INFINITY, -f64::INFINITY, f64::NAN];
                let values: Vec<f64> = (0..count).map(|_| *random.pick(&values)).collect();
                Tensor::from_f64s(dtype, shape, &values)
            }
            false => {
                let (low, high) = mithril_ir::scalar::round::int_range(dtype);
                let values = [low as i64, high as i64, 0, 1, 3, low as i64 + 1, -1, 64];
                let fits = |v: &i64| dtype == DType::U64 || (low..=high).contains(&(*v).into());
                let values: Vec<i64> = values.into_iter().filter(fits).collect();
                let values: Vec<i64> = (0..count).map(|_| *random.pick(&values)).collect();
                Tensor::from_i64s(dtype, shape, &values)
            }
        };
    }
    tensors
}

#[test]
fn on_extremes() {
    let mut checks = Vec::new();
    for op in operations() {
        let mut random = Random::named(op.name, 7000);
        // Skips operations on sums, because sums of infinities depend on the order.
        let exact = matches!(op.kind, Kind::Elementwise | Kind::Index | Kind::Order | Kind::Layout);
        let primitive = exact && !matches!(op.meaning, mithril_ir::op::Meaning::Decompose(_));
        for case in uses(op, &mut random).into_iter().filter(|_| primitive) {
            let inputs = extremes(&case, &mut random);
            checks.extend(check(&case, &case, &inputs));
        }
    }
    expect_no_failures(&checks);
}
