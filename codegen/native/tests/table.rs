//! Every operation of the table and its gradient as machine code, LLVM's and Cranelift's, beside
//! the evaluator: uses that are drawn from what the table says of it, compiled once for any size
//! and run at sizes that are multiples of no vector and no tile.

#[path = "../../../ir/tests/cases/mod.rs"]
mod cases;
mod machine;

use cases::{Case, Random, operations, size};
use machine::{Native, compare, is_drawn, is_whole};
use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::evaluate::evaluate;
use mithril_ir::graph::{Function, Module, Role};
use mithril_ir::op::{Class, Kind, Op};
use mithril_ir::shape::{Shape, Type};
use mithril_ir::tensor::Tensor;
use mithril_ir::text;
use mithril_passes::driver::Driver;
use mithril_passes::pipeline::Pipeline;

/// What stands for the sizes 2, 3 and 4 of a use.
const SIZES: [[usize; 3]; 5] = [[2, 3, 4], [7, 17, 33], [127, 1, 33], [33, 1000, 5], [0, 5, 1]];
/// The evaluator takes its time for more.
const MOST_ELEMENTS: usize = 40_000;

/// Whether its sums are rounded to a half at each step, which goes by their order.
fn rounds_each_step(case: &Case) -> bool {
    let half = |attr: &Attr| matches!(attr, Attr::DType(DType::F16 | DType::BF16));
    matches!(case.op.kind, Kind::Reduce | Kind::Contraction) && case.attrs.iter().any(half)
}

/// Whether native code computes in all its dtypes: some are for storage alone.
fn is_computed(case: &Case) -> bool {
    let stored = |attr: &Attr| match attr {
        Attr::DType(dtype) => dtype.is_storage_only(),
        Attr::Tensor(tensor) => tensor.dtype().is_storage_only(),
        _ => false,
    };
    !case.operands.iter().any(|ty| ty.dtype.is_storage_only()) && !case.attrs.iter().any(stored)
}

fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// The use in double precision, if it has halves: a kernel keeps more than halves between its
/// steps, so that the evaluator, which rounds each, is not the measure of it. What is drawn goes
/// by the dtype.
fn widened(case: &Case) -> Option<Case> {
    if (0..case.operands.len()).any(|i| case.op.operand(i).class == Class::Key) {
        return None;
    }
    let wide = |dtype: DType| if is_half(dtype) { DType::F64 } else { dtype };
    let attr = |attr: &Attr| match attr {
        Attr::DType(dtype) => Attr::DType(wide(*dtype)),
        other => other.clone(),
    };
    let operands = case.operands.iter().map(|ty| Type::new(wide(ty.dtype), ty.shape.clone()));
    let attrs = case.attrs.iter().map(attr).collect();
    let own = Case { op: case.op, operands: operands.collect(), attrs };
    let differs = own.operands != case.operands || own.attrs != case.attrs;
    own.function().filter(|_| differs)?;
    Some(own)
}

/// A symbolic use at these sizes; none, where inference refuses it, or it is too much.
fn at(case: &Case, sizes: &[usize; 3]) -> Option<Case> {
    let dim = |dim: &Dim| {
        let known = dim.as_symbol().and_then(size).map(|n| sizes[n as usize - 2] as i64);
        known.map_or(dim.clone(), Dim::Const)
    };
    let fixed = |shape: &Shape| Shape { lead: None, dims: shape.dims.iter().map(dim).collect() };
    let attr = |attr: &Attr| match attr {
        Attr::Shape(shape) => fixed(shape).into(),
        other => other.clone(),
    };
    let operands = case.operands.iter().map(|ty| Type::new(ty.dtype, fixed(&ty.shape)));
    let attrs = case.attrs.iter().map(attr).collect();
    let case = Case { op: case.op, operands: operands.collect(), attrs };
    let function = case.function()?;
    let work = |ty: &Type| {
        let dims = ty.shape.as_fixed()?;
        Some(dims.iter().map(|&n| n.max(1)).product::<usize>())
    };
    let small = function.values.iter().all(|v| work(&v.ty).is_some_and(|n| n <= MOST_ELEMENTS));
    small.then_some(case)
}

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
        for (at, (want, got)) in want.iter().zip(&native.run(tensors)).enumerate() {
            println!("{about}, result {at}");
            compare(native, at, &converted(want, got.dtype()), got);
        }
        count += 1;
    }
    count
}

fn converted(tensor: &Tensor, dtype: DType) -> Tensor {
    if tensor.dtype() == dtype {
        return tensor.clone();
    }
    Tensor::from_f64s(dtype, tensor.shape().to_vec(), &tensor.to_f64s())
}

fn uses(op: Op, random: &mut Random) -> Vec<Case> {
    let dtypes = [Some(DType::F32), None, Some(DType::BF16), Some(DType::F64)];
    let found = dtypes.into_iter().filter_map(|dtype| Case::find(op, random, dtype));
    found.filter(|case| is_computed(case) && !rounds_each_step(case)).collect()
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
            let arguments: Vec<_> = cases.map(|case| case.tensors(&mut random)).collect();
            let module = Module::of(function);
            let truth = widened(&form).and_then(|wide| wide.function()).map(Module::of);
            let about = format!("{} {form:?}", op.name);
            count += agree(&about, &module, truth.as_ref().unwrap_or(&module), &arguments);
        }
        assert!(count > 0, "no use of `{}` was compared", op.name);
    }
}

/// The function of a use's gradients, its floats being params.
fn gradients(case: &Case) -> Option<Module> {
    let mut function = case.function()?;
    let varies = function.ty(function.results[0].value).dtype.is_float();
    for at in 0..function.args.len() {
        if function.values[at].ty.dtype.is_float() {
            function.args[at].role = Role::Param;
        }
    }
    let pipeline = Pipeline::parse("autodiff,inline{limit=all,repeated=all}").expect("a pipeline");
    let (module, _) = Driver::default().run(&pipeline, &Module::of(function)).ok()?;
    let found = module.get("gradients").filter(|_| varies)?;
    Some(Module::of(Function::clone(found)))
}

/// Between kinks, and where roots and logarithms are smooth.
fn smooth(tensor: &Tensor, random: &mut Random) -> Tensor {
    let values: Vec<f64> = (0..tensor.len()).map(|_| 0.1 + random.unit() * 0.8).collect();
    Tensor::from_f64s(tensor.dtype(), tensor.shape().to_vec(), &values)
}

#[test]
fn every_gradient() {
    let mut compared = 0;
    for (number, op) in operations().enumerate().filter(|(number, _)| is_drawn(*number)) {
        let mut random = Random(9500 + number as u64);
        for dtype in [DType::F32, DType::F64] {
            let case = Case::find(op, &mut random, Some(dtype)).filter(is_computed);
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
