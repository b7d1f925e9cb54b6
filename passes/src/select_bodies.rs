//! `select-bodies`: decides between the operations of a function and its body for the target.

use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::graph::{Function, Module, Operation, ResultDef, Value};
use mithril_ir::loc::Loc;
use mithril_ir::op::Gradient;
use rustc_hash::FxHashSet;

use crate::call_graph;
use crate::context::PassContext;
use crate::pass::Pass;
use crate::target::{self, Language, Target};

pass! {
    /// Makes a function external that has a body for the target, and removes all other bodies from
    /// functions with operations. Operations that `gradients` are derived from stay.
    pub struct SelectBodies("select-bodies") {
        /// The target of the program.
        target: Target = *target::CORE,
        /// Whether gradients are derived from operations later.
        gradients: bool = false,
    }
}

impl Pass for SelectBodies {
    /// Errors: an external function that is called, and has no body for the target.
    fn run(&self, module: &Module, cx: &mut PassContext) -> Result<Module> {
        if module.functions.values().all(|f| f.bodies.is_empty() && !f.external) {
            return Ok(module.clone());
        }
        self.check(module)?;
        let derived = match self.gradients {
            true => differentiated(module),
            false => FxHashSet::default(),
        };
        let mut out = module.clone();
        for function in module.functions.values() {
            if function.external || function.bodies.is_empty() {
                continue;
            }
            let whole = self.target.body(function).is_some()
                && !derived.contains(&function.name)
                && !module.called_from_outside().any(|f| f.name == function.name);
            if whole {
                cx.count("bodies-selected", 1);
                out.insert(declared(function));
            } else {
                out.insert(Function { bodies: Vec::new(), ..(**function).clone() });
            }
        }
        Ok(out)
    }
}

impl SelectBodies {
    /// Errors: an external function that is called, and has no body for the target.
    fn check(&self, module: &Module) -> Result<()> {
        let mut seen: FxHashSet<&Arc<str>> = FxHashSet::default();
        let mut open: Vec<(&Arc<Function>, Loc)> =
            module.called_from_outside().map(|function| (function, Loc::unknown())).collect();
        while let Some((function, place)) = open.pop() {
            for op in &function.ops {
                let place = op.loc.inside(&place);
                for callee in op.functions() {
                    let callee = call_graph::function(module, callee)?;
                    if callee.external && self.target.body(callee).is_none() {
                        return missing(callee, &place, &self.target).err();
                    }
                    if seen.insert(&callee.name) {
                        open.push((callee, place.clone()));
                    }
                }
            }
        }
        Ok(())
    }
}

/// The function without its operations.
fn declared(function: &Function) -> Function {
    let count = function.args.len();
    let mut values = function.values[..count].to_vec();
    let results = function.results.iter().map(|result| {
        let value = Value(values.len() as u32);
        let mut info = function.info(result.value).clone();
        (info.name, info.known) = (None, None);
        values.push(info);
        ResultDef { value, ..result.clone() }
    });
    let results = results.collect();
    let own = function.clone();
    Function { values, results, ops: Vec::new(), external: true, ..own }
}

/// The functions whose operations gradients are derived from: those that are reached without going
/// through a `custom_gradient`.
fn differentiated(module: &Module) -> FxHashSet<Arc<str>> {
    let mut found = FxHashSet::default();
    let mut left: Vec<&Arc<Function>> = module.called_from_outside().collect();
    while let Some(function) = left.pop() {
        let derived = function.ops.iter().filter(|op| !matches!(op.op.gradient, Gradient::Vjp));
        for callee in derived.flat_map(Operation::functions) {
            if found.insert(callee.clone()) {
                left.extend(module.get(callee));
            }
        }
    }
    found
}

/// The error of a call of an external function that has no body for the target.
pub fn missing(function: &Function, loc: &Loc, target: &Target) -> Diagnostic {
    let targets: Vec<&str> = function.bodies.iter().map(|body| &*body.target).collect();
    let got = match targets.is_empty() {
        true => "no bodies".to_string(),
        false => format!("bodies for {}", targets.join(", ")),
    };
    let name = target.name;
    // The last target of the list is the one whose bodies serve most targets.
    let keyword = target.bodies.last().unwrap_or(&name);
    let body = match target.language {
        Language::Python => "return …",
        Language::C => "…",
    };
    let mut error = Diagnostic::of(
        ErrorKind::Unsupported,
        format!("Backend does not support operation {}", function.name),
    )
    .got(got)
    .expected(format!("a body for {name}"))
    .hint(format!(
        "give `custom` a body `{keyword}=…`, or `mir=…` for every backend; in text, write \
                 `body {name} \"{body}\"` into `extern func @{}`",
        function.name
    ));
    if !loc.is_unknown() {
        error = error.at(format!("block `{loc}`"));
    }
    error
}
