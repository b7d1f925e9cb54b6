//! `autodiff` of every operation of the table, composites too, against central differences of the
//! evaluator.

#[path = "../../ir/tests/cases/mod.rs"]
mod cases;

use cases::{Case, Random, operations};
use mithril_ir::attr::Attr;
use mithril_ir::dtype::DType;
use mithril_ir::evaluate::evaluate;
use mithril_ir::graph::{Function, Module, Role};
use mithril_ir::op::{Class, Kind, Op};
use mithril_ir::tensor::Tensor;
use mithril_passes::autodiff::Autodiff;
use mithril_passes::context::PassContext;
use mithril_passes::pass::Pass;

const STEP: f64 = 1e-6;
/// Of each operation.
const CASES: usize = 6;

/// A use of the operation on doubles that gives doubles.
fn find(op: Op, random: &mut Random) -> Option<Case> {
    let guess = |_| {
        let mut case = Case::guess(op, random, Some(DType::F64));
        for attr in &mut case.attrs {
            if let Attr::DType(dtype) = attr {
                *dtype = DType::F64;
            }
        }
        case
    };
    let doubles = |case: &Case| {
        let mut floats = case.operands.iter().map(|ty| ty.dtype).filter(|d| d.is_float());
        floats.clone().count() > 0 && floats.all(|d| d == DType::F64)
    };
    let double = |f: Function| f.ty(f.results[0].value).dtype == DType::F64;
    let mut guesses = (0..400).map(guess);
    guesses.find(|case| doubles(case) && case.function().is_some_and(double))
}

/// Numbers away from corners, half of the time from 0 to 1 where every function is defined, and
/// indices within every axis.
fn inputs(case: &Case, random: &mut Random) -> Vec<Tensor> {
    let mut tensors = case.tensors(random);
    let small = random.chance(50);
    for (i, tensor) in tensors.iter_mut().enumerate() {
        let class = case.op.operand(i).class;
        if class != Class::Key && tensor.dtype().is_int() {
            let zeros = vec![0.0; tensor.len()];
            *tensor = Tensor::from_f64s(tensor.dtype(), tensor.shape().to_vec(), &zeros);
        } else if small && tensor.dtype().is_float() {
            let values: Vec<f64> = tensor.to_f64s().iter().map(|x| 0.1 + 0.4 * x.abs()).collect();
            *tensor = Tensor::from_f64s(tensor.dtype(), tensor.shape().to_vec(), &values);
        }
    }
    tensors
}

/// The function, every float of which is a param, and a module with its gradients.
fn differentiated(case: &Case) -> Result<(Function, Module), String> {
    let mut function = case.function().ok_or("inference refuses it")?;
    for at in 0..function.args.len() {
        if function.values[at].ty.dtype.is_float() {
            function.args[at].role = Role::Param;
        }
    }
    let module = Module::of(function.clone());
    let module = Autodiff::default().run(&module, &mut PassContext::new("autodiff"));
    Ok((function, module.map_err(|error| error.to_string())?))
}

/// Compares the gradient of `sum(seed * op(x))`, a few elements of each operand.
fn check(case: &Case, random: &mut Random) -> Result<usize, String> {
    let (function, module) = differentiated(case)?;
    let run = |f: &Function, args: &[Tensor]| evaluate(&module, f, args).map_err(|e| e.to_string());
    let args = inputs(case, random);
    let output = run(&function, &args)?.remove(0);
    let seed: Vec<f64> = (0..output.len()).map(|_| random.unit() * 2.0 - 1.0).collect();
    let mut all = args.clone();
    all.push(Tensor::from_f64s(DType::F64, output.shape().to_vec(), &seed));
    let gradients = run(module.get("gradients").expect("the pass adds it"), &all)?;
    let floats = (0..args.len()).filter(|i| args[*i].dtype().is_float());
    let mut compared = 0;
    for (operand, gradient) in floats.zip(&gradients) {
        let own = args[operand].to_f64s();
        for at in 0..own.len().min(4) {
            let mirrored = case.mirrored(args[operand].shape(), at);
            let loss = |by: f64| -> Result<f64, String> {
                let (mut args, mut moved) = (args.clone(), own.clone());
                moved[at] += by;
                if let Some(mirrored) = mirrored {
                    moved[mirrored] += by;
                }
                let shape = args[operand].shape().to_vec();
                args[operand] = Tensor::from_f64s(DType::F64, shape, &moved);
                let output = run(&function, &args)?.remove(0);
                Ok(output.to_f64s().iter().zip(&seed).map(|(a, b)| a * b).sum())
            };
            let (below, here, above) = (loss(-STEP)?, loss(0.0)?, loss(STEP)?);
            let (want, got) = ((above - below) / (2.0 * STEP), gradient.element_f64(at));
            let got = got + mirrored.map_or(0.0, |at| gradient.element_f64(at));
            // Where the slopes of both sides differ it stands on a corner, or outside a domain.
            let bend = ((above - here) - (here - below)) / STEP;
            if bend.is_nan() || bend.abs() > 1e-3 * (1.0 + want.abs()) {
                continue;
            }
            if (want - got).abs() > 1e-5 * (1.0 + want.abs()) {
                return Err(format!("operand {operand}, element {at}: {got}, expected {want}"));
            }
            compared += 1;
        }
    }
    Ok(compared)
}

#[test]
fn gradients_match_finite_differences() {
    let (mut failures, mut operations_checked) = (Vec::new(), 0);
    // Barriers are there to differ from their slope.
    for op in operations().filter(|op| op.kind != Kind::Barrier) {
        let mut random = Random::named(op.name, 500);
        let (mut found, mut compared) = (0, 0);
        for _ in 0..CASES {
            let Some(case) = find(op, &mut random) else {
                break;
            };
            found += 1;
            match check(&case, &mut random) {
                Ok(count) => compared += count,
                Err(why) => failures.push(format!("{}: {why}\n{case:?}", op.name)),
            }
        }
        if found > 0 && compared == 0 {
            failures.push(format!("{}: nothing was compared", op.name));
        }
        operations_checked += usize::from(compared > 0);
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    assert!(operations_checked > 80, "{operations_checked} operations have gradients");
}
