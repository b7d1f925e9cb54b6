//! Differentiates operations that call functions, forward and backward.

use std::sync::Arc;

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::graph::{Function, Operation, ResultDef, Role, Value};
use mithril_ir::op::{self, Gradient, Op};
use mithril_ir::shape::Type;
use smallvec::{SmallVec, smallvec};

use super::cotangents::Cotangents;
use super::forward_backward::ForwardBackward;
use super::{Backward, Tape, takes_cotangent, zeros};

/// The call that computes the cotangents of a call's operands from those of its results.
pub struct BackwardCall {
    pub op: Op,
    pub function: Arc<Function>,
    pub attrs: SmallVec<[Attr; 2]>,
    pub inputs: Vec<Input>,
    /// For each leading result of this call, the index of the operand whose cotangent it is.
    pub operands: Vec<usize>,
}

/// An operand of a [`BackwardCall`].
#[derive(Clone, Copy)]
pub enum Input {
    Value(Value),
    /// The same value, but available only after the cotangents: read through an optimization
    /// barrier.
    AfterCotangents(Value),
    /// The cotangent of a result.
    Seed(Value),
    /// The start of a sum of cotangents of a value: zeros of its shape, in f32 for f16 and bf16.
    Sum(Value),
}

impl BackwardCall {
    fn plain_call(
        function: Arc<Function>,
        inputs: Vec<Input>,
        operands: Vec<usize>,
    ) -> BackwardCall {
        let attrs = smallvec![Attr::Function(function.name.clone())];
        BackwardCall { op: op::get("call"), function, attrs, inputs, operands }
    }

    /// Builds the call, and returns the cotangents of the operands.
    pub fn gradients<'b>(
        &self,
        builder: &'b Builder,
        cotangents: &Cotangents,
        operands: &[Value],
    ) -> Result<Vec<Option<Var<'b>>>> {
        let known = |input: &Input| match input {
            Input::Seed(value) => cotangents.0.get(value).copied(),
            Input::Value(_) | Input::AfterCotangents(_) | Input::Sum(_) => None,
        };
        let cotangent = self.inputs.iter().find_map(known);
        let input = |input: &Input| match input {
            Input::Value(value) => *value,
            Input::AfterCotangents(value) => match cotangent {
                Some(cotangent) => {
                    builder.var(*value).binary("optimization_barrier", builder.var(cotangent)).value
                }
                None => *value,
            },
            Input::Sum(value) => zeros(builder, &wide(&builder.ty(*value))),
            Input::Seed(value) => match cotangents.0.get(value) {
                Some(cotangent) => *cotangent,
                None => zeros(builder, &builder.ty(*value)),
            },
        };
        let inputs: Vec<Value> = self.inputs.iter().map(input).collect();
        let results = builder.call(self.op, &self.function, self.attrs.clone(), &inputs)?;
        let mut gradients = vec![None; operands.len()];
        for (operand, result) in self.operands.iter().zip(results) {
            let dtype = builder.ty(operands[*operand]).dtype;
            gradients[*operand] = Some(builder.var(result).cast(dtype));
        }
        Ok(gradients)
    }
}

/// A call that is being differentiated: the operation, its callee, and its operands in the new
/// function.
pub struct Site<'a> {
    pub builder: &'a Builder,
    pub operation: &'a Operation,
    pub callee: &'a Function,
    pub operands: &'a [Value],
    /// Which operands vary.
    pub varying: Vec<bool>,
}

impl Site<'_> {
    fn is_float(&self, i: usize) -> bool {
        self.builder.ty(self.operands[i]).dtype.is_float()
    }

    /// The cotangents of the results that take one, as inputs of the backward call.
    pub fn seeds(&self, results: &[Value]) -> Vec<Input> {
        let pairs = results.iter().zip(&self.callee.results);
        pairs
            .filter(|(_, r)| takes_cotangent(self.callee, r))
            .map(|(v, _)| Input::Seed(*v))
            .collect()
    }

    pub fn copy(&self) -> Result<SmallVec<[Value; 4]>> {
        let Operation { op, attrs, .. } = self.operation;
        self.builder.call(*op, self.callee, attrs.clone(), self.operands)
    }

    /// Copies the operation with another callee.
    fn forward(&self, callee: &Function) -> Result<SmallVec<[Value; 4]>> {
        let mut attrs = self.operation.attrs.clone();
        attrs[0] = Attr::Function(callee.name.clone());
        self.builder.call(self.operation.op, callee, attrs, self.operands)
    }
}

impl Tape<'_> {
    /// Copies a call, with its forward function as the callee if the gradient needs one, and
    /// records the call of the backward function.
    pub(super) fn call(
        &mut self,
        builder: &Builder,
        operation: &Operation,
        operands: &[Value],
        backward: &mut Backward,
    ) -> Result<SmallVec<[Value; 4]>> {
        let callee = self.callee(operation)?;
        let varying: Vec<bool> = operands.iter().map(|v| backward.varies(*v)).collect();
        let site = Site { builder, operation, callee: &callee, operands, varying };
        if !site.varying.contains(&true) || callee.results.is_empty() {
            return site.copy();
        }
        if callee.external && !matches!(operation.op.gradient, Gradient::Vjp) {
            return Diagnostic::new(format!("`{}` has no gradient: it is external", callee.name))
                .at(format!("block `{}`", operation.loc))
                .hint("give `custom` a `gradient=`; in text, call it with `custom_gradient`")
                .err();
        }
        let (mut results, back) = match operation.op.gradient {
            Gradient::Vjp => self.custom(&site)?,
            Gradient::Scan => self.scan(&site)?,
            Gradient::Recompute => self.checkpoint(&site)?,
            Gradient::Branches => self.branches(&site)?,
            Gradient::While => self.bounded_loop(&site)?,
            Gradient::Callee
            | Gradient::Derived
            | Gradient::Partials(_)
            | Gradient::Rule(_)
            | Gradient::Zero => self.plain_call(&site)?,
        };
        backward.calls.insert(results[0], back);
        results.truncate(callee.results.len());
        if let Gradient::While = operation.op.gradient {
            // The last condition is not a result of the loop.
            results.remove(0);
        }
        Ok(results)
    }

    fn plain_call(&mut self, site: &Site) -> Result<(SmallVec<[Value; 4]>, BackwardCall)> {
        let functions =
            self.forward_backward(site.callee, site.varying.clone(), &|_| true, false)?;
        let results = site.forward(&functions.forward)?;
        let (callee_results, saved) = results.split_at(site.callee.results.len());
        let kept = functions.kept.iter().map(|&i| site.operands[i]);
        let mut inputs: Vec<Input> = kept.chain(saved.iter().copied()).map(Input::Value).collect();
        inputs.extend(site.seeds(callee_results));
        let back = BackwardCall::plain_call(functions.backward, inputs, functions.operands);
        Ok((results, back))
    }

    /// In the backward pass, kept operands other than params are read through a barrier on the
    /// cotangents. So no pass merges recomputed values with those of the forward pass.
    fn checkpoint(&mut self, site: &Site) -> Result<(SmallVec<[Value; 4]>, BackwardCall)> {
        let functions =
            self.forward_backward(site.callee, site.varying.clone(), &|_| true, true)?;
        let attrs = smallvec![Attr::Function(site.callee.name.clone())];
        let results = site.builder.call(op::get("call"), site.callee, attrs, site.operands)?;
        let kept = functions.kept.iter().map(|&i| match site.callee.args[i].role {
            Role::Param => Input::Value(site.operands[i]),
            _ => Input::AfterCotangents(site.operands[i]),
        });
        let mut inputs: Vec<Input> = kept.collect();
        inputs.extend(site.seeds(&results));
        let back = BackwardCall::plain_call(functions.backward, inputs, functions.operands);
        Ok((results, back))
    }

    fn custom(&mut self, site: &Site) -> Result<(SmallVec<[Value; 4]>, BackwardCall)> {
        let vjp = site.operation.functions().nth(1).expect("a custom gradient names its vjp");
        let vjp = self.function(vjp)?;
        let results = site.copy()?;
        let mut inputs: Vec<Input> =
            site.operands.iter().chain(&results).map(|v| Input::Value(*v)).collect();
        inputs.extend(site.seeds(&results));
        let floats = (0..site.operands.len()).filter(|&i| site.is_float(i)).collect();
        Ok((results, BackwardCall::plain_call(vjp, inputs, floats)))
    }

    /// In the forward pass, the body also returns the values that its backward function reads; the
    /// scan stacks them. In the backward pass, a scan in the other direction carries the cotangents
    /// of the carries and the summed cotangents of the captures.
    pub(super) fn scan(&mut self, site: &Site) -> Result<(SmallVec<[Value; 4]>, BackwardCall)> {
        let attrs = &site.operation.attrs;
        let count = |i: usize| attrs[i].as_int() as usize;
        let plan = ScanPlan { carries: count(1), sequences: count(2) };
        // A carry that does not vary at first may vary from the second step on.
        let varying: Vec<bool> = (0..site.operands.len())
            .map(|i| site.is_float(i) && (plan.is_carry(i) || site.varying[i]))
            .collect();
        let functions =
            self.forward_backward(site.callee, varying, &|i| !plan.is_carry(i), false)?;
        let results = site.forward(&functions.forward)?;
        let (callee_results, saved) = results.split_at(site.callee.results.len());
        let (final_carries, stacked) = callee_results.split_at(plan.carries);

        let body = self.reversed_body(site, &plan, &functions)?;
        let float = |v: &&Value| site.builder.ty(**v).dtype.is_float();
        let captures = functions.operands.iter().filter(|&&i| plan.is_capture(i));
        let mut inputs: Vec<Input> =
            final_carries.iter().filter(float).map(|v| Input::Seed(*v)).collect();
        inputs.extend(captures.map(|&i| Input::Sum(site.operands[i])));
        let carries = inputs.len();
        let kept = |capture: bool| {
            let wanted = move |i: &&usize| plan.is_capture(**i) == capture;
            functions.kept.iter().filter(wanted).map(|&i| Input::Value(site.operands[i]))
        };
        inputs.extend(kept(false));
        inputs.extend(plan.unread(site.callee, &functions).map(|i| Input::Value(site.operands[i])));
        inputs.extend(saved.iter().map(|v| Input::Value(*v)));
        inputs.extend(stacked.iter().filter(float).map(|v| Input::Seed(*v)));
        let sequences = inputs.len() - carries;
        inputs.extend(kept(true));
        let reverse = matches!(attrs[3], Attr::Bool(true));
        let attrs = op::scan_attrs(&body.name, carries, sequences, !reverse);
        let operands = plan.by_class(&functions.operands);
        let back = BackwardCall { op: site.operation.op, function: body, attrs, inputs, operands };
        Ok((results, back))
    }

    /// The body of the backward scan. It takes carried cotangents and sums; then slices of kept
    /// sequences, of saved values and of cotangents of stacked results; then kept captures. It
    /// returns the next carried values, then the cotangents of the slices.
    fn reversed_body(
        &mut self,
        site: &Site,
        plan: &ScanPlan,
        functions: &ForwardBackward,
    ) -> Result<Arc<Function>> {
        let b = Builder::new(self.module.fresh_name(&format!("{}_reversed", site.callee.name)));
        let (inputs, sums) = reversed_arguments(&b, site, plan, functions);
        let attrs = smallvec![Attr::Function(functions.backward.name.clone())];
        let gradients = b.call(op::get("call"), &functions.backward, attrs, &inputs)?;
        let gradient = |i: usize| {
            let at = functions.operands.iter().position(|&j| j == i);
            at.map(|at| b.var(gradients[at]))
        };
        let result = |&i: &usize| match (sums.iter().find(|(j, _)| *j == i), gradient(i)) {
            (Some((_, sum)), Some(more)) => Some((b.var(*sum) + more.widened()).value),
            (Some((_, sum)), None) => Some(*sum),
            (None, gradient) => gradient.map(|v| v.value),
        };
        let values = plan.by_class(&functions.operands);
        let values = values.iter().filter_map(result).enumerate();
        let name = |(i, value)| ResultDef { name: format!("next_{i}").into(), value, state: None };
        let results: Vec<ResultDef> = values.map(name).collect();
        let body = b.finish(results)?;
        let name = body.name.clone();
        self.module.insert(body);
        self.function(&name)
    }
}

/// Adds the arguments of the reversed body. Returns them in the order that the backward function
/// takes, and the sums with the index of the capture each belongs to.
fn reversed_arguments(
    b: &Builder,
    site: &Site,
    plan: &ScanPlan,
    functions: &ForwardBackward,
) -> (Vec<Value>, Vec<(usize, Value)>) {
    let callee = site.callee;
    let own = |i: usize| {
        b.arg(callee.args[i].name.clone(), Role::Data, callee.ty(Value(i as u32)).clone())
    };
    let cotangents = |results: &[ResultDef]| -> Vec<Value> {
        let taken = results.iter().filter(|r| takes_cotangent(callee, r));
        let arg =
            |r: &ResultDef| b.arg(format!("d_{}", r.name), Role::Data, callee.ty(r.value).clone());
        taken.map(arg).collect()
    };
    let kept = |capture: bool| -> Vec<Value> {
        let wanted = functions.kept.iter().filter(|&&i| plan.is_capture(i) == capture);
        wanted.map(|&i| own(i)).collect()
    };
    let (carried, stacked) = callee.results.split_at(plan.carries);
    let carries = cotangents(carried);
    let captures = functions.operands.iter().filter(|&&i| plan.is_capture(i));
    let sum = |i: usize| {
        let (name, ty) = (format!("sum_{}", callee.args[i].name), callee.ty(Value(i as u32)));
        b.arg(name, Role::Data, wide(ty))
    };
    let sums = captures.map(|&i| (i, sum(i))).collect();
    let sequences = kept(false);
    if let Some(i) = plan.unread(callee, functions) {
        own(i);
    }
    let saved: Vec<Value> =
        functions.saved().map(|(name, ty)| b.arg(name.clone(), Role::Data, ty.clone())).collect();
    let rows = cotangents(stacked);
    let captured = kept(true);
    // Sequences precede captures among the operands, so the kept ones are in the callee's order.
    ([sequences, captured, saved, carries, rows].concat(), sums)
}

/// The type in which cotangents of a value are summed.
fn wide(ty: &Type) -> Type {
    Type::new(ty.dtype.widened(), ty.shape.clone())
}

/// How the operands of a scan divide into carries, sequences and captures.
#[derive(Clone, Copy)]
struct ScanPlan {
    carries: usize,
    sequences: usize,
}

impl ScanPlan {
    fn is_carry(&self, i: usize) -> bool {
        i < self.carries
    }

    fn is_sequence(&self, i: usize) -> bool {
        !self.is_carry(i) && !self.is_capture(i)
    }

    fn is_capture(&self, i: usize) -> bool {
        i >= self.carries + self.sequences
    }

    /// The sequence from which the reversed scan takes only its length, if it reads no other.
    fn unread(&self, callee: &Function, functions: &ForwardBackward) -> Option<usize> {
        let has_rows = callee.results[self.carries..].iter().any(|r| takes_cotangent(callee, r));
        let has_kept = functions.kept.iter().any(|&i| !self.is_capture(i));
        let has_sequence = has_rows || has_kept || functions.saved().next().is_some();
        (!has_sequence).then_some(self.carries)
    }

    /// Sorts operands: carries, then captures, then sequences.
    fn by_class(&self, operands: &[usize]) -> Vec<usize> {
        let class = |class: fn(&ScanPlan, usize) -> bool| {
            operands.iter().copied().filter(move |&i| class(self, i))
        };
        class(ScanPlan::is_carry)
            .chain(class(ScanPlan::is_capture))
            .chain(class(ScanPlan::is_sequence))
            .collect()
    }
}
