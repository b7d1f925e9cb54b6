//! `cse`: merges equal operations, and equal functions.

use std::collections::hash_map::Entry;
use std::hash::BuildHasher;
use std::sync::Arc;

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::Result;
use mithril_ir::graph::{Function, Module, Operation, Value};
use mithril_ir::loc::Loc;
use mithril_ir::op::Op;
use rustc_hash::{FxBuildHasher, FxHashMap};
use smallvec::SmallVec;

use crate::call_graph::post_order;
use crate::context::PassContext;
use crate::pass::Pass;
use crate::rebuild::{Rebuild, each_function};
use crate::same::Body;

pass! {
    /// Computes common subexpressions once: operations with the same operands and attributes become
    /// one, which carries the locations of all. Functions with equal bodies are merged, too.
    pub struct Cse("cse") {}
}

impl Pass for Cse {
    fn run(&self, module: &Module, cx: &mut PassContext) -> Result<Module> {
        let merged = each_function(module, |function| {
            let merged = merge_operations(module, function)?;
            if let Some(merged) = &merged {
                cx.count("ops-merged", function.ops.len() - merged.ops.len());
            }
            Ok(merged)
        })?;
        let shared = merge_functions(&merged)?;
        cx.count("functions-merged", merged.functions.len() - shared.functions.len());
        Ok(shared)
    }
}

/// Redirects calls of functions with equal bodies to the first of them, and removes the others.
fn merge_functions(module: &Module) -> Result<Module> {
    let mut out = module.clone();
    let mut firsts: FxHashMap<Body, Arc<str>> = FxHashMap::default();
    let mut duplicates: FxHashMap<Arc<str>, Arc<str>> = FxHashMap::default();
    for name in post_order(module)? {
        let function = &mut out.functions[&name];
        // Renaming its merged callees may make it equal to another function.
        if function.ops.iter().flat_map(Operation::functions).any(|f| duplicates.contains_key(f)) {
            rename(Arc::make_mut(function), &duplicates);
        }
        if function.external || module.called_from_outside().any(|f| f.name == name) {
            continue;
        }
        match firsts.entry(Body::of(function)) {
            Entry::Occupied(first) => drop(duplicates.insert(name, first.get().clone())),
            Entry::Vacant(place) => drop(place.insert(name)),
        }
    }
    out.functions.retain(|name, _| !duplicates.contains_key(name));
    Ok(out)
}

/// Renames the callees of a function.
fn rename(function: &mut Function, names: &FxHashMap<Arc<str>, Arc<str>>) {
    for attr in function.ops.iter_mut().flat_map(|op| &mut op.attrs) {
        if let Attr::Function(name) = attr {
            if let Some(other) = names.get(name) {
                *name = other.clone();
            }
        }
    }
}

/// Whether two operations are equal. Checking this first is cheaper than rebuilding the function.
fn has_duplicates(function: &Function) -> bool {
    let mut seen: FxHashMap<u64, SmallVec<[u32; 1]>> = FxHashMap::default();
    function.ops.iter().enumerate().any(|(at, op)| {
        let places = seen.entry(hash(op.op, &op.operands, &op.attrs)).or_default();
        let is_equal = |place: &u32| {
            let twin = &function.ops[*place as usize];
            let mut types = twin.results().zip(op.results());
            twin.op == op.op
                && twin.operands == op.operands
                && twin.attrs == op.attrs
                && types.all(|(a, b)| function.ty(a) == function.ty(b))
        };
        let found = places.iter().any(is_equal);
        places.push(at as u32);
        found
    })
}

/// `None` if no two operations are equal.
fn merge_operations(module: &Module, function: &Function) -> Result<Option<Function>> {
    if !has_duplicates(function) {
        return Ok(None);
    }
    let mut rebuild = Rebuild::new(module, function);
    // By hash, indices of operations in the new function. The operations themselves are the keys.
    let mut seen: FxHashMap<u64, SmallVec<[u32; 1]>> = FxHashMap::default();
    // The locations of the operations merged into each operation, by its index.
    let mut duplicates: FxHashMap<u32, Vec<&Loc>> = FxHashMap::default();
    for op in &function.ops {
        let operands = rebuild.operands(op);
        let hash = hash(op.op, &operands, &op.attrs);
        let places = seen.entry(hash).or_default();
        let twin = places.iter().find(|&&at| is_equal(&rebuild, at, op, &operands));
        match twin {
            Some(&at) => {
                duplicates.entry(at).or_default().push(&op.loc);
                let first = rebuild.builder.with(|f| f.ops[at as usize].first);
                for (i, old) in op.results().enumerate() {
                    rebuild.replace(old, Value(first.0 + i as u32));
                }
            }
            None => {
                places.push(rebuild.builder.with(|f| f.ops.len() as u32));
                rebuild.keep_on(op, operands)?;
            }
        }
    }
    if duplicates.is_empty() {
        return Ok(None);
    }
    rebuild.builder.with_mut(|f| {
        for (at, locs) in duplicates {
            let own = &mut f.ops[at as usize].loc;
            *own = Loc::union(locs.into_iter().chain([&*own]));
        }
    });
    rebuild.finish().map(Some)
}

fn hash(op: Op, operands: &[Value], attrs: &[Attr]) -> u64 {
    FxBuildHasher.hash_one((op, operands, attrs))
}

/// Whether operation `at` of the new function equals `op` on `operands`. Results whose types differ
/// (each call has its own symbols) are not merged, because other types may use those symbols.
fn is_equal(rebuild: &Rebuild, at: u32, op: &Operation, operands: &[Value]) -> bool {
    rebuild.builder.with(|f| {
        let twin = &f.ops[at as usize];
        twin.op == op.op
            && twin.operands.as_slice() == operands
            && twin.attrs == op.attrs
            && (twin.results().zip(op.results()))
                .all(|(new, old)| f.ty(new) == rebuild.source.ty(old))
    })
}
