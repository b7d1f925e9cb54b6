//! What `forward` leaves out: elements at which frameworks may keep their own results, no elements
//! at all, and dtypes that are hardly computed in. Each case tells which of these it is.

use mithril_ir::dtype::DType;
use mithril_ir::op::{Class, Kind, Op};
use mithril_ir::tensor::Tensor;
use mithril_source::backends::Backend;
use serde_json::Value;

use crate::cases::{Case, Random};
use crate::forward::{has_rare_dtype, inputs, is_empty, is_rare, one, rounds_each_step};

pub fn cases(framework: &'static Backend) -> Vec<Value> {
    let mut all = Vec::new();
    for op in crate::operations() {
        let mut random = Random::named(op.name, 5000);
        let mut add = |corner: String, case: &Case, inputs: &[Tensor]| {
            let value = one(framework, case, case, inputs);
            all.extend(value.map(|mut value| {
                value["corner"] = corner.into();
                value
            }));
        };
        let plain = |case: &Case| !has_rare_dtype(case, framework) && !rounds_each_step(case);
        let noted = !op.note.is_empty();
        if noted || op.kind == Kind::Composite {
            let fits = |case: &Case| case.operands.iter().any(is_empty) && plain(case);
            for case in found(op, 3, &mut random, fits) {
                add("no elements".into(), &case, &inputs(&case, &mut random));
            }
        }
        if noted {
            let fits = |case: &Case| !case.operands.iter().any(is_empty) && plain(case);
            for case in found(op, 4, &mut random, fits) {
                let mut own = extremes(&case, &mut random);
                if framework.name() == "mlx" {
                    within_range(&case, &mut own, &mut random);
                }
                add("elements".into(), &case, &own);
            }
        }
        for dtype in rare(op, framework) {
            let fits = |case: &Case| {
                let result = case.function().map(|f| f.ty(f.results[0].value).dtype);
                let mut own = case.operands.iter().map(|ty| ty.dtype).chain(result);
                let full = !case.operands.iter().any(is_empty);
                full && own.any(|d| d == dtype) && own.all(|d| d == dtype || !is_rare(d, framework))
            };
            for case in found(op, 1, &mut random, fits) {
                add(format!("{dtype}"), &case, &inputs(&case, &mut random));
            }
        }
    }
    all
}

/// The rare dtypes that the operation takes or gives.
fn rare(op: Op, framework: &'static Backend) -> Vec<DType> {
    if op.kind == Kind::Random {
        return Vec::new();
    }
    DType::ALL.into_iter().filter(|d| is_rare(*d, framework)).collect()
}

fn found(op: Op, count: usize, random: &mut Random, fits: impl Fn(&Case) -> bool) -> Vec<Case> {
    let mut found = Vec::new();
    for _ in 0..1500 {
        let case = Case::guess(op, random, None);
        if found.len() < count && case.function().is_some() && fits(&case) {
            found.push(case);
        }
    }
    found
}

/// Replaces indices by those that exist. MLX does not check them, and writes to other memory.
fn within_range(case: &Case, tensors: &mut [Tensor], random: &mut Random) {
    let inside = inputs(case, random);
    for (i, (tensor, own)) in tensors.iter_mut().zip(inside).enumerate() {
        let operand = case.op.operand(i);
        if operand.class == Class::Int && !operand.shared {
            *tensor = own;
        }
    }
}

/// Zeros, negatives, and numbers beyond any dim, width or integer.
fn extremes(case: &Case, random: &mut Random) -> Vec<Tensor> {
    let mut tensors = case.tensors(random);
    for (i, tensor) in tensors.iter_mut().enumerate() {
        if case.op.operand(i).class == Class::Key {
            continue;
        }
        let dtype = tensor.dtype();
        let values: Vec<f64> = (0..tensor.len())
            .map(|_| match dtype.is_float() {
                // What sums of infinities give is not what a composite's note is about.
                true if case.op.kind == Kind::Composite => random.unit() * 2.0,
                true => *random.pick(&[0.0, 1.5, -2.5, 1e20, -1e20, f64::INFINITY, f64::NAN]),
                false if dtype == DType::Bool => 0.0,
                false if dtype.is_unsigned_int() => *random.pick(&[0.0, 1.0, 7.0, 100.0]),
                false => *random.pick(&[-100.0, -7.0, -1.0, 0.0, 1.0, 100.0]),
            })
            .collect();
        *tensor = Tensor::from_f64s(dtype, tensor.shape().to_vec(), &values);
    }
    tensors
}
