//! Cuts long functions into windows: runs of operations that are each rewritten as a function, so
//! that the work is linear in the length.

use std::ops::Range;
use std::sync::Arc;

use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::Result;
use mithril_ir::graph::{Argument, Function, Operation, ResultDef, Role, Value};
use mithril_ir::op::Kind;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::siblings::backward;
use crate::rebuild::copy;

/// The fewest windows of at most `size` operations that cover `count`, of about equal length.
pub fn bounds(count: usize, size: usize) -> Vec<Range<usize>> {
    let windows = count.div_ceil(size.max(1));
    (0..windows).map(|at| at * count / windows..(at + 1) * count / windows).collect()
}

/// Applies `rewritten` to each window, and joins the results; `None` if no window changes.
/// Errors: those of `rewritten`.
pub fn rewrite(
    function: &Function,
    windows: &[Range<usize>],
    rewritten: &mut dyn FnMut(&Function) -> Result<Option<Function>>,
) -> Result<Option<Function>> {
    let whole = Whole::new(function);
    let builder = Builder::like(function.name.clone(), function);
    let mut values: Vec<Option<Value>> = vec![None; function.values.len()];
    for (value, _) in function.arguments() {
        values[value.index()] = Some(value);
    }
    let mut changed = false;
    for window in windows {
        let (arguments, window_function) = whole.window(window.clone());
        let new = rewritten(&window_function)?;
        changed |= new.is_some();
        let new = new.as_ref().unwrap_or(&window_function);
        let mut map: Vec<Option<Value>> = vec![None; new.values.len()];
        for (at, value) in arguments.iter().enumerate() {
            map[at] = values[value.index()];
        }
        let mapped = |value: &Value, map: &[Option<Value>]| {
            map[value.index()].expect("operands come before their operation")
        };
        for op in &new.ops {
            let operands = op.operands.iter().map(|value| mapped(value, &map)).collect();
            let first = copy(&builder, new, op, operands);
            for (i, value) in op.results().enumerate() {
                map[value.index()] = Some(Value(first.0 + i as u32));
            }
        }
        for (value, result) in whole.live_out(window.clone()).zip(&new.results) {
            values[value.index()] = Some(mapped(&result.value, &map));
        }
    }
    if !changed {
        return Ok(None);
    }
    let value = |old: Value| values[old.index()].expect("results leave their window");
    let results = function.results.iter();
    let results = results.map(|r| ResultDef { value: value(r.value), ..r.clone() }).collect();
    builder.finish(results).map(Some)
}

/// A function, and what its windows need to know about it.
struct Whole<'f> {
    function: &'f Function,
    /// By value, the last operation that reads it; the number of operations for results.
    last: Vec<usize>,
    /// By value, whether it depends on cotangents of outputs.
    backward: Vec<bool>,
    /// By value, the index of the literal operation that defines it.
    literals: Vec<Option<u32>>,
}

impl<'f> Whole<'f> {
    fn new(function: &'f Function) -> Whole<'f> {
        let mut last = vec![0; function.values.len()];
        let mut literals = vec![None; function.values.len()];
        for (at, op) in function.ops.iter().enumerate() {
            op.operands.iter().for_each(|value| last[value.index()] = at);
            if is_literal(op) {
                literals[op.first.index()] = Some(at as u32);
            }
        }
        for result in &function.results {
            last[result.value.index()] = function.ops.len();
        }
        Whole { function, last, backward: backward(function), literals }
    }

    /// The values of a window that are read after it. Literals are excluded, because they are
    /// repeated in each window that reads them, so that each window sees them.
    fn live_out(&self, window: Range<usize>) -> impl Iterator<Item = Value> + '_ {
        let values = self.function.ops[window.clone()].iter().flat_map(Operation::results);
        values.filter(move |value| {
            let last = self.last[value.index()];
            let literal = self.literals[value.index()].is_some();
            last >= self.function.ops.len() || (last >= window.end && !literal)
        })
    }

    /// A window as a function, and the values of the whole that are its arguments.
    fn window(&self, window: Range<usize>) -> (Vec<Value>, Function) {
        let whole = self.function;
        let ops = &whole.ops[window.clone()];
        let start = ops.first().map_or(Value(0), |op| op.first);
        let mut window_function = Function::new(whole.name.clone());
        let mut map: FxHashMap<Value, Value> = FxHashMap::default();
        let (mut arguments, mut literals) = (Vec::new(), Vec::new());
        for value in ops.iter().flat_map(|op| &op.operands).filter(|value| **value < start) {
            if map.contains_key(value) {
                continue;
            }
            map.insert(*value, Value(arguments.len() as u32));
            match self.literals[value.index()] {
                Some(op) => literals.push((*value, op)),
                None => {
                    window_function.args.push(self.argument(*value, arguments.len()));
                    window_function.values.push(whole.info(*value).clone());
                    arguments.push(*value);
                }
            }
        }
        let mut add = |op: &Operation, map: &mut FxHashMap<Value, Value>| {
            let operands: SmallVec<[Value; 3]> = op.operands.iter().map(|v| map[v]).collect();
            let first = Value(window_function.values.len() as u32);
            for (i, value) in op.results().enumerate() {
                map.insert(value, Value(first.0 + i as u32));
                window_function.values.push(whole.info(value).clone());
            }
            window_function.ops.push(Operation { operands, first, ..op.clone() });
        };
        literals.iter().for_each(|(_, op)| add(&whole.ops[*op as usize], &mut map));
        ops.iter().for_each(|op| add(op, &mut map));
        let name = |at: usize| Arc::from(format!("value_{at}"));
        let result = |(at, value)| ResultDef { name: name(at), value: map[&value], state: None };
        window_function.results = self.live_out(window).enumerate().map(result).collect();
        (arguments, window_function)
    }

    fn argument(&self, value: Value, number: usize) -> Argument {
        let backward = self.backward[value.index()];
        let role = if backward { Role::Cotangent } else { Role::Data };
        Argument { name: format!("argument_{number}").into(), role, donated: false }
    }
}

/// Whether it is a constant without operands.
fn is_literal(op: &Operation) -> bool {
    op.op.kind == Kind::Constant && op.operands.is_empty()
}
