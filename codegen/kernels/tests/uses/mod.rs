//! Test cases for the operations of the op table, in which kernels are compared with the evaluator.

// Each test target uses only some of these functions.
#![allow(dead_code)]

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::graph::{Function, Module, Role};
use mithril_ir::op::{Class, Kind, Op};
use mithril_ir::scalar::round::max_finite;
use mithril_ir::shape::{Shape, Type};
use mithril_ir::tensor::Tensor;
use mithril_kernels::target::TARGETS;
use mithril_passes::driver::Driver;
use mithril_passes::pipeline::Pipeline;

use crate::cases::{Case, Random, size};

/// The maximum number of elements of a value. The evaluator is slow for more.
const MAX_ELEMENTS: usize = 40_000;

/// Whether sums are rounded to 16 bits at each step, so that the results depend on their order. The
/// logarithm of a sum of 16 bits may cancel.
pub fn rounds_each_step(case: &Case) -> bool {
    let half = |attr: &Attr| matches!(attr, Attr::DType(DType::F16 | DType::BF16));
    if case.op.name == "attention_logsumexp" {
        return case.operands.iter().any(|ty| is_half(ty.dtype));
    }
    matches!(case.op.kind, Kind::Reduce | Kind::Contraction) && case.attrs.iter().any(half)
}

/// Whether native code can compute in all dtypes of the case. Some dtypes are only for storage.
pub fn is_computed(case: &Case) -> bool {
    let stored = |attr: &Attr| match attr {
        Attr::DType(dtype) => dtype.is_storage_only(),
        Attr::Tensor(tensor) => tensor.dtype().is_storage_only(),
        _ => false,
    };
    !case.operands.iter().any(|ty| ty.dtype.is_storage_only()) && !case.attrs.iter().any(stored)
}

pub fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// Returns the case with f64 instead of 16-bit floats, or `None` if it has no 16-bit floats.
/// Kernels do not round intermediate values to 16 bits, but the evaluator does, so they are
/// compared with the evaluator in f64. Returns `None` for random operations, whose numbers depend
/// on the dtype.
pub fn widened(case: &Case) -> Option<Case> {
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

/// Returns a symbolic case at these sizes, or `None` if inference rejects it or it has too many
/// elements.
pub fn at(case: &Case, sizes: &[usize; 3]) -> Option<Case> {
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
    let small = function.values.iter().all(|v| work(&v.ty).is_some_and(|n| n <= MAX_ELEMENTS));
    small.then_some(case)
}

/// Converts a tensor to `dtype`. The largest finite number becomes that of `dtype`: a few
/// operations return it.
pub fn converted(tensor: &Tensor, dtype: DType) -> Tensor {
    if tensor.dtype() == dtype {
        return tensor.clone();
    }
    let mut numbers = tensor.to_f64s();
    if tensor.dtype().is_float() && dtype.is_float() {
        let [largest, own] = [tensor.dtype(), dtype].map(max_finite);
        let at_end = |x: &&mut f64| x.abs() == largest && own < largest;
        numbers.iter_mut().filter(at_end).for_each(|x| *x = own.copysign(*x));
    }
    Tensor::from_f64s(dtype, tensor.shape().to_vec(), &numbers)
}

/// Returns the test cases of an operation.
pub fn uses(op: Op, random: &mut Random) -> Vec<Case> {
    let dtypes = [Some(DType::F32), None, Some(DType::BF16), Some(DType::F64)];
    let found = dtypes.into_iter().filter_map(|dtype| Case::find(op, random, dtype));
    found.filter(|case| is_computed(case) && !rounds_each_step(case)).collect()
}

/// Returns a module that computes the gradients of a case. Float operands are params.
pub fn gradients(case: &Case) -> Option<Module> {
    let mut function = case.function()?;
    let varies = function.ty(function.results[0].value).dtype.is_float();
    for at in 0..function.args.len() {
        if function.values[at].ty.dtype.is_float() {
            function.args[at].role = Role::Param;
        }
    }
    let pipeline =
        Pipeline::parse("autodiff,inline{limit=all,repeated=all}", TARGETS).expect("a pipeline");
    let (module, _) = Driver::default().run(&pipeline, &Module::of(function)).ok()?;
    let found = module.get("gradients").filter(|_| varies)?;
    Some(Module::of(Function::clone(found)))
}

/// Whether the gradients of a case can be compared. Those of factorisations divide by differences of
/// eigenvalues or of singular values, which amplifies the rounding errors of single precision.
pub fn is_stable(case: &Case) -> bool {
    case.op.kind != Kind::Matrix || case.operands.iter().all(|ty| ty.dtype != DType::F32)
}

/// Moves numbers away from points where functions are not differentiable, and to where roots and
/// logarithms are smooth.
pub fn smooth(tensor: &Tensor, random: &mut Random) -> Tensor {
    let values: Vec<f64> = (0..tensor.len()).map(|_| 0.1 + random.unit() * 0.8).collect();
    Tensor::from_f64s(tensor.dtype(), tensor.shape().to_vec(), &values)
}
