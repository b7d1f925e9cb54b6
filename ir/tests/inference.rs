//! What inference says of every operation of the table is what the evaluator gives.

mod cases;

use std::panic::{AssertUnwindSafe, catch_unwind};

use cases::{Case, Random, dtypes, every, operations, result, size, tensor};
use mithril_ir::attr::Attr;
use mithril_ir::builder::Builder;
use mithril_ir::dtype::DType;
use mithril_ir::evaluate::{decompose, evaluate};
use mithril_ir::graph::{Module, Role};
use mithril_ir::op::{Meaning, expr};
use mithril_ir::shape::{Shape, Type};
use mithril_ir::tensor::Tensor;
use mithril_ir::verify::verify;

/// Runs `check` on many cases of every operation, and tells all that fail.
fn for_all(check: impl Fn(&Case, &mut Random) -> Result<(), String>) {
    let count = if every() { 250 } else { 50 };
    let mut failures = Vec::new();
    for op in operations() {
        let mut random = Random::named(op.name, 0);
        for _ in 0..count {
            let Some(case) = Case::find(op, &mut random, None) else {
                failures.push(format!("{}: no case was found", op.name));
                break;
            };
            let outcome = catch_unwind(AssertUnwindSafe(|| check(&case, &mut random)));
            let why = outcome.unwrap_or_else(|_| Err("a panic".to_string()));
            if let Err(why) = why {
                let text = case.function().map_or(String::new(), |f| f.to_string());
                failures.push(format!("{}: {why}\n{text}", op.name));
                break;
            }
        }
    }
    assert!(failures.is_empty(), "{} failures:\n\n{}", failures.len(), failures.join("\n"));
}

fn shape_of(ty: &Type) -> Option<Vec<i64>> {
    let dims = ty.shape.dims.iter();
    dims.map(|d| d.evaluate(&size)).collect()
}

fn same(declared: &Type, actual: &Tensor) -> Result<(), String> {
    let shape: Vec<i64> = actual.shape().iter().map(|&d| d as i64).collect();
    let fits = declared.dtype == actual.dtype() && shape_of(declared) == Some(shape);
    match fits {
        true => Ok(()),
        false => {
            Err(format!("inferred {declared}, evaluated {} {:?}", actual.dtype(), actual.shape()))
        }
    }
}

#[test]
fn inferred_types_match_results() {
    for_all(|case, random| {
        let f = case.function().ok_or("no function")?;
        let results =
            evaluate(&Module::new(), &f, &case.tensors(random)).map_err(|e| e.to_string())?;
        same(f.ty(f.results[0].value), &results[0])
    });
}

#[test]
fn symbolic_types_match_results() {
    for_all(|case, random| {
        let args = case.tensors(random);
        // Inference may need to know more than symbols say.
        let Some(f) = case.symbolic().function() else {
            return Ok(());
        };
        let results = evaluate(&Module::new(), &f, &args).map_err(|e| format!("{e}\n{f}"))?;
        verify(&Module::of(f.clone())).map_err(|e| format!("{e}\n{f}"))?;
        same(f.ty(f.results[0].value), &results[0]).map_err(|e| format!("{e}\n{f}"))
    });
}

#[test]
fn decompositions_have_the_declared_type() {
    for_all(|case, _| {
        if !matches!(case.op.meaning, Meaning::Decompose(_)) {
            return Ok(());
        }
        for case in [case.clone(), case.symbolic()] {
            let Some(f) = case.function() else { continue };
            let builder = Builder::new("decomposed");
            let values = case.arguments(&builder);
            let value = decompose(&builder, case.op, &values, &case.attrs)
                .map_err(|e| format!("{e}\n{f}"))?;
            let own = builder.finish(vec![result("output", value)]).map_err(|e| e.to_string())?;
            let (want, got) = (f.ty(f.results[0].value), own.ty(value));
            if want.dtype != got.dtype || shape_of(want) != shape_of(got) {
                return Err(format!("declared {want}, decomposed {got}"));
            }
            verify(&Module::of(own.clone())).map_err(|e| format!("{e}\n{own}"))?;
        }
        Ok(())
    });
}

#[test]
fn inference_never_panics() {
    let mut failures = Vec::new();
    for op in operations() {
        let mut random = Random::named(op.name, 1000);
        for _ in 0..300 {
            let mut case = Case::guess(op, &mut random, None);
            for attr in &mut case.attrs {
                if random.chance(20) {
                    wild(attr, &mut random);
                }
            }
            for ty in &mut case.operands {
                if random.chance(20) {
                    ty.shape.lead = Some("b".into());
                }
            }
            if catch_unwind(|| drop(case.function())).is_err() {
                failures.push(format!("{case:?}"));
                break;
            }
        }
    }
    assert!(failures.is_empty(), "{} panics:\n{}", failures.len(), failures.join("\n"));
}

/// Numbers that no one means.
fn wild(attr: &mut Attr, random: &mut Random) {
    let far = [i64::MIN, i64::MAX, -1, 1 << 40, 100];
    let number = far[random.below(far.len())];
    match attr {
        Attr::Int(v) => *v = number,
        Attr::Float(v) => *v = f64::NAN,
        Attr::Ints(v) => *v = v.iter().map(|_| number).chain([number]).collect(),
        Attr::Shape(s) => *s = Shape::new(s.dims.iter().map(|_| number.into())).into(),
        _ => {}
    }
}

/// What arithmetic is least sure of.
const FLOATS: [f64; 9] =
    [0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 5e-324, f64::MAX];
const INTS: [i64; 9] = [0, 1, -1, i64::MIN, i64::MAX, 64, -64, 2, 63];

/// The first operand runs through the special values slowly, the others fast: all pairs meet.
fn special(ty: &Type, i: usize, random: &mut Random) -> Tensor {
    let count = FLOATS.len() * INTS.len();
    let at = |k: usize| {
        if i == 0 { k / INTS.len() } else { k % INTS.len() }
    };
    if ty.dtype == DType::Bool {
        return tensor(ty, random);
    }
    if ty.dtype.is_float() {
        let values: Vec<f64> = (0..count).map(|k| FLOATS[at(k)]).collect();
        return Tensor::from_f64s(ty.dtype, vec![count], &values);
    }
    let values: Vec<i64> = (0..count).map(|k| INTS[at(k)]).collect();
    Tensor::from_i64s(ty.dtype, vec![count], &values)
}

#[test]
fn elementwise_operations_take_special_values() {
    let elementwise = operations().filter(|op| expr(*op).is_some());
    for op in elementwise {
        let mut random = Random::named(op.name, 0);
        let shared = op.operands.iter().find(|o| o.shared);
        for dtype in shared.map_or(vec![], |o| dtypes(o.class)) {
            let Some(mut case) = Case::find(op, &mut random, Some(dtype)) else {
                continue;
            };
            let whole = Shape::fixed(&[FLOATS.len() * INTS.len()]);
            for ty in &mut case.operands {
                ty.shape = whole.clone();
            }
            let operands = case.operands.iter().enumerate();
            let args: Vec<Tensor> = operands.map(|(i, ty)| special(ty, i, &mut random)).collect();
            let f = case.function().unwrap_or_else(|| panic!("{} of {dtype}", op.name));
            evaluate(&Module::new(), &f, &args).unwrap_or_else(|e| panic!("{}: {e}", op.name));
        }
    }
}

#[test]
fn roles_do_not_change_meaning() {
    let b = Builder::new("main");
    let x = b.arg("x", Role::Param, Type::scalar(DType::F32));
    let f = b.finish(vec![result("y", x)]).unwrap();
    let one = Tensor::scalar(DType::F32, 1.0);
    assert_eq!(evaluate(&Module::new(), &f, std::slice::from_ref(&one)).unwrap(), [one]);
}

/// Lengths of slices of a symbolic dim, in words and for small sizes.
#[test]
fn lengths_of_symbolic_slices() {
    let table: [(i64, Option<i64>, &str); 8] = [
        (0, Some(-1), "max(n - 1, 0)"),
        (1, None, "max(n - 1, 0)"),
        (1, Some(-1), "max(n - 2, 0)"),
        (0, None, "n"),
        (0, Some(2), "min(n, 2)"),
        (-2, None, "min(n, 2)"),
        (-3, Some(-1), "max(min(n, 3) - 1, 0)"),
        (-1, Some(-3), "0"),
    ];
    for (start, limit, expected) in table {
        let written = limit.map_or("?".to_string(), |l| l.to_string());
        let text = format!(
            "mithril 1\nfunc @main(%x: tensor<n x f32>) -> (y: tensor<({expected}) x f32>) {{\n  %y \
             = slice(%x) {{axes = [0], starts = [{start}], limits = [{written}]}}\n  return %y\n}}\n"
        );
        let module = mithril_ir::text::parse(&text).unwrap_or_else(|error| panic!("{error}"));
        let main = module.entry().unwrap();
        let length = &main.ty(main.results[0].value).shape.dims[0];
        assert_eq!(length.to_string(), expected, "x[{start}:{written}]");
        for n in 0..6 {
            let place = |at: i64| if at < 0 { (n + at).max(0) } else { at.min(n) };
            let right = (limit.map_or(n, place) - place(start)).max(0);
            assert_eq!(length.evaluate(&|_| Some(n)), Some(right), "x[{start}:{written}] of {n}");
        }
    }
}
