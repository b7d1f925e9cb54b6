//! Tests the gradients of every operation: compares generated C with the evaluator on the function
//! that `autodiff` produces.

use mithril_ir::attr::Attr;
use mithril_ir::dtype::DType;
use mithril_ir::evaluate::evaluate;
use mithril_ir::graph::{Module, Role};
use mithril_ir::tensor::Tensor;
use mithril_passes::autodiff::Autodiff;
use mithril_passes::context::PassContext;
use mithril_passes::pass::Pass;

use crate::cases::{Case, Random, operations};
use crate::compiled::{Check, expect_no_failures};

/// Returns a case in which all floats have this dtype.
fn find(op: mithril_ir::op::Op, dtype: DType, random: &mut Random) -> Option<Case> {
    let guess = |_| {
        let mut case = Case::guess(op, random, Some(dtype));
        for attr in &mut case.attrs {
            if let Attr::DType(own) = attr {
                *own = dtype;
            }
        }
        case
    };
    let smooth = |case: &Case| {
        let floats = || case.operands.iter().map(|ty| ty.dtype).filter(|d| d.is_float());
        let full = !case.operands.iter().any(|ty| ty.dtype.is_storage_only());
        let varies = || case.function().map(|f| f.ty(f.results[0].value).dtype);
        full && floats().count() > 0 && floats().all(|d| d == dtype) && varies() == Some(dtype)
    };
    (0..1500).map(guess).find(smooth)
}

/// Returns a module that computes the gradients of a case. Float operands are params.
fn differentiated(case: &Case) -> Option<Module> {
    let mut function = case.function()?;
    for at in 0..function.args.len() {
        if function.values[at].ty.dtype.is_float() {
            function.args[at].role = Role::Param;
        }
    }
    let module = Module::of(function);
    Autodiff::default().run(&module, &mut PassContext::new("autodiff")).ok()
}

fn check(fixed: &Case, form: &Case, random: &mut Random) -> Option<Check> {
    let (reference, module) = (differentiated(fixed)?, differentiated(form)?);
    let mut inputs = fixed.tensors(random);
    for tensor in inputs.iter_mut().filter(|tensor| tensor.dtype().is_float()) {
        let values: Vec<f64> = (0..tensor.len()).map(|_| 0.1 + random.unit() * 0.8).collect();
        *tensor = Tensor::from_f64s(tensor.dtype(), tensor.shape().to_vec(), &values);
    }
    let output = evaluate(&Module::new(), reference.entry()?, &inputs).ok()?.remove(0);
    let seed: Vec<f64> = (0..output.len()).map(|_| random.unit() * 2.0 - 1.0).collect();
    inputs.push(Tensor::from_f64s(output.dtype(), output.shape().to_vec(), &seed));
    let expected = evaluate(&reference, reference.get("gradients")?, &inputs).ok()?;
    let about = format!("gradient of {} {form:?}\nof {inputs:?}", fixed.op.name);
    Some(Check { about, module, function: "gradients".into(), inputs, expected, precise: None })
}

/// Checks for the gradients of every differentiable operation.
pub fn checks() -> Vec<Check> {
    let mut checks = Vec::new();
    for op in operations() {
        let mut random = Random::named(op.name, 9100);
        for dtype in [DType::F32, DType::F64] {
            let Some(case) = find(op, dtype, &mut random) else { continue };
            for form in [case.clone(), case.symbolic()] {
                checks.extend(check(&case, &form, &mut random));
            }
        }
    }
    checks
}

/// Like [`checks`], with dims of up to 33, some of which are symbols.
pub fn long(seed: u64) -> Vec<Check> {
    let mut checks = Vec::new();
    for op in operations() {
        let mut random = Random::named(op.name, seed.wrapping_mul(1_000_003) + 60_000);
        for dtype in [DType::F32, DType::F64] {
            let Some(case) = find(op, dtype, &mut random) else { continue };
            let Some(case) = case.resized(&mut random) else { continue };
            let form = case.opened(&mut random);
            checks.extend(check(&case, &form, &mut random));
        }
    }
    checks
}

#[test]
fn of_every_operation() {
    expect_no_failures(&checks());
}
