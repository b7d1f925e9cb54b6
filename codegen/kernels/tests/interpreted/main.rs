//! Kernels of every operation, for every level of processor, run by the interpreter beside the
//! evaluator; and what the interpreter and the verifier find.

#[path = "../../../../ir/tests/cases/mod.rs"]
mod cases;
mod faults;
mod program;
mod text;
#[path = "../uses/mod.rs"]
mod uses;

use cases::{Random, operations};
use mithril_ir::dtype::DType;
use mithril_ir::evaluate::evaluate;
use mithril_ir::graph::Module;
use mithril_ir::tensor::Tensor;
use mithril_ir::text as mir;
use mithril_kernels::lower::Isa;
use program::{Interpreted, LEVELS, isa};
use uses::{at, converted, uses, widened};

/// What stands for the sizes 2, 3 and 4 of a use.
const SIZES: [[usize; 3]; 4] = [[2, 3, 4], [7, 17, 33], [0, 5, 1], [1, 70, 9]];

/// Random numbers that go by a name, not by its place in the table.
fn seeded(name: &str) -> Random {
    let mix = |seed: u64, byte: u8| seed.wrapping_mul(31).wrapping_add(u64::from(byte));
    Random(name.bytes().fold(700, mix))
}

/// Compares the kernels of a module with the evaluator's `truth`, the same in dtypes of its own;
/// how many arguments the evaluator takes.
fn agree(module: &Module, truth: &Module, isa: &Isa, arguments: &[Vec<Tensor>]) -> usize {
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

/// Compares a result with the evaluator's, by the size of its greatest number; of halves also by that
/// of the operands, as constants of a formula are halves, too.
fn compare(want: &Tensor, got: &Tensor, operands: &[Tensor]) {
    assert_eq!(want.shape(), got.shape());
    let half = got.dtype().is_float() && got.dtype().bits() == 16;
    let operands = operands.iter().filter(|t| half && t.dtype() == got.dtype());
    let operands: Vec<f64> = operands.flat_map(Tensor::to_f64s).collect();
    if !want.dtype().is_float() {
        return assert_eq!(want.to_i64s(), got.to_i64s());
    }
    let tolerance = match want.dtype().bits() {
        64 => 1e-12,
        32 => 1e-5,
        _ => 2e-2,
    };
    let (want, got) = (want.to_f64s(), got.to_f64s());
    let finite = want.iter().chain(&operands).filter(|x| x.is_finite());
    let largest = finite.fold(1e-30, |a: f64, x| a.max(x.abs()));
    for (i, (w, g)) in want.iter().zip(&got).enumerate() {
        let same = w == g || w.is_nan() && g.is_nan() || (w - g).abs() <= tolerance * largest;
        assert!(same, "element {i}: want {w}, got {g}\n{want:?}\n{got:?}");
    }
}

/// It read the least of the first none, from where nothing was written.
#[test]
fn the_first_none_of_a_line() {
    let source = "mithril 1\n\nfunc @f(%x: tensor<3 x n x f16>) -> (y: tensor<3 x 0 x i64>) {\n  \
                  %y = argtopk(%x) {axis = 1, k = 0}\n  return %y\n}\n";
    let module = mir::parse(source).expect("a module");
    let x = Tensor::from_f64s(DType::F16, vec![3, 17], &[1.0; 51]);
    for level in LEVELS {
        assert_eq!(agree(&module, &module, &isa(level), &[vec![x.clone()]]), 1);
    }
}

#[test]
fn every_operation_at_every_level() {
    for op in operations() {
        let mut random = seeded(op.name);
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
                count += agree(&module, truth, &isa(level), &arguments);
            }
        }
        assert!(count > 0, "no use of `{}` was compared", op.name);
    }
}
