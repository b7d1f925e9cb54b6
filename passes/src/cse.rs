//! `cse`: computes once what is computed several times.

use std::hash::BuildHasher;

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::Result;
use mithril_ir::graph::{Function, Module, Operation, Value};
use mithril_ir::op::Op;
use rustc_hash::{FxBuildHasher, FxHashMap};
use smallvec::SmallVec;

use crate::context::PassContext;
use crate::pass::Pass;
use crate::rebuild::{Rebuild, each_function};

pass! {
    /// Computes once what is computed several times: operations with the same operands and
    /// attributes become one, which carries the locations of all.
    pub struct Cse("cse") {}
}

impl Pass for Cse {
    fn run(&self, module: &Module, cx: &mut PassContext) -> Result<Module> {
        each_function(module, |function| {
            let merged = merge(module, function)?;
            if let Some(merged) = &merged {
                cx.count("ops-merged", function.ops.len() - merged.ops.len());
            }
            Ok(merged)
        })
    }
}

/// `None` where no two operations are alike.
fn merge(module: &Module, function: &Function) -> Result<Option<Function>> {
    let mut rebuild = Rebuild::new(module, function);
    // By hash, the operations of the new function: they hold the keys.
    let mut seen: FxHashMap<u64, SmallVec<[u32; 1]>> = FxHashMap::default();
    let mut changed = false;
    for op in &function.ops {
        let operands = rebuild.operands(op);
        let hash = hash(op.op, &operands, &op.attrs);
        let places = seen.entry(hash).or_default();
        let twin = places.iter().find(|&&at| alike(&rebuild, at, op, &operands));
        match twin {
            Some(&at) => {
                changed = true;
                let first = rebuild.builder.with_mut(|f| {
                    let twin = &mut f.ops[at as usize];
                    twin.loc.merge(&op.loc);
                    twin.first
                });
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
    if !changed {
        return Ok(None);
    }
    rebuild.finish().map(Some)
}

fn hash(op: Op, operands: &[Value], attrs: &[Attr]) -> u64 {
    FxBuildHasher.hash_one((op, operands, attrs))
}

/// Whether operation number `at` of the new function is the same as `op` on `operands`. Types
/// that differ (each call's own symbols) keep two alike apart: other types may name the symbols.
fn alike(rebuild: &Rebuild, at: u32, op: &Operation, operands: &[Value]) -> bool {
    rebuild.builder.with(|f| {
        let twin = &f.ops[at as usize];
        twin.op == op.op
            && twin.operands.as_slice() == operands
            && twin.attrs == op.attrs
            && (twin.results().zip(op.results()))
                .all(|(new, old)| f.ty(new) == rebuild.source.ty(old))
    })
}
