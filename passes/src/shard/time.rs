//! Estimates of the time and the memory of a sharded function on a machine.

use std::iter::Sum;
use std::ops::Add;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Operation, Role, Value};
use mithril_ir::op::Kind;
use rustc_hash::FxHashSet;

use super::bill::{self, Collective, OperationBill};
use super::layout::{Layout, Mesh};
use super::machine::Machine;
use super::problem::{Problem, first_of_gradients};
use super::residuals::is_open;
use super::tables;
use crate::cost::{bytes, flops};

/// Seconds of computation, and of data on its way between devices.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Time {
    pub compute: f64,
    pub transfer: f64,
}

impl Time {
    pub fn total(self) -> f64 {
        self.compute + self.transfer
    }
}

impl Add for Time {
    type Output = Time;

    fn add(self, other: Time) -> Time {
        Time { compute: self.compute + other.compute, transfer: self.transfer + other.transfer }
    }
}

impl Sum for Time {
    fn sum<I: Iterator<Item = Time>>(times: I) -> Time {
        times.fold(Time::default(), Add::add)
    }
}

/// The amounts of a function that do not depend on layouts.
pub struct Estimates {
    /// The bytes of each value.
    bytes: Vec<f64>,
    /// The floating-point operations of each operation.
    flops: Vec<f64>,
    /// For each value, the operations between which it is in memory, and how many of its kind are
    /// there at a time; none for values that take no memory of their own.
    lives: Vec<Option<Life>>,
    gradients: FxHashSet<Value>,
    /// The params of layers that are left out, whose gradients nothing computes.
    left_out: Vec<Value>,
}

struct Life {
    from: usize,
    to: usize,
    copies: f64,
}

impl Estimates {
    /// Errors: a dim without a number.
    pub fn of(problem: &Problem) -> Result<Estimates> {
        let function = problem.function;
        let each = function.values.iter().map(|info| number(&bytes(&info.ty)));
        let work = function.ops.iter().map(|op| number(&flops(function, op)));
        let (computed, left_out) = problem.gradients();
        Ok(Estimates {
            bytes: each.collect::<Result<_>>()?,
            flops: work.collect::<Result<_>>()?,
            gradients: computed.into_iter().map(|(_, gradient)| gradient).collect(),
            left_out,
            lives: lives(function, problem.repeats),
        })
    }

    /// The time of an operation with this bill, as often as it occurs.
    pub fn time(&self, problem: &Problem, at: usize, bill: &OperationBill) -> Time {
        let Problem { function, mesh, machine, .. } = *problem;
        let op = &function.ops[at];
        let compute = if moves_data(op) {
            let rate = machine.products(function.ty(op.result()).dtype);
            let traffic = self.moved(function, op, bill) / machine.bandwidth;
            traffic.max(self.flops[at] / bill.parts as f64 / rate)
        } else {
            0.0
        };
        let transfer =
            bill.collectives.iter().map(|own| self.seconds(mesh, machine, own)).sum::<f64>();
        let repeats = problem.repeats[at];
        Time { compute: compute * repeats, transfer: transfer * repeats }
    }

    /// The bytes of memory that a device reads and writes for an operation, as often as it occurs.
    pub fn traffic(&self, problem: &Problem, at: usize, bill: &OperationBill) -> f64 {
        let op = &problem.function.ops[at];
        if moves_data(op) {
            problem.repeats[at] * self.moved(problem.function, op, bill)
        } else {
            0.0
        }
    }

    /// The bytes of the operands and results of an operation on a device. Of a table, only the rows
    /// that are looked up are read.
    fn moved(&self, function: &Function, op: &Operation, bill: &OperationBill) -> f64 {
        let share = |value: Value, parts: &i64| self.bytes[value.index()] / *parts as f64;
        let read = op.operands.iter().copied().zip(&bill.operands);
        let all = read.chain(op.results().zip(&bill.results));
        let whole: f64 = all.map(|(own, parts)| share(own, parts)).sum();
        // The rows: what a lookup gives, or the updates of its gradient.
        let (rows, of_rows) = match (op.operands.get(2), bill.operands.get(2)) {
            (Some(updates), Some(parts)) => (*updates, *parts),
            _ => (op.result(), bill.results.first().copied().unwrap_or(1)),
        };
        // A part of the table and one of the rows have the same columns.
        let table = bill.operands.first().copied().unwrap_or(1);
        let columns = (table * of_rows) as f64 / bill.parts as f64;
        let looked_up = self.bytes[rows.index()] / bill.parts as f64;
        match tables::of_rows(function, op, columns, looked_up) {
            // Their sums are read and written.
            Some(moved) if op.operands.len() > 2 => whole + 2.0 * moved,
            Some(moved) => whole - share(op.operands[0], &table) + moved,
            None => whole,
        }
    }

    /// The floating-point operations of a device for an operation, as often as it occurs.
    pub fn flops(&self, problem: &Problem, at: usize, bill: &OperationBill) -> f64 {
        problem.repeats[at] * self.flops[at] / bill.parts as f64
    }

    /// The bytes of each value.
    pub fn bytes(&self) -> &[f64] {
        &self.bytes
    }

    /// The bytes that a device sends in a collective.
    pub fn sent(&self, collective: &Collective) -> f64 {
        self.bytes[collective.value.index()] * collective.sent.number()
    }

    /// The time of a collective in a ring.
    fn seconds(&self, mesh: &Mesh, machine: &Machine, collective: &Collective) -> f64 {
        let link = machine.link(mesh, collective.axis);
        let sent = self.sent(collective);
        let rounds = match collective.kind {
            bill::Kind::AllReduce => 2,
            bill::Kind::AllGather
            | bill::Kind::ReduceScatter
            | bill::Kind::AllToAll
            | bill::Kind::Permute => 1,
        };
        let steps = rounds * (mesh.parts(&[collective.axis]) - 1);
        // Gradients of params are reduced in buckets, so that each is not waited for by itself.
        let latency = if self.gradients.contains(&collective.value) { 0.0 } else { link.latency };
        sent / link.bytes + steps as f64 * latency
    }

    /// The bytes that a device uses at most: arguments, the optimizer's arrays, and the inner values
    /// and results that exist at one time.
    pub fn memory(&self, problem: &Problem, values: &[Layout]) -> f64 {
        let Problem { function, mesh, .. } = *problem;
        let local = |value: Value| {
            let dims = values[value.index()].dims.iter();
            let parts: i64 = dims.map(|axes| mesh.parts(axes)).product();
            self.bytes[value.index()] / parts as f64
        };
        let copies = |role: Role| match role {
            Role::Param => 1.0 + problem.optimizer_states,
            Role::Data | Role::Key | Role::Constant | Role::State | Role::Cotangent => 1.0,
        };
        let arguments = function.arguments().map(|(value, own)| copies(own.role) * local(value));
        let left_out = self.left_out.iter().map(|value| local(*value));
        let held: f64 = arguments.chain(left_out).sum();
        let mut change = vec![0.0; function.ops.len() + 1];
        for (at, life) in self.lives.iter().enumerate() {
            if let Some(life) = life {
                let size = local(Value(at as u32)) * life.copies;
                change[life.from] += size;
                change[life.to] -= size;
            }
        }
        let (mut now, mut most) = (0.0, 0.0f64);
        for own in change {
            now += own;
            most = most.max(now);
        }
        held + most
    }
}

/// When each value is in memory. Values that a forward operation computes and a gradient reads are
/// kept for each repetition of the operation at the same time.
fn lives(function: &Function, repeats: &[f64]) -> Vec<Option<Life>> {
    let end = function.ops.len();
    let mut to = vec![0; function.values.len()];
    for (at, op) in function.ops.iter().enumerate() {
        op.operands.iter().for_each(|value| to[value.index()] = at + 1);
    }
    function.results.iter().for_each(|result| to[result.value.index()] = end);
    let turn = first_of_gradients(function);
    let mut lives: Vec<Option<Life>> = (0..function.values.len()).map(|_| None).collect();
    for (at, op) in function.ops.iter().enumerate() {
        // A constraint may divide its operand further, so its result has memory of its own.
        let is_view = matches!(op.op.kind, Kind::Layout | Kind::Barrier) && !is_open(op);
        if is_view || matches!(op.op.kind, Kind::Constant | Kind::Dim) {
            continue;
        }
        for value in op.results() {
            let to = to[value.index()].max(at + 1);
            let copies = if at < turn && to > turn { repeats[at] } else { 1.0 };
            lives[value.index()] = Some(Life { from: at, to, copies });
        }
    }
    lives
}

/// Errors: the dim is not known.
fn number(dim: &Dim) -> Result<f64> {
    match dim.as_const() {
        Some(number) => Ok(number as f64),
        None => Diagnostic::of(ErrorKind::Shapes, "layouts can be chosen only for known dims")
            .got(dim.to_string())
            .hint("give `shapes=` with numbers")
            .err(),
    }
}

/// Whether an operation reads and writes memory.
fn moves_data(op: &Operation) -> bool {
    !matches!(op.op.kind, Kind::Layout | Kind::Barrier | Kind::Constant | Kind::Dim)
}
