//! Each invariant of the verifier: a valid module with one invariant broken, and the error.

use std::sync::Arc;

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::evaluate::evaluate;
use mithril_ir::external::TargetBody;
use mithril_ir::graph::{Bound, Constraint, Function, Module, Value};
use mithril_ir::op;
use mithril_ir::shape::{Guard, Shape, Type};
use mithril_ir::tensor::Tensor;
use mithril_ir::text::parse;
use mithril_ir::verify::verify;

const VALID: &str = "mithril 1
func @main(%x: tensor<n x 4 x f32>, %y: tensor<m x 4 x f32>, %c: tensor<4 x f32> state, %q: tensor<2 x i4>)
    -> (sum: tensor<n x 4 x f32>, next: tensor<4 x f32> state \"c\") {
  %0 = add(%x, %y) : tensor<n x 4 x f32> @ \"a.b\"
  %1 = softmax(%0) {axis = 1} : tensor<n x 4 x f32>
  %2, %3 = call(%1, %c) {callee = @both} : tensor<n x 4 x f32>, tensor<4 x f32>
  %4 = custom_gradient(%2, %3) {callee = @first, vjp = @gradient} : tensor<n x 4 x f32>
  %5 = call(%4) {callee = @unique} : tensor<(u + 1) x u x f32>
  %6 = cast(%q) {dtype = f32} : tensor<2 x f32>
  guard n == m
  return %4, %3
}
func @both(%x: tensor<*b x 4 x f32>, %y: tensor<4 x f32>) -> (x: tensor<*b x 4 x f32>, y: tensor<4 x f32>) {
  return %x, %y
}
func @first(%x: tensor<*b x f32>, %y: tensor<*c x f32>) -> (x: tensor<*b x f32>) {
  return %x
}
func @gradient(%x: tensor<*b x f32>, %y: tensor<*c x f32>, %r: tensor<*b x f32>, %g: tensor<*b x f32>)
    -> (dx: tensor<*b x f32>, dy: tensor<*c x f32>) {
  return %g, %y
}
extern func @unique(%x: tensor<*b x f32>) -> (output: tensor<(k + 1) x k x f32>)
";

fn valid() -> Module {
    parse(VALID).unwrap_or_else(|e| panic!("{}", e.render("valid.mir", VALID)))
}

/// The message about the module with one function changed.
#[track_caller]
fn broken(name: &str, change: impl FnOnce(&mut Function), message: &str) {
    let mut module = valid();
    let mut function = Function::clone(&module.functions[name]);
    change(&mut function);
    module.functions[name] = Arc::new(function);
    let text = module.to_string();
    let error = verify(&module).expect_err("the change breaks an invariant");
    assert!(error.to_string().contains(message), "{error}\n{text}");
}

#[test]
fn the_module_is_valid() {
    verify(&valid()).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn functions_are_stored_under_their_names() {
    broken("both", |f| f.name = "else".into(), "stored under a different name");
}

#[test]
fn arguments_are_first_and_names_unique() {
    broken("main", |f| f.values.truncate(3), "first values of a function must be its arguments");
    broken("main", |f| f.args[1].name = "x".into(), "two arguments are called `x`");
    broken("main", |f| f.results[1].name = "sum".into(), "two results are called `sum`");
}

#[test]
fn operations_are_sorted_by_data_flow() {
    broken("main", |f| f.ops.swap(0, 1), "must be the next values");
    broken("main", |f| f.ops[0].operands[0] = Value(7), "used before it is defined");
    broken("main", |f| f.ops[0].operands[0] = Value(99), "used before it is defined");
    broken("main", |f| f.ops[0].first = Value(99), "must be the next values");
    broken("main", |f| drop(f.values.pop()), "there are values that no operation defines");
    broken("main", |f| f.ops.truncate(2), "there are values that no operation defines");
    broken("main", |f| f.results[0].value = Value(99), "is not a value of the function");
}

#[test]
fn attributes_are_complete_and_have_the_declared_kind() {
    broken("main", |f| f.ops[1].attrs.clear(), "attributes of `softmax` are not complete");
    broken("main", |f| f.ops[1].attrs[0] = Attr::Bool(true), "has the wrong type");
    broken("main", |f| f.ops[1].attrs[0] = Attr::None, "got: nothing");
}

#[test]
fn declared_types_match_inferred_types() {
    let wrong = Type::new(DType::F32, Shape::fixed(&[3, 4]));
    broken("main", |f| f.values[4].ty = wrong.clone(), "block `a.b` in function `main`");
    broken("main", |f| f.values[4].ty = wrong, "differs from the inferred type");
    broken("main", |f| f.values[0].ty.dtype = DType::F64, "differ in dtype");
    let n = Dim::symbol("n");
    let taken = Type::new(DType::F32, Shape::new([&n + 1, n]));
    broken("main", |f| f.values[9].ty = taken, "differs from the inferred type");
}

#[test]
fn guards_make_dims_equal() {
    let mut module = valid();
    let mut main = Function::clone(&module.functions["main"]);
    main.values[4].ty.shape.dims[0] = Dim::symbol("m");
    module.functions["main"] = Arc::new(main.clone());
    // The type of the next operation follows from it, and differs only by the guard.
    verify(&module).unwrap_or_else(|e| panic!("{e}"));
    let Guard { left, right, .. } = main.guards.pop().unwrap();
    module.functions["main"] = Arc::new(main.clone());
    assert!(verify(&module).is_err());
    main.constraints.push(Constraint { left: left + 1, relation: Bound::Equal, right: right + 1 });
    module.functions["main"] = Arc::new(main);
    assert!(verify(&module).is_err(), "n + 1 == m + 1 is not solved for a symbol");
}

#[test]
fn callees_exist_and_match() {
    let rename = |f: &mut Function| f.ops[2].attrs[0] = Attr::Function("bth".into());
    broken("main", rename, "did you mean `both`?");
    broken(
        "main",
        |f| (f.ops[2].results, f.ops[3].results) = (1, 2),
        "`call` has the wrong number of results",
    );
    broken("main", |f| f.ops[2].operands.truncate(1), "got the wrong number of operands");
    let swap = |f: &mut Function| f.ops[3].attrs[1] = Attr::Function("first".into());
    broken("main", swap, "`first` does not have the signature of a gradient of `custom_gradient`");
    broken("gradient", |f| f.results.truncate(1), "returns the cotangents of float operands");
}

#[test]
fn recursion_is_an_error() {
    let call = |f: &mut Function| {
        let mut own = valid().functions["main"].ops[4].clone();
        own.attrs[0] = Attr::Function("main".into());
        f.ops.insert(0, own);
    };
    broken("both", call, "got: `main` → `both` → `main`");
}

#[test]
fn states_are_paired() {
    broken("main", |f| f.results[1].state = Some("d".into()), "which is not a state argument");
    broken("main", |f| f.results[0].state = Some("c".into()), "has two next values");
    broken("main", |f| f.results[1].value = Value(4), "differ in type");
}

#[test]
fn external_functions_have_no_operations() {
    let op = |f: &mut Function| f.ops.push(valid().functions["main"].ops[0].clone());
    broken("unique", op, "an external function has operations");
    let value = |f: &mut Function| f.values.push(f.values[0].clone());
    broken("unique", value, "values other than its arguments and results");
    let body = |target: &str, text: &str| TargetBody { target: target.into(), text: text.into() };
    let twice = |f: &mut Function| f.bodies = vec![body("jax", "a"), body("jax", "b")];
    broken("unique", twice, "two bodies for jax");
    broken("unique", |f| f.bodies = vec![body("c", "{z}")], "not an argument of `unique`");
    broken("main", |f| f.bodies = vec![body("c", "{z}")], "not an argument of `main`");
}

#[test]
fn external_functions_are_not_evaluated() {
    let module = parse(
        "mithril 1 extern func @f(%x: tensor<f32>) -> (y: tensor<f32>) { body jax \"return {x}\" }",
    )
    .unwrap();
    let x = Tensor::from_f64s(DType::F32, vec![], &[1.0]);
    let error = evaluate(&module, module.entry().unwrap(), &[x]).unwrap_err();
    assert_eq!(error.headline(), "`f` is external: the evaluator has no body for it");
    assert!(error.hint.is_some());
}

#[test]
fn storage_only_dtypes_are_not_computed_on() {
    for name in ["eq", "exp", "sum"] {
        let compute = |f: &mut Function| {
            let op = &mut f.ops[5];
            op.op = op::get(name);
            op.operands = match name {
                "eq" => [Value(3), Value(3)][..].into(),
                _ => [Value(3)][..].into(),
            };
            let defaults = op.op.attrs.iter().filter_map(|a| a.default.value());
            op.attrs = defaults.collect();
        };
        broken("main", compute, "does not take this dtype");
    }
}

#[test]
fn symbols_are_identifiers() {
    let odd = |f: &mut Function| f.values[0].ty.shape.dims[0] = Dim::symbol("batch size");
    broken("main", odd, "the symbol `batch size` is not an identifier");
}
