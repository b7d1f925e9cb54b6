//! Which functions of a module name which others.

use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::graph::{Function, Module};
use mithril_ir::op::Kind;
use rustc_hash::{FxHashMap, FxHashSet};

/// The functions that `function` names, each once, in order.
pub fn callees(function: &Function) -> Vec<Arc<str>> {
    let mut seen = FxHashSet::default();
    let calls = function.ops.iter().filter(|op| op.op.kind == Kind::Call);
    let names = calls.flat_map(|op| op.functions());
    names.filter(|name| seen.insert(*name)).cloned().collect()
}

/// All functions, callees before their callers.
/// Errors: a name that no function has, or functions that call each other in a circle.
pub fn post_order(module: &Module) -> Result<Vec<Arc<str>>> {
    let mut walk = Walk::new(module);
    for name in module.functions.keys() {
        walk.from(name)?;
    }
    Ok(walk.done)
}

/// The functions that the entry needs, itself included, callees first.
/// Errors: as [`post_order`].
pub fn reachable(module: &Module) -> Result<Vec<Arc<str>>> {
    let mut walk = Walk::new(module);
    if let Some(entry) = module.entry() {
        walk.from(&entry.name)?;
    }
    Ok(walk.done)
}

/// A depth-first walk with a stack of its own: call chains may be long.
struct Walk<'m> {
    module: &'m Module,
    /// `true` once all callees are done.
    state: FxHashMap<Arc<str>, bool>,
    done: Vec<Arc<str>>,
}

impl<'m> Walk<'m> {
    fn new(module: &'m Module) -> Walk<'m> {
        Walk {
            module,
            state: FxHashMap::default(),
            done: Vec::new(),
        }
    }

    fn from(&mut self, name: &Arc<str>) -> Result<()> {
        let mut stack: Vec<(Arc<str>, std::vec::IntoIter<Arc<str>>)> = Vec::new();
        if !self.state.contains_key(name) {
            stack.push(self.open(name)?);
        }
        while let Some((current, rest)) = stack.last_mut() {
            match rest.next() {
                Some(next) => match self.state.get(&next) {
                    Some(true) => {}
                    Some(false) => return Err(circle(&next, &stack)),
                    None => {
                        let opened = self.open(&next)?;
                        stack.push(opened);
                    }
                },
                None => {
                    self.state.insert(current.clone(), true);
                    self.done.push(current.clone());
                    stack.pop();
                }
            }
        }
        Ok(())
    }

    fn open(&mut self, name: &Arc<str>) -> Result<(Arc<str>, std::vec::IntoIter<Arc<str>>)> {
        let function = function(self.module, name)?;
        self.state.insert(name.clone(), false);
        Ok((name.clone(), callees(function).into_iter()))
    }
}

/// The function of this name.
/// Errors: there is none.
pub fn function<'m>(module: &'m Module, name: &str) -> Result<&'m Arc<Function>> {
    let missing = || {
        Box::new(Diagnostic::new(format!(
            "the module has no function `{name}`"
        )))
    };
    module.get(name).ok_or_else(missing)
}

type Open = (Arc<str>, std::vec::IntoIter<Arc<str>>);

fn circle(name: &Arc<str>, stack: &[Open]) -> Box<Diagnostic> {
    let names = stack.iter().map(|(n, _)| n).skip_while(|n| *n != name);
    let mut path: Vec<String> = names.map(|n| format!("`{n}`")).collect();
    path.push(format!("`{name}`"));
    Box::new(
        Diagnostic::new("functions call each other in a circle")
            .got(path.join(" calls "))
            .expected("calls that end"),
    )
}
