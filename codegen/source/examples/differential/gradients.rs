//! Gradients of every operation: what the evaluator gives for the function that `autodiff` makes,
//! with that function's source for NumPy, and the forward source for frameworks that differentiate.

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::Result;
use mithril_ir::dtype::DType;
use mithril_ir::evaluate::evaluate;
use mithril_ir::graph::{Function, Module, Role};
use mithril_ir::op::Op;
use mithril_ir::shape::Type;
use mithril_ir::tensor::Tensor;
use mithril_passes::autodiff::Autodiff;
use mithril_passes::context::PassContext;
use mithril_passes::pass::Pass;
use mithril_source::backends::{self, Backend};
use serde_json::{Value, json};

use crate::cases::{Case, Random};
use crate::emitted::{arguments, results, write};
use crate::forward::{inputs, is_empty, is_rare};

/// What to look for: a dtype, and what the operands are like.
type Wanted = (DType, fn(&Case) -> bool);

const EDGES: &[Wanted] = &[
    (DType::F64, |_| true),
    (DType::F32, |case| !case.operands.iter().any(is_empty)),
    (DType::F64, |case| case.operands.iter().any(is_empty)),
    (DType::F64, |case| case.operands.iter().all(|ty| ty.shape.dims.is_empty())),
    (DType::F64, |case| {
        let mut others = case.operands.windows(2).filter(|w| w[0].shape != w[1].shape);
        others.next().is_some() && !case.operands.iter().any(is_empty)
    }),
];

/// On numbers at which every operation is smooth.
pub fn cases(framework: &'static Backend) -> Vec<Value> {
    let mut all = Vec::new();
    for op in crate::operations() {
        let mut random = Random::named(op.name, 9000);
        for (dtype, fits) in EDGES {
            let Some(case) = find(op, *dtype, *fits, &mut random) else {
                continue;
            };
            let inputs = inputs(&case, &mut random);
            let mut forms = vec![case.clone()];
            // Frameworks differentiate what is there at run time; NumPy's source knows symbols.
            forms.extend((!framework.differentiates).then(|| case.symbolic()));
            for form in forms {
                all.extend(one(framework, &case, &form, &inputs, &mut random));
            }
        }
    }
    all
}

/// On whole numbers, many of them alike: where operations have ties and corners.
pub fn kinks(framework: &'static Backend) -> Vec<Value> {
    let mut all = Vec::new();
    for op in crate::operations() {
        let mut random = Random::named(op.name, 3000);
        let fits = |case: &Case| {
            case.operands.iter().any(|ty| ty.shape.dims.len() > 1)
                && !case.operands.iter().any(is_empty)
        };
        let Some(case) = find(op, DType::F64, fits, &mut random) else {
            continue;
        };
        let mut inputs = inputs(&case, &mut random);
        for tensor in inputs.iter_mut().filter(|t| t.dtype().is_float()) {
            let values: Vec<f64> = (0..tensor.len()).map(|_| random.range(-3, 4) as f64).collect();
            *tensor = Tensor::from_f64s(tensor.dtype(), tensor.shape().to_vec(), &values);
        }
        all.extend(one(framework, &case, &case, &inputs, &mut random));
    }
    all
}

/// A use that has a gradient, all of its floats of this dtype.
fn find(op: Op, dtype: DType, fits: impl Fn(&Case) -> bool, random: &mut Random) -> Option<Case> {
    let guess = |_| {
        let mut case = Case::guess(op, random, Some(dtype));
        for attr in &mut case.attrs {
            if let Attr::DType(own) = attr {
                *own = dtype;
            }
        }
        case
    };
    let is_smooth = |case: &Case| {
        let mut floats =
            case.operands.iter().map(|ty| ty.dtype).filter(|d| d.is_float()).peekable();
        let rare = |ty: &Type| is_rare(ty.dtype, backends::find("torch").expect("a backend"));
        let full = !case.operands.iter().any(rare);
        full && floats.peek().is_some() && floats.all(|d| d == dtype) && fits(case)
    };
    let varies =
        |case: &Case| case.function().is_some_and(|f| f.ty(f.results[0].value).dtype == dtype);
    (0..1500).map(guess).find(|case| is_smooth(case) && varies(case))
}

/// The case's function, its floats being params, and a module with its gradient beside it.
fn differentiated(case: &Case) -> Option<Result<(Function, Module)>> {
    let mut function = case.function()?;
    for at in 0..function.args.len() {
        if function.values[at].ty.dtype.is_float() {
            function.args[at].role = Role::Param;
        }
    }
    let module = Module::of(function.clone());
    let module = Autodiff::default().run(&module, &mut PassContext::new("autodiff"));
    Some(module.map(|module| (function, module)))
}

fn one(
    framework: &'static Backend,
    fixed: &Case,
    form: &Case,
    inputs: &[Tensor],
    random: &mut Random,
) -> Option<Value> {
    let mut case = json!({
        "name": fixed.op.name, "note": fixed.op.note, "form": format!("{form:?}"),
    });
    let (reference, function, module) = match (differentiated(fixed)?, differentiated(form)?) {
        (Ok((_, reference)), Ok((function, module))) => (reference, function, module),
        (Err(error), _) | (_, Err(error)) => {
            case["error"] = error.to_string().into();
            return Some(case);
        }
    };
    let output = evaluate(&Module::new(), reference.entry()?, inputs).ok()?.remove(0);
    let seed: Vec<f64> = (0..output.len()).map(|_| random.unit() * 2.0 - 1.0).collect();
    let seed = Tensor::from_f64s(output.dtype(), output.shape().to_vec(), &seed);
    let all: Vec<Tensor> = inputs.iter().chain([&seed]).cloned().collect();
    let (gradients, own) = (reference.get("gradients")?, module.get("gradients")?);
    let expected = match evaluate(&reference, gradients, &all) {
        Ok(expected) => results(gradients, &expected),
        Err(error) => {
            case["error"] = error.to_string().into();
            return Some(case);
        }
    };
    case["expected"] = expected;
    case["arguments"] = arguments(own, &all);
    let by_framework = framework.differentiates;
    case["function"] = if by_framework { "forward" } else { "gradients" }.into();
    write(&mut case, framework, &if by_framework { Module::of(function) } else { module });
    Some(case)
}
