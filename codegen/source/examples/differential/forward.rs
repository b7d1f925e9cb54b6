//! The results of every operation on random shapes of every dtype.

use mithril_ir::attr::Attr;
use mithril_ir::dtype::DType;
use mithril_ir::evaluate::evaluate;
use mithril_ir::graph::Module;
use mithril_ir::op::{Class, Kind};
use mithril_ir::shape::Type;
use mithril_ir::tensor::Tensor;
use mithril_source::backends::Backend;
use serde_json::{Value, json};

use crate::cases::{Case, Random};
use crate::emitted::{arguments, results, write};

pub fn cases(framework: &'static Backend, count: usize) -> Vec<Value> {
    let mut all = Vec::new();
    for op in crate::operations() {
        let mut random = Random::named(op.name, 0);
        for at in 0..count {
            // Half of the cases are floats of the dtypes that models have.
            let dtype = [Some(DType::F32), None, Some(DType::F64), None][at % 4];
            let Some(case) = Case::find(op, &mut random, dtype) else {
                break;
            };
            if has_corner(&case, framework) {
                continue;
            }
            let inputs = inputs(&case, &mut random);
            for form in [case.clone(), case.symbolic()] {
                all.extend(one(framework, &case, &form, &inputs));
            }
        }
    }
    all
}

/// Whether it stands where frameworks may keep their own results: no elements in what has a note
/// or is taken whole, or elements that are hardly computed with. `corners` has these.
fn has_corner(case: &Case, framework: &'static Backend) -> bool {
    let noted = !case.op.note.is_empty() || case.op.kind == Kind::Composite;
    let empty = noted && case.operands.iter().any(is_empty);
    empty || has_rare_dtype(case, framework) || rounds_each_step(case)
}

/// Whether its sums are rounded to a half at each step, which goes by the framework's order.
pub fn rounds_each_step(case: &Case) -> bool {
    let half = |attr: &Attr| matches!(attr, Attr::DType(DType::F16 | DType::BF16));
    matches!(case.op.kind, Kind::Reduce | Kind::Contraction) && case.attrs.iter().any(half)
}

pub fn is_empty(ty: &Type) -> bool {
    ty.shape.dims.iter().any(|d| d.as_const() == Some(0))
}

/// Whether elements are only stored in a dtype of the case, or the framework hardly computes in it.
pub fn has_rare_dtype(case: &Case, framework: &'static Backend) -> bool {
    let result = case.function().map(|f| f.ty(f.results[0].value).dtype);
    let mut dtypes = case.operands.iter().map(|ty| ty.dtype).chain(result);
    dtypes.any(|d| is_rare(d, framework)) && case.op.kind != Kind::Random
}

pub fn is_rare(dtype: DType, framework: &'static Backend) -> bool {
    let lacking = matches!(dtype, DType::U16 | DType::U32 | DType::U64);
    dtype.is_storage_only() || (lacking && framework.name() == "torch")
}

/// Elements at which all frameworks agree: indices within range, no division by zero.
pub fn inputs(case: &Case, random: &mut Random) -> Vec<Tensor> {
    let indexed = matches!(case.op.kind, Kind::Index | Kind::Composite);
    let least = case.operands.first().map_or(1, |ty| {
        let dims = ty.shape.dims.iter().filter_map(|d| d.as_const());
        dims.min().unwrap_or(1).max(1)
    });
    let classes = case.op.attr_index("classes").and_then(|at| match case.attrs[at] {
        Attr::Int(classes) => Some(classes.max(1)),
        _ => None,
    });
    let least = classes.unwrap_or(least);
    let mut tensors = case.tensors(random);
    for (i, tensor) in tensors.iter_mut().enumerate() {
        let operand = case.op.operand(i);
        let index = indexed && operand.class == Class::Int && !operand.shared;
        if operand.class == Class::Key || (!index && case.op.note.is_empty()) {
            continue;
        }
        let values: Vec<f64> = (0..tensor.len())
            .map(|_| match tensor.dtype().is_float() {
                true => random.unit() * 2.0,
                false if index => random.range(0, least) as f64,
                false => random.range(1, 4) as f64,
            })
            .collect();
        *tensor = Tensor::from_f64s(tensor.dtype(), tensor.shape().to_vec(), &values);
    }
    tensors
}

/// The case in one of its forms, `fixed` being that whose dims are numbers. `None`: the evaluator
/// refuses it, too.
pub fn one(
    framework: &'static Backend,
    fixed: &Case,
    form: &Case,
    inputs: &[Tensor],
) -> Option<Value> {
    let (function, reference) = (form.function()?, fixed.function()?);
    let expected = evaluate(&Module::new(), &reference, inputs).ok()?;
    let mut case = json!({
        "name": fixed.op.name,
        "note": fixed.op.note,
        "form": format!("{form:?}"),
        "function": "forward",
        "arguments": arguments(&function, inputs),
        "expected": results(&function, &expected),
    });
    write(&mut case, framework, &Module::of(function));
    Some(case)
}
