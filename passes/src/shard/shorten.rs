//! `shorten`: keeps two of each chain of equal layers.

use std::sync::Arc;

use indexmap::IndexMap;
use mithril_ir::diagnostic::Result;
use mithril_ir::graph::{Function, Module, Operation, Value};
use mithril_ir::loc::Loc;
use mithril_ir::nesting::deeper;
use mithril_ir::op::Kind;
use petgraph::unionfind::UnionFind;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::call_graph;
use crate::context::PassContext;
use crate::pass::Pass;
use crate::rebuild::{Rebuild, each_function};

pass! {
    /// Keeps the first two of each chain of equal calls, in which each call takes a result of the one
    /// before, for estimates of cost. The location of the second one tells how many calls it stands
    /// for: `h.1*47`.
    pub struct Shorten("shorten") {
        /// Whether the last call is kept as well: gradients that recompute layers keep its values.
        last: bool = false,
    }
}

impl Pass for Shorten {
    fn run(&self, module: &Module, cx: &mut PassContext) -> Result<Module> {
        each_function(module, |function| self.shortened(module, function, cx))
    }
}

/// How many operations an operation of this path stands for.
pub fn repeats(path: &str) -> f64 {
    let numbers = path.split('.').filter_map(|part| part.split_once('*')?.1.parse::<f64>().ok());
    numbers.product()
}

impl Shorten {
    fn shortened(
        &self,
        module: &Module,
        function: &Function,
        cx: &mut PassContext,
    ) -> Result<Option<Function>> {
        let end = usize::from(self.last);
        let mut chains = chains(function);
        chains.retain(|chain| chain.len() > 2 + end);
        if chains.is_empty() {
            return Ok(None);
        }
        // By operation: what the second one of a chain stands for, and for those that are left out
        // the second.
        let mut stands_for: FxHashMap<usize, usize> = FxHashMap::default();
        let mut left_out: FxHashMap<usize, usize> = FxHashMap::default();
        for chain in &chains {
            let out = &chain[2..chain.len() - end];
            stands_for.insert(chain[1], out.len() + 1);
            left_out.extend(out.iter().map(|at| (*at, chain[1])));
        }
        rebuilt(module, function, &stands_for, &left_out, cx)
    }
}

fn rebuilt(
    module: &Module,
    function: &Function,
    stands_for: &FxHashMap<usize, usize>,
    left_out: &FxHashMap<usize, usize>,
    cx: &mut PassContext,
) -> Result<Option<Function>> {
    let mut rebuild = Rebuild::new(module, function);
    for (at, operation) in function.ops.iter().enumerate() {
        if let Some(kept) = left_out.get(&at) {
            cx.count("calls-left-out", 1);
            for (old, same) in operation.results().zip(function.ops[*kept].results()) {
                let value = rebuild.value(same);
                rebuild.replace(old, value);
            }
            continue;
        }
        match stands_for.get(&at) {
            Some(count) => {
                let path = format!("{}*{count}", operation.loc.shortest().unwrap_or("layer"));
                let marked = Operation { loc: Loc::path(path), ..operation.clone() };
                rebuild.keep(&marked)?;
            }
            None => rebuild.keep(operation)?,
        }
    }
    rebuild.finish().map(Some)
}

/// The chains of at least two calls, by operation.
fn chains(function: &Function) -> Vec<Vec<usize>> {
    let uses = function.uses();
    let mut makers: FxHashMap<Value, usize> = FxHashMap::default();
    let mut following: FxHashMap<usize, usize> = FxHashMap::default();
    let mut follows = vec![false; function.ops.len()];
    for (at, op) in function.ops.iter().enumerate() {
        if op.op.kind != Kind::Call {
            continue;
        }
        let before = op.operands.iter().find_map(|operand| {
            let before = *makers.get(operand)?;
            let is_taken = following.contains_key(&before);
            let continues =
                is_like(&function.ops[before], op) && carries(function, &uses, before, op);
            (!is_taken && continues).then_some(before)
        });
        if let Some(before) = before {
            following.insert(before, at);
            follows[at] = true;
        }
        // A chain hands on one result, once.
        let used: Vec<Value> = op.results().filter(|value| uses[value.index()] > 0).collect();
        if let [value] = used[..] {
            makers.insert(value, at);
        }
    }
    let starts = (0..function.ops.len()).filter(|at| !follows[*at] && following.contains_key(at));
    let chain = |start: usize| {
        std::iter::successors(Some(start), |at| following.get(at).copied()).collect::<Vec<_>>()
    };
    starts.map(chain).collect()
}

/// The arguments of a function that equal layers of a chain take in the same place, by number. The
/// other arguments are alone. Functions that it calls may have chains as well.
///
/// Errors: a call of a function that does not exist.
pub fn alike(module: &Module, function: &Function) -> Result<Vec<Vec<usize>>> {
    let mut groups = UnionFind::<usize>::new(function.args.len());
    let number = |value: Value| Some(value.index()).filter(|at| *at < function.args.len());
    let mut join = |one: Value, other: Value| {
        if let (Some(one), Some(other)) = (number(one), number(other)) {
            groups.union(one, other);
        }
    };
    for chain in chains(function) {
        for at in &chain[1..] {
            let (first, own) = (&function.ops[chain[0]], &function.ops[*at]);
            first.operands.iter().zip(&own.operands).for_each(|(one, other)| join(*one, *other));
        }
    }
    let mut known: FxHashMap<Arc<str>, Vec<Vec<usize>>> = FxHashMap::default();
    for op in function.ops.iter().filter(|op| op.op.kind == Kind::Call) {
        let Some(name) = op.functions().next() else { continue };
        if !known.contains_key(name) {
            let callee = call_graph::function(module, name)?;
            let own = deeper(|| alike(module, callee))?;
            known.insert(name.clone(), own);
        }
        // The operands of control flow are not in the order of the arguments of its function.
        let takes_all = op.operands.len() == call_graph::function(module, name)?.args.len();
        for group in known[name].iter().filter(|_| takes_all) {
            group[1..].iter().for_each(|at| join(op.operands[group[0]], op.operands[*at]));
        }
    }
    let mut sets: IndexMap<usize, Vec<usize>, FxBuildHasher> = IndexMap::default();
    for at in 0..function.args.len() {
        sets.entry(groups.find(at)).or_default().push(at);
    }
    Ok(sets.into_values().collect())
}

fn is_like(one: &Operation, other: &Operation) -> bool {
    one.op == other.op && one.attrs == other.attrs && one.operands.len() == other.operands.len()
}

/// Whether a call takes a result of the call `before` in the place of an operand of the same type.
fn carries(function: &Function, uses: &[u32], before: usize, op: &Operation) -> bool {
    let before = &function.ops[before];
    op.operands.iter().zip(&before.operands).any(|(value, old)| {
        let is_result = before.results().any(|result| result == *value);
        is_result && uses[value.index()] == 1 && function.ty(*value) == function.ty(*old)
    })
}
