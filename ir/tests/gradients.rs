//! Gradient rules and partials of every operation of the table, against central differences.

mod cases;

use cases::{Case, Random, operations, result};
use mithril_ir::algebra::{Rule, Var, expand};
use mithril_ir::attr::Attr;
use mithril_ir::builder::Builder;
use mithril_ir::dtype::DType;
use mithril_ir::evaluate::evaluate;
use mithril_ir::graph::{Function, Module, Role};
use mithril_ir::op::{self, Gradient};
use mithril_ir::scalar::expr::Expr;
use mithril_ir::tensor::Tensor;
use mithril_ir::verify::verify;

/// A function of the operands and the cotangent that gives the operands' cotangents: results are
/// named after the operands that have one. `None`: the gradient is another's business.
fn reverse(case: &Case) -> Option<Result<Function, String>> {
    let builder = Builder::new("reverse");
    let values = case.arguments(&builder);
    let ty = builder.type_of(case.op, &values, &case.attrs).ok()?;
    if !ty.dtype.is_float() {
        return None;
    }
    let g = builder.arg("g", Role::Data, ty.clone());
    let y = builder.push(case.op, &values, case.attrs.clone()).ok()?;
    let operands: Vec<Var> = values.iter().map(|v| builder.var(*v)).collect();
    let (y, g) = (builder.var(y), builder.var(g));
    let gradients: Vec<Option<Var>> = match (case.op.gradient, op::partials(case.op)) {
        (Gradient::Rule(rule), _) => rule(&Rule {
            builder: &builder,
            op: case.op,
            operands: operands.into(),
            attrs: case.attrs.clone(),
            ty,
            result: Some((y, g)),
        }),
        (Gradient::Partials(_) | Gradient::Derived, Some(partials)) => {
            let mut scope = operands.clone();
            scope.push(y);
            let partial = |expr: &Expr| expand(&builder, expr, &scope, &case.attrs, ty.dtype) * g;
            let full = partials.iter().map(partial).zip(&operands);
            full.map(|(d, x)| Some(d.sum_to(x.shape()))).collect()
        }
        // Compositions and calls are the business of the pass that differentiates.
        _ => return None,
    };
    let results = gradients
        .iter()
        .enumerate()
        .filter_map(|(i, d)| d.map(|d| result(&format!("x{i}"), d.value)))
        .collect();
    Some(builder.finish(results).map_err(|e| e.to_string()))
}

/// Each cotangent has the type of its operand, whatever dtypes and dims.
#[test]
fn cotangents_have_the_types_of_operands() {
    let mut failures = Vec::new();
    for op in operations() {
        let mut random = Random::named(op.name, 0);
        let cases = (0..120).filter_map(|_| Case::find(op, &mut random, None));
        let failure = cases
            .flat_map(|case| [case.clone(), case.symbolic()])
            .filter(|case| case.function().is_some())
            .find_map(|case| types_differ(&case).err());
        failures.extend(failure.map(|why| format!("{}: {why}", op.name)));
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

fn types_differ(case: &Case) -> Result<(), String> {
    let shared = case.operands.iter().zip(0..).filter(|(_, i)| case.op.operand(*i).shared);
    if shared.clone().any(|(ty, _)| !ty.dtype.is_float() || ty.dtype.is_storage_only()) {
        return Ok(());
    }
    let Some(f) = reverse(case) else {
        return Ok(());
    };
    let own = case.function().map_or(String::new(), |f| f.to_string());
    let f = f.map_err(|e| format!("{e}\n{own}"))?;
    verify(&Module::of(f.clone())).map_err(|e| format!("{e}\n{f}"))?;
    for r in &f.results {
        let i: usize = r.name[1..].parse().unwrap();
        let (want, got) = (&case.operands[i], f.ty(r.value));
        if want != got {
            return Err(format!("the cotangent of operand {i} is {got}, not {want}\n{own}"));
        }
    }
    Ok(())
}

#[test]
fn gradients_match_finite_differences() {
    let mut failures = Vec::new();
    for op in operations() {
        let mut random = Random::named(op.name, 7000);
        let mut checked = 0;
        for _ in 0..150 {
            let Some(mut case) = Case::find(op, &mut random, Some(DType::F64)) else {
                break;
            };
            for attr in &mut case.attrs {
                if let Attr::DType(dtype) = attr {
                    *dtype = DType::F64;
                }
            }
            if case.function().is_none() {
                continue;
            }
            let float = |ty: &mithril_ir::shape::Type| ty.dtype == DType::F64;
            if !case.operands.first().is_some_and(float) && !case.operands.get(1).is_some_and(float)
            {
                continue;
            }
            match reverse(&case) {
                None => break,
                Some(Err(why)) => failures.push(why),
                Some(Ok(f)) => {
                    checked += 1;
                    if let Err(why) = differences(&case, &f, &mut random) {
                        let own = case.function().map_or(String::new(), |f| f.to_string());
                        failures.push(format!("{}: {why}\n{own}", op.name));
                        break;
                    }
                }
            }
        }
        let own = matches!(op.gradient, Gradient::Derived | Gradient::Partials(_));
        let wanted =
            matches!(op.gradient, Gradient::Rule(_)) || (own && op::partials(op).is_some());
        if wanted && checked == 0 {
            failures.push(format!("{}: no case was checked", op.name));
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

/// Compares with `(L(x + h) - L(x - h)) / 2h` of `L = sum(g * op(x))`, element by element. Terms are
/// subtracted before they are summed: a large one of another element would hide the difference.
fn differences(case: &Case, reverse: &Function, random: &mut Random) -> Result<(), String> {
    let f = case.function().ok_or("no function")?;
    let module = Module::new();
    let run =
        |f: &Function, args: &[Tensor]| evaluate(&module, f, args).map_err(|e| format!("{e}\n{f}"));
    let args = case.tensors(random);
    let y = run(&f, &args)?.remove(0);
    let g: Vec<f64> = (0..y.len()).map(|_| random.unit() * 2.0 - 1.0).collect();
    let mut all = args.clone();
    all.push(Tensor::from_f64s(DType::F64, y.shape().to_vec(), &g));
    let gradients = run(reverse, &all)?;
    let terms = |args: &[Tensor]| -> Result<Vec<f64>, String> {
        let y = run(&f, args)?.remove(0);
        Ok(y.to_f64s().iter().zip(&g).map(|(a, b)| a * b).collect())
    };
    let less = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a - b).sum::<f64>();
    for (r, gradient) in reverse.results.iter().zip(&gradients) {
        let i: usize = r.name[1..].parse().unwrap();
        let own = args[i].to_f64s();
        if args[i].shape() != gradient.shape() {
            return Err(format!("operand {i} has a cotangent of shape {:?}", gradient.shape()));
        }
        for at in 0..own.len().min(6) {
            let mirrored = case.mirrored(args[i].shape(), at);
            let step = |h: f64| -> Result<Vec<f64>, String> {
                let mut moved = own.clone();
                moved[at] += h;
                if let Some(mirrored) = mirrored {
                    moved[mirrored] += h;
                }
                let mut args = args.clone();
                args[i] = Tensor::from_f64s(args[i].dtype(), args[i].shape().to_vec(), &moved);
                terms(&args)
            };
            let h = 1e-6;
            let (below, here, above) = (step(-h)?, step(0.0)?, step(h)?);
            let (want, got) = (less(&above, &below) / (2.0 * h), gradient.element_f64(at));
            let got = got + mirrored.map_or(0.0, |at| gradient.element_f64(at));
            // Where a one-sided slope differs from the other, x stands on a corner.
            let corner = (less(&above, &here) - less(&here, &below)).abs() > 1e-3 * h;
            if !corner
                && (want - got).abs() > 1e-6 * (1.0 + want.abs())
                && !(want.is_nan() && got.is_nan())
            {
                return Err(format!(
                    "operand {i}, element {at}: {got}, by differences {want}\n{args:?}"
                ));
            }
        }
    }
    Ok(())
}
