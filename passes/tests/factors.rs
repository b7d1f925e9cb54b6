//! The factors of every primitive operation, checked with the evaluator: parts of a parallel factor
//! do not depend on other parts, and the terms of a reduced one combine to the result.

#[path = "../../ir/tests/cases/mod.rs"]
mod cases;

use cases::{Case, Random, operations};
use mithril_ir::evaluate::evaluate;
use mithril_ir::graph::{Function, Module, Operation};
use mithril_ir::op::access::Fold;
use mithril_ir::op::{Class, Meaning, Op};
use mithril_ir::tensor::Tensor;
use mithril_passes::factors::{Division, Factors};
use mithril_passes::shard::attention::is_attention;

/// The number of uses of each operation.
const USES: usize = 60;

fn has_factors(op: Op) -> bool {
    let is_primitive = !matches!(op.meaning, Meaning::Decompose(_) | Meaning::Call(_));
    is_primitive || is_attention(op)
}

fn run(function: &Function, tensors: &[Tensor]) -> Option<Vec<Tensor>> {
    evaluate(&Module::of(function.clone()), function, tensors).ok()
}

/// A factor that is divided into two parts, and a tensor some of whose axes have it.
struct Cut<'f> {
    factors: &'f Factors,
    factor: usize,
}

impl Cut<'_> {
    /// For each element of a tensor, the part that it is in. `None`: no axis has the factor.
    fn parts(&self, axes: &[usize], shape: &[usize]) -> Option<Vec<usize>> {
        let axis = axes.iter().position(|own| *own == self.factor)?;
        let inner: usize = shape[axis + 1..].iter().product();
        let count: usize = shape.iter().product();
        let half = shape[axis] / 2;
        Some((0..count).map(|at| usize::from(at / inner % shape[axis] >= half)).collect())
    }

    /// The size of the factor, if it is even and more than 0.
    fn is_divided(&self) -> bool {
        let size = self.factors.factors[self.factor].size.as_const();
        size.is_some_and(|size| size > 0 && size % 2 == 0)
    }
}

fn changed(tensor: &Tensor, parts: &[usize], keep: usize, other: &[f64]) -> Tensor {
    let own = tensor.to_f64s();
    let values = own.iter().zip(other).zip(parts);
    let values: Vec<f64> =
        values.map(|((own, other), part)| if *part == keep { *own } else { *other }).collect();
    Tensor::from_f64s(tensor.dtype(), tensor.shape().to_vec(), &values)
}

/// Checks that part `keep` of the results does not depend on the other part of the operands.
fn check_parallel(case: &Case, function: &Function, cut: &Cut, random: &mut Random) -> bool {
    let tensors = case.tensors(random);
    let others = case.tensors(random);
    let Some(whole) = run(function, &tensors) else { return false };
    for keep in 0..2 {
        let own = tensors.iter().zip(&others).zip(&cut.factors.operands);
        let own: Vec<Tensor> = own
            .map(|((tensor, other), axes)| match cut.parts(axes, tensor.shape()) {
                Some(parts) => changed(tensor, &parts, keep, &other.to_f64s()),
                None => tensor.clone(),
            })
            .collect();
        let Some(found) = run(function, &own) else { return false };
        for ((want, got), axes) in whole.iter().zip(&found).zip(&cut.factors.results) {
            let parts = cut.parts(axes, want.shape());
            let parts = parts.unwrap_or_else(|| panic!("{case:?}: a result without the factor"));
            for ((want, got), part) in want.to_f64s().iter().zip(got.to_f64s()).zip(parts) {
                let same = *want == got || (want.is_nan() && got.is_nan());
                assert!(part != keep || same, "{case:?}, {:?}", cut.factors);
            }
        }
    }
    true
}

fn neutral(fold: Fold) -> f64 {
    match fold {
        Fold::Sum | Fold::Any => 0.0,
        Fold::Product | Fold::All => 1.0,
        Fold::Max => -4.0,
        Fold::Min => 5.0,
    }
}

fn combined(fold: Fold, one: f64, other: f64) -> f64 {
    match fold {
        Fold::Sum => one + other,
        Fold::Product => one * other,
        Fold::Max | Fold::Any => one.max(other),
        Fold::Min | Fold::All => one.min(other),
    }
}

/// Checks that the results of the two parts of the operands combine to the result of the whole.
fn check_reduced(
    case: &Case,
    function: &Function,
    cut: &Cut,
    fold: Fold,
    random: &mut Random,
) -> bool {
    let tensors = case.tensors(random);
    let Some(whole) = run(function, &tensors) else { return false };
    let mut terms = Vec::new();
    for keep in 0..2 {
        let own = tensors.iter().zip(&cut.factors.operands).enumerate();
        let own: Vec<Tensor> = own
            .map(|(at, (tensor, axes))| {
                let is_index = case.op.indexes.is_some_and(|indexes| indexes.operand == at);
                let fill = vec![neutral(fold); tensor.len()];
                match cut.parts(axes, tensor.shape()) {
                    Some(parts) if !is_index => changed(tensor, &parts, keep, &fill),
                    None if keep > 0 && cut.factors.once == Some(at) => {
                        changed(tensor, &vec![0; tensor.len()], 1, &fill)
                    }
                    Some(_) | None => tensor.clone(),
                }
            })
            .collect();
        let Some(found) = run(function, &own) else { return false };
        terms.push(found[0].to_f64s());
    }
    let scale = whole[0]
        .to_f64s()
        .iter()
        .filter(|own| own.is_finite())
        .fold(1.0f64, |most, own| most.max(own.abs()));
    for ((want, one), other) in whole[0].to_f64s().iter().zip(&terms[0]).zip(&terms[1]) {
        let found = combined(fold, *one, *other);
        let fits = found == *want || (found - want).abs() <= 1e-9 * scale;
        assert!(fits, "{case:?}, {:?}: {found} instead of {want}", cut.factors);
    }
    true
}

/// The only operation of a use.
fn operation(function: &Function) -> &Operation {
    &function.ops[0]
}

#[test]
fn parts_are_independent_and_terms_combine() {
    let (mut parallel, mut reduced) = (0, 0);
    for op in operations().filter(|op| has_factors(*op)) {
        let mut random = Random::named(op.name, 7);
        let wide = Some(mithril_ir::dtype::DType::F64);
        let cases: Vec<Case> =
            (0..USES).filter_map(|_| Case::find(op, &mut random, wide)).collect();
        for case in cases {
            let Some(function) = case.function() else { continue };
            let factors = Factors::of(&function, operation(&function));
            for (factor, own) in factors.factors.iter().enumerate() {
                let cut = Cut { factors: &factors, factor };
                if !cut.is_divided() {
                    continue;
                }
                match own.division {
                    Division::Whole | Division::Passed { .. } => {}
                    Division::Parallel => {
                        parallel +=
                            usize::from(check_parallel(&case, &function, &cut, &mut random));
                    }
                    Division::Reduced(fold) => {
                        let done = check_reduced(&case, &function, &cut, fold, &mut random);
                        reduced += usize::from(done);
                    }
                }
            }
        }
    }
    assert!(parallel > 3000 && reduced > 200, "{parallel} and {reduced} factors were divided");
}

/// How many operations can be divided along which share of the axes of their operands.
#[test]
fn most_axes_can_be_divided() {
    let mut text = String::new();
    for op in operations().filter(|op| has_factors(*op)) {
        let mut random = Random::named(op.name, 7);
        let (mut all, mut divided) = (0, 0);
        for case in (0..USES).filter_map(|_| Case::find(op, &mut random, None)) {
            let Some(function) = case.function() else { continue };
            let factors = Factors::of(&function, operation(&function));
            let operands = factors.operands.iter().enumerate();
            let axes = operands.filter(|(at, _)| op.operand(*at).class != Class::Key);
            for own in axes.flat_map(|(_, axes)| axes) {
                let factor = &factors.factors[*own];
                let is_long = factor.size.as_const().is_none_or(|size| size > 1);
                all += usize::from(is_long);
                divided += usize::from(is_long && factor.division.divides());
            }
        }
        if all > 0 && divided < all {
            text.push_str(&format!("{}: {divided} of {all}\n", op.name));
        }
    }
    insta::assert_snapshot!(text);
}
