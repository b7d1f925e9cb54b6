//! Every rule fires, and keeps the bits on special values.

#[path = "proofs/special.rs"]
mod special;

use std::path::Path;

use mithril_ir::builder::Builder;
use mithril_ir::dtype::DType;
use mithril_ir::evaluate::evaluate;
use mithril_ir::graph::{Module, ResultDef, Role, Value};
use mithril_ir::shape::{Shape, Type};
use mithril_ir::tensor::Tensor;
use mithril_ir::text;
use mithril_passes::driver::Driver;
use mithril_passes::pipeline::Pipeline;
use mithril_passes::rules::pattern::{Node, Pattern};
use mithril_passes::rules::{RULES, Rule};
use special::SPECIAL;

/// Rules that need attributes: the argument, the type of the result, and a body that makes it.
const EXAMPLES: &[(&str, &str, &str, &str)] = &[
    ("cast-same", "%x: tensor<14 x f32>", "tensor<14 x f32>", "%r = cast(%x) {dtype = f32}"),
    (
        "cast-cast",
        "%x: tensor<14 x i8>",
        "tensor<14 x f64>",
        "%a = cast(%x) {dtype = f16} %r = cast(%a) {dtype = f64}",
    ),
    (
        "cast-cast",
        "%x: tensor<14 x i32>",
        "tensor<14 x u8>",
        "%a = cast(%x) {dtype = i64} %r = cast(%a) {dtype = u8}",
    ),
    (
        "cast-cast",
        "%x: tensor<14 x bool>",
        "tensor<14 x i8>",
        "%a = cast(%x) {dtype = f32} %r = cast(%a) {dtype = i8}",
    ),
    (
        "cast-cast",
        "%x: tensor<14 x f32>",
        "tensor<14 x i8>",
        "%a = cast(%x) {dtype = f64} %r = cast(%a) {dtype = i8}",
    ),
    (
        "cast-cast",
        "%x: tensor<14 x u8>",
        "tensor<14 x bool>",
        "%a = cast(%x) {dtype = bf16} %r = cast(%a) {dtype = bool}",
    ),
    (
        "stop-stop",
        "%x: tensor<14 x f32>",
        "tensor<14 x f32>",
        "%a = stop_gradient(%x) %r = stop_gradient(%a)",
    ),
    (
        "reshape-same",
        "%x: tensor<n x 2 x f32>",
        "tensor<n x 2 x f32>",
        "%r = reshape(%x) {shape = [? x 2]}",
    ),
    ("expand-none", "%x: tensor<14 x f32>", "tensor<14 x f32>", "%r = expand_dims(%x) {axes = []}"),
    ("squeeze-none", "%x: tensor<14 x f32>", "tensor<14 x f32>", "%r = squeeze(%x) {axes = []}"),
    (
        "reshape-reshape",
        "%x: tensor<14 x f32>",
        "tensor<7 x 2 x f32>",
        "%a = reshape(%x) {shape = [2 x 7]} %r = reshape(%a) {shape = [7 x 2]}",
    ),
    (
        "reshape-expand",
        "%x: tensor<14 x f32>",
        "tensor<7 x 2 x f32>",
        "%a = expand_dims(%x) {axes = [0]} %r = reshape(%a) {shape = [7 x 2]}",
    ),
    (
        "reshape-squeeze",
        "%x: tensor<14 x 1 x f32>",
        "tensor<7 x 2 x f32>",
        "%a = squeeze(%x) {axes = [1]} %r = reshape(%a) {shape = [7 x 2]}",
    ),
    (
        "expand-reshape",
        "%x: tensor<14 x f32>",
        "tensor<7 x 2 x 1 x f32>",
        "%a = reshape(%x) {shape = [7 x 2]} %r = expand_dims(%a) {axes = [-1]}",
    ),
    (
        "expand-squeeze",
        "%x: tensor<14 x 1 x f32>",
        "tensor<1 x 14 x f32>",
        "%a = squeeze(%x) {axes = [1]} %r = expand_dims(%a) {axes = [0]}",
    ),
    (
        "expand-expand",
        "%x: tensor<14 x f32>",
        "tensor<1 x 14 x 1 x f32>",
        "%a = expand_dims(%x) {axes = [0]} %r = expand_dims(%a) {axes = [-1]}",
    ),
    (
        "squeeze-reshape",
        "%x: tensor<14 x f32>",
        "tensor<2 x 7 x f32>",
        "%a = reshape(%x) {shape = [2 x 1 x 7]} %r = squeeze(%a) {axes = [1]}",
    ),
    (
        "squeeze-expand",
        "%x: tensor<14 x 1 x f32>",
        "tensor<1 x 14 x f32>",
        "%a = expand_dims(%x) {axes = [0]} %r = squeeze(%a) {axes = [2]}",
    ),
    (
        "squeeze-squeeze",
        "%x: tensor<1 x 14 x 1 x f32>",
        "tensor<14 x f32>",
        "%a = squeeze(%x) {axes = [0]} %r = squeeze(%a) {axes = [1]}",
    ),
    (
        "transpose-none",
        "%x: tensor<7 x 2 x f32>",
        "tensor<7 x 2 x f32>",
        "%r = transpose(%x) {permutation = [0, -1]}",
    ),
    (
        "transpose-transpose",
        "%x: tensor<7 x 2 x 1 x f32>",
        "tensor<1 x 2 x 7 x f32>",
        "%a = transpose(%x) {permutation = [2, 0, 1]} %r = transpose(%a) {permutation = [0, 2, 1]}",
    ),
    (
        "swap-transpose",
        "%x: tensor<7 x 2 x 1 x f32>",
        "tensor<1 x 2 x 7 x f32>",
        "%a = transpose(%x) {permutation = [2, 0, 1]} %r = swap_axes(%a) {first = -1, second = 1}",
    ),
    (
        "transpose-swap",
        "%x: tensor<7 x 2 x 1 x f32>",
        "tensor<1 x 7 x 2 x f32>",
        "%a = swap_axes(%x) {first = 0, second = 2} %r = transpose(%a) {permutation = [0, 2, 1]}",
    ),
    (
        "swap-swap",
        "%x: tensor<7 x 2 x f32>",
        "tensor<7 x 2 x f32>",
        "%a = swap_axes(%x) {first = 0, second = 1} %r = swap_axes(%a) {first = -1, second = -2}",
    ),
    ("reverse-none", "%x: tensor<14 x f32>", "tensor<14 x f32>", "%r = reverse(%x) {axes = []}"),
    (
        "reverse-reverse",
        "%x: tensor<7 x 2 x f32>",
        "tensor<7 x 2 x f32>",
        "%a = reverse(%x) {axes = [0, 1]} %r = reverse(%a) {axes = [-1, 0]}",
    ),
    (
        "slice-all",
        "%x: tensor<7 x n x f32>",
        "tensor<7 x n x f32>",
        "%r = slice(%x) {axes = [0, 1], starts = [0 x 0], limits = [7 x ?]}",
    ),
    ("concat-one", "%x: tensor<14 x f32>", "tensor<14 x f32>", "%r = concat(%x) {axis = 0}"),
    (
        "slice-slice",
        "%x: tensor<14 x f32>",
        "tensor<3 x f32>",
        "%a = slice(%x) {axes = [0], starts = [3], limits = [?], steps = [3]} %r = slice(%a) {axes = [0], starts = [-3], limits = [?]}",
    ),
    (
        "slice-concat",
        "%x: tensor<14 x f32>",
        "tensor<12 x f32>",
        "%a = concat(%x, %x) {axis = 0} %r = slice(%a) {axes = [0], starts = [15], limits = [27]}",
    ),
    (
        "concat-slices",
        "%x: tensor<14 x f32>",
        "tensor<11 x f32>",
        "%a = slice(%x) {axes = [0], starts = [1], limits = [6]} %b = slice(%x) {axes = [0], starts = [6], limits = [12]} %r = concat(%a, %b) {axis = 0}",
    ),
    (
        "broadcast-same",
        "%x: tensor<7 x 2 x f32>",
        "tensor<7 x 2 x f32>",
        "%r = broadcast_in_dim(%x) {shape = [7 x 2], axes = [0, 1]}",
    ),
    (
        "broadcast-broadcast",
        "%x: tensor<14 x f32>",
        "tensor<3 x 2 x 14 x f32>",
        "%a = broadcast_in_dim(%x) {shape = [2 x 14]} %r = broadcast_in_dim(%a) {shape = [3 x 2 x 14]}",
    ),
    ("sum-to-same", "%x: tensor<14 x f32>", "tensor<14 x f32>", "%r = sum_to(%x) {shape = [14]}"),
    ("sum-none", "%x: tensor<14 x f32>", "tensor<14 x f32>", "%r = sum(%x) {axes = []}"),
    (
        "prod-none",
        "%x: tensor<14 x f16>",
        "tensor<14 x f16>",
        "%r = prod(%x) {axes = [], keepdim = true}",
    ),
    ("max-none", "%x: tensor<14 x f32>", "tensor<14 x f32>", "%r = max(%x) {axes = []}"),
    ("min-none", "%x: tensor<14 x i8>", "tensor<14 x i8>", "%r = min(%x) {axes = []}"),
    ("any-none", "%x: tensor<14 x bool>", "tensor<14 x bool>", "%r = any(%x) {axes = []}"),
    ("all-none", "%x: tensor<14 x bool>", "tensor<14 x bool>", "%r = all(%x) {axes = []}"),
    ("mean-none", "%x: tensor<14 x f32>", "tensor<14 x f32>", "%r = mean(%x) {axes = []}"),
    ("dim-known", "%x: tensor<n x 7 x f32>", "tensor<i64>", "%r = dim(%x) {axis = 1}"),
    ("count-known", "%x: tensor<2 x 7 x f32>", "tensor<i64>", "%r = element_count(%x)"),
];

fn canonical(module: &Module) -> (Module, Vec<&'static str>) {
    let pipeline = Pipeline::parse("canonicalize", &[]).unwrap();
    let (out, report) = Driver { verify: true }.run(&pipeline, module).unwrap();
    (out, report.rewrites.iter().map(|r| r.rule).collect())
}

fn results(module: &Module, args: &[Tensor]) -> Vec<Tensor> {
    let results = evaluate(module, module.entry().unwrap(), args).unwrap();
    // One NaN is as good as another.
    let plain = |t: &Tensor| match t.dtype().is_float() {
        true => Tensor::from_f64s(t.dtype(), t.shape().to_vec(), &t.to_f64s()),
        false => t.clone(),
    };
    results.iter().map(plain).collect()
}

/// The rules that fire on the module, none of which may change a bit.
fn fired(module: &Module, args: &[Tensor]) -> Vec<&'static str> {
    let (out, rules) = canonical(module);
    assert_eq!(results(&out, args), results(module, args), "{module}{out}");
    rules
}

#[test]
fn rules_with_attributes_fire() {
    for (rule, args, result, body) in EXAMPLES {
        let source = format!(
            "mithril 1\nfunc @main({args}) -> (r: {result}) {{\n{}\nreturn %r\n}}",
            body.replace(" %r", "\n%r")
        );
        let module =
            text::parse(&source).unwrap_or_else(|e| panic!("{rule}: {}", e.render("", &source)));
        let ty = module.entry().unwrap().ty(Value(0)).clone();
        let shape: Vec<usize> =
            ty.shape.dims.iter().map(|d| d.evaluate(&|_| Some(7)).unwrap() as usize).collect();
        let count: usize = shape.iter().product();
        let values: Vec<f64> = SPECIAL.iter().copied().cycle().take(count).collect();
        let rules = fired(&module, &[Tensor::from_f64s(ty.dtype, shape, &values)]);
        assert!(rules.contains(rule), "{rule} does not fire: {rules:?}");
    }
}

#[test]
fn every_other_rule_fires_and_keeps_the_bits() {
    let by_example = |rule: &&Rule| EXAMPLES.iter().any(|(name, ..)| *name == rule.name);
    let dtypes =
        [DType::F32, DType::F64, DType::F16, DType::I32, DType::U8, DType::I64, DType::Bool];
    for rule in RULES.iter().filter(|rule| rule.always && !by_example(rule)) {
        let fires = dtypes.iter().filter(|dtype| {
            let Some((module, args)) = instance(rule, **dtype) else {
                return false;
            };
            fired(&module, &args).contains(&rule.name)
        });
        assert!(fires.count() > 0, "{} never fires", rule.name);
    }
}

#[test]
fn names_are_unique() {
    let mut names: Vec<&str> = RULES.iter().map(|r| r.name).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
}

/// Cases of how a rule is used, for people to read, lie where the text of passes is tested.
#[test]
fn every_rule_fires_in_a_lit_test() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/lit/passes/rules");
    let files = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
    let text: String = files.map(|file| std::fs::read_to_string(file).unwrap()).collect();
    let checked = |rule: &&Rule| {
        let line = |pass: &str| format!("// LOG: {pass}: {} @", rule.name);
        ["canonicalize", "eqsat"].iter().any(|pass| text.lines().any(|own| own == line(pass)))
    };
    let missing: Vec<&str> = RULES.iter().filter(|r| !checked(r)).map(|r| r.name).collect();
    assert!(missing.is_empty(), "tests/lit/passes/rules has no case of {}", missing.join(", "));
}

/// The rule's left side on all pairs of special values; `None` where it does not take the dtype.
fn instance(rule: &Rule, dtype: DType) -> Option<(Module, Vec<Tensor>)> {
    let count = SPECIAL.len() * SPECIAL.len();
    let b = Builder::new("main");
    let mut args = Vec::new();
    let mut tensors = Vec::new();
    for (i, dtype) in [dtype, dtype, DType::Bool].into_iter().enumerate() {
        let ty = Type::new(dtype, Shape::fixed(&[count]));
        args.push(b.arg(format!("x{i}"), Role::Data, ty));
        let value = |k: usize| match i {
            0 => SPECIAL[k % SPECIAL.len()],
            1 => SPECIAL[k / SPECIAL.len()],
            _ => (k % 3) as f64,
        };
        let values: Vec<f64> = (0..count).map(value).collect();
        tensors.push(Tensor::from_f64s(dtype, vec![count], &values));
    }
    let value = term(&b, rule.left, &args, dtype)?;
    let result = ResultDef { name: "r".into(), value, state: None };
    Some((Module::of(b.finish(vec![result]).unwrap()), tensors))
}

fn term(b: &Builder, pattern: Pattern, args: &[Value], dtype: DType) -> Option<Value> {
    match pattern.node() {
        Node::Var(i) => Some(args[*i]),
        Node::Number(x) => {
            let number = Tensor::scalar(dtype, *x);
            (number.element_f64(0).to_bits() == x.to_bits()).then(|| b.constant(number))
        }
        Node::Op(op, operands, _) => {
            let condition = op.0.name == "select";
            let values = operands.iter().enumerate().map(|(i, operand)| match operand.node() {
                Node::Number(_) if condition && i == 0 => term(b, *operand, args, DType::Bool),
                _ => term(b, *operand, args, dtype),
            });
            let values: Option<Vec<Value>> = values.collect();
            b.op(op.0.name, &values?, &[]).ok()
        }
        _ => None,
    }
}
