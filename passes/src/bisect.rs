//! Finds the pass, and the rule, after which a module computes different numbers.

use mithril_ir::diagnostic::Result;
use mithril_ir::evaluate::evaluate;
use mithril_ir::graph::{Function, Module, Role};
use mithril_ir::loc::Loc;
use mithril_ir::tensor::Tensor;

use crate::context::PassContext;
use crate::driver::differs;
use crate::pipeline::Pipeline;

/// The cause of different numbers.
#[derive(Clone, PartialEq, Debug)]
pub struct Culprit {
    /// The first pass after which the numbers differ.
    pub pass: &'static str,
    /// The rule of that pass that causes the difference, and the blocks it was applied in: without
    /// it the numbers agree. `None` if the pass applies no rules, or if leaving out any single rule
    /// does not help.
    pub rule: Option<(&'static str, Loc)>,
    /// How much the numbers differ: see [`difference`].
    pub error: f64,
}

/// Runs a module in the reference evaluator after each pass of the pipeline. `pipeline` builds the
/// pipeline without the rules of its argument; `args` are the arguments of the entry. A function
/// that a pass adds to the entries, such as a gradient, is run after each later pass as well, with
/// cotangents of ones.
///
/// Errors: those of the passes and of the evaluator.
pub fn bisect(
    module: &Module,
    pipeline: &dyn Fn(&[String]) -> Pipeline,
    args: &[Tensor],
    tolerance: f64,
) -> Result<Option<Culprit>> {
    let mut expected = outputs_of_entries(module, args)?;
    let steps = run(module, &pipeline(&[]), usize::MAX)?;
    for (at, step) in steps.iter().enumerate().filter(|(_, step)| step.changed) {
        let got = outputs_of_entries(&step.module, args)?;
        let error = distance(&got, &expected);
        if error > tolerance {
            let mut culprit = Culprit { pass: step.pass, rule: None, error };
            for (rule, places) in step.rules() {
                let without = run(module, &pipeline(&[rule.to_string()]), at + 1)?;
                let Some(other) = without.last() else { continue };
                if distance(&outputs_of_entries(&other.module, args)?, &expected) <= tolerance {
                    culprit.rule = Some((rule, places));
                    break;
                }
            }
            return Ok(Some(culprit));
        }
        expected.extend(got.into_iter().skip(expected.len()));
    }
    Ok(None)
}

/// The largest difference between two arrays of one shape, divided by the largest finite magnitude
/// in the second if that is not 0. Infinite where one element is NaN or infinite and the other is
/// not the same.
pub fn difference(got: &[f64], expected: &[f64]) -> f64 {
    let finite = expected.iter().filter(|value| value.is_finite());
    let scale = finite.fold(0.0f64, |scale, value| scale.max(value.abs()));
    let scale = if scale > 0.0 { scale } else { 1.0 };
    let one = |(a, b): (&f64, &f64)| match a == b || a.is_nan() && b.is_nan() {
        true => 0.0,
        false if a.is_finite() && b.is_finite() => (a - b).abs() / scale,
        false => f64::INFINITY,
    };
    got.iter().zip(expected).map(one).fold(0.0, f64::max)
}

/// The module after a pass.
struct Step {
    pass: &'static str,
    module: Module,
    changed: bool,
    rewrites: Vec<(&'static str, Loc)>,
}

/// Runs the first `count` passes of a pipeline in order.
fn run(module: &Module, pipeline: &Pipeline, count: usize) -> Result<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    for pass in pipeline.passes.iter().take(count) {
        let before = steps.last().map_or(module, |step| &step.module);
        let mut cx = PassContext::new(pass.name());
        let next = pass.run(before, &mut cx)?;
        let rewrites = cx.rewrites().iter().map(|r| (r.rule, r.loc.clone())).collect();
        let changed = differs(before, &next);
        steps.push(Step { pass: pass.name(), module: next, changed, rewrites });
    }
    Ok(steps)
}

impl Step {
    /// The rules that were applied, each with all locations where it was.
    fn rules(&self) -> Vec<(&'static str, Loc)> {
        let mut rules: Vec<(&'static str, Loc)> = Vec::new();
        for (rule, loc) in &self.rewrites {
            match rules.iter_mut().find(|(known, _)| known == rule) {
                Some((_, places)) => places.merge(loc),
                None => rules.push((rule, loc.clone())),
            }
        }
        rules
    }
}

/// The results of each entry function.
fn outputs_of_entries(module: &Module, args: &[Tensor]) -> Result<Vec<Vec<Tensor>>> {
    let mut all: Vec<Vec<Tensor>> = Vec::new();
    for function in module.called_from_outside() {
        let mut inputs = args.to_vec();
        if let Some(outputs) = all.first() {
            inputs.extend(cotangents(module, function, outputs));
        }
        all.push(evaluate(module, function, &inputs)?);
    }
    Ok(all)
}

/// Cotangents of ones for the outputs of the entry that take a cotangent: the float outputs that
/// are not states.
fn cotangents(module: &Module, function: &Function, outputs: &[Tensor]) -> Vec<Tensor> {
    let count = function.args.iter().filter(|arg| arg.role == Role::Cotangent).count();
    let results = module.entry().into_iter().flat_map(|entry| &entry.results);
    let inputs = results.zip(outputs).filter(|(result, _)| result.state.is_none());
    let floats = inputs.map(|(_, output)| output).filter(|output| output.dtype().is_float());
    let ones = |like: &Tensor| {
        Tensor::from_f64s(like.dtype(), like.shape().to_vec(), &vec![1.0; like.len()])
    };
    floats.take(count).map(ones).collect()
}

/// The largest difference between the results of functions that occur in both.
fn distance(got: &[Vec<Tensor>], expected: &[Vec<Tensor>]) -> f64 {
    let pairs = got.iter().flatten().zip(expected.iter().flatten());
    let one = |(a, b): (&Tensor, &Tensor)| match a.shape() == b.shape() {
        true => difference(&a.to_f64s(), &b.to_f64s()),
        false => f64::INFINITY,
    };
    pairs.map(one).fold(0.0, f64::max)
}
