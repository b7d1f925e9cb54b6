//! Gradients of whole functions against central differences of the evaluator.

use mithril_ir::algebra::{Var, build};
use mithril_ir::builder::Builder;
use mithril_ir::dtype::DType;
use mithril_ir::evaluate::evaluate;
use mithril_ir::graph::{Function, Module, ResultDef, Role, Value};
use mithril_ir::op;
use mithril_ir::shape::{Shape, Type};
use mithril_ir::tensor::Tensor;
use mithril_passes::autodiff::Autodiff;
use mithril_passes::context::PassContext;
use mithril_passes::pass::Pass;
use smallvec::smallvec;

fn run(pass: Autodiff, module: &Module) -> mithril_ir::diagnostic::Result<Module> {
    pass.run(module, &mut PassContext::new("autodiff"))
}

fn f64s(dims: &[usize]) -> Type {
    Type::new(DType::F64, Shape::fixed(dims))
}

fn numbers(dims: &[usize], seed: usize) -> Tensor {
    let count: usize = dims.iter().product();
    let values: Vec<f64> =
        (0..count).map(|i| ((i * 7 + seed * 13 + 3) % 19) as f64 / 7.0 - 1.1).collect();
    Tensor::from_f64s(DType::F64, dims.to_vec(), &values)
}

fn function(
    name: &str,
    args: &[(&str, &[usize])],
    body: impl for<'a> Fn(&[Var<'a>]) -> Var<'a>,
) -> Function {
    let b = Builder::new(name);
    let values: Vec<Value> =
        args.iter().map(|(name, dims)| b.arg(*name, Role::Param, f64s(dims))).collect();
    let vars: Vec<Var> = values.iter().map(|v| b.var(*v)).collect();
    let value = body(&vars).value;
    let result = ResultDef { name: "output".into(), value, state: None };
    b.finish(vec![result]).unwrap()
}

/// The gradients of sum(output * seed) agree with central differences.
fn check(module: &Module) {
    let into = "derived".to_string();
    let differentiated = run(Autodiff { into, ..Autodiff::default() }, module).unwrap();
    let f = module.entry().unwrap();
    let inputs: Vec<Tensor> = f
        .arguments()
        .enumerate()
        .map(|(i, (v, _))| numbers(&f.ty(v).shape.as_fixed().unwrap(), i))
        .collect();
    let loss = |inputs: &[Tensor], seed: &Tensor| -> f64 {
        let out = evaluate(module, f, inputs).unwrap();
        out[0].to_f64s().iter().zip(seed.to_f64s()).map(|(a, b)| a * b).sum()
    };
    let out = evaluate(module, f, &inputs).unwrap();
    let seed = numbers(out[0].shape(), 5);
    let mut args = inputs.clone();
    args.push(seed.clone());
    let gradients = differentiated.get("derived").unwrap();
    let got = evaluate(&differentiated, gradients, &args).unwrap();
    for (i, gradient) in got.iter().enumerate() {
        assert_eq!(gradient.shape(), inputs[i].shape());
        let base = inputs[i].to_f64s();
        for (k, got) in gradient.to_f64s().into_iter().enumerate() {
            let nudged = |by: f64| {
                let mut values = base.clone();
                values[k] += by;
                let mut inputs = inputs.clone();
                inputs[i] = Tensor::from_f64s(DType::F64, inputs[i].shape().to_vec(), &values);
                loss(&inputs, &seed)
            };
            let expected = (nudged(1e-6) - nudged(-1e-6)) / 2e-6;
            assert!(
                (got - expected).abs() < 1e-6 * expected.abs().max(1.0),
                "argument {i}, element {k}: {got} against {expected}"
            );
        }
    }
}

#[test]
fn chain_with_broadcasting() {
    check(&Module::of(function("main", &[("x", &[4, 3]), ("w", &[3, 5]), ("b", &[5])], |v| {
        (v[0].matmul(v[1]) + v[2]).unary("tanh", &[]).unary("softmax", &[])
    })));
}

#[test]
fn values_read_twice_and_norms() {
    check(&Module::of(function("main", &[("x", &[2, 4]), ("w", &[4]), ("b", &[4])], |v| {
        let y = build(v[0].builder, "layer_norm", &[v[0], v[1], v[2]], &[]);
        y * v[0] + y.unary("gelu", &[]).sum(Some(&[0]), true)
    })));
}

#[test]
fn attention_and_batches() {
    check(&Module::of(function(
        "main",
        &[("q", &[2, 3, 4]), ("k", &[2, 3, 4]), ("v", &[2, 3, 2])],
        |v| build(v[0].builder, "attention", &[v[0], v[1], v[2]], &[("causal", true.into())]),
    )));
}

fn with_calls(custom: bool) -> Module {
    let layer = function("layer", &[("x", &[3, 3]), ("w", &[3, 3])], |v| {
        v[0].matmul(v[1]).unary("tanh", &[])
    });
    let vjp = {
        let b = Builder::new("vjp");
        let args: Vec<Value> =
            ["x", "w", "y", "g"].iter().map(|n| b.arg(*n, Role::Data, f64s(&[3, 3]))).collect();
        let v: Vec<Var> = args.iter().map(|v| b.var(*v)).collect();
        let g = v[3] * (v[2].full_like(1.0) - v[2] * v[2]);
        let (dx, dw) = (g.matmul(v[1].swap_last()), v[0].swap_last().matmul(g));
        let result =
            |name: &str, v: Var| ResultDef { name: name.into(), value: v.value, state: None };
        let results = vec![result("x", dx), result("w", dw)];
        b.finish(results).unwrap()
    };
    let b = Builder::new("main");
    let x = b.arg("x", Role::Param, f64s(&[3, 3]));
    let w = b.arg("w", Role::Param, f64s(&[3, 3]));
    let call = |x: Value| {
        let (op, attrs) = match custom {
            true => (
                op::get("custom_gradient"),
                smallvec![
                    mithril_ir::attr::Attr::Function("layer".into()),
                    mithril_ir::attr::Attr::Function("vjp".into()),
                ],
            ),
            false => (op::get("call"), smallvec![mithril_ir::attr::Attr::Function("layer".into())]),
        };
        b.call(op, &layer, attrs, &[x, w]).unwrap()[0]
    };
    let y = call(call(x));
    let value = (b.var(y) * b.var(x)).value;
    let main = b.finish(vec![ResultDef { name: "output".into(), value, state: None }]).unwrap();
    let mut module = Module::of(main);
    module.insert(layer);
    module.insert(vjp);
    module
}

#[test]
fn calls_share_forward_and_backward_functions() {
    let module = with_calls(false);
    check(&module);
    let differentiated = run(Autodiff::default(), &module).unwrap();
    let halves = differentiated.functions.keys().filter(|n| n.starts_with("layer_")).count();
    assert_eq!(halves, 2, "two calls of one layer share a forward and a backward half");
}

#[test]
fn custom_gradients_are_used() {
    check(&with_calls(true));
}

/// h' = tanh(x·w + h), stacking h'·x, from the first row to the last or back.
fn recurrence(reverse: bool) -> Module {
    let body = {
        let b = Builder::new("body");
        let h = b.arg("h", Role::Data, f64s(&[2]));
        let x = b.arg("x", Role::Data, f64s(&[2]));
        let w = b.arg("w", Role::Data, f64s(&[2, 2]));
        let next = (b.var(x).matmul(b.var(w)) + b.var(h)).unary("tanh", &[]);
        let out = next * b.var(x);
        let result =
            |name: &str, v: Var| ResultDef { name: name.into(), value: v.value, state: None };
        let results = vec![result("next", next), result("out", out)];
        b.finish(results).unwrap()
    };
    let b = Builder::new("main");
    let h = b.arg("h", Role::Param, f64s(&[2]));
    let xs = b.arg("xs", Role::Param, f64s(&[4, 2]));
    let w = b.arg("w", Role::Param, f64s(&[2, 2]));
    let attrs = op::scan_attrs(&body.name, 1, 1, reverse);
    let results = b.call(op::get("scan"), &body, attrs, &[h, xs, w]).unwrap();
    let value = (b.var(results[1]) * b.var(results[0])).value;
    let main = b.finish(vec![ResultDef { name: "output".into(), value, state: None }]).unwrap();
    let mut module = Module::of(main);
    module.insert(body);
    module
}

#[test]
fn scans_of_both_directions_have_gradients() {
    check(&recurrence(false));
    check(&recurrence(true));
}

#[test]
fn second_order() {
    let module = Module::of(function("main", &[("x", &[3]), ("y", &[3])], |v| {
        (v[0] * v[1]).unary("sin", &[]).sum(None, false)
    }));
    let once = run(Autodiff { wrt: vec!["x".into()], ..Autodiff::default() }, &module).unwrap();
    let gradients = once.get("gradients").unwrap();
    let only = Module::of((**gradients).clone());
    check(&only);
}

/// A result with an argument's name, differentiated twice in one module: `u v tanh''(x)`.
#[test]
fn second_order_in_one_module() {
    let mut main = function("main", &[("x", &[3])], |v| v[0].unary("tanh", &[]));
    main.results[0].name = "x".into();
    let wrt = || vec!["x".to_string()];
    let once = run(Autodiff { wrt: wrt(), ..Autodiff::default() }, &Module::of(main)).unwrap();
    let into = "second".to_string();
    let again = Autodiff { function: "gradients".into(), wrt: wrt(), into, ..Autodiff::default() };
    let twice = run(again, &once).unwrap();
    mithril_ir::verify::verify(&twice).unwrap();
    let inputs = [numbers(&[3], 1), numbers(&[3], 2), numbers(&[3], 3)];
    let got = evaluate(&twice, twice.get("second").unwrap(), &inputs).unwrap()[0].to_f64s();
    let [x, u, v] = inputs.map(|t| t.to_f64s());
    for i in 0..3 {
        let t = x[i].tanh();
        let expected = -2.0 * t * (1.0 - t * t) * u[i] * v[i];
        assert!((got[i] - expected).abs() < 1e-12, "{got:?}");
    }
}

#[test]
fn integers_are_refused() {
    let b = Builder::new("main");
    let i = b.arg("i", Role::Data, Type::new(DType::I64, Shape::fixed(&[2])));
    let f = b.finish(vec![ResultDef { name: "output".into(), value: i, state: None }]).unwrap();
    let error = run(Autodiff { wrt: vec!["i".into()], ..Autodiff::default() }, &Module::of(f));
    assert_eq!(error.unwrap_err().headline(), "`i` has no gradient: it is not a float");
}

#[test]
fn calls_without_results_stay() {
    let source = "mithril 1

func @main(%x: tensor<2 x f32> param) -> (output: tensor<2 x f32>) {
  call(%x) {callee = @nothing}
  return %x
}

func @nothing(%x: tensor<2 x f32>) -> () {
  return
}
";
    let module = mithril_ir::text::parse(source).unwrap();
    let differentiated = run(Autodiff::default(), &module).unwrap();
    mithril_ir::verify::verify(&differentiated).unwrap();
    assert_eq!(differentiated.get("gradients").unwrap().results.len(), 1);
}
