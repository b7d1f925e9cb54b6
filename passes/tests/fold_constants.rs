//! Elementwise operations on what is one number in all elements, of a shape that is not known, give
//! the bits that they give on each element.

#[path = "proofs/special.rs"]
mod special;

use mithril_ir::builder::Builder;
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::evaluate::evaluate;
use mithril_ir::graph::{Module, ResultDef, Role};
use mithril_ir::op::infer::complete_attrs;
use mithril_ir::op::{self, Kind, Op};
use mithril_ir::shape::{Shape, Type};
use mithril_ir::tensor::Tensor;
use mithril_passes::driver::Driver;
use mithril_passes::pipeline::Pipeline;
use special::SPECIAL;

/// The operation on these numbers in all elements of `[n x 2]`; `None` where it does not take them.
fn repeated(op: Op, numbers: &[Tensor]) -> Option<Module> {
    let attrs = complete_attrs(op, &[]).ok()?;
    let b = Builder::new("main");
    let shape = || Shape::new([Dim::symbol("n"), Dim::Const(2)]);
    b.arg("x", Role::Data, Type::new(DType::F32, shape()));
    let repeat = |number: &Tensor| b.var(b.constant(number.clone())).broadcast_to(shape()).value;
    let operands: Vec<_> = numbers.iter().map(repeat).collect();
    let value = b.push(op, &operands, attrs).ok()?;
    let result = ResultDef { name: "r".into(), value, state: None };
    Some(Module::of(b.finish(vec![result]).ok()?))
}

/// The bits of the result for `n` rows, with every NaN the same.
fn bits(module: &Module, n: usize) -> Vec<u64> {
    let x = Tensor::from_f64s(DType::F32, vec![n, 2], &vec![0.0; 2 * n]);
    let result = evaluate(module, module.entry().unwrap(), &[x]).unwrap().remove(0);
    let same = |at| match result.dtype().is_float() && result.element_f64(at).is_nan() {
        true => u64::MAX,
        false => result.element_bits(at),
    };
    (0..result.len()).map(same).collect()
}

#[test]
fn splats_are_folded_exactly() {
    let pass = Pipeline::parse("fold-constants", &[]).unwrap();
    let plain = |op: &Op| op.kind == Kind::Elementwise && complete_attrs(*op, &[]).is_ok();
    for op in op::table().filter(plain) {
        let mut folded = 0;
        for dtype in [DType::F64, DType::F32, DType::I64, DType::U8, DType::Bool] {
            for at in 0..SPECIAL.len() * SPECIAL.len() {
                let number = |i: usize| {
                    let choice = [at % SPECIAL.len(), at / SPECIAL.len(), at % 3];
                    let dtype = if op.name == "select" && i == 0 { DType::Bool } else { dtype };
                    Tensor::scalar(dtype, SPECIAL[choice[i % 3]])
                };
                let numbers: Vec<Tensor> = (0..op.operands.len()).map(number).collect();
                let Some(module) = repeated(op, &numbers) else { break };
                let (after, _) = Driver { verify: true }.run(&pass, &module).unwrap();
                let left = after.entry().unwrap().ops.iter();
                assert!(left.clone().all(|own| own.op.kind != Kind::Elementwise), "{after}");
                for n in [0, 3] {
                    assert_eq!(bits(&after, n), bits(&module, n), "{module}");
                }
                folded += 1;
            }
        }
        assert!(folded > 500, "`{}` is folded {folded} times", op.name);
    }
}
