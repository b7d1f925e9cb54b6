//! Functions and modules. A function is a straight-line list of operations, sorted by data flow.

use std::fmt;
use std::sync::Arc;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;

use crate::attr::Attr;
use crate::dim::Dim;
use crate::external::TargetBody;
use crate::loc::Loc;
use crate::op::access::Access;
use crate::op::infer::{as_ints, find_attr};
use crate::op::view::{self, View};
use crate::op::{Gradient, Op};
use crate::shape::{Guard, Type};

/// A value of a function: an argument or a result of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Value(pub u32);

impl Value {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The facts known about a value.
#[derive(Clone, Debug)]
pub struct ValueInfo {
    pub ty: Type,
    /// A name from the user's terminals, for printing and generated source.
    pub name: Option<Arc<str>>,
    /// The elements of a small integer tensor in row-major order, where they are known as dims.
    pub known: Option<Arc<[Dim]>>,
}

/// The purpose of an argument.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    Data,
    Param,
    State,
    Key,
    Constant,
    /// The cotangent of the result with the argument's name.
    Cotangent,
}

impl Role {
    pub const ALL: [Role; 6] =
        [Role::Data, Role::Param, Role::State, Role::Key, Role::Constant, Role::Cotangent];

    pub fn name(self) -> &'static str {
        match self {
            Role::Data => "data",
            Role::Param => "param",
            Role::State => "state",
            Role::Key => "key",
            Role::Constant => "constant",
            Role::Cotangent => "cotangent",
        }
    }
}

/// An argument. Arguments are the first values of a function, in order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Argument {
    pub name: Arc<str>,
    pub role: Role,
    /// Whether the caller donates its memory to the function.
    pub donated: bool,
}

/// A named result. If it is the next value of a state, `state` names the state argument.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ResultDef {
    pub name: Arc<str>,
    pub value: Value,
    pub state: Option<Arc<str>>,
}

/// One operation. Its results are `results` consecutive values from `first` on.
#[derive(Clone, Debug)]
pub struct Operation {
    pub op: Op,
    pub operands: SmallVec<[Value; 3]>,
    /// In the order of the table.
    pub attrs: SmallVec<[Attr; 2]>,
    pub first: Value,
    pub results: u32,
    pub loc: Loc,
}

impl Operation {
    /// The only result, for any operation except a call.
    pub fn result(&self) -> Value {
        self.first
    }

    pub fn results(&self) -> impl DoubleEndedIterator<Item = Value> + use<> {
        (self.first.0..self.first.0 + self.results).map(Value)
    }

    /// The index of the operand of this name, if it was given.
    pub fn operand_index(&self, name: &str) -> Option<usize> {
        let at = self.op.operands.iter().position(|operand| operand.name == name);
        at.filter(|&at| at < self.operands.len())
    }

    pub fn attr(&self, name: &str) -> &Attr {
        find_attr(self.op, &self.attrs, name)
    }

    /// The functions that its attributes name.
    pub fn functions(&self) -> impl Iterator<Item = &Arc<str>> {
        self.attrs.iter().filter_map(|a| match a {
            Attr::Function(name) => Some(name),
            _ => None,
        })
    }

    /// The indices of the operands that function number `at` of those that it names takes. A scan
    /// passes slices of some of them.
    pub fn passed(&self, at: usize) -> Vec<usize> {
        match self.op.gradient {
            Gradient::Branches => {
                let taken = self.attrs.iter().filter_map(as_ints).nth(at);
                taken.into_iter().flatten().map(|own| *own as usize + 1).collect()
            }
            Gradient::While => (1..self.operands.len()).collect(),
            Gradient::Derived
            | Gradient::Partials(_)
            | Gradient::Rule(_)
            | Gradient::Zero
            | Gradient::Callee
            | Gradient::Recompute
            | Gradient::Vjp
            | Gradient::Scan => (0..self.operands.len()).collect(),
        }
    }
}

/// A function: arguments, operations in order, named results.
#[derive(Clone, Debug)]
pub struct Function {
    pub name: Arc<str>,
    pub args: Vec<Argument>,
    pub values: Vec<ValueInfo>,
    pub ops: Vec<Operation>,
    pub results: Vec<ResultDef>,
    /// Equalities of dims to be checked at run time.
    pub guards: Vec<Guard>,
    /// Constraints of the signature: `batch <= 512`.
    pub constraints: Vec<Constraint>,
    /// A declaration (`extern`) has result types but no operations: the target supplies the body.
    pub external: bool,
    /// Bodies for targets. A target with a body uses it instead of the operations.
    pub bodies: Vec<TargetBody>,
    /// The standard function that the operations compute, such as `lstm`. A target that has this
    /// function may use its own instead of the operations.
    pub computes: Option<Arc<str>>,
}

/// `left <= right` or `left == right`, as the signature states it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Constraint {
    pub left: Dim,
    pub relation: Bound,
    pub right: Dim,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Bound {
    Equal,
    AtMost,
    AtLeast,
}

impl Bound {
    /// Whether the relation holds between two numbers.
    pub fn holds<T: PartialOrd>(self, left: T, right: T) -> bool {
        match self {
            Bound::Equal => left == right,
            Bound::AtMost => left <= right,
            Bound::AtLeast => left >= right,
        }
    }

    /// The operator, the same in the text form and in every generated language.
    pub fn sign(self) -> &'static str {
        match self {
            Bound::Equal => "==",
            Bound::AtMost => "<=",
            Bound::AtLeast => ">=",
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sign())
    }
}

impl Function {
    pub fn new(name: impl Into<Arc<str>>) -> Function {
        Function {
            name: name.into(),
            args: Vec::new(),
            values: Vec::new(),
            ops: Vec::new(),
            results: Vec::new(),
            guards: Vec::new(),
            constraints: Vec::new(),
            external: false,
            bodies: Vec::new(),
            computes: None,
        }
    }

    pub fn info(&self, value: Value) -> &ValueInfo {
        &self.values[value.index()]
    }

    pub fn ty(&self, value: Value) -> &Type {
        &self.values[value.index()].ty
    }

    /// The index map of an operation; `None` if it is not a view.
    pub fn index_map(&self, op: &Operation) -> Option<view::IndexMap> {
        match op.op.access {
            Access::View(map) => Some(map(&self.view(op))),
            _ => None,
        }
    }

    /// A view operation, as its index map takes it.
    pub fn view<'a>(&'a self, op: &'a Operation) -> View<'a> {
        let [from, to] = [op.operands[0], op.result()].map(|value| &self.ty(value).shape);
        View::new(op.op, &op.attrs, from, to)
    }

    /// The value of argument `index`.
    pub fn arg(&self, index: usize) -> Value {
        debug_assert!(index < self.args.len());
        Value(index as u32)
    }

    /// Arguments with their values.
    pub fn arguments(&self) -> impl Iterator<Item = (Value, &Argument)> {
        self.args.iter().enumerate().map(|(i, arg)| (Value(i as u32), arg))
    }

    /// The index of the operation that defines each value; `None` for arguments. Indexed by value.
    pub fn definitions(&self) -> Vec<Option<u32>> {
        let mut definitions = vec![None; self.values.len()];
        for (i, op) in self.ops.iter().enumerate() {
            for value in op.results() {
                definitions[value.index()] = Some(i as u32);
            }
        }
        definitions
    }

    /// The number of uses of each value, including those as results. Indexed by value.
    pub fn uses(&self) -> Vec<u32> {
        let mut uses = vec![0; self.values.len()];
        let operands = self.ops.iter().flat_map(|op| op.operands.iter().copied());
        for value in operands.chain(self.results.iter().map(|r| r.value)) {
            uses[value.index()] += 1;
        }
        uses
    }
}

/// Functions by name; callees may come in any order. The first one is the entry.
#[derive(Clone, Debug, Default)]
pub struct Module {
    pub functions: IndexMap<Arc<str>, Arc<Function>, FxBuildHasher>,
    /// Further functions that are called from outside, such as gradients of the first.
    pub entries: Vec<Arc<str>>,
}

impl Module {
    pub fn new() -> Module {
        Module::default()
    }

    /// A module of one function.
    pub fn of(function: Function) -> Module {
        let mut module = Module::new();
        module.insert(function);
        module
    }

    pub fn get(&self, name: &str) -> Option<&Arc<Function>> {
        self.functions.get(name)
    }

    /// Adds the function, or replaces the function with its name at the same position.
    pub fn insert(&mut self, function: Function) {
        self.functions.insert(function.name.clone(), Arc::new(function));
    }

    /// The function that compilation starts from.
    pub fn entry(&self) -> Option<&Arc<Function>> {
        self.functions.first().map(|(_, f)| f)
    }

    /// The functions that are called from outside, the entry first.
    pub fn called_from_outside(&self) -> impl Iterator<Item = &Arc<Function>> {
        self.entry().into_iter().chain(self.entries.iter().filter_map(|name| self.get(name)))
    }

    /// A name that no function has yet: `base`, `base_1`, …
    pub fn fresh_name(&self, base: &str) -> Arc<str> {
        if !self.functions.contains_key(base) {
            return base.into();
        }
        (1..)
            .map(|i| Arc::from(format!("{base}_{i}")))
            .find(|name: &Arc<str>| !self.functions.contains_key(name))
            .expect("there are more names than functions")
    }
}
