//! Differentiates conditions and loops with a condition.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mithril_ir::attr::Attr;
use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::dtype::DType;
use mithril_ir::graph::{Function, Operation, ResultDef, Role, Value};
use mithril_ir::op;
use mithril_ir::shape::{Shape, Type};
use mithril_ir::tensor::Tensor;
use smallvec::{SmallVec, smallvec};

use super::calls::{BackwardCall, Input, Site};
use super::forward_backward::ForwardBackward;
use super::{Tape, unused, zeros};

/// One of the two functions of a `cond`.
struct Branch {
    callee: Arc<Function>,
    functions: ForwardBackward,
    /// The operands of the `cond` that the callee takes.
    passed: Vec<usize>,
}

impl Branch {
    /// The operands of the `cond` that the backward function reads.
    fn kept(&self) -> impl Iterator<Item = usize> {
        self.functions.kept.iter().map(|&at| self.passed[at])
    }

    /// The operands of the `cond` that have gradients.
    fn operands(&self) -> impl Iterator<Item = usize> {
        self.functions.operands.iter().map(|&at| self.passed[at])
    }

    /// The operands that have a gradient in the other branch alone.
    fn missing<'w>(&self, wrt: &'w [Operand]) -> Vec<&'w Operand> {
        let has = |own: &Operand| self.operands().any(|at| at == own.at);
        wrt.iter().filter(|own| !has(own)).collect()
    }

    /// The operands that `pullback` takes: what is kept, and what gets zeros as its gradient.
    fn read(&self, wrt: &[Operand]) -> Vec<usize> {
        self.kept().chain(self.missing(wrt).iter().map(|own| own.at)).collect()
    }
}

/// An operand of a `cond` that has a gradient, and its name in a branch.
struct Operand {
    at: usize,
    name: Arc<str>,
}

/// A name like this one that no other has. It is added to the names.
fn own_name(name: &str, names: &mut Vec<Arc<str>>) -> Arc<str> {
    let own = unused(name, |name| names.iter().any(|other| **other == *name));
    names.push(own.clone());
    own
}

impl Tape<'_> {
    /// In the backward pass, the same condition chooses between the backward functions. These
    /// recompute the inner values, so that no branch returns values of the other.
    pub(super) fn branches(&mut self, site: &Site) -> Result<(SmallVec<[Value; 4]>, BackwardCall)> {
        let mut branches = Vec::new();
        for (at, name) in site.operation.functions().enumerate() {
            let (callee, passed) = (self.function(name)?, site.operation.passed(at));
            let varying = passed.iter().map(|&own| site.varying[own]).collect();
            let functions = self.forward_backward(&callee, varying, &|_| true, true)?;
            branches.push(Branch { callee, functions, passed });
        }
        let results = site.copy()?;
        let named = |branch: &Branch, at: usize| branch.callee.args[at].name.clone();
        let named = branches.iter().flat_map(|branch| {
            let operands = branch.functions.operands.iter();
            operands.map(move |&at| (branch.passed[at], named(branch, at)))
        });
        let wrt: BTreeMap<usize, Arc<str>> = named.collect();
        let mut names = Vec::new();
        let wrt =
            wrt.into_iter().map(|(at, name)| Operand { at, name: own_name(&name, &mut names) });
        let wrt: Vec<Operand> = wrt.collect();
        let read: BTreeSet<usize> = branches.iter().flat_map(|branch| branch.read(&wrt)).collect();
        let mut inputs = vec![Input::Value(site.operands[0])];
        inputs.extend(read.iter().map(|&own| Input::Value(site.operands[own])));
        let seeds = site.seeds(&results);
        let mut taken = Vec::new();
        let mut pullbacks = Vec::new();
        for branch in &branches {
            let missing = branch.missing(&wrt);
            let is_whole = branch.operands().eq(wrt.iter().map(|own| own.at));
            pullbacks.push(match missing.is_empty() && is_whole {
                true => branch.functions.backward.clone(),
                false => self.pullback(site, branch, &missing, &wrt, &results)?,
            });
            let own = branch.read(&wrt);
            let places = own.iter().filter_map(|own| read.iter().position(|at| at == own));
            let places = places.chain(read.len()..read.len() + seeds.len());
            taken.push(Attr::Ints(places.map(|at| at as i64).collect()));
        }
        inputs.extend(seeds);
        let names = pullbacks.iter().map(|own| Attr::Function(own.name.clone()));
        let attrs = names.chain(taken).collect();
        let function = pullbacks.swap_remove(0);
        let op = site.operation.op;
        let operands = wrt.iter().map(|own| own.at).collect();
        Ok((results, BackwardCall { op, function, attrs, inputs, operands }))
    }

    /// The backward function of a branch, but with the gradients of all operands `wrt`. It takes
    /// the operands in `missing` as well, whose gradients are zeros of their shapes.
    fn pullback(
        &mut self,
        site: &Site,
        branch: &Branch,
        missing: &[&Operand],
        wrt: &[Operand],
        results: &[Value],
    ) -> Result<Arc<Function>> {
        let Branch { callee, functions, .. } = branch;
        let b = Builder::new(self.module.fresh_name(&format!("{}_pullback", callee.name)));
        let ty = |own: usize| site.builder.ty(site.operands[own]);
        let argument =
            |(&at, own): (&usize, usize)| b.arg(callee.args[at].name.clone(), Role::Data, ty(own));
        let mut inputs: Vec<Value> =
            functions.kept.iter().zip(branch.kept()).map(argument).collect();
        let mut names: Vec<_> =
            functions.kept.iter().map(|&at| callee.args[at].name.clone()).collect();
        for own in missing {
            b.arg(own_name(&own.name, &mut names), Role::Data, ty(own.at));
        }
        let cotangents = results
            .iter()
            .zip(&callee.results)
            .filter(|(value, _)| site.builder.ty(**value).dtype.is_float());
        let cotangents: Vec<Value> = cotangents
            .map(|(value, own)| {
                b.arg(format!("d_{}", own.name), Role::Data, site.builder.ty(*value))
            })
            .collect();
        inputs.extend(cotangents);
        let attrs = smallvec![Attr::Function(functions.backward.name.clone())];
        let gradients = b.call(op::get("call"), &functions.backward, attrs, &inputs)?;
        let mut returned = Vec::new();
        for own in wrt {
            let ty = ty(own.at);
            let parts = branch.operands().zip(&gradients).filter(|(at, _)| *at == own.at);
            let sum = parts.map(|(_, value)| b.var(*value)).reduce(|sum, more| sum + more);
            let value = sum.map_or_else(|| zeros(&b, &ty), |sum| sum.cast(ty.dtype).value);
            returned.push(ResultDef { name: format!("d_{}", own.name).into(), value, state: None });
        }
        b.check()?;
        self.inserted(b.finish(returned)?)
    }

    fn inserted(&mut self, function: Function) -> Result<Arc<Function>> {
        let name = function.name.clone();
        self.module.insert(function);
        self.function(&name)
    }

    /// A loop of at most `max_steps` steps is differentiated as a scan over all of them. Each step
    /// calls the callee if the condition holds, and otherwise keeps the carries. Returns the last
    /// condition and the carries.
    ///
    /// Errors: the loop has no maximum.
    pub(super) fn bounded_loop(
        &mut self,
        site: &Site,
    ) -> Result<(SmallVec<[Value; 4]>, BackwardCall)> {
        let Operation { attrs, loc, .. } = site.operation;
        let Attr::Int(most) = attrs[1] else {
            return Diagnostic::new("a loop without a maximum number of steps has no gradient")
                .at(format!("block `{loc}`"))
                .expected("`max_steps`, as the backward pass keeps the carries of each step")
                .hint("give `max_steps`, or stop the gradient with a `StopGradient`")
                .err();
        };
        let carries = site.callee.results.len() - 1;
        let step = self.conditional_step(site.callee, carries)?;
        let steps = [
            ("shape", Shape::new([most.into()]).into()),
            ("axis", 0.into()),
            ("dtype", DType::I64.into()),
        ];
        let mut operands = site.operands.to_vec();
        operands.insert(carries + 1, site.builder.op("iota", &[], &steps)?);
        let mut varying = site.varying.clone();
        varying.insert(carries + 1, false);
        let scan = Operation {
            op: op::get("scan"),
            attrs: op::scan_attrs(&step.name, carries + 1, 1, false),
            operands: operands.iter().copied().collect(),
            first: site.operation.first,
            results: carries as u32 + 1,
            loc: loc.clone(),
        };
        let (builder, operands) = (site.builder, &operands);
        self.scan(&Site { builder, operation: &scan, callee: &step, operands, varying })
    }

    /// A function of the condition, the carries, the number of the step and the captures. It
    /// returns what `callee` does if the condition holds, otherwise false and the carries.
    fn conditional_step(&mut self, callee: &Function, carries: usize) -> Result<Arc<Function>> {
        let ty = |at: usize| callee.ty(Value(at as u32)).clone();
        let name = |at: usize| callee.args[at].name.clone();
        let result = |(own, value): (&ResultDef, Value)| ResultDef { value, ..own.clone() };
        let b = Builder::new(self.module.fresh_name(&format!("{}_ended", callee.name)));
        let mut kept: Vec<Value> =
            (0..carries).map(|at| b.arg(name(at), Role::Data, ty(at))).collect();
        kept.insert(0, b.constant(Tensor::scalar(DType::Bool, 0.0)));
        let ended =
            self.inserted(b.finish(callee.results.iter().zip(kept).map(result).collect())?)?;

        let b = Builder::new(self.module.fresh_name(&format!("{}_if_running", callee.name)));
        let unused = |wanted: &str| {
            let taken = |name: &str| callee.args.iter().any(|arg| *arg.name == *name);
            let mut name = wanted.to_string();
            while taken(&name) {
                name.push('_');
            }
            name
        };
        let scalar = |dtype| Type::scalar(dtype);
        let mut operands = vec![b.arg(unused("running"), Role::Data, scalar(DType::Bool))];
        operands.extend((0..carries).map(|at| b.arg(name(at), Role::Data, ty(at))));
        b.arg(unused("step"), Role::Data, scalar(DType::I64));
        operands.extend((carries..callee.args.len()).map(|at| b.arg(name(at), Role::Data, ty(at))));
        let attrs = smallvec![
            Attr::Function(callee.name.clone()),
            Attr::Function(ended.name.clone()),
            Attr::Ints((0..callee.args.len() as i64).collect()),
            Attr::Ints((0..carries as i64).collect()),
        ];
        let values = b.call(op::get("cond"), callee, attrs, &operands)?;
        let results = callee.results.iter().zip(values).map(result).collect();
        self.inserted(b.finish(results)?)
    }
}
