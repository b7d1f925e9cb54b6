//! Plans control flow: loops around the launches of the functions that it calls.

use mithril_ir::attr::Attr;
use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::Result;
use mithril_ir::graph::{Function, Module, Operation, ResultDef, Role, Value};
use mithril_ir::op::Gradient;
use mithril_ir::shape::Type;
use mithril_ir::signature::passed_types;
use mithril_passes::call_graph;
use mithril_passes::transfer::Transfer;
use mithril_runtime::program::{Condition, Loop, Place, UNLIMITED};
use mithril_runtime::size::Size;

use super::planner::Scope;
use crate::isa::Isa;

impl Scope<'_, '_, '_> {
    /// Adds the loops of an operation that calls functions.
    pub fn control(&mut self, op: &Operation) -> Result<()> {
        match op.op.gradient {
            Gradient::Branches => self.branches(op)?,
            Gradient::While => self.repeat_while(op)?,
            _ => self.scan(op)?,
        }
        self.planner.locate(&op.loc, "copy");
        Ok(())
    }

    /// Adds the loop of a scan. Carried values are stored in the buffers of their results. They are
    /// copied there before the loop, and each iteration replaces them at its end.
    fn scan(&mut self, op: &Operation) -> Result<()> {
        let [carries, sequences] = [1, 2].map(|at| op.attrs[at].as_int() as usize);
        let reverse = matches!(op.attrs[3], Attr::Bool(true));
        let length = self.function.ty(op.operands[carries]).shape.dims[0].clone();
        let body = self.callee(op, 0)?;
        let sources: Vec<usize> = op.operands.iter().map(|v| self.source(*v)).collect();
        let targets = op.results().map(|v| self.target(v)).collect::<Result<Vec<_>>>()?;
        for (&from, &to) in sources[..carries].iter().zip(&targets) {
            self.planner.copy(from, to);
        }
        let trips = self.planner.size(&length)?;
        let number = self.begin_loop(trips, reverse, None);
        let literals: Vec<_> = op.operands.iter().map(|v| self.literal(*v)).collect();
        // Rows may be unaligned, so streaming stores are not used.
        let isa = Isa { streams: false, ..self.isa };
        let mut scope = Scope::new(self.planner, &body, isa);
        let row = |of| Place::Row { of, of_loop: number };
        for (at, (argument, _)) in body.arguments().enumerate() {
            let buffer = match at {
                _ if at < carries => targets[at],
                _ if at < carries + sequences => scope.buffer(argument, row(sources[at]))?,
                _ => {
                    literals[at]
                        .into_iter()
                        .for_each(|tensor| scope.bind_literal(argument, tensor));
                    sources[at]
                }
            };
            scope.bind_buffer(argument, buffer);
        }
        let mut next = Vec::new();
        for (at, result) in body.results.iter().enumerate() {
            let place = if at < carries { Place::Temporary } else { row(targets[at]) };
            next.push(scope.buffer(result.value, place)?);
            scope.add_result(result.value, next[at]);
        }
        scope.run()?;
        for (&from, &to) in next[..carries].iter().zip(&targets) {
            self.planner.copy(from, to);
        }
        self.end_loop(number);
        Ok(())
    }

    /// Adds a loop of at most one iteration for each function. Both write the same buffers.
    fn branches(&mut self, op: &Operation) -> Result<()> {
        let buffer = self.source(op.operands[0]);
        let targets = op.results().map(|v| self.target(v)).collect::<Result<Vec<_>>>()?;
        for (at, expected) in [true, false].into_iter().enumerate() {
            let body = self.callee(op, at)?;
            let passed = op.passed(at).into_iter().map(|own| op.operands[own]);
            let passed: Vec<Value> = passed.collect();
            let sources: Vec<usize> = passed.iter().map(|v| self.source(*v)).collect();
            let literals: Vec<_> = passed.iter().map(|v| self.literal(*v)).collect();
            let condition = Condition { buffer, expected };
            let number = self.begin_loop(Size::Const(1), false, Some(condition));
            let mut scope = Scope::new(self.planner, &body, self.isa);
            for (at, (argument, _)) in body.arguments().enumerate() {
                literals[at].into_iter().for_each(|tensor| scope.bind_literal(argument, tensor));
                scope.bind_buffer(argument, sources[at]);
            }
            for (result, &target) in body.results.iter().zip(&targets) {
                scope.add_result(result.value, target);
            }
            scope.run()?;
            self.end_loop(number);
        }
        Ok(())
    }

    /// Adds a loop that ends when its condition does not hold. The condition and the carries are
    /// copied to buffers of their own before the loop, and each iteration replaces them at its end.
    fn repeat_while(&mut self, op: &Operation) -> Result<()> {
        let trips = match op.attr("max_steps") {
            Attr::Int(most) => Size::Const(*most),
            _ => UNLIMITED,
        };
        let body = self.callee(op, 0)?;
        let sources: Vec<usize> = op.operands.iter().map(|v| self.source(*v)).collect();
        let running = self.planner.add_buffer(Size::Const(1), Place::Temporary, "running");
        let mut targets = vec![running];
        for value in op.results() {
            targets.push(self.target(value)?);
        }
        for (&from, &to) in sources.iter().zip(&targets) {
            self.planner.copy(from, to);
        }
        let condition = Condition { buffer: running, expected: true };
        let literals: Vec<_> = op.operands.iter().map(|v| self.literal(*v)).collect();
        let number = self.begin_loop(trips, false, Some(condition));
        let mut scope = Scope::new(self.planner, &body, self.isa);
        for (at, (argument, _)) in body.arguments().enumerate() {
            // The first operand is the condition.
            let operand = at + 1;
            if let Some(&carried) = targets.get(operand) {
                scope.bind_buffer(argument, carried);
                continue;
            }
            literals[operand].into_iter().for_each(|tensor| scope.bind_literal(argument, tensor));
            scope.bind_buffer(argument, sources[operand]);
        }
        let mut next = Vec::new();
        for result in &body.results {
            next.push(scope.buffer(result.value, Place::Temporary)?);
            scope.add_result(result.value, next[next.len() - 1]);
        }
        scope.run()?;
        for (&from, &to) in next.iter().zip(&targets) {
            self.planner.copy(from, to);
        }
        self.end_loop(number);
        Ok(())
    }

    /// Begins a loop around the launches that are added next. Returns its number.
    fn begin_loop(&mut self, trips: Size, reverse: bool, condition: Option<Condition>) -> usize {
        let start = self.planner.launches.len();
        self.planner.loops.push(Loop { launches: start..start, trips, reverse, condition });
        self.planner.loops.len() - 1
    }

    fn end_loop(&mut self, number: usize) {
        self.planner.loops[number].launches.end = self.planner.launches.len();
    }

    /// The function of this number that an operation names, in the caller's symbols.
    fn callee(&self, op: &Operation, at: usize) -> Result<Function> {
        let types: Vec<Type> = op.operands.iter().map(|v| self.function.ty(*v).clone()).collect();
        let name = op.functions().nth(at).expect("control flow names its functions");
        body(self.planner.module, op, name, &passed_types(op, at, &types))
    }
}

/// Copies a function and specialises it for operand types, so that its dims are in the caller's
/// symbols.
fn body(module: &Module, site: &Operation, name: &str, types: &[Type]) -> Result<Function> {
    let callee = |op: &Operation| match op.functions().next() {
        Some(name) => call_graph::function(module, name).map(|found| Some(&**found)),
        None => Ok(None),
    };
    let source = call_graph::function(module, name)?;
    let builder = Builder::new(source.name.clone());
    let args = source.args.iter().zip(types);
    let args: Vec<_> =
        args.map(|(arg, ty)| builder.arg(arg.name.clone(), Role::Data, ty.clone())).collect();
    let mut transfer = Transfer::new(source, &builder, &args)?;
    for op in &source.ops {
        builder.set_loc(op.loc.inside(&site.loc));
        transfer.emit(&builder, op, callee(op)?)?;
    }
    let results = source.results.iter();
    let results = results.map(|r| ResultDef { value: transfer.value(r.value), ..r.clone() });
    builder.finish(results.collect())
}
