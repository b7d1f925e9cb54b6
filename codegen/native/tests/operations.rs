//! Every operation of the table and its gradient as machine code of LLVM and Cranelift, compared
//! with the evaluator: uses that are drawn from what the table says of it, compiled once for any
//! size and run at sizes that are multiples of no vector and no tile.

#[path = "../../../ir/tests/cases/mod.rs"]
mod cases;
mod machine;
#[path = "../../kernels/tests/uses/mod.rs"]
mod uses;

use cases::{Case, Random, operations};
use machine::{Native, compare_amplified, is_drawn, is_whole};
use mithril_ir::dtype::DType;
use mithril_ir::evaluate::evaluate;
use mithril_ir::graph::{Module, Operation};
use mithril_ir::op::Class;
use mithril_ir::tensor::Tensor;
use mithril_ir::text;
use uses::{at, converted, gradients, is_computed, is_half, is_stable, smooth, uses, widened};

/// What stands for the sizes 2, 3 and 4 of a use.
const SIZES: [[usize; 3]; 5] = [[2, 3, 4], [7, 17, 33], [127, 1, 33], [33, 1000, 5], [0, 5, 1]];
/// Compares what native code of a module gives for arguments with what the evaluator makes of
/// `truth`, the same in dtypes of its own; how many of them the evaluator takes.
fn agree(about: &str, module: &Module, truth: &Module, arguments: &[Vec<Tensor>]) -> usize {
    let entry = truth.entry().expect("an entry");
    let source = text::print(module);
    let mut native = None;
    let mut count = 0;
    for tensors in arguments {
        let types = entry.arguments().map(|(value, _)| entry.ty(value).dtype);
        let own: Vec<Tensor> = tensors.iter().zip(types).map(|(t, ty)| converted(t, ty)).collect();
        // Sizes that do not go together, or with the attributes.
        let Ok(want) = evaluate(truth, entry, &own) else { continue };
        let native = native.get_or_insert_with(|| Native::new(&source));
        let cancelled = cancellation(truth, &own, &want);
        for (at, (want, got)) in want.iter().zip(&native.run(tensors)).enumerate() {
            println!("{about}, result {at}");
            let amplified = amplification(module, tensors).max(cancelled);
            compare_amplified(native, at, &converted(want, got.dtype()), got, amplified);
        }
        count += 1;
    }
    count
}

/// Matrices of the same shape whose singular values are about 2, 3, 4, …
fn spread(matrices: &Tensor) -> Tensor {
    let &[.., rows, columns] = matrices.shape() else { return matrices.clone() };
    let scale = 2.0 * rows.max(columns) as f64;
    let element = |(at, v): (usize, f64)| match at / columns % rows == at % columns {
        true => 2.0 + (at % columns) as f64 + v / 8.0,
        false => v / scale,
    };
    let elements: Vec<f64> = matrices.to_f64s().into_iter().enumerate().map(element).collect();
    Tensor::from_f64s(matrices.dtype(), matrices.shape().to_vec(), &elements)
}

/// How much the operation amplifies rounding errors: eigenvectors and singular vectors lose the ratio
/// of the largest value to the smallest difference of two values (Davis and Kahan, 1970). Of these
/// matrices, the values are about 2, 3, 4, …
fn amplification(module: &Module, tensors: &[Tensor]) -> f64 {
    let entry = module.entry().expect("an entry");
    let vectors = |op: &Operation| matches!(op.op.name, "svd" | "eigh");
    match (entry.ops.iter().any(vectors), tensors.first().map(Tensor::shape)) {
        (true, Some([.., rows, columns])) => (*rows.min(columns) + 1) as f64,
        _ => 0.0,
    }
}

/// How much a mean amplifies rounding errors: by the mean of the absolute values over the absolute
/// value of the mean (Higham, Accuracy and Stability of Numerical Algorithms, section 4.2).
fn cancellation(truth: &Module, tensors: &[Tensor], want: &[Tensor]) -> f64 {
    let entry = truth.entry().expect("an entry");
    if !entry.ops.iter().any(|op| matches!(op.op.name, "sum" | "mean" | "layer_norm_mean")) {
        return 0.0;
    }
    let absolute = |own: &Tensor| {
        let elements: Vec<f64> = own.to_f64s().iter().map(|x| x.abs()).collect();
        Tensor::from_f64s(own.dtype(), own.shape().to_vec(), &elements)
    };
    let absolutes: Vec<Tensor> = tensors.iter().map(absolute).collect();
    let Ok(sums) = evaluate(truth, entry, &absolutes) else { return 0.0 };
    let largest = |results: &[Tensor]| {
        let finite = results.iter().flat_map(Tensor::to_f64s).filter(|x| x.is_finite());
        finite.fold(1e-30, |a: f64, x| a.max(x.abs()))
    };
    f64::min(largest(&sums) / largest(want), 1e4)
}

#[test]
fn every_operation() {
    for (number, op) in operations().enumerate().filter(|(number, _)| is_drawn(*number)) {
        let mut random = Random(500 + number as u64);
        let mut count = 0;
        for case in uses(op, &mut random) {
            let form = case.symbolic();
            let Some(function) = form.function() else { continue };
            let cases = SIZES.iter().filter_map(|sizes| at(&form, sizes));
            let mut arguments: Vec<_> = cases.map(|case| case.tensors(&mut random)).collect();
            if op.name == "svd" {
                arguments.iter_mut().flatten().for_each(|matrix| *matrix = spread(matrix));
            }
            let module = Module::of(function);
            let truth = widened(&form).and_then(|wide| wide.function()).map(Module::of);
            let about = format!("{} {form:?}", op.name);
            count += agree(&about, &module, truth.as_ref().unwrap_or(&module), &arguments);
        }
        assert!(count > 0, "no use of `{}` was compared", op.name);
    }
}

#[test]
fn every_gradient() {
    let mut compared = 0;
    for (number, op) in operations().enumerate().filter(|(number, _)| is_drawn(*number)) {
        let mut random = Random(9500 + number as u64);
        for dtype in [DType::F32, DType::F64] {
            let case = Case::find(op, &mut random, Some(dtype)).filter(is_computed);
            let case = case.filter(is_stable);
            let Some(case) = case.filter(|case| !case.operands.iter().any(|ty| is_half(ty.dtype)))
            else {
                continue;
            };
            let form = case.symbolic();
            let Some(module) = gradients(&form) else { continue };
            let forward = Module::of(form.function().expect("a function"));
            let mut arguments = Vec::new();
            for case in SIZES.iter().filter_map(|sizes| at(&form, sizes)) {
                let mut tensors = case.tensors(&mut random);
                for (i, tensor) in tensors.iter_mut().enumerate() {
                    if tensor.dtype().is_float() && op.operand(i).class != Class::Key {
                        *tensor = smooth(tensor, &mut random);
                    }
                }
                let entry = forward.entry().expect("an entry");
                let Ok(output) = evaluate(&forward, entry, &tensors) else { continue };
                tensors.push(smooth(&output[0], &mut random));
                arguments.push(tensors);
            }
            let about = format!("gradient of {} {form:?}", op.name);
            compared += agree(&about, &module, &module, &arguments);
        }
    }
    let least = if is_whole() { 200 } else { 10 };
    assert!(compared > least, "{compared} gradients were compared");
}
