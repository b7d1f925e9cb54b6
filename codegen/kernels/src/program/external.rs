//! Plans calls of external functions: kernels whose bodies the user has written in C.

use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::{Dim, Symbol};
use mithril_ir::external::Piece;
use mithril_ir::graph::{Argument, Function, Operation, ResultDef, Role, Value, ValueInfo};
use mithril_ir::shape::Type;
use mithril_ir::signature::{Binding, bind};
use mithril_passes::outline::{self, schedule::LoopNest, schedule::Schedule};
use mithril_passes::select_bodies::missing;
use rustc_hash::FxHashMap;

use super::Kernel;
use super::planner::Scope;
use crate::code::Code;
use crate::entry;
use crate::isa::Isa;
use crate::lower::Lowered;
use crate::target;

/// A function with a body in C, for arrays of known types. Dims are in the kernel's symbols.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct External {
    pub name: Arc<str>,
    /// The arguments, then the results, in the order of the buffers.
    pub arrays: Vec<Array>,
    /// The function's symbols, each with the dim that it stands for.
    pub symbols: Vec<(Symbol, Dim)>,
    /// The lines of the body, which read the arrays by their names.
    pub text: String,
}

/// An array that an external function reads or writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Array {
    pub name: Arc<str>,
    pub ty: Type,
    pub written: bool,
}

impl Scope<'_, '_, '_> {
    /// Adds the launch of an external function, which is a single task.
    ///
    /// Errors: the function is not external or has no body in C; a dim cannot be derived from the
    /// arguments.
    pub fn call(&mut self, op: &Operation) -> Result<()> {
        let callee = op.functions().next().and_then(|name| self.planner.module.get(name)).cloned();
        let Some(callee) = callee.filter(|callee| callee.external) else {
            return Diagnostic::of(
                ErrorKind::Native,
                format!("native code has no loops for `{}`", op.op.name),
            )
            .err();
        };
        let (external, dims) = External::of(self.function, op, &callee, &self.isa)?;
        let known =
            self.planner.kernels.iter().position(|kernel| {
                kernel.external.as_deref().is_some_and(|other| *other == external)
            });
        let number = known.unwrap_or_else(|| {
            self.planner.kernels.push(external.kernel(dims.len()));
            self.planner.kernels.len() - 1
        });
        let mut buffers: Vec<usize> = op.operands.iter().map(|value| self.source(*value)).collect();
        for value in op.results() {
            buffers.push(self.target(value)?);
        }
        self.planner.launch(number, buffers, &dims)?;
        self.planner.locate(&op.loc, &callee.name);
        Ok(())
    }
}

impl External {
    /// Returns the function for the operand types of a call, and the values of its dims.
    fn of(
        caller: &Function,
        op: &Operation,
        callee: &Function,
        isa: &Isa,
    ) -> Result<(External, Vec<Dim>)> {
        let target = if *isa == Isa::PORTABLE { &target::C } else { &target::CPU };
        let Some(body) = target.body(callee) else {
            return missing(callee, &op.loc, target).err();
        };
        let operands: Vec<&Type> = op.operands.iter().map(|value| caller.ty(*value)).collect();
        let binding = bind(callee, &operands, &mut Vec::new())?;
        let (mut dims, mut scope) = (Dims::default(), entry::Scope::default());
        let mut arrays = Vec::new();
        for (argument, ty) in callee.args.iter().zip(operands) {
            let (name, ty) = (scope.name(&argument.name).into(), dims.ty(ty));
            arrays.push(Array { name, ty, written: false });
        }
        for (result, value) in callee.results.iter().zip(op.results()) {
            let (name, ty) = (scope.name(&result.name).into(), dims.ty(caller.ty(value)));
            arrays.push(Array { name, ty, written: true });
        }
        let symbols = symbols(callee, &binding).into_iter();
        let symbols = symbols.map(|(symbol, dim)| (symbol, dims.dim(&dim))).collect();
        let argument = |name: &str| callee.args.iter().position(|own| *own.name == *name);
        let text = body.pieces()?.into_iter().map(|piece| match piece {
            Piece::Text(text) => text,
            Piece::Argument(name) => argument(name).map_or(name, |at| &arrays[at].name),
        });
        let text = text.collect();
        let external = External { name: callee.name.clone(), arrays, symbols, text };
        Ok((external, dims.outside))
    }

    /// Builds the kernel of the function, which has this number of dims.
    fn kernel(self, dims: usize) -> Kernel {
        let mut function = Function::new(self.name.clone());
        for (at, array) in self.arrays.iter().enumerate() {
            let value = Value(at as u32);
            let name = array.name.clone();
            function.values.push(ValueInfo { ty: array.ty.clone(), name: None, known: None });
            match array.written {
                true => function.results.push(ResultDef { name, value, state: None }),
                false => function.args.push(Argument { name, role: Role::Data, donated: false }),
            }
        }
        function.external = true;
        let schedule = Schedule::Loops(LoopNest::over(&[]));
        let buffers = self.arrays.len() as u32;
        let lowered = Lowered {
            code: Code { buffers, dims: dims as u32, ..Code::default() },
            tasks: Dim::Const(1),
            grain: 1,
            scratch: Dim::Const(0),
            partials: Vec::new(),
        };
        let outlined = outline::Kernel { function, schedule };
        Kernel { outlined, lowered, external: Some(Arc::new(self)) }
    }
}

/// Returns the symbols of the function's arguments with their values at a call, in order.
fn symbols(callee: &Function, binding: &Binding) -> Vec<(Symbol, Dim)> {
    let mut found: Vec<(Symbol, Dim)> = Vec::new();
    for (value, _) in callee.arguments() {
        for dim in &callee.ty(value).shape.dims {
            dim.for_each_symbol(&mut |symbol| {
                let size = binding.dim(&Dim::symbol(symbol));
                if !size.is_unknown() && found.iter().all(|(other, _)| other != symbol) {
                    found.push((symbol.clone(), size));
                }
            });
        }
    }
    found
}

/// Maps the caller's symbols to the numbered symbols of the kernel.
#[derive(Default)]
struct Dims {
    own: FxHashMap<Symbol, Dim>,
    outside: Vec<Dim>,
}

impl Dims {
    fn dim(&mut self, dim: &Dim) -> Dim {
        dim.for_each_symbol(&mut |symbol| {
            if !self.own.contains_key(symbol) {
                let number = Symbol::numbered(self.outside.len() as u32);
                self.own.insert(symbol.clone(), Dim::symbol(number));
                self.outside.push(Dim::symbol(symbol));
            }
        });
        dim.substitute(&|symbol| self.own.get(symbol).cloned())
    }

    fn ty(&mut self, ty: &Type) -> Type {
        let mut ty = ty.clone();
        for dim in &mut ty.shape.dims {
            *dim = self.dim(dim);
        }
        ty
    }
}
