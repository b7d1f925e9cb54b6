//! Copies the operations of a function to a builder where its arguments have other types: those of
//! a caller, for inlining, or of a copy, for specialising.

use mithril_ir::attr::Attr;
use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::Result;
use mithril_ir::dim::{Dim, Symbol};
use mithril_ir::graph::{Function, Operation, Value};
use mithril_ir::op::Kind;
use mithril_ir::shape::{Guard, Shape, Type, unify};
use mithril_ir::signature::{Binding, bind};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

/// The values and symbols of a function, mapped to those of the builder.
pub struct Transfer<'f> {
    source: &'f Function,
    values: Vec<Option<Value>>,
    binding: Binding,
    bound: FxHashSet<Symbol>,
}

impl<'f> Transfer<'f> {
    /// Starts with the arguments: `args` are the values of the builder that replace them.
    /// Errors: their number or types.
    pub fn new(source: &'f Function, builder: &Builder, args: &[Value]) -> Result<Transfer<'f>> {
        let types: Vec<Type> = args.iter().map(|v| builder.ty(*v)).collect();
        let types: Vec<&Type> = types.iter().collect();
        let mut guards = Vec::new();
        let binding = bind(source, &types, &mut guards)?;
        let mut bound = FxHashSet::default();
        for (value, _) in source.arguments() {
            source.ty(value).shape.for_each_symbol(&mut |symbol| {
                bound.insert(symbol.clone());
            });
        }
        let mut values = vec![None; source.values.len()];
        for (value, new) in source.arguments().zip(args) {
            values[value.0.index()] = Some(*new);
        }
        let mut transfer = Transfer { source, values, binding, bound };
        transfer.conditions(builder, guards);
        Ok(transfer)
    }

    /// The builder's value for a value of the source.
    pub fn value(&self, old: Value) -> Value {
        self.values[old.index()].expect("operands come before their operation")
    }

    /// A dim of the source in the builder's symbols.
    pub fn dim(&self, dim: &Dim) -> Dim {
        self.binding.dim(dim)
    }

    /// The operands of an operation of the source, in the builder.
    pub fn operands(&self, op: &Operation) -> SmallVec<[Value; 3]> {
        op.operands.iter().map(|v| self.value(*v)).collect()
    }

    /// Adds the operation with its types inferred again, at the builder's location. `callee` is the
    /// function it calls, if it is a call.
    /// Errors: types of the operands.
    pub fn emit(
        &mut self,
        builder: &Builder,
        op: &Operation,
        callee: Option<&Function>,
    ) -> Result<()> {
        let attrs = op.attrs.iter().map(|a| self.attr(builder, a)).collect();
        self.emit_with(builder, op, attrs, callee)
    }

    /// Like [`Transfer::emit`], with these attributes instead of its own.
    /// Errors: types of the operands.
    pub fn emit_with(
        &mut self,
        builder: &Builder,
        op: &Operation,
        attrs: SmallVec<[Attr; 2]>,
        callee: Option<&Function>,
    ) -> Result<()> {
        let operands = self.operands(op);
        let results = match (op.op.kind, callee) {
            (Kind::Call, Some(callee)) => builder.call(op.op, callee, attrs, &operands)?,
            _ => SmallVec::from_iter([builder.push(op.op, &operands, attrs)?]),
        };
        for (old, new) in op.results().zip(results) {
            self.define(builder, old, new);
        }
        Ok(())
    }

    /// Replaces a value of the source by `new`, a value the builder already has.
    pub fn define(&mut self, builder: &Builder, old: Value, new: Value) {
        self.bind_result_symbols(&self.source.ty(old).shape, &builder.ty(new).shape);
        self.values[old.index()] = Some(new);
    }

    /// An attribute, with any shape expressed in the builder's symbols.
    pub fn attr(&mut self, builder: &Builder, attr: &Attr) -> Attr {
        match attr {
            Attr::Shape(shape) => self.shape(builder, shape).into(),
            _ => attr.clone(),
        }
    }

    fn shape(&mut self, builder: &Builder, shape: &Shape) -> Shape {
        let mut free = Vec::new();
        shape.for_each_symbol(&mut |symbol| {
            if !self.bound.contains(symbol) {
                free.push(symbol.clone());
            }
        });
        for symbol in free {
            // The symbol is not bound yet, so it becomes a fresh one that no other symbol can be
            // confused with.
            let fresh = builder.fresh_symbol();
            self.bind(&symbol, Dim::symbol(fresh));
        }
        self.binding.shape(shape)
    }

    fn bind(&mut self, symbol: &Symbol, dim: Dim) {
        if self.bound.insert(symbol.clone()) {
            self.binding.bind_dim(symbol.clone(), dim);
        }
    }

    /// Binds symbols that first occur in results (such as a fresh one for each draw) to the dims
    /// inferred for them.
    fn bind_result_symbols(&mut self, old: &Shape, new: &Shape) {
        let (Some(front), back) = (new.dims.len().checked_sub(old.dims.len()), &old.dims) else {
            return;
        };
        if let Some(lead) = old.lead.as_ref().filter(|lead| !self.bound.contains(*lead)) {
            let shape = Shape { lead: new.lead.clone(), dims: new.dims[..front].into() };
            self.bound.insert(lead.clone());
            self.binding.bind_lead(lead.clone(), shape);
        }
        for (dim, actual) in back.iter().zip(&new.dims[front..]) {
            if let Some(symbol) = dim.as_symbol() {
                self.bind(symbol, actual.clone());
            }
        }
    }

    /// Adds the source's guards and constraints, in the builder's symbols. Those that always hold
    /// are left out. Constraints between numbers hold, or binding would have failed.
    fn conditions(&mut self, builder: &Builder, mut guards: Vec<Guard>) {
        let known = |dim: &Dim| {
            let mut known = true;
            dim.for_each_symbol(&mut |symbol| known &= self.bound.contains(symbol));
            known
        };
        for guard in &self.source.guards {
            if known(&guard.left) && known(&guard.right) {
                let (left, right) = (self.binding.dim(&guard.left), self.binding.dim(&guard.right));
                let before = guards.len();
                // A guard that can never hold is kept, so that the run reports it.
                if unify(&left, &right, &mut guards).is_none() {
                    guards.push(Guard::new(left, right));
                }
                guards[before..].iter_mut().for_each(|own| own.loc = guard.loc.clone());
            }
        }
        let mut constraints = Vec::new();
        for constraint in &self.source.constraints {
            let mut moved = constraint.clone();
            moved.left = self.binding.dim(&constraint.left);
            moved.right = self.binding.dim(&constraint.right);
            if moved.left.as_const().is_none() || moved.right.as_const().is_none() {
                constraints.push(moved);
            }
        }
        builder.add_guards(guards);
        builder.with_mut(|f| {
            for constraint in constraints {
                if !f.constraints.contains(&constraint) {
                    f.constraints.push(constraint);
                }
            }
        });
    }
}
