//! When two functions are the same.

use std::sync::Arc;

use mithril_ir::attr::Attr;
use mithril_ir::graph::{Constraint, Function, Operation, Role, Value};
use mithril_ir::op::Op;
use mithril_ir::shape::{Guard, Type};
use smallvec::SmallVec;

/// All of a function but names and locations: functions of equal bodies are one function.
#[derive(PartialEq, Eq, Hash)]
pub struct Body {
    args: Vec<(Role, bool, Option<Arc<str>>)>,
    types: Vec<Type>,
    ops: Vec<Step>,
    results: Vec<(Value, Option<Arc<str>>)>,
    guards: Vec<Guard>,
    constraints: Vec<Constraint>,
}

type Step = (Op, SmallVec<[Value; 3]>, SmallVec<[Attr; 2]>);

impl Body {
    pub fn of(function: &Function) -> Body {
        let op = |op: &Operation| (op.op, op.operands.clone(), op.attrs.clone());
        // States are paired by name.
        let state = |role: Role, name: &Arc<str>| (role == Role::State).then(|| name.clone());
        let args = function.args.iter();
        Body {
            args: args
                .map(|a| (a.role, a.donated, state(a.role, &a.name)))
                .collect(),
            types: function.values.iter().map(|v| v.ty.clone()).collect(),
            ops: function.ops.iter().map(op).collect(),
            results: function
                .results
                .iter()
                .map(|r| (r.value, r.state.clone()))
                .collect(),
            guards: function.guards.clone(),
            constraints: function.constraints.clone(),
        }
    }
}

/// Whether two functions are the same, names and all.
pub fn identical(a: &Function, b: &Function) -> bool {
    a.name == b.name
        && a.args == b.args
        && a.results == b.results
        && a.values
            .iter()
            .map(|v| &v.name)
            .eq(b.values.iter().map(|v| &v.name))
        && a.ops
            .iter()
            .map(|op| &op.loc)
            .eq(b.ops.iter().map(|op| &op.loc))
        && Body::of(a) == Body::of(b)
}
