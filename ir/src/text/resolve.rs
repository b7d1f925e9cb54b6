//! Turns the syntax tree into functions: resolves names, and checks types against inference.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::cursor::Span;
use super::syntax::{FunctionTree, Label, OpTree};
use crate::diagnostic::{Diagnostic, Result, did_you_mean};
use crate::dim::{Dim, Symbol};
use crate::graph::{Function, Module, Operation, ResultDef, Value, ValueInfo};
use crate::guards::GuardIndex;
use crate::loc::Loc;
use crate::order::needed_first;
use crate::retype::{self, Equalities, Inferred};
use crate::shape::{Guard, Type};
use crate::verify;

/// Resolves and checks all functions.
/// Errors: names that are undefined or defined twice, types that differ from inferred ones, and
/// everything that the verifier reports.
pub(super) fn module(trees: &[FunctionTree]) -> Result<Module> {
    let mut numbers: FxHashMap<&str, usize> = FxHashMap::default();
    for (i, tree) in trees.iter().enumerate() {
        if numbers.insert(&tree.name, i).is_some() {
            return Diagnostic::new(format!("the function `{}` is defined twice", tree.name))
                .span(tree.span.clone())
                .err();
        }
    }
    let callees = trees.iter().map(|tree| callees(tree, &numbers)).collect::<Result<Vec<_>>>()?;
    let order = needed_first(&callees).or_else(|cycle| recursion(trees, &cycle))?;
    let mut module = Module::new();
    for i in order {
        let function = Resolver::new(&trees[i]).function(&module)?;
        module.insert(function);
    }
    let entries = trees.iter().skip(1).filter(|tree| tree.entry);
    module.entries = entries.map(|tree| tree.name.clone()).collect();
    // Restores the order of the text, where the first function is the entry.
    module.functions.sort_by_cached_key(|name, _| numbers[&**name]);
    Ok(module)
}

fn callees(tree: &FunctionTree, numbers: &FxHashMap<&str, usize>) -> Result<Vec<usize>> {
    let mut callees = Vec::new();
    for op in &tree.ops {
        for (def, attr) in op.op.attrs.iter().zip(&op.attrs) {
            let crate::attr::Attr::Function(name) = attr else {
                continue;
            };
            match numbers.get(&**name) {
                Some(number) => callees.push(*number),
                None => {
                    let mut error = Diagnostic::new(format!("there is no function `{name}`"))
                        .span(attr_span(op, def.name));
                    error.hint = did_you_mean(name, numbers.keys().copied());
                    return error.err();
                }
            }
        }
    }
    Ok(callees)
}

fn attr_span(op: &OpTree, name: &str) -> Span {
    let found = op.attr_spans.iter().find(|(n, _)| *n == name);
    found.map_or(op.span.clone(), |(_, span)| span.clone())
}

fn recursion<T>(trees: &[FunctionTree], cycle: &[usize]) -> Result<T> {
    let names: Vec<&str> = cycle.iter().map(|&i| &*trees[i].name).collect();
    let next = names.get(1).or(names.first()).copied().unwrap_or("");
    let mut error = verify::recursion(&names);
    let calls = cycle.first().into_iter().flat_map(|&i| &trees[i].ops);
    let mut named = calls.flat_map(|op| op.attrs.iter().map(move |a| (op, a)));
    let call =
        named.find(|(_, a)| matches!(a, crate::attr::Attr::Function(name) if **name == *next));
    error.span = call.map(|(op, _)| op.span.clone());
    error.err()
}

struct Resolver<'t, 's> {
    tree: &'t FunctionTree<'s>,
    function: Function,
    values: FxHashMap<&'s str, Value>,
    /// The symbols of the arguments, which results must not bind again.
    symbols: FxHashSet<Symbol>,
    /// The guards, and the equalities of the signature.
    equalities: Equalities,
    /// An index of the guards, to find the missing ones.
    index: GuardIndex,
}

impl<'t, 's> Resolver<'t, 's> {
    fn new(tree: &'t FunctionTree<'s>) -> Self {
        let mut function = Function::new(tree.name.clone());
        function.external = tree.external;
        function.constraints = tree.constraints.clone();
        function.guards = tree.guards.clone();
        function.computes = tree.computes.clone();
        function.bodies = tree.bodies.iter().map(|(body, _)| body.clone()).collect();
        let equalities = Equalities::of(&tree.guards, &tree.constraints);
        Resolver {
            tree,
            function,
            values: FxHashMap::default(),
            symbols: FxHashSet::default(),
            index: GuardIndex::of(equalities.iter()),
            equalities,
        }
    }

    fn function(mut self, module: &Module) -> Result<Function> {
        for (label, argument, ty) in &self.tree.args {
            ty.shape.for_each_symbol(&mut |symbol| {
                self.symbols.insert(symbol.clone());
            });
            self.define(label, ty.clone())?;
            self.function.args.push(argument.clone());
        }
        for op in &self.tree.ops {
            self.operation(op, module).map_err(|error| with_span(error, &op.span))?;
        }
        match self.tree.external {
            true => self.declared_results(),
            false => self.returned()?,
        }
        for (body, span) in &self.tree.bodies {
            body.check(&self.function).map_err(|error| with_span(error, span))?;
        }
        verify::signature(&self.function).map_err(|error| with_span(error, &self.tree.span))?;
        Ok(self.function)
    }

    fn define(&mut self, label: &Label<'s>, ty: Type) -> Result<()> {
        let value = Value(self.function.values.len() as u32);
        if self.values.insert(label.name, value).is_some() {
            return Diagnostic::new(format!("the value `%{}` is defined twice", label.name))
                .span(label.span.clone())
                .err();
        }
        let named = super::is_identifier(label.name);
        self.function.values.push(ValueInfo {
            ty,
            name: named.then(|| Arc::from(label.name)),
            known: None,
        });
        Ok(())
    }

    fn value(&self, label: &Label) -> Result<Value> {
        if let Some(value) = self.values.get(label.name) {
            return Ok(*value);
        }
        let mut error = Diagnostic::new(format!("the value `%{}` is not defined", label.name))
            .span(label.span.clone());
        let later = |op: &&OpTree| op.results.iter().any(|r| r.name == label.name);
        error.hint = match self.tree.ops.iter().find(later) {
            Some(_) => Some("move this operation below the one that defines it".to_string()),
            None => did_you_mean(label.name, self.values.keys().copied()),
        };
        error.err()
    }

    fn operation(&mut self, tree: &OpTree<'s>, module: &Module) -> Result<()> {
        let operands = tree
            .operands
            .iter()
            .map(|label| self.value(label))
            .collect::<Result<SmallVec<[Value; 3]>>>()?;
        let op = Operation {
            op: tree.op,
            operands,
            attrs: tree.attrs.clone(),
            first: Value(self.function.values.len() as u32),
            results: tree.results.len() as u32,
            loc: tree.loc.clone(),
        };
        let inferred = verify::infer_operation(module, &self.function, &op)?;
        if inferred.types.len() != tree.results.len() {
            return Diagnostic::new(format!("`{}` has the wrong number of results", tree.op.name))
                .got(tree.results.len())
                .expected(inferred.types.len())
                .err();
        }
        match &tree.types {
            None => self.infer_results(tree, inferred)?,
            Some(types) => self.check_results(tree, inferred, types)?,
        }
        self.function.ops.push(op);
        Ok(())
    }

    fn infer_results(&mut self, tree: &OpTree<'s>, inferred: Inferred) -> Result<()> {
        if !inferred.fresh.is_empty() && !inferred.types.is_empty() {
            return Diagnostic::new("the types of these results must be given")
                .hint("give names to their new dims: write `: tensor<…>`")
                .err();
        }
        self.add_guards(inferred.guards, &tree.loc);
        for (label, ty) in tree.results.iter().zip(inferred.types) {
            self.define(label, ty)?;
        }
        self.record_known(inferred.known);
        Ok(())
    }

    fn check_results(
        &mut self,
        tree: &OpTree<'s>,
        mut inferred: Inferred,
        types: &[(Type, Span)],
    ) -> Result<()> {
        if types.len() != tree.results.len() {
            return Diagnostic::new("each result must have one type")
                .got(format!("{} types", types.len()))
                .expected(tree.results.len())
                .err();
        }
        if inferred.fresh.is_empty() {
            self.add_guards(std::mem::take(&mut inferred.guards), &tree.loc);
        }
        let declared: SmallVec<[&Type; 2]> = types.iter().map(|(ty, _)| ty).collect();
        let taken = |symbol: &Symbol| self.symbols.contains(symbol);
        let settled = retype::settle(&inferred, &declared, &self.equalities, &taken);
        let binding = settled.or_else(|i| {
            Diagnostic::new(format!("the declared type of `%{}` is wrong", tree.results[i].name))
                .got(&types[i].0)
                .expected(&inferred.types[i])
                .span(types[i].1.clone())
                .err()
        })?;
        let guards = std::mem::take(&mut inferred.guards).into_iter().map(|guard| Guard {
            left: binding.dim(&guard.left),
            right: binding.dim(&guard.right),
            ..guard
        });
        self.add_guards(guards.collect(), &tree.loc);
        for (label, (ty, _)) in tree.results.iter().zip(types) {
            self.define(label, ty.clone())?;
        }
        let known = inferred.known;
        self.record_known(match inferred.fresh.is_empty() {
            true => known,
            false => known.map(|dims| dims.iter().map(|d| binding.dim(d)).collect()),
        });
        Ok(())
    }

    /// Records the elements of the last value, if they are known. They never are for calls, which
    /// may have no results.
    fn record_known(&mut self, known: Option<Arc<[Dim]>>) {
        if let (Some(info), Some(_)) = (self.function.values.last_mut(), &known) {
            info.known = known;
        }
    }

    /// Adds the guards that inference requires and the text does not have.
    fn add_guards(&mut self, guards: Vec<Guard>, loc: &Loc) {
        for guard in guards {
            if has_unnamed_symbol(&guard) || self.index.covers(&guard) {
                continue;
            }
            let guard = Guard { loc: guard.loc.inside(loc), ..guard };
            self.index.record(&guard);
            self.equalities.add(guard.clone());
            self.function.guards.push(guard);
        }
    }

    /// Adds the results of a declaration, which are values that no operation defines.
    fn declared_results(&mut self) {
        for result in &self.tree.results {
            let value = Value(self.function.values.len() as u32);
            self.function.values.push(ValueInfo { ty: result.ty.clone(), name: None, known: None });
            self.function.results.push(ResultDef {
                name: result.name.clone(),
                value,
                state: result.state.clone(),
            });
        }
    }

    fn returned(&mut self) -> Result<()> {
        let none = (Vec::new(), self.tree.span.clone());
        let (labels, span) = self.tree.returned.as_ref().unwrap_or(&none);
        if labels.len() != self.tree.results.len() {
            return Diagnostic::new(format!(
                "`{}` returns a different number of results than it declares",
                self.tree.name
            ))
            .got(labels.len())
            .expected(self.tree.results.len())
            .span(span.clone())
            .err();
        }
        for (label, result) in labels.iter().zip(&self.tree.results) {
            let value = self.value(label)?;
            let ty = self.function.ty(value);
            if *ty != result.ty {
                return Diagnostic::new(format!(
                    "the declared type of the result `{}` is wrong",
                    result.name
                ))
                .got(&result.ty)
                .expected(ty)
                .span(result.ty_span.clone())
                .err();
            }
            self.function.results.push(ResultDef {
                name: result.name.clone(),
                value,
                state: result.state.clone(),
            });
        }
        Ok(())
    }
}

/// Whether a guard contains a fresh symbol that no result shows, so that it cannot be written.
fn has_unnamed_symbol(guard: &Guard) -> bool {
    let mut found = false;
    let mut look = |symbol: &Symbol| found |= !super::is_identifier(symbol.as_str());
    guard.left.for_each_symbol(&mut look);
    guard.right.for_each_symbol(&mut look);
    found
}

pub(super) fn with_span(mut error: Box<Diagnostic>, span: &Span) -> Box<Diagnostic> {
    error.span.get_or_insert_with(|| span.clone());
    error
}
