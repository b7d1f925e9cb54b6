//! The backward pass: computes the cotangents of operands from those of results.

use std::sync::Arc;

use mithril_ir::algebra::{Rule, Var, scale};
use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::Result;
use mithril_ir::graph::{Function, Operation, Value};
use mithril_ir::op::{self, Gradient, GradientRule, Kind, Op};

use super::Backward;
use super::cotangents::Cotangents;
use super::splits::Splits;

/// Visits the operations from the last to the first, and passes cotangents on to operands.
pub fn backward_pass(
    builder: &Builder,
    backward: &Backward,
    cotangents: &mut Cotangents,
) -> Result<()> {
    let operations = builder.with(|f| f.ops.clone());
    let names = builder.with(value_names);
    let splits = builder.with(|f| Splits::new(f, &operations));
    for operation in operations.iter().rev() {
        if splits.contains(operation) {
            builder.set_loc(operation.loc.clone());
            let split = splits.completed_by(operation).filter(|split| backward.varies(split.of));
            if let Some((split, gradient)) =
                split.and_then(|split| Some((split, split.joined(builder, cotangents)?)))
            {
                let sum = cotangents.add(builder, split.of, gradient);
                name_gradient(builder, sum, names[split.of.index()].as_deref());
            }
            continue;
        }
        if !operation.results().any(|v| cotangents.0.contains_key(&v)) {
            continue;
        }
        if !operation.operands.iter().any(|v| backward.varies(*v)) {
            continue;
        }
        builder.set_loc(operation.loc.clone());
        let gradients = match operation.op.kind {
            Kind::Call => match backward.calls.get(&operation.first) {
                Some(back) => back.gradients(builder, cotangents, &operation.operands)?,
                None => vec![None; operation.operands.len()],
            },
            _ => {
                let own = builder.with(|f| backward.pullback(f, operation, &operation.operands));
                gradients(builder, operation, cotangents, own)
            }
        };
        for (operand, gradient) in operation.operands.iter().zip(gradients) {
            if let Some(gradient) = gradient.filter(|_| backward.varies(*operand)) {
                let sum = cotangents.add(builder, *operand, gradient);
                name_gradient(builder, sum, names[operand.index()].as_deref());
            }
        }
        builder.check()?;
    }
    Ok(())
}

/// The name to give the gradient of each value: the value's own name, or the block that computes
/// it.
fn value_names(f: &Function) -> Vec<Option<Arc<str>>> {
    let mut names: Vec<Option<Arc<str>>> = f.values.iter().map(|v| v.name.clone()).collect();
    for operation in f.ops.iter().filter(|op| op.results > 0) {
        let block = operation.loc.shortest().and_then(|path| path.rsplit('.').next());
        let name = &mut names[operation.first.index()];
        *name = name.take().or_else(|| block.map(Arc::from));
    }
    names
}

fn name_gradient(builder: &Builder, gradient: Value, of: Option<&str>) {
    if builder.with(|f| f.info(gradient).name.is_none()) {
        builder.set_name(gradient, of.map(|name| format!("{name}_gradient").into()));
    }
}

fn gradients<'b>(
    builder: &'b Builder,
    operation: &Operation,
    cotangents: &Cotangents,
    pullback: Option<GradientRule>,
) -> Vec<Option<Var<'b>>> {
    let op: Op = operation.op;
    let vars: Vec<Var<'b>> = operation.operands.iter().map(|v| builder.var(*v)).collect();
    let result = builder.var(operation.result());
    let g = builder.var(cotangents.0[&operation.result()]);
    let rule = pullback.or(match op.gradient {
        Gradient::Rule(rule) => Some(rule),
        _ => None,
    });
    if let Some(partials) = op::partials(op).filter(|_| rule.is_none()) {
        let mut values = vars.clone();
        values.push(result);
        let home = |(x, partial): (&Var<'b>, _)| {
            scale(g, partial, &values, &operation.attrs).map(|v| v.sum_to(x.shape()))
        };
        return vars.iter().zip(partials).map(home).collect();
    }
    let Some(rule) = rule else {
        return vec![None; vars.len()];
    };
    let found = rule(&Rule {
        builder,
        op,
        operands: vars.iter().copied().collect(),
        attrs: operation.attrs.clone(),
        ty: result.ty(),
        result: Some((result, g)),
    });
    let elementwise = op.kind == Kind::Elementwise;
    let home = |(x, v): (&Var<'b>, Option<Var<'b>>)| {
        v.map(|v| if elementwise { v.sum_to(x.shape()) } else { v })
    };
    vars.iter().zip(found).map(home).collect()
}
