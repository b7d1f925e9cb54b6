//! Scans in primitives: a step is written in the algebra, and becomes a function of its own.

use std::sync::Arc;

use mithril_ir::algebra::Var;
use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::Result;
use mithril_ir::graph::{ResultDef, Role};
use mithril_ir::op;
use mithril_ir::shape::Type;

use super::Cx;
use super::instance::{Generalised, Spec};

/// The operands of a scan, each with the name of the step's argument.
pub struct Scan<'v, 'a> {
    /// The name of the step in generated source.
    pub name: &'static str,
    /// Values that each step replaces.
    pub carries: &'v [(&'static str, Var<'a>)],
    /// Arrays whose slices along the first axis the steps read.
    pub sequences: &'v [(&'static str, Var<'a>)],
    /// Values that are the same in each step.
    pub captures: &'v [(&'static str, Var<'a>)],
    pub reverse: bool,
    /// The names of the step's results: the next carries, then values to stack.
    pub results: &'v [&'static str],
}

impl<'a> Cx<'a> {
    /// Adds a scan. `step` takes carries, slices and captures. It returns the next carries, then
    /// the values to stack. Returns the last carries, then the stacked values.
    pub fn scan(
        &self,
        scan: &Scan<'_, 'a>,
        step: impl for<'s> FnOnce(&[Var<'s>]) -> Vec<Var<'s>>,
    ) -> Result<Vec<Var<'a>>> {
        let named = || scan.carries.iter().chain(scan.sequences).chain(scan.captures);
        let (first, last) = (scan.carries.len(), scan.carries.len() + scan.sequences.len());
        let mut specs = Vec::new();
        for (at, (_, operand)) in named().enumerate() {
            let mut ty = operand.ty();
            if (first..last).contains(&at) {
                ty.shape.need_rank()?;
                ty.shape.dims.remove(0);
            }
            specs.push(Spec::Typed(ty));
        }
        Generalised::of(&mut specs);
        let builder = Builder::new(self.steps.fresh_name(scan.name));
        let ty = |spec: Spec| match spec {
            Spec::Typed(ty) => ty,
            Spec::Open(_) | Spec::Absent | Spec::Literal(_) => Type::scalar(self.float),
        };
        let arguments = specs.into_iter().zip(named());
        let arguments = arguments.map(|(spec, (name, _))| builder.arg(*name, Role::Data, ty(spec)));
        let arguments: Vec<_> = arguments.collect();
        let arguments: Vec<Var> = arguments.into_iter().map(|value| builder.var(value)).collect();
        let values: Vec<_> = step(&arguments).into_iter().map(|result| result.value).collect();
        builder.check()?;
        let results = scan.results.iter().zip(values);
        let results =
            results.map(|(name, value)| ResultDef { name: (*name).into(), value, state: None });
        let function = Arc::new(builder.finish(results.collect())?);
        let attrs = op::scan_attrs(&function.name, first, scan.sequences.len(), scan.reverse);
        let operands: Vec<_> = named().map(|(_, operand)| operand.value).collect();
        let values = self.builder.call(op::get("scan"), &function, attrs, &operands)?;
        self.steps.add(&function);
        Ok(values.into_iter().map(|value| self.builder.var(value)).collect())
    }
}
