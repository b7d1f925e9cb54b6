//! Instances of composites: one function for each definition and set of argument types.

use std::cell::RefCell;
use std::sync::Arc;

use mithril_ir::builder::{Accumulator, Builder};
use mithril_ir::dim::{Dim, Symbol};
use mithril_ir::dtype::DType;
use mithril_ir::evaluate::decompose;
use mithril_ir::graph::{Function, ResultDef, Role, Value};
use mithril_ir::nesting::deeper;
use mithril_ir::shape::{Shape, Type};
use rustc_hash::{FxHashMap, FxHashSet};

use super::Options;
use super::block_error::BlockResult;
use crate::definition::Definition;
use crate::literal::Literal;
use crate::naming::{Unique, snake_case};
use crate::text_function::{TextFunction, renamed};
use frame::{Frame, Slot};

pub(super) mod frame;

/// The properties of an argument that are known before a composite is lowered.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Spec {
    /// The shape is inferred inside; the dtype too, unless it was stated.
    Open(Option<DType>),
    /// An input that is not read in this mode.
    Absent,
    Typed(Type),
    /// A constant that is built into the instance, so that it takes no argument.
    Literal(Literal),
}

/// A lowered composite.
pub(crate) struct Instance {
    pub function: Arc<Function>,
    /// The input of each argument of the function.
    pub args: Vec<u32>,
    /// The state inputs whose next values follow the outputs in the results.
    pub states: Vec<u32>,
    /// Whether a result is a shape. A call would hide its dims, so the composite is lowered in
    /// place.
    pub shapes: bool,
    /// The type of each net. `None`: it has no value of its own.
    pub types: Vec<Option<Type>>,
    /// The instance of each part that is a called composite.
    pub parts: Vec<Option<Arc<Instance>>>,
}

/// Drops nested instances one after another. Instances nest as deep as models, so a recursive drop
/// could overflow the stack.
impl Drop for Instance {
    fn drop(&mut self) {
        let mut open: Vec<Arc<Instance>> =
            std::mem::take(&mut self.parts).into_iter().flatten().collect();
        while let Some(instance) = open.pop() {
            // `into_inner` returns `None` if the instance is still used elsewhere.
            if let Some(mut instance) = Arc::into_inner(instance) {
                open.extend(std::mem::take(&mut instance.parts).into_iter().flatten());
            }
        }
    }
}

#[derive(PartialEq, Eq, Hash)]
struct Key {
    definition: Arc<Definition>,
    specs: Vec<Spec>,
    numerics: Current,
}

/// The dtypes in which the parts that are being lowered compute.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Current {
    /// The dtype of floats.
    pub float: DType,
    /// The dtype in which products and sums are accumulated, if it is not the usual one.
    pub acc: Option<DType>,
}

impl Current {
    /// How operations accumulate, if it is not as usual.
    pub fn accumulator(self) -> Option<Accumulator> {
        self.acc.map(|dtype| Accumulator { dtype, expand: decompose })
    }
}

/// State shared by all instances of one lowering.
pub(super) struct Lowering<'o> {
    pub options: &'o Options,
    pub numerics: Current,
    /// The sizes that input dims have in the call for which this is compiled.
    pub sizes: FxHashMap<Symbol, i64>,
    instances: FxHashMap<Key, Arc<Instance>>,
    /// The functions of `.mir` texts, by the dtype of their caller's floats.
    text_functions: FxHashMap<(Arc<TextFunction>, DType), Arc<Function>>,
    /// The lowered functions, callees first.
    pub functions: Vec<Arc<Function>>,
    steps: Steps,
}

/// Functions that primitives call, such as the steps of recurrent layers.
#[derive(Default)]
pub(super) struct Steps {
    functions: RefCell<Vec<Arc<Function>>>,
    /// The names that are in use.
    names: RefCell<FxHashSet<String>>,
    unique: RefCell<Unique>,
}

impl Steps {
    /// A function name that is not in use.
    pub fn fresh_name(&self, base: &str) -> Arc<str> {
        let mut names = self.names.borrow_mut();
        let name = self.unique.borrow_mut().name(base, |n| names.contains(n));
        names.insert(name.to_string());
        name
    }

    pub fn add(&self, function: &Arc<Function>) {
        self.functions.borrow_mut().push(function.clone());
    }
}

impl<'o> Lowering<'o> {
    pub fn new(options: &'o Options) -> Lowering<'o> {
        Lowering {
            options,
            numerics: Current { float: options.dtype, acc: None },
            sizes: FxHashMap::default(),
            instances: FxHashMap::default(),
            text_functions: FxHashMap::default(),
            functions: Vec::new(),
            steps: Steps {
                names: FxHashSet::from_iter(["main".to_string()]).into(),
                ..Steps::default()
            },
        }
    }

    /// The dtype of a constant that stands alone.
    pub fn default_dtype(&self, literal: &Literal) -> DType {
        literal.default_dtype(self.numerics.float, self.options.index)
    }

    pub fn steps(&self) -> &Steps {
        &self.steps
    }

    /// Adds the functions that a primitive calls.
    pub fn keep_steps(&mut self) {
        self.functions.append(self.steps.functions.get_mut());
    }

    /// The instance of a composite for these arguments; lowers it at the first use. Errors: those
    /// of its parts.
    pub fn instance(
        &mut self,
        definition: &Arc<Definition>,
        specs: Vec<Spec>,
    ) -> BlockResult<Arc<Instance>> {
        let key = Key { definition: definition.clone(), specs, numerics: self.numerics };
        if let Some(found) = self.instances.get(&key) {
            return Ok(found.clone());
        }
        let name = match definition.wraps_function() {
            // The function itself keeps its name.
            true => self.fresh_name(&format!("{}_block", snake_case(&definition.kind))),
            false => self.fresh_name(&snake_case(&definition.kind)),
        };
        let instance =
            Arc::new(self.build(name, definition, &key.specs, &|i| definition.inputs[i].role)?);
        self.functions.push(instance.function.clone());
        self.instances.insert(key, instance.clone());
        Ok(instance)
    }

    /// The function of a `.mir` text, for floats of this dtype. Errors: operations that do not
    /// support the dtype.
    pub fn text_function(
        &mut self,
        own: &Arc<TextFunction>,
        float: DType,
    ) -> BlockResult<Arc<Function>> {
        let float = if own.generic { float } else { DType::F32 };
        let key = (own.clone(), float);
        if let Some(found) = self.text_functions.get(&key) {
            return Ok(found.clone());
        }
        let functions = renamed(own.functions(float)?, |name| self.fresh_name(name));
        let function = functions.last().expect("the list ends in the function itself").clone();
        self.functions.extend(functions);
        self.text_functions.insert(key, function.clone());
        Ok(function)
    }

    /// A function name that is not in use.
    pub fn fresh_name(&mut self, base: &str) -> Arc<str> {
        self.steps.fresh_name(base)
    }

    /// Lowers a composite into a function of its own.
    pub fn build(
        &mut self,
        name: Arc<str>,
        definition: &Definition,
        specs: &[Spec],
        role: &dyn Fn(usize) -> Role,
    ) -> BlockResult<Instance> {
        let builder = Builder::new(name);
        builder.set_accumulator(self.numerics.accumulator());
        let mut slots = Vec::with_capacity(specs.len());
        let mut args = Vec::new();
        for (i, spec) in specs.iter().enumerate() {
            let terminal = &definition.inputs[i];
            let mut arg = |ty: Type| {
                args.push(i as u32);
                builder.arg(terminal.name.clone(), role(i), ty)
            };
            slots.push(match spec {
                Spec::Absent => Slot::Absent,
                Spec::Literal(literal) => Slot::Literal(literal.clone()),
                Spec::Typed(ty) => Slot::Value(arg(ty.clone())),
                // The type is set later, by the part that infers it.
                Spec::Open(dtype) => Slot::Untyped(arg(Type::scalar(self.numerics.float)), *dtype),
            });
        }
        let mut frame = Frame::new(self, &builder, definition, "", slots);
        deeper(|| frame.run())?;
        let done = frame.finish()?;
        let mut results: Vec<ResultDef> = Vec::new();
        for (outlet, value) in definition.outputs.iter().zip(&done.outputs) {
            results.push(ResultDef { name: outlet.name.clone(), value: *value, state: None });
        }
        for (input, value) in &done.states {
            let name = definition.inputs[*input as usize].name.clone();
            results.push(ResultDef { name: name.clone(), value: *value, state: Some(name) });
        }
        let known = |v: &Value| builder.known(*v).is_some();
        let shapes = done.outputs.iter().any(known);
        Ok(Instance {
            shapes,
            states: done.states.iter().map(|(i, _)| *i).collect(),
            types: done.types,
            parts: done.parts,
            args,
            function: Arc::new(builder.finish(results)?),
        })
    }
}

/// Generalises the operand types of a call to argument types of an instance. If a dim is an
/// expression over a symbol that is not a dim by itself, a new symbol replaces the dim. Then the
/// types of results can be expressed in the dims of arguments.
#[derive(Default)]
pub(super) struct Generalised {
    /// The caller's dim for each new symbol.
    stands_for: FxHashMap<Symbol, Dim>,
}

impl Generalised {
    pub fn of(specs: &mut [Spec]) -> Generalised {
        let mut bare: FxHashSet<Symbol> = FxHashSet::default();
        let mut complex = false;
        for spec in specs.iter() {
            if let Spec::Typed(ty) = spec {
                for dim in &ty.shape.dims {
                    match dim.as_symbol() {
                        Some(symbol) => drop(bare.insert(symbol.clone())),
                        None => complex |= matches!(dim, Dim::Expr(_)),
                    }
                }
            }
        }
        let mut made = Generalised::default();
        if !complex {
            return made;
        }
        let mut symbols: FxHashMap<Dim, Symbol> = FxHashMap::default();
        for spec in specs {
            let Spec::Typed(ty) = spec else { continue };
            for dim in &mut ty.shape.dims {
                let mut free = false;
                dim.for_each_symbol(&mut |s| free |= !bare.contains(s));
                if !free || dim.as_symbol().is_some() {
                    continue;
                }
                let next = (0..)
                    .map(|n| Symbol::from(format!("d{n}")))
                    .find(|s| !bare.contains(s))
                    .expect("there are more symbols than dims");
                let symbol = symbols.entry(dim.clone()).or_insert(next).clone();
                bare.insert(symbol.clone());
                made.stands_for.insert(symbol.clone(), dim.clone());
                *dim = Dim::symbol(symbol);
            }
        }
        made
    }

    /// Translates a type of the instance to one of the caller.
    pub fn to_caller(&self, ty: &Type) -> Type {
        if self.stands_for.is_empty() {
            return ty.clone();
        }
        let shape = &ty.shape;
        Type {
            shape: shape.substitute(&|s| self.stands_for.get(s).cloned(), &|_| None),
            dtype: ty.dtype,
        }
    }
}

/// The type of a random key.
pub(super) fn key_type() -> Type {
    Type::new(DType::U32, Shape::fixed(&[2]))
}
