//! `select-bodies`: decides between the operations of a function and its body for the target.

use std::sync::Arc;

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::external::TargetBody;
use mithril_ir::graph::{Function, Module, Operation, ResultDef, Value};
use mithril_ir::loc::Loc;
use mithril_ir::op::Gradient;
use rustc_hash::FxHashSet;

use crate::call_graph;
use crate::context::PassContext;
use crate::pass::Pass;
use crate::target::{self, Language, Target};

pass! {
    /// Makes a function external that has a body for the target, or computes a standard function
    /// that the target has. Removes all other bodies from functions with operations. Operations
    /// that `gradients` are derived from stay, and those that are batched instead of a standard
    /// function.
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
        if module.functions.values().all(is_plain) {
            return Ok(module.clone());
        }
        self.check(module)?;
        let derived = match self.gradients {
            true => differentiated(module),
            false => FxHashSet::default(),
        };
        let batched = batched(module);
        let mut out = module.clone();
        for function in module.functions.values() {
            if function.external || is_plain(function) {
                continue;
            }
            let own = self.target.body(function).cloned();
            let standard = || match batched.contains(&function.name) {
                true => None,
                false => self.target.standard_body(function),
            };
            let body = own.or_else(standard).filter(|_| {
                !derived.contains(&function.name)
                    && !module.called_from_outside().any(|f| f.name == function.name)
            });
            if let Some(body) = body {
                cx.count("bodies-selected", 1);
                out.insert(declared(function, body));
            } else {
                let own = (**function).clone();
                out.insert(Function { bodies: Vec::new(), computes: None, ..own });
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

/// Whether the function has only operations.
fn is_plain(function: &Arc<Function>) -> bool {
    function.bodies.is_empty() && !function.external && function.computes.is_none()
}

/// The function with this body instead of its operations.
fn declared(function: &Function, body: TargetBody) -> Function {
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
    Function { values, results, ops: Vec::new(), external: true, bodies: vec![body], ..own }
}

/// Whether the operation is a scan over a batch.
fn is_batched(op: &Operation) -> bool {
    matches!(op.op.gradient, Gradient::Scan) && *op.attr("batched") == Attr::Bool(true)
}

/// The functions that scans over a batch reach.
fn batched(module: &Module) -> FxHashSet<Arc<str>> {
    let mut found = FxHashSet::default();
    let functions = module.functions.values();
    let scans = functions.flat_map(|f| &f.ops).filter(|op| is_batched(op));
    let mut left: Vec<&Arc<str>> = scans.flat_map(Operation::functions).collect();
    while let Some(name) = left.pop() {
        if found.insert(name.clone()) {
            let callee = module.get(name).into_iter();
            left.extend(callee.flat_map(|f| &f.ops).flat_map(Operation::functions));
        }
    }
    found
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
    if target.bodies == target::CORE.bodies {
        return unknown(function, loc, got);
    }
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

/// The error of a function whose operations are asked for, as by a plan, and that has only bodies.
fn unknown(function: &Function, loc: &Loc, got: String) -> Diagnostic {
    let name = &function.name;
    let error = Diagnostic::of(
        ErrorKind::Unsupported,
        format!("the operations of {name} are not known, as plans and costs need them"),
    )
    .got(got)
    .expected("its operations in `mir=…`")
    .hint(format!(
        "give `custom` `mir=…` besides the bodies; in text, write operations into `func @{name}`"
    ));
    match loc.is_unknown() {
        true => error,
        false => error.at(format!("block `{loc}`")),
    }
}
