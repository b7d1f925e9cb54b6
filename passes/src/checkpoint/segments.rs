//! Divides a scan into segments, each of which keeps its first carries alone.
//!
//! A scan of n steps keeps the carries of each step for its gradient. Segments of about sqrt(n)
//! steps keep those of sqrt(n) steps and recompute one segment at a time (Griewank 1992, Chen et al.
//! 2016).

use std::sync::Arc;

use mithril_ir::algebra::{Var, build};
use mithril_ir::attr::Attr;
use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::Result;
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Module, Operation, ResultDef, Value};
use mithril_ir::op;
use mithril_ir::shape::Shape;

use super::recomputed;

/// A scan that is divided.
pub(super) struct Segments<'a> {
    builder: &'a Builder,
    body: &'a Function,
    carries: usize,
    sequences: usize,
    reverse: bool,
    /// The number of steps.
    length: i64,
    /// The number of steps of a segment.
    size: i64,
}

impl<'a> Segments<'a> {
    /// `None`: the number of steps is not known, or there are too few.
    pub fn of(
        builder: &'a Builder,
        operation: &Operation,
        body: &'a Function,
        operands: &[Value],
    ) -> Option<Segments<'a>> {
        let count = |name| operation.attr(name).as_int() as usize;
        let (carries, sequences) = (count("carries"), count("sequences"));
        let shape = builder.ty(*operands.get(carries)?).shape;
        let length = shape.dims.first()?.as_const().filter(|length| *length >= 4)?;
        let reverse = matches!(operation.attr("reverse"), Attr::Bool(true));
        let size = length.isqrt();
        Some(Segments { builder, body, carries, sequences, reverse, length, size })
    }

    /// Builds the results of the scan. Errors: none for valid modules.
    pub fn build(&self, module: &mut Module, operands: &[Value]) -> Result<Vec<Value>> {
        let segment = self.segment(module)?;
        let marked = recomputed(&segment, module.fresh_name(&segment.name))?;
        module.insert(marked.clone());
        let whole = self.length / self.size * self.size;
        // The remainder comes last. Going backwards, it is the first that runs.
        let rest = (whole < self.length).then_some((whole, self.length));
        let mut state = operands.to_vec();
        let mut parts: Vec<Vec<Value>> = Vec::new();
        let last = |state: &mut Vec<Value>| -> Result<Option<Vec<Value>>> {
            let Some(range) = rest else { return Ok(None) };
            let given = self.with_sequences(operands, state, |x| cut(x, range));
            self.scan(self.body, &given, state).map(Some)
        };
        let first = |state: &mut Vec<Value>| -> Result<Vec<Value>> {
            let rows = |x: Var<'a>| {
                let x = cut(x, (0, whole));
                let dims = [whole / self.size, self.size].map(Dim::Const);
                let rest = x.shape().dims.into_iter().skip(1);
                x.reshape(Shape::new(dims.into_iter().chain(rest)))
            };
            let given = self.with_sequences(operands, state, rows);
            let stacked = self.scan(&marked, &given, state)?;
            let flat = |value: Value| {
                let x = self.builder.var(value);
                let rest = x.shape().dims.into_iter().skip(2);
                x.reshape(Shape::new([Dim::Const(whole)].into_iter().chain(rest))).value
            };
            Ok(stacked.into_iter().map(flat).collect())
        };
        if self.reverse {
            let end = last(&mut state)?;
            parts.push(first(&mut state)?);
            parts.extend(end);
        } else {
            parts.push(first(&mut state)?);
            parts.extend(last(&mut state)?);
        }
        let mut values = state[..self.carries].to_vec();
        for at in 0..parts[0].len() {
            let own: Vec<Var> = parts.iter().map(|part| self.builder.var(part[at])).collect();
            values.push(match own[..] {
                [one] => one.value,
                _ => build(self.builder, "concat", &own, &[("axis", 0.into())]).value,
            });
        }
        self.builder.check()?;
        Ok(values)
    }

    /// The operands with the carries of `state` and other sequences.
    fn with_sequences(
        &self,
        operands: &[Value],
        state: &[Value],
        change: impl Fn(Var<'a>) -> Var<'a>,
    ) -> Vec<Value> {
        let cut = self.carries..self.carries + self.sequences;
        let changed = operands.iter().enumerate().map(|(at, value)| match at {
            at if at < self.carries => state[at],
            at if cut.contains(&at) => change(self.builder.var(*value)).value,
            _ => *value,
        });
        changed.collect()
    }

    /// Adds a scan, whose last carries replace those of `state`. Returns the stacked results.
    fn scan(&self, callee: &Function, given: &[Value], state: &mut [Value]) -> Result<Vec<Value>> {
        let attrs = op::scan_attrs(&callee.name, self.carries, self.sequences, self.reverse);
        let mut values = self.builder.call(op::get("scan"), callee, attrs, given)?.to_vec();
        let stacked = values.split_off(self.carries);
        state[..self.carries].copy_from_slice(&values);
        Ok(stacked)
    }

    /// The function of one segment: a scan of its steps. It is added to the module.
    fn segment(&self, module: &mut Module) -> Result<Arc<Function>> {
        let builder = Builder::new(module.fresh_name(&format!("{}_segment", self.body.name)));
        let cut = self.carries..self.carries + self.sequences;
        let arguments = self.body.arguments().enumerate().map(|(at, (value, own))| {
            let mut ty = self.body.ty(value).clone();
            if cut.contains(&at) {
                ty.shape.dims.insert(0, Dim::Const(self.size));
            }
            builder.arg(own.name.clone(), own.role, ty)
        });
        let arguments: Vec<Value> = arguments.collect();
        let attrs = op::scan_attrs(&self.body.name, self.carries, self.sequences, self.reverse);
        let values = builder.call(op::get("scan"), self.body, attrs, &arguments)?;
        let results = self.body.results.iter().zip(values);
        let results = results.map(|(own, value)| ResultDef { value, ..own.clone() });
        let function = builder.finish(results.collect())?;
        module.insert(function.clone());
        Ok(Arc::new(function))
    }
}

/// The steps of a range.
fn cut(x: Var<'_>, (start, end): (i64, i64)) -> Var<'_> {
    let axes: &[i64] = &[0];
    let [starts, limits] = [start, end].map(|at| Shape::new([Dim::Const(at)]));
    x.unary("slice", &[("axes", axes.into()), ("starts", starts.into()), ("limits", limits.into())])
}
