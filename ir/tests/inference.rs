//! What inference says of every operation of the table is what the evaluator gives.

mod cases;

use std::panic::{AssertUnwindSafe, catch_unwind};

use cases::{Case, Random, dtypes, operations, result, size, tensor};
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
fn for_all(count: usize, check: impl Fn(&Case, &mut Random) -> Result<(), String>) {
    let mut failures = Vec::new();
    for (number, op) in operations().enumerate() {
        let mut random = Random(number as u64);
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
    assert!(
        failures.is_empty(),
        "{} failures:\n\n{}",
        failures.len(),
        failures.join("\n")
    );
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
        false => Err(format!(
            "inferred {declared}, evaluated {} {:?}",
            actual.dtype(),
            actual.shape()
        )),
    }
}

#[test]
fn types_are_those_of_results() {
    for_all(250, |case, random| {
        let f = case.function().ok_or("no function")?;
        let results =
            evaluate(&Module::new(), &f, &case.tensors(random)).map_err(|e| e.to_string())?;
        same(f.ty(f.results[0].value), &results[0])
    });
}

#[test]
fn symbolic_types_are_those_of_results() {
    for_all(250, |case, random| {
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
    for_all(250, |case, _| {
        if !matches!(case.op.meaning, Meaning::Decompose(_)) {
            return Ok(());
        }
        for case in [case.clone(), case.symbolic()] {
            let Some(f) = case.function() else { continue };
            let builder = Builder::new("decomposed");
            let values = case.arguments(&builder);
            let value = decompose(&builder, case.op, &values, &case.attrs)
                .map_err(|e| format!("{e}\n{f}"))?;
            let own = builder
                .finish(vec![result("output", value)])
                .map_err(|e| e.to_string())?;
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
    for (number, op) in operations().enumerate() {
        let mut random = Random(1000 + number as u64);
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
    assert!(
        failures.is_empty(),
        "{} panics:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

/// Numbers that no one means.
fn wild(attr: &mut Attr, random: &mut Random) {
    let far = [i64::MIN, i64::MAX, -1, 1 << 40, 100];
    let number = far[random.below(far.len())];
    match attr {
        Attr::Int(v) => *v = number,
        Attr::Float(v) => *v = f64::NAN,
        Attr::Ints(v) => *v = v.iter().map(|_| number).chain([number]).collect(),
        Attr::Shape(s) => s.dims.iter_mut().for_each(|d| *d = number.into()),
        _ => {}
    }
}

#[test]
fn elementwise_operations_take_special_values() {
    let floats = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        5e-324,
        f64::MAX,
    ];
    let ints = [0, 1, -1, i64::MIN, i64::MAX, 64, -64];
    for (number, op) in operations()
        .enumerate()
        .filter(|(_, op)| expr(*op).is_some())
    {
        let mut random = Random(number as u64);
        let shared = op
            .operands
            .iter()
            .find(|o| o.shared)
            .map_or(vec![], |o| dtypes(o.class));
        for dtype in shared {
            let Some(mut case) = Case::find(op, &mut random, Some(dtype)) else {
                continue;
            };
            let specials = if dtype.is_float() {
                floats.len()
            } else {
                ints.len()
            };
            let count = specials * specials;
            let ty = |ty: &Type| Type::new(ty.dtype, Shape::fixed(&[count]));
            case.operands = case.operands.iter().map(ty).collect();
            let args: Vec<Tensor> = case
                .operands
                .iter()
                .enumerate()
                .map(|(i, ty)| match ty.dtype {
                    DType::Bool => tensor(ty, &mut random),
                    d if d.is_float() => {
                        let at = |k: usize| {
                            floats[if i == 0 { k / specials } else { k % specials } % floats.len()]
                        };
                        Tensor::from_f64s(d, vec![count], &(0..count).map(at).collect::<Vec<_>>())
                    }
                    d => {
                        let at = |k: usize| {
                            ints[if i == 0 { k / specials } else { k % specials } % ints.len()]
                        };
                        Tensor::from_i64s(d, vec![count], &(0..count).map(at).collect::<Vec<_>>())
                    }
                })
                .collect();
            let f = case
                .function()
                .unwrap_or_else(|| panic!("{} of {dtype}", op.name));
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
    assert_eq!(
        evaluate(&Module::new(), &f, std::slice::from_ref(&one)).unwrap(),
        [one]
    );
}
