//! Runs kernels of every operation, for every processor level, in the interpreter, and compares
//! them with the evaluator. Also tests the interpreter and the verifier.

#[path = "../../../../ir/tests/cases/mod.rs"]
mod cases;
mod faults;
mod gathered;
mod program;
mod text;
#[path = "../uses/mod.rs"]
mod uses;

use cases::{Case, Random, operations};
use mithril_ir::dtype::DType;
use mithril_ir::evaluate::evaluate;
use mithril_ir::graph::Module;
use mithril_ir::op::{Class, Op};
use mithril_ir::tensor::Tensor;
use mithril_ir::text as mir;
use mithril_kernels::isa::Isa;
use program::{Interpreted, LEVELS, isa};
use uses::{at, converted, gradients, is_computed, smooth, uses, widened};

/// The sizes that replace the sizes 2, 3 and 4 of a case.
const SIZES: [[usize; 3]; 4] = [[2, 3, 4], [7, 17, 33], [0, 5, 1], [1, 70, 9]];

/// Compares the kernels of a module with the evaluator on `truth`, which is the same module,
/// possibly in wider dtypes. Returns the number of `arguments` that the evaluator accepts.
fn check_agreement(module: &Module, truth: &Module, isa: &Isa, arguments: &[Vec<Tensor>]) -> usize {
    let entry = truth.entry().expect("an entry");
    let mut made = None;
    let mut count = 0;
    for tensors in arguments {
        let types = entry.arguments().map(|(value, _)| entry.ty(value).dtype);
        let own: Vec<Tensor> = tensors.iter().zip(types).map(|(t, ty)| converted(t, ty)).collect();
        let Ok(want) = evaluate(truth, entry, &own) else { continue };
        let made = made.get_or_insert_with(|| Interpreted::new(module, isa));
        for (want, got) in want.iter().zip(&made.run(tensors)) {
            compare(&converted(want, got.dtype()), got, tensors);
        }
        count += 1;
    }
    count
}

/// Compares a result with the evaluator's. The tolerance is relative to the largest number of the
/// result, and at least the precision of the largest operand, because sums near zero lose the
/// digits of their terms. Formulas on 16-bit floats also have 16-bit constants.
fn compare(want: &Tensor, got: &Tensor, operands: &[Tensor]) {
    assert_eq!(want.shape(), got.shape());
    if !want.dtype().is_float() {
        return assert_eq!(want.to_i64s(), got.to_i64s());
    }
    let (tolerance, fine) = match want.dtype().bits() {
        64 => (1e-12, 1e-15),
        32 => (1e-5, 5e-7),
        _ => (2e-2, 2e-2),
    };
    let operands = operands.iter().filter(|operand| operand.dtype() == got.dtype());
    let operands: Vec<f64> = operands.flat_map(Tensor::to_f64s).collect();
    let (want, got) = (want.to_f64s(), got.to_f64s());
    let largest = |numbers: &[f64]| {
        let finite = numbers.iter().filter(|x| x.is_finite());
        finite.fold(1e-30, |a: f64, x| a.max(x.abs()))
    };
    let tolerated = (tolerance * largest(&want)).max(fine * largest(&operands));
    for (i, (w, g)) in want.iter().zip(&got).enumerate() {
        let same = w == g || w.is_nan() && g.is_nan() || (w - g).abs() <= tolerated;
        assert!(same, "element {i}: want {w}, got {g}\n{want:?}\n{got:?}");
    }
}

/// Regression: the kernel read the smallest of the first 0 elements, which had not been written.
#[test]
fn top_0_of_a_line() {
    let source = "mithril 1\n\nfunc @f(%x: tensor<3 x n x f16>) -> (y: tensor<3 x 0 x i64>) {\n  \
                  %y = argtopk(%x) {axis = 1, k = 0}\n  return %y\n}\n";
    let module = mir::parse(source).expect("a module");
    let x = Tensor::from_f64s(DType::F16, vec![3, 17], &[1.0; 51]);
    for level in LEVELS {
        assert_eq!(check_agreement(&module, &module, &isa(level), &[vec![x.clone()]]), 1);
    }
}

/// Regression: parts with unknown sizes were read although they were empty, with lanes along
/// another axis.
#[test]
fn empty_concatenated_parts() {
    let head = "mithril 1\n\nfunc @f(%x: tensor<a x 5 x f32>, %y: tensor<b x 5 x f32>) -> (z: ";
    for (ty, body) in [
        ("a + b", "concat(%x, %y) {axis = 0}"),
        ("a + 3", "pad(%x, %one) {low = [1, 0], high = [2, 0]}"),
    ] {
        let source = format!(
            "{head}tensor<({ty}) x 5 x f32>) {{\n  %one = constant() {{value = dense<tensor<f32>, 1.0>}}\n  %z = {body}\n  \
             return %z\n}}\n"
        );
        let module = mir::parse(&source).unwrap_or_else(|e| panic!("{e}\n{source}"));
        let array = |rows: usize| {
            let numbers: Vec<f64> = (0..rows * 5).map(|i| i as f64).collect();
            Tensor::from_f64s(DType::F32, vec![rows, 5], &numbers)
        };
        let sizes = [(0, 0), (0, 2), (2, 0), (3, 1)];
        let arguments = sizes.map(|(a, b)| vec![array(a), array(b)]);
        for level in LEVELS {
            assert_eq!(check_agreement(&module, &module, &isa(level), &arguments), 4);
        }
    }
}

#[test]
fn every_operation_at_every_level() {
    for op in operations() {
        let mut random = Random::named(op.name, 700);
        let mut count = 0;
        for case in uses(op, &mut random) {
            let form = case.symbolic();
            let Some(function) = form.function() else { continue };
            let cases = SIZES.iter().filter_map(|sizes| at(&form, sizes));
            let arguments: Vec<_> = cases.map(|case| case.tensors(&mut random)).collect();
            let module = Module::of(function);
            let truth = widened(&form).and_then(|wide| wide.function()).map(Module::of);
            for level in LEVELS {
                println!("{} {form:?} for {level}", op.name);
                let truth = truth.as_ref().unwrap_or(&module);
                count += check_agreement(&module, truth, &isa(level), &arguments);
            }
        }
        assert!(count > 0, "no use of `{}` was compared", op.name);
    }
}

/// Returns the arguments for the comparison of gradients: the operands, and the cotangent of the
/// output.
fn smooth_arguments(case: &Case, random: &mut Random) -> Option<Vec<Tensor>> {
    let forward = Module::of(case.function()?);
    let mut tensors = case.tensors(random);
    for (i, tensor) in tensors.iter_mut().enumerate() {
        // Operands of linear algebra are matrices that are far from singular already.
        let is_fixed = matches!(case.op.operand(i).class, Class::Key | Class::Wide);
        if tensor.dtype().is_float() && !is_fixed {
            *tensor = smooth(tensor, random);
        }
    }
    let output = evaluate(&forward, forward.entry()?, &tensors).ok()?;
    tensors.push(smooth(&output[0], random));
    Some(tensors)
}

#[test]
fn every_gradient_at_every_level() {
    let mut compared = 0;
    for op in operations() {
        let mut random = Random::named(op.name, 700);
        for dtype in [DType::F32, DType::F64] {
            let case = Case::find(op, &mut random, Some(dtype)).filter(is_computed);
            let Some(form) = case.map(|case| case.symbolic()) else { continue };
            let Some(module) = gradients(&form) else { continue };
            let cases = SIZES.iter().filter_map(|sizes| at(&form, sizes));
            let arguments = cases.filter_map(|case| smooth_arguments(&case, &mut random));
            let arguments: Vec<_> = arguments.collect();
            for level in LEVELS {
                println!("gradient of {} {form:?} for {level}", op.name);
                compared += check_agreement(&module, &module, &isa(level), &arguments);
            }
        }
    }
    assert!(compared > 1000, "{compared} gradients were compared");
}

/// Varies one size at a time over the extents. Sizes are tested as constants and as symbols.
#[test]
fn every_extent() {
    let all = cases::every();
    let extents = (0..=70).filter(|n| all || [0, 1, 7, 8, 9, 16, 17, 31, 33, 64, 70].contains(n));
    let extents: Vec<usize> = extents.collect();
    // Excludes gradients that take results of another operation, for which arbitrary numbers are
    // invalid.
    let takes_any = |op: &Op| op.operands.iter().all(|operand| operand.name != "logsumexp");
    for (number, op) in operations().filter(takes_any).enumerate() {
        let mut random = Random::named(op.name, 700);
        let Some(case) = uses(op, &mut random).into_iter().next() else { continue };
        let form = case.symbolic();
        let Some(open) = form.function().map(Module::of) else { continue };
        let truth = widened(&form).and_then(|wide| wide.function()).map(Module::of);
        let levels = LEVELS.iter().enumerate();
        // Tests one level of three, unless all tests run.
        for (_, level) in levels.filter(|(at, _)| all || (at + number).is_multiple_of(3)) {
            println!("{} {form:?} for {level}", op.name);
            let mut arguments = Vec::new();
            for (turn, &extent) in extents.iter().enumerate() {
                let mut sizes = [2, 3, 4];
                sizes[(turn + number) % 3] = extent;
                let Some(fixed) = at(&form, &sizes) else { continue };
                let tensors = fixed.tensors(&mut random);
                if let Some(function) = fixed.function().filter(|_| all || turn % 3 == 0) {
                    let wide = widened(&fixed).and_then(|wide| wide.function()).map(Module::of);
                    let module = Module::of(function);
                    let own = [tensors.clone()];
                    check_agreement(&module, wide.as_ref().unwrap_or(&module), &isa(level), &own);
                }
                arguments.push(tensors);
            }
            check_agreement(&open, truth.as_ref().unwrap_or(&open), &isa(level), &arguments);
        }
    }
}
