//! Ill-conditioned arguments: elementwise operations with their scalar expressions, which are to be
//! worked out in many digits, and single-precision sums with the evaluator's double-precision
//! results.

use mithril_ir::attr::Attr;
use mithril_ir::dtype::DType;
use mithril_ir::evaluate::evaluate;
use mithril_ir::graph::Module;
use mithril_ir::op::{self, Kind};
use mithril_ir::scalar::expr::{Expr, Node};
use mithril_ir::shape::{Shape, Type};
use mithril_ir::tensor::Tensor;
use mithril_source::backends::Backend;
use serde_json::{Value, json};

use crate::cases::{Case, Random};
use crate::emitted::{arguments, results, write};
use crate::forward::is_empty;

/// Magnitudes near zeros, poles, ends of domains, saturation and overflow.
const MAGNITUDES: &[f64] = &[
    1e-30,
    1e-12,
    3e-8,
    1e-5,
    0.01,
    0.5,
    0.999_999,
    0.999_999_999_999,
    1.0,
    1.000_000_000_001,
    1.000_001,
    std::f64::consts::FRAC_PI_2,
    2.5,
    3.0,
    std::f64::consts::PI,
    6.0,
    10.0,
    22.0,
    40.0,
    85.0,
    1e3,
    1e5,
    1e10,
    1e22,
    1e30,
];
/// Of these for each operand, where there are several.
const FEW: usize = 3;

pub fn cases(framework: &'static Backend) -> Vec<Value> {
    let mut all = Vec::new();
    for op in crate::operations() {
        let mut random = Random::named(op.name, 11_000);
        for dtype in [DType::F64, DType::F32] {
            let floats = |case: &Case| {
                let first = |ty: &Type| ty.dtype == dtype && !is_empty(ty);
                case.operands.iter().all(first) && !case.operands.is_empty()
            };
            let mut guesses = (0..2000).map(|_| Case::guess(op, &mut random, Some(dtype)));
            let Some(case) = guesses.find(|case| floats(case) && case.function().is_some()) else {
                continue;
            };
            match (op.kind, op::expr(op)) {
                (Kind::Elementwise, Some(expr)) => all.extend(scalar(framework, case, expr)),
                (Kind::Reduce | Kind::Contraction | Kind::Composite, _) if dtype == DType::F32 => {
                    all.extend(sums(framework, &case, &mut random));
                }
                _ => {}
            }
        }
    }
    all
}

/// Every combination of hard numbers, 0 without a sign: many digits know no other.
fn scalar(framework: &'static Backend, mut case: Case, expr: &Expr) -> Option<Value> {
    let dtype = case.operands[0].dtype;
    let step = if case.operands.len() > 1 { FEW } else { 1 };
    let numbers: Vec<f64> =
        [0.0].into_iter().chain(MAGNITUDES.iter().step_by(step).flat_map(|x| [*x, -x])).collect();
    let count = numbers.len().pow(case.operands.len() as u32);
    let inputs: Vec<Tensor> = (0..case.operands.len() as u32)
        .map(|i| {
            let at = |k: usize| numbers[k / numbers.len().pow(i) % numbers.len()];
            let values: Vec<f64> = (0..count).map(at).collect();
            Tensor::from_f64s(dtype, vec![count], &values)
        })
        .collect();
    case.operands.iter_mut().for_each(|ty| ty.shape = Shape::fixed(&[count]));
    let function = case.function()?;
    let result = function.ty(function.results[0].value).dtype;
    if result != dtype && result != DType::Bool {
        return None;
    }
    let expected = evaluate(&Module::new(), &function, &inputs).ok()?;
    let mut value = written(framework, &case, &inputs, &expected)?;
    value["expression"] = nodes(expr, &case);
    Some(value)
}

/// Numbers far from zero, and numbers of very different magnitudes.
fn sums(framework: &'static Backend, case: &Case, random: &mut Random) -> Vec<Value> {
    let mut wide = case.clone();
    wide.operands.iter_mut().for_each(|ty| ty.dtype = DType::F64);
    let sides: [fn(f64) -> f64; 2] = [|x| 1000.0 + x, |x| 60.0 * x - 30.0];
    let side = |side: fn(f64) -> f64| {
        let inputs: Vec<Tensor> = case
            .operands
            .iter()
            .map(|ty| {
                let shape = ty.shape.as_fixed()?;
                let values: Vec<f64> =
                    (0..shape.iter().product()).map(|_| side(random.unit())).collect();
                Some(Tensor::from_f64s(DType::F32, shape, &values))
            })
            .collect::<Option<_>>()?;
        let exact: Vec<Tensor> = inputs
            .iter()
            .map(|t| Tensor::from_f64s(DType::F64, t.shape().to_vec(), &t.to_f64s()))
            .collect();
        let expected = evaluate(&Module::new(), &wide.function()?, &exact).ok()?;
        let mut value = written(framework, case, &inputs, &expected)?;
        let own = evaluate(&Module::new(), &case.function()?, &inputs).ok()?;
        value["evaluator"] = results(&case.function()?, &own);
        Some(value)
    };
    sides.into_iter().filter_map(side).collect()
}

fn written(
    framework: &'static Backend,
    case: &Case,
    inputs: &[Tensor],
    expected: &[Tensor],
) -> Option<Value> {
    let function = case.function()?;
    let mut value = json!({
        "name": case.op.name,
        "note": case.op.note,
        "form": format!("{case:?}"),
        "function": "forward",
        "arguments": arguments(&function, inputs),
        "expected": results(&function, expected),
    });
    write(&mut value, framework, &Module::of(function));
    Some(value)
}

/// The expression's nodes in order: a number, an operand's name, or a primitive on earlier nodes.
fn nodes(expr: &Expr, case: &Case) -> Value {
    let node = |node: &Node| match *node {
        Node::Const(x) => json!(x.to_string()),
        Node::Var(i) => json!({ "operand": format!("x{i}") }),
        Node::Attr(i) => json!(number(&case.attrs[i as usize])),
        Node::Prim(prim, args) => json!([prim.name(), args[..prim.arity()].to_vec()]),
    };
    expr.nodes().iter().map(node).collect()
}

fn number(attr: &Attr) -> String {
    match attr {
        Attr::Float(x) => x.to_string(),
        Attr::Int(x) => x.to_string(),
        Attr::Bool(x) => u8::from(*x).to_string(),
        other => panic!("no number: {other:?}"),
    }
}
