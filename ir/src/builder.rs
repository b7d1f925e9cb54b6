//! Builds functions one typed operation at a time.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use smallvec::SmallVec;

use crate::algebra::Var;
use crate::attr::Attr;
use crate::diagnostic::{Diagnostic, Result};
use crate::dim::{Dim, Symbol};
use crate::dtype::DType;
use crate::graph::{Argument, Function, Operation, ResultDef, Role, Value, ValueInfo};
use crate::guards::GuardIndex;
use crate::loc::Loc;
use crate::op::infer::{Infer, complete_attrs, infer};
use crate::op::{self, Meaning, Op};
use crate::shape::{Guard, Type};
use crate::signature::{CallTypes, call_types};
use crate::symbolic;
use crate::tensor::Tensor;

/// A function under construction. Methods take `&self`, so that [`Var`]s can share it.
///
/// Operations through [`Var`] keep the first error; [`Builder::finish`] returns it.
pub struct Builder {
    function: RefCell<Function>,
    loc: RefCell<Loc>,
    error: RefCell<Option<Box<Diagnostic>>>,
    fresh: Cell<u32>,
    guards: RefCell<GuardIndex>,
    accumulator: Cell<Option<Accumulator>>,
}

/// A dtype for the sums of operations that do not state one.
#[derive(Clone, Copy)]
pub struct Accumulator {
    /// Floats of at most its width are accumulated in it.
    pub dtype: DType,
    /// Expresses a composite by simpler operations, which accumulate in it.
    pub expand: fn(&Builder, Op, &[Value], &[Attr]) -> Result<Value>,
}

impl Builder {
    pub fn new(name: impl Into<Arc<str>>) -> Builder {
        Builder {
            function: RefCell::new(Function::new(name)),
            loc: RefCell::default(),
            error: RefCell::default(),
            fresh: Cell::new(0),
            guards: RefCell::default(),
            accumulator: Cell::default(),
        }
    }

    /// Adds an argument. Arguments come before operations.
    pub fn arg(&self, name: impl Into<Arc<str>>, role: Role, ty: Type) -> Value {
        let mut f = self.function.borrow_mut();
        debug_assert!(f.ops.is_empty(), "arguments come before operations");
        let name = name.into();
        f.args.push(Argument { name: name.clone(), role, donated: false });
        f.values.push(ValueInfo { ty, name: Some(name), known: None });
        Value(f.values.len() as u32 - 1)
    }

    /// Copies the arguments, guards and constraints of another function's signature, and reserves
    /// space for as many operations.
    pub fn like(name: impl Into<Arc<str>>, other: &Function) -> Builder {
        let builder = Builder::new(name);
        {
            let mut f = builder.function.borrow_mut();
            f.args = other.args.clone();
            f.values.reserve(other.values.len());
            f.values.extend_from_slice(&other.values[..other.args.len()]);
            f.ops.reserve(other.ops.len());
            f.constraints = other.constraints.clone();
            f.guards = other.guards.clone();
            f.external = other.external;
            f.bodies = other.bodies.clone();
            f.computes = other.computes.clone();
        }
        builder.fresh.set(1 + highest_fresh(other));
        builder
    }

    /// Says which standard function the operations compute.
    pub fn set_computes(&self, name: &str) {
        self.function.borrow_mut().computes = Some(name.into());
    }

    /// Sets how the operations added next accumulate.
    pub fn set_accumulator(&self, accumulator: Option<Accumulator>) {
        self.accumulator.set(accumulator);
    }

    pub fn accumulator(&self) -> Option<Accumulator> {
        self.accumulator.get()
    }

    /// Sets the location of the operations added next.
    pub fn set_loc(&self, loc: Loc) {
        *self.loc.borrow_mut() = loc;
    }

    pub fn loc(&self) -> Loc {
        self.loc.borrow().clone()
    }

    pub fn ty(&self, value: Value) -> Type {
        self.function.borrow().ty(value).clone()
    }

    /// The elements of a small integer value as dims, where they are known.
    pub fn known(&self, value: Value) -> Option<Arc<[Dim]>> {
        self.function.borrow().info(value).known.clone()
    }

    pub fn set_name(&self, value: Value, name: Option<Arc<str>>) {
        if name.is_some() {
            self.function.borrow_mut().values[value.index()].name = name;
        }
    }

    /// A symbol that the function does not use yet: `_0`, `_1`, …
    pub fn fresh_symbol(&self) -> Symbol {
        let n = self.fresh.get();
        self.fresh.set(n + 1);
        Symbol::from(format!("_{n}").as_str())
    }

    /// Adds an operation by name with named attributes; the others get their defaults.
    /// Errors: wrong attributes, or wrong types of operands.
    pub fn op(&self, name: &str, operands: &[Value], attrs: &[(&str, Attr)]) -> Result<Value> {
        let op = op::get(name);
        self.push(op, operands, complete_attrs(op, attrs)?)
    }

    /// Adds an operation with complete attributes in the table's order.
    /// Errors: wrong types of operands.
    pub fn push(&self, op: Op, operands: &[Value], attrs: SmallVec<[Attr; 2]>) -> Result<Value> {
        let (info, guards) = self.infer(op, operands, &attrs)?;
        self.add_guards(guards);
        if let (Some(own), Meaning::Decompose(_)) = (self.accumulator.get(), op.meaning) {
            return (own.expand)(self, op, operands, &attrs);
        }
        Ok(self.append(op, operands, attrs, [info]))
    }

    /// The type that an operation would have, without adding it.
    /// Errors: wrong types of operands.
    pub fn type_of(&self, op: Op, operands: &[Value], attrs: &[Attr]) -> Result<Type> {
        Ok(self.infer(op, operands, attrs)?.0.ty)
    }

    fn infer(&self, op: Op, operands: &[Value], attrs: &[Attr]) -> Result<(ValueInfo, Vec<Guard>)> {
        let mut guards = Vec::new();
        let f = self.function.borrow();
        let types: SmallVec<[&Type; 3]> = operands.iter().map(|v| f.ty(*v)).collect();
        let knowns: SmallVec<[Option<&[Dim]>; 3]> =
            operands.iter().map(|v| f.info(*v).known.as_deref()).collect();
        let mut fresh = || self.fresh_symbol();
        let mut cx = Infer {
            op,
            operands: &types,
            attrs,
            known: &knowns,
            guards: &mut guards,
            fresh: &mut fresh,
        };
        let ty = infer(&mut cx).map_err(|error| self.place(error))?;
        let known = symbolic::value(&cx, &ty);
        Ok((ValueInfo { ty, name: None, known }, guards))
    }

    /// Adds an operation that names `callee` in its first attribute (`call`, `custom_gradient`),
    /// with further function names where the op has them. Returns one value per result.
    /// Errors: wrong number or types of operands.
    pub fn call(
        &self,
        op: Op,
        callee: &Function,
        attrs: SmallVec<[Attr; 2]>,
        operands: &[Value],
    ) -> Result<SmallVec<[Value; 4]>> {
        let mut guards = Vec::new();
        let infos: Vec<ValueInfo> = {
            let f = self.function.borrow();
            let types: SmallVec<[&Type; 4]> = operands.iter().map(|v| f.ty(*v)).collect();
            let mut fresh = || self.fresh_symbol();
            let cx = CallTypes {
                callee,
                operands: &types,
                attrs: &attrs,
                guards: &mut guards,
                fresh: &mut fresh,
            };
            let results = call_types(op, cx).map_err(|error| self.place(error))?;
            results.into_iter().map(|ty| ValueInfo { ty, name: None, known: None }).collect()
        };
        self.add_guards(guards);
        let count = infos.len() as u32;
        let first = self.append(op, operands, attrs, infos);
        Ok((first.0..first.0 + count).map(Value).collect())
    }

    fn append(
        &self,
        op: Op,
        operands: &[Value],
        mut attrs: SmallVec<[Attr; 2]>,
        infos: impl IntoIterator<Item = ValueInfo>,
    ) -> Value {
        let mut f = self.function.borrow_mut();
        if let (Some(own_acc), Some(at)) = (self.accumulator.get(), op.attr_index("acc")) {
            let acc = own_acc.dtype;
            let own = f.ty(operands[0]).dtype;
            let fits = own.is_float() && (acc == own || acc.bits() > own.bits());
            if fits && attrs[at] == Attr::None {
                attrs[at] = acc.into();
            }
        }
        let first = Value(f.values.len() as u32);
        f.values.extend(infos);
        let results = f.values.len() as u32 - first.0;
        let loc = self.loc.borrow().clone();
        f.ops.push(Operation { op, operands: operands.into(), attrs, first, results, loc });
        first
    }

    /// Adds guards, and prefixes their locations with the builder's.
    pub fn add_guards(&self, guards: Vec<Guard>) {
        let mut f = self.function.borrow_mut();
        for guard in guards {
            let loc = guard.loc.inside(&self.loc.borrow());
            self.guards.borrow_mut().require(&mut f, Guard { loc, ..guard });
        }
    }

    fn place(&self, mut error: Box<Diagnostic>) -> Box<Diagnostic> {
        if error.place.is_none() {
            error.place = self.loc.borrow().shortest().map(|path| format!("block `{path}`"));
        }
        error
    }

    pub fn constant(&self, tensor: Tensor) -> Value {
        self.op("constant", &[], &[("value", tensor.into())])
            .expect("a constant is typed by its tensor")
    }

    /// The value as an operand of the algebra.
    pub fn var(&self, value: Value) -> Var<'_> {
        Var { builder: self, value }
    }

    /// Keeps the error of an operation built through [`Var`], unless there was one before.
    pub(crate) fn fail(&self, error: Box<Diagnostic>) {
        self.error.borrow_mut().get_or_insert(error);
    }

    /// The first error of operations built through [`Var`], if any.
    pub fn check(&self) -> Result<()> {
        match self.error.borrow_mut().take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Reads the function in its present state.
    pub fn with<R>(&self, read: impl FnOnce(&Function) -> R) -> R {
        read(&self.function.borrow())
    }

    /// Changes the function in its present state. For signatures and donation; guards may only be
    /// removed all at once.
    pub fn with_mut<R>(&self, change: impl FnOnce(&mut Function) -> R) -> R {
        change(&mut self.function.borrow_mut())
    }

    /// The finished function.
    /// Errors: the first error of operations built through [`Var`].
    pub fn finish(self, results: Vec<ResultDef>) -> Result<Function> {
        self.check()?;
        let mut function = self.function.into_inner();
        function.results = results;
        Ok(function)
    }
}

/// The highest number `N` of a symbol `_N` in the arguments' types, so that fresh symbols do not
/// clash.
fn highest_fresh(f: &Function) -> u32 {
    let mut highest = 0;
    for info in &f.values {
        info.ty.shape.for_each_symbol(&mut |symbol| {
            let number = symbol.as_str().strip_prefix('_').and_then(|n| n.parse().ok());
            highest = highest.max(number.unwrap_or(0));
        });
    }
    highest
}
