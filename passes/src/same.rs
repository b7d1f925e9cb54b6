//! Equality of functions.

use std::sync::Arc;

use mithril_ir::attr::Attr;
use mithril_ir::dim::{Dim, Symbol};
use mithril_ir::graph::{Bound, Function, Operation, Role, Value, ValueInfo};
use mithril_ir::op::Op;
use mithril_ir::shape::{Shape, Type};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Everything in a function except names (also of symbols) and locations. Functions with equal
/// bodies are interchangeable.
#[derive(PartialEq, Eq, Hash)]
pub struct Body {
    args: Vec<(Role, bool, Option<Arc<str>>)>,
    types: Vec<Type>,
    ops: Vec<Step>,
    results: Vec<(Value, Option<Arc<str>>)>,
    guards: Vec<(Dim, Dim)>,
    constraints: Vec<(Dim, Bound, Dim)>,
}

type Step = (Op, SmallVec<[Value; 3]>, SmallVec<[Attr; 2]>);

impl Body {
    pub fn of(function: &Function) -> Body {
        let symbols = numbered(function);
        let dim = |dim: &Dim| dim.substitute(&|s| symbols.get(s).map(Dim::symbol));
        let shape = |shape: &Shape| Shape {
            lead: shape.lead.as_ref().map(|l| symbols.get(l).unwrap_or(l).clone()),
            dims: shape.dims.iter().map(dim).collect(),
        };
        let attr = |attr: &Attr| match attr {
            Attr::Shape(own) => shape(own).into(),
            _ => attr.clone(),
        };
        let op = |op: &Operation| -> Step {
            (op.op, op.operands.clone(), op.attrs.iter().map(attr).collect())
        };
        // States are paired by name, so their names are compared.
        let state = |role: Role, name: &Arc<str>| (role == Role::State).then(|| name.clone());
        let args = function.args.iter();
        let guards = function.guards.iter();
        let constraints = function.constraints.iter();
        Body {
            args: args.map(|a| (a.role, a.donated, state(a.role, &a.name))).collect(),
            types: function
                .values
                .iter()
                .map(|v| Type::new(v.ty.dtype, shape(&v.ty.shape)))
                .collect(),
            ops: function.ops.iter().map(op).collect(),
            results: function.results.iter().map(|r| (r.value, r.state.clone())).collect(),
            guards: guards.map(|g| (dim(&g.left), dim(&g.right))).collect(),
            constraints: constraints.map(|c| (dim(&c.left), c.relation, dim(&c.right))).collect(),
        }
    }
}

/// Canonical names for the function's symbols, numbered in the order in which its values use them.
fn numbered(function: &Function) -> FxHashMap<Symbol, Symbol> {
    let mut symbols: FxHashMap<Symbol, Symbol> = FxHashMap::default();
    for info in &function.values {
        info.ty.shape.for_each_symbol(&mut |symbol| {
            if !symbols.contains_key(symbol) {
                // Such a symbol cannot be written in source text.
                let number = Symbol::from(format!("'{}", symbols.len()));
                symbols.insert(symbol.clone(), number);
            }
        });
    }
    symbols
}

/// Whether two functions are equal, including all names.
pub fn identical(a: &Function, b: &Function) -> bool {
    let same = |a: &ValueInfo, b: &ValueInfo| a.name == b.name && a.ty == b.ty;
    a.name == b.name
        && a.args == b.args
        && a.results == b.results
        && a.guards == b.guards
        && a.values.len() == b.values.len()
        && a.values.iter().zip(&b.values).all(|(a, b)| same(a, b))
        && a.ops.iter().map(|op| &op.loc).eq(b.ops.iter().map(|op| &op.loc))
        && Body::of(a) == Body::of(b)
}
