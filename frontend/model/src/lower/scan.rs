//! Functions in primitives: the steps of scans, which are written in the algebra, and standard
//! functions, which targets may have themselves.

use std::sync::Arc;

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::Result;
use mithril_ir::graph::{ResultDef, Role, Value};
use mithril_ir::op;
use mithril_ir::shape::Type;

use super::cx::{Cx, Operand};
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
    /// Adds a function of the block's inputs that computes the standard function `computes`, and a
    /// call of it. `operands` are the inputs by name; those left out are absent in `body`. `results`
    /// are the names of the values that `body` returns.
    pub fn standard(
        &self,
        computes: &str,
        operands: &[(&str, Var<'a>)],
        results: &[&'static str],
        body: impl for<'s> FnOnce(&Cx<'s>) -> Result<Vec<Value>>,
    ) -> Result<Vec<Value>> {
        let mut specs: Vec<Spec> =
            operands.iter().map(|(_, operand)| Spec::Typed(operand.ty())).collect();
        Generalised::of(&mut specs);
        let builder = Builder::new(self.steps.fresh_name(&format!("{computes}_layer")));
        builder.set_computes(computes);
        builder.set_accumulator(self.builder.accumulator());
        let mut inner = vec![Operand::Absent; self.terminals.len()];
        for ((name, operand), spec) in operands.iter().zip(specs) {
            let ty = if let Spec::Typed(ty) = spec { ty } else { operand.ty() };
            let at = self.terminals.iter().position(|terminal| *terminal.name == **name);
            let at = at.unwrap_or_else(|| panic!("the block has no input `{name}`"));
            inner[at] = Operand::One(builder.arg(*name, self.terminals[at].role, ty));
        }
        let cx = Cx { builder: &builder, operands: &inner, ..*self };
        let values = body(&cx)?;
        builder.check()?;
        let results = results.iter().zip(values);
        let results =
            results.map(|(name, value)| ResultDef { name: (*name).into(), value, state: None });
        let function = Arc::new(builder.finish(results.collect())?);
        let attrs = [Attr::Function(function.name.clone())].into_iter().collect();
        let operands: Vec<_> = operands.iter().map(|(_, operand)| operand.value).collect();
        let values = self.builder.call(op::get("call"), &function, attrs, &operands)?;
        self.steps.add(&function);
        Ok(values.to_vec())
    }

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
        builder.set_accumulator(self.builder.accumulator());
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
