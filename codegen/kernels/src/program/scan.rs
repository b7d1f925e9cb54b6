//! Plans scans: a loop around the launches of the body.

use mithril_ir::attr::Attr;
use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::Result;
use mithril_ir::graph::{Function, Module, Operation, ResultDef, Role};
use mithril_ir::shape::Type;
use mithril_passes::call_graph;
use mithril_passes::transfer::Transfer;
use mithril_runtime::program::{Loop, Place};

use super::planner::Scope;
use crate::isa::Isa;

impl Scope<'_, '_, '_> {
    /// Adds the loop of a scan. Carried values are stored in the buffers of their results. They are
    /// copied there before the loop, and each iteration replaces them at its end.
    pub fn scan(&mut self, op: &Operation) -> Result<()> {
        let [carries, sequences] = [1, 2].map(|at| op.attrs[at].as_int() as usize);
        let reverse = matches!(op.attrs[3], Attr::Bool(true));
        let types = op.operands.iter().map(|v| self.function.ty(*v).clone());
        let mut types: Vec<Type> = types.collect();
        let length = types[carries].shape.dims[0].clone();
        for ty in &mut types[carries..carries + sequences] {
            ty.shape.dims.remove(0);
        }
        let body = body(self.planner.module, op, &types)?;
        let sources: Vec<usize> = op.operands.iter().map(|v| self.source(*v)).collect();
        let targets = op.results().map(|v| self.target(v)).collect::<Result<Vec<_>>>()?;
        for (&from, &to) in sources[..carries].iter().zip(&targets) {
            self.planner.copy(from, to);
        }
        let (number, start) = (self.planner.loops.len(), self.planner.launches.len());
        let trips = self.planner.size(&length)?;
        self.planner.loops.push(Loop { launches: start..start, trips, reverse });
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
        self.planner.loops[number].launches.end = self.planner.launches.len();
        self.planner.locate(&op.loc, "copy");
        Ok(())
    }
}

/// Copies the callee and specialises it for operand types, so that its dims are in the caller's
/// symbols.
fn body(module: &Module, site: &Operation, types: &[Type]) -> Result<Function> {
    let callee = |op: &Operation| match op.functions().next() {
        Some(name) => call_graph::function(module, name).map(|found| Some(&**found)),
        None => Ok(None),
    };
    let source = callee(site)?.expect("a scan names its callee");
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
