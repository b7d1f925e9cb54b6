//! `inline`: replaces calls of small functions by their bodies.

use std::sync::Arc;

use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::graph::{Function, Module, Operation, Value};
use mithril_ir::loc::Loc;
use mithril_ir::op::{self, Kind, Op};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::call_graph;
use crate::context::PassContext;
use crate::pass::{Limit, Pass};
use crate::rebuild::Rebuild;
use crate::transfer::Transfer;

pass! {
    /// Replaces calls of functions below `limit` operations by their bodies, innermost first. Calls
    /// of external functions stay.
    pub struct Inline("inline") {
        /// Functions of fewer operations are inlined; `all` for any number.
        limit: Limit = Limit::At(64),
        /// Functions that are called more than once are inlined only below this many operations.
        repeated: Limit = Limit::All,
        /// Whether `checkpoint` calls are inlined, too.
        checkpoint: bool = false,
        /// Whether `custom_gradient` calls are inlined, too: only after gradients are taken.
        custom: bool = false,
        /// If not empty, only calls of blocks that contain one of these paths are inlined.
        around: Vec<String> = Vec::new(),
    }
}

impl Inline {
    /// Inlines all calls except those of external functions.
    pub const ALL: Inline = Inline {
        limit: Limit::All,
        repeated: Limit::All,
        checkpoint: true,
        custom: true,
        around: Vec::new(),
    };
}

/// The maximum number of operations of a function after inlining.
const MAX_OPERATIONS: usize = 1 << 20;

impl Pass for Inline {
    /// Errors: functions that would have too many operations.
    fn run(&self, module: &Module, cx: &mut PassContext) -> Result<Module> {
        let enabled_kinds =
            [("call", true), ("checkpoint", self.checkpoint), ("custom_gradient", self.custom)];
        let inlined =
            enabled_kinds.iter().filter(|(_, enabled)| *enabled).map(|(name, _)| op::get(name));
        let inlined: Vec<Op> = inlined.collect();
        let calls = call_counts(module);
        let order = call_graph::post_order(module)?;
        let mut sites =
            Sites { pass: self, plain: &inlined, calls: &calls, sizes: FxHashMap::default() };
        for name in &order {
            let function = call_graph::function(module, name)?;
            let size = sites.size(module, function);
            sites.sizes.insert(name.clone(), size);
        }
        // A function that is inlined at every call needs no inlining in its own body.
        let remaining_functions = sites.remaining_functions(module);
        let mut out = module.clone();
        for name in order.iter().filter(|name| remaining_functions.contains(*name)) {
            let function = call_graph::function(module, name)?;
            let size = sites.sizes[name];
            if size > MAX_OPERATIONS && size > function.ops.len() {
                return too_large(function, size);
            }
            if let Some(changed) = sites.function(&out, function, cx)? {
                out.insert(changed);
            }
        }
        Ok(out)
    }
}

fn too_large<T>(function: &Function, size: usize) -> Result<T> {
    let got = match size {
        usize::MAX => format!("more than {}", usize::MAX - 1),
        _ => size.to_string(),
    };
    Diagnostic::new("a function has too many operations once its calls are inlined")
        .at(format!("function `{}`", function.name))
        .got(format!("{got} operations"))
        .expected(format!("at most {MAX_OPERATIONS}"))
        .hint(
            "functions that call others more than once multiply them: call each once, or in a \
               `scan`",
        )
        .err()
}

/// The number of calls of each function.
fn call_counts(module: &Module) -> FxHashMap<Arc<str>, usize> {
    let mut counts = FxHashMap::default();
    let ops = module.functions.values().flat_map(|f| &f.ops);
    for name in ops.flat_map(Operation::functions) {
        *counts.entry(name.clone()).or_default() += 1;
    }
    counts
}

/// Decides which calls are inlined.
struct Sites<'a> {
    pass: &'a Inline,
    plain: &'a [Op],
    calls: &'a FxHashMap<Arc<str>, usize>,
    /// The operations of each function after inlining its own calls, as far as known.
    sizes: FxHashMap<Arc<str>, usize>,
}

impl Sites<'_> {
    fn callee<'m>(&self, module: &'m Module, op: &Operation) -> Option<&'m Function> {
        if op.op.kind != Kind::Call || !self.plain.contains(&op.op) || !self.is_around(op) {
            return None;
        }
        let callee: &Arc<Function> = module.get(op.functions().next()?)?;
        let count = self.sizes.get(&callee.name).copied().unwrap_or(callee.ops.len());
        let once = self.calls.get(&callee.name).copied().unwrap_or(0) < 2;
        let small = self.pass.limit.allows(count) && (once || self.pass.repeated.allows(count));
        (!callee.external && small).then_some(callee)
    }

    fn is_around(&self, op: &Operation) -> bool {
        let lies_in = |path: &String| {
            let mut blocks = op.loc.paths().iter().filter_map(|own| path.strip_prefix(&**own));
            blocks.any(|rest| rest.starts_with('.'))
        };
        self.pass.around.is_empty() || self.pass.around.iter().any(lies_in)
    }

    /// The operations of a function after inlining its calls. The sizes of its callees must be
    /// known.
    fn size(&self, module: &Module, function: &Function) -> usize {
        let size = |op: &Operation| match self.callee(module, op) {
            Some(callee) => self.sizes[&callee.name],
            None => 1,
        };
        function.ops.iter().map(size).fold(0, usize::saturating_add)
    }

    /// The entry functions, and the functions that remaining calls name.
    fn remaining_functions(&self, module: &Module) -> FxHashSet<Arc<str>> {
        let mut found: FxHashSet<Arc<str>> = FxHashSet::default();
        // Functions whose bodies were visited, inlined ones included.
        let mut seen: FxHashSet<Arc<str>> = FxHashSet::default();
        let entries = module.called_from_outside().map(|f| f.name.clone());
        let mut open: Vec<Arc<str>> = entries.collect();
        found.extend(open.iter().cloned());
        while let Some(function) = open.pop().and_then(|name| module.get(&name)) {
            for op in &function.ops {
                let inlined = self.callee(module, op).is_some();
                // The first function is the callee. Once a call is inlined, the other functions
                // that it names are not called any more.
                for name in op.functions().take(if inlined { 1 } else { usize::MAX }) {
                    if !inlined {
                        found.insert(name.clone());
                    }
                    if seen.insert(name.clone()) {
                        open.push(name.clone());
                    }
                }
            }
        }
        found
    }

    fn function(
        &self,
        module: &Module,
        function: &Function,
        cx: &mut PassContext,
    ) -> Result<Option<Function>> {
        let calls = |op: &Operation| self.callee(module, op).is_some();
        if !function.ops.iter().any(calls) {
            return Ok(None);
        }
        let names = function.values.iter().filter_map(|v| v.name.clone());
        let names: FxHashSet<Arc<str>> = names.collect();
        let mut rebuild = Rebuild::new(module, function);
        for op in &function.ops {
            match self.callee(module, op) {
                None => rebuild.keep(op)?,
                Some(callee) => self.expand(module, &mut rebuild, op, callee, &names, cx)?,
            }
        }
        rebuild.finish().map(Some)
    }

    /// Replaces `call` by the body of `callee`, and inlines the calls in that body. Values keep
    /// their names, unless the caller has them.
    fn expand(
        &self,
        module: &Module,
        rebuild: &mut Rebuild,
        call: &Operation,
        callee: &Function,
        names: &FxHashSet<Arc<str>>,
        cx: &mut PassContext,
    ) -> Result<()> {
        let args = rebuild.operands(call);
        let mut hints = NameHints::default();
        // Uses an explicit stack, because calls may nest deeper than Rust's stack allows.
        let mut open = vec![Frame::new(&rebuild.builder, call, callee, &args, call.loc.clone())?];
        while let Some(frame) = open.last_mut() {
            let Some(op) = frame.callee.ops.get(frame.next) else {
                let finished = open.pop().expect("the loop has a frame");
                cx.count("calls-inlined", 1);
                let depth = open.len();
                hints.add_body(&finished, depth + 1);
                match open.last_mut() {
                    Some(caller) => {
                        caller.define_results(&rebuild.builder, &finished, &mut hints, depth)
                    }
                    None => finished.replace(rebuild),
                }
                continue;
            };
            frame.next += 1;
            let loc = op.loc.inside(&frame.loc);
            rebuild.builder.set_loc(loc.clone());
            if let Some(callee) = self.callee(module, op) {
                let args = frame.transfer.operands(op);
                open.push(Frame::new(&rebuild.builder, op, callee, &args, loc)?);
                continue;
            }
            let inner = op.functions().next().map(|name| call_graph::function(module, name));
            let inner = inner.transpose()?.map(|f| &**f);
            frame.transfer.emit(&rebuild.builder, op, inner)?;
        }
        hints.assign(&rebuild.builder, names);
        Ok(())
    }
}

/// A call that is being replaced by the body of its callee.
struct Frame<'m> {
    call: &'m Operation,
    callee: &'m Function,
    transfer: Transfer<'m>,
    /// The index of the callee's next operation.
    next: usize,
    /// The location of the call in the function that is rebuilt.
    loc: Loc,
    /// The number of values before the body.
    before: usize,
}

impl<'m> Frame<'m> {
    fn new(
        builder: &Builder,
        call: &'m Operation,
        callee: &'m Function,
        args: &[Value],
        loc: Loc,
    ) -> Result<Frame<'m>> {
        let before = builder.with(|f| f.values.len());
        builder.set_loc(loc.clone());
        let transfer = Transfer::new(callee, builder, args)?;
        Ok(Frame { call, callee, transfer, next: 0, loc, before })
    }

    /// The results of the call, each with the value that replaces it.
    fn results(&self) -> impl Iterator<Item = (Value, Value)> + '_ {
        let values = self.callee.results.iter().map(|r| self.transfer.value(r.value));
        self.call.results().zip(values)
    }

    /// Defines the results of a call in this body.
    fn define_results(
        &mut self,
        builder: &Builder,
        call: &Frame,
        hints: &mut NameHints,
        depth: usize,
    ) {
        for (old, new) in call.results() {
            if new.index() >= call.before {
                hints.add(depth, new, self.callee.info(old).name.as_ref());
            }
            self.transfer.define(builder, old, new);
        }
    }

    /// Replaces the outermost call.
    fn replace(&self, rebuild: &mut Rebuild) {
        for (old, new) in self.results() {
            // The caller's name has priority over the callee's.
            if new.index() >= self.before {
                let name = rebuild.source.info(old).name.clone();
                rebuild.builder.set_name(new, name);
            }
            rebuild.replace(old, new);
        }
    }
}

/// Names for values: those that they have in callees, each with the nesting depth of the callee.
#[derive(Default)]
struct NameHints(Vec<(usize, Value, Arc<str>)>);

impl NameHints {
    fn add(&mut self, depth: usize, value: Value, name: Option<&Arc<str>>) {
        self.0.extend(name.map(|name| (depth, value, name.clone())));
    }

    fn add_body(&mut self, frame: &Frame, depth: usize) {
        for old in frame.callee.ops.iter().flat_map(|op| op.results()) {
            let name = frame.callee.info(old).name.as_ref();
            self.add(depth, frame.transfer.value(old), name);
        }
    }

    /// Names the unnamed values; outer callees have priority. Names that the caller uses are not
    /// given again. Other names occur once in each copy of a callee.
    fn assign(mut self, builder: &Builder, names: &FxHashSet<Arc<str>>) {
        self.0.sort_by_key(|(depth, ..)| *depth);
        for (_, value, name) in self.0 {
            if !names.contains(&name) && builder.with(|f| f.info(value).name.is_none()) {
                builder.set_name(value, Some(name));
            }
        }
    }
}
