//! Estimates how long operations take, for choosing among equal terms.

use std::hash::Hash;
use std::sync::Arc;

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::Result;
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Argument, Function, Module, Operation, ResultDef, Role, Value, ValueInfo};
use mithril_ir::loc::Loc;
use mithril_ir::op::access::{Access, Constant};
use mithril_ir::op::{Gradient, Kind, Meaning, Op};
use mithril_ir::scalar::Prim;
use mithril_ir::shape::Type;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::call_graph;
use crate::cost;
use crate::profile::Profile;
use crate::target::{self, Target};

/// The maximum estimate for one operation, in picoseconds, so that sums do not overflow.
const MAX_PICOSECONDS: u64 = 1 << 46;

/// The size assumed for a symbol that is not known.
pub const NOMINAL: i64 = 128;

/// The picoseconds that an operation takes. An operand is described by its type and the index of
/// the first operand that is the same value.
///
/// Errors: a composite whose decomposition fails.
pub fn time(
    op: Op,
    attrs: &[Attr],
    operands: &[(usize, &Type)],
    result: &Type,
    to: Target,
) -> Result<u64> {
    let function = single_operation(op, attrs, operands, result);
    let operation = &function.ops[0];
    if matches!(op.kind, Kind::Constant | Kind::Dim | Kind::Barrier) && operands.is_empty() {
        return Ok(0);
    }
    let whole = (to.takes)(&function, operation);
    if whole && !matches!(op.meaning, Meaning::Decompose(_)) {
        return Ok(of_primitive(&function, operation, &to.profile));
    }
    // If the parts need dims that are unknown, an operation taken whole is still estimated, as a
    // primitive.
    let Ok(parts) = cost::decomposed(&function, if whole { *target::CORE } else { to }) else {
        return Ok(of_primitive(&function, operation, &to.profile));
    };
    let sum: u64 = parts.ops.iter().map(|op| of_primitive(&parts, op, &to.profile)).sum();
    Ok(if whole { (sum as f64 * to.profile.whole) as u64 } else { sum })
}

/// The picoseconds that a program takes: its entry functions, once each, with the steps of loops
/// counted.
///
/// Errors: a composite whose decomposition fails; a call of a function that does not exist.
pub fn of_module(module: &Module, to: Target) -> Result<u64> {
    let mut known: FxHashMap<Arc<str>, u64> = FxHashMap::default();
    for name in call_graph::post_order(module)? {
        let function = call_graph::function(module, &name)?;
        let time = of_function(function, to, &known)?;
        known.insert(name, time);
    }
    let entries = module.called_from_outside().map(|function| known[&function.name]);
    Ok(entries.fold(0, u64::saturating_add))
}

/// For each operand, the index of the first one equal to it.
pub fn first_occurrences<T: Copy + Eq + Hash>(operands: &[T]) -> SmallVec<[usize; 3]> {
    let mut first: FxHashMap<T, usize> = FxHashMap::default();
    operands.iter().enumerate().map(|(at, own)| *first.entry(*own).or_insert(at)).collect()
}

fn of_function(
    function: &Arc<Function>,
    to: Target,
    known: &FxHashMap<Arc<str>, u64>,
) -> Result<u64> {
    let mut total = 0u64;
    for op in &function.ops {
        for step in op.functions().map(|name| known[name]) {
            let time = step.saturating_mul(steps(function, op)).min(MAX_PICOSECONDS);
            total = total.saturating_add(time);
        }
        if op.op.kind != Kind::Call {
            let types = op.operands.iter().map(|value| function.ty(*value));
            let operands: Vec<(usize, &Type)> =
                first_occurrences(&op.operands).into_iter().zip(types).collect();
            let time = time(op.op, &op.attrs, &operands, function.ty(op.result()), to)?;
            total = total.saturating_add(time);
        }
    }
    Ok(total)
}

/// A function that consists of this operation. Its arguments count as states, as some targets take
/// operations on states alone.
pub(crate) fn single_operation(
    op: Op,
    attrs: &[Attr],
    operands: &[(usize, &Type)],
    result: &Type,
) -> Function {
    let mut function = Function::new("operation");
    let value = |ty: &Type| ValueInfo { ty: ty.clone(), name: None, known: None };
    function.values = operands.iter().map(|(_, ty)| value(ty)).collect();
    let argument =
        |at| Argument { name: format!("x{at}").into(), role: Role::State, donated: false };
    function.args = (0..operands.len()).map(argument).collect();
    let first = Value(operands.len() as u32);
    function.values.push(value(result));
    function.ops.push(Operation {
        op,
        operands: operands.iter().map(|(place, _)| Value(*place as u32)).collect(),
        attrs: attrs.into(),
        first,
        results: 1,
        loc: Loc::unknown(),
    });
    function.results = vec![ResultDef { name: "r".into(), value: first, state: None }];
    function
}

/// The assumed number of steps of a `while`.
const ASSUMED_STEPS: i64 = 16;

/// How often the callee of an operation runs.
fn steps(function: &Function, call: &Operation) -> u64 {
    match call.op.gradient {
        Gradient::Scan => {
            let sequence = function.ty(call.operands[call.attr("carries").as_int() as usize]);
            sequence.shape.dims.first().map_or(1, |length| size(length) as u64)
        }
        Gradient::While => match call.attr("max_steps") {
            Attr::Int(most) => ASSUMED_STEPS.min(*most) as u64,
            _ => ASSUMED_STEPS as u64,
        },
        Gradient::Derived
        | Gradient::Partials(_)
        | Gradient::Rule(_)
        | Gradient::Zero
        | Gradient::Callee
        | Gradient::Recompute
        | Gradient::Vjp
        | Gradient::Branches => 1,
    }
}

fn of_primitive(function: &Function, operation: &Operation, profile: &Profile) -> u64 {
    if operation.op.kind == Kind::Constant && operation.operands.is_empty() {
        return 0;
    }
    let mut bytes_moved = bytes_moved(function, operation);
    let mut overhead = profile.overhead;
    if is_view(function, operation) {
        bytes_moved = 0.0;
        overhead *= profile.view;
    }
    // Fused: an elementwise or layout operation is part of the loop that reads it, so most of its
    // traffic stays in registers.
    if profile.fuses && matches!(operation.op.kind, Kind::Elementwise | Kind::Layout) {
        bytes_moved /= 8.0;
    }
    let time = work_time(function, operation, profile).max(bytes_moved / profile.bytes);
    picoseconds(overhead + time)
}

/// Whether frameworks return a view of the same memory.
fn is_view(function: &Function, operation: &Operation) -> bool {
    match function.index_map(operation) {
        Some(map) => !map.reverses(),
        None => matches!(operation.op.access, Access::Constant(Constant::Known)),
    }
}

fn work_time(function: &Function, operation: &Operation, profile: &Profile) -> f64 {
    let work = size(&cost::work(function, operation, &weight));
    match operation.op.access {
        Access::Contract => work / profile.products,
        _ => work / profile.scalars,
    }
}

/// The bytes it reads and writes. An operand that is read twice counts once.
fn bytes_moved(function: &Function, operation: &Operation) -> f64 {
    let mut values: Vec<Value> = operation.operands.to_vec();
    values.sort_unstable();
    values.dedup();
    values.extend(operation.results());
    values.iter().map(|value| size(&cost::bytes(function.ty(*value)))).sum()
}

fn size(dim: &Dim) -> f64 {
    dim.evaluate(&|_| Some(NOMINAL)).unwrap_or(NOMINAL).max(0) as f64
}

fn picoseconds(nanoseconds: f64) -> u64 {
    ((nanoseconds * 1000.0) as u64).min(MAX_PICOSECONDS)
}

/// The cost of a scalar primitive, in additions.
fn weight(prim: Prim) -> i64 {
    use Prim::{Acos, Asin, Atan, Atan2, Cos, Cosh, Sin, Sinh, Tan};
    use Prim::{Div, Erf, Exp, Expm1, FloorDiv, Log, Log1p, Mod, Pow, Sqrt, Tanh};
    match prim {
        Div | Sqrt => 4,
        FloorDiv | Mod => 8,
        Exp | Expm1 | Log | Log1p | Tanh | Erf | Sin | Cos => 12,
        Tan | Asin | Acos | Atan | Sinh | Cosh => 20,
        Pow | Atan2 => 40,
        _ => 1,
    }
}
