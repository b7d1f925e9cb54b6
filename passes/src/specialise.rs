//! `specialise`: sets the shapes of the entry's arguments, and makes one copy of each function for
//! each distinct set of argument types.

use std::sync::Arc;

use mithril_ir::attr::Attr;
use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::{Diagnostic, Result, did_you_mean};
use mithril_ir::dim::Symbol;
use mithril_ir::graph::{Function, Module, Operation, ResultDef, Value};
use mithril_ir::op::{Gradient, Kind};
use mithril_ir::shape::Type;
use mithril_ir::signature::{instantiate, passed_types};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::call_graph;
use crate::context::PassContext;
use crate::pass::Pass;
use crate::same::{self, Body};
use crate::transfer::Transfer;
use shapes::Shapes;

pub mod shapes;
mod signature;

pass! {
    /// Sets the shapes of the entry's arguments, and makes one copy of each function for each
    /// distinct set of argument types; equal copies are shared. Removes functions that the entry
    /// does not reach.
    pub struct Specialise("specialise") {
        /// Shapes of arguments and sizes of symbols: `x=[32 x 784],batch=32`.
        shapes: Shapes = Shapes::default(),
        /// The results of the entry to keep; all if omitted. States are always kept.
        outputs: Vec<String> = Vec::new(),
    }
}

impl Pass for Specialise {
    fn run(&self, module: &Module, cx: &mut PassContext) -> Result<Module> {
        let Some(entry) = module.entry() else {
            return Ok(module.clone());
        };
        call_graph::post_order(module)?;
        call_graph::entries_have_operations(module)?;
        let types = self.shapes.types(entry)?;
        let entry = Arc::new(self.select_outputs(entry)?);
        let mut copies = Copies {
            module,
            out: Module::new(),
            origins: FxHashMap::default(),
            by_types: FxHashMap::default(),
            by_body: FxHashMap::default(),
            operations: 0,
            cx,
        };
        // Reserves the first position for the entry's copy.
        copies.out.functions.insert(entry.name.clone(), entry.clone());
        let copy = copies.copy(&entry, &entry.name, &types)?;
        copies.out.functions.insert(entry.name.clone(), copies.original(copy));
        Ok(copies.in_order())
    }
}

impl Specialise {
    /// The entry with only the results that are asked for.
    fn select_outputs(&self, entry: &Function) -> Result<Function> {
        let mut entry = entry.clone();
        if self.outputs.is_empty() {
            return Ok(entry);
        }
        for name in &self.outputs {
            if !entry.results.iter().any(|r| *r.name == **name) {
                let names = entry.results.iter().map(|r| &*r.name);
                let mut error = Diagnostic::new(format!("there is no result `{name}`"));
                error.hint = did_you_mean(name, names);
                return error.at(format!("function `{}`", entry.name)).err();
            }
        }
        let select_outputs =
            |r: &ResultDef| r.state.is_some() || self.outputs.iter().any(|o| **o == *r.name);
        entry.results.retain(select_outputs);
        Ok(entry)
    }
}

/// A finished copy, or one that has to be made first.
enum Lookup<'m> {
    Copy(Arc<Function>),
    Missing(Box<Copying<'m>>),
}

/// A copy under construction.
struct Copying<'m> {
    function: &'m Function,
    /// The key under which the copy is cached; `None` for the entry.
    key: Option<(Arc<str>, Vec<Type>)>,
    builder: Builder,
    transfer: Transfer<'m>,
    /// The index of the operation to copy next.
    next: usize,
}

impl Copying<'_> {
    /// Names the results of an operation that has been added, and goes on to the next one.
    fn step(&mut self, op: &Operation) {
        for old in op.results() {
            let name = self.function.info(old).name.clone();
            self.builder.set_name(self.transfer.value(old), name);
        }
        self.next += 1;
    }

    fn finish(self) -> Result<Function> {
        let results = self.function.results.iter();
        let results =
            results.map(|r| ResultDef { value: self.transfer.value(r.value), ..r.clone() });
        self.builder.finish(results.collect())
    }
}

fn placed(mut error: Box<Diagnostic>, function: &str) -> Box<Diagnostic> {
    error.place.get_or_insert_with(|| format!("function `{function}`"));
    error
}

/// The maximum number of operations of all copies together.
const MAX_OPERATIONS: usize = 1 << 22;

/// The copies made so far.
struct Copies<'m, 'c> {
    module: &'m Module,
    out: Module,
    /// The name of the original of each copy.
    origins: FxHashMap<Arc<str>, Arc<str>>,
    by_types: FxHashMap<(Arc<str>, Vec<Type>), Arc<Function>>,
    by_body: FxHashMap<Body, Arc<Function>>,
    /// The number of operations of all copies so far.
    operations: usize,
    cx: &'c mut PassContext,
}

impl<'m> Copies<'m, '_> {
    /// The copy of a function for operands of these types, or the copy that has to be made first.
    fn of(&mut self, name: &Arc<str>, operands: &[&Type]) -> Result<Lookup<'m>> {
        let function = call_graph::function(self.module, name)?;
        if function.external {
            // The target finds its body by name, so it is not renamed.
            self.out.functions.entry(name.clone()).or_insert(function.clone());
            return Ok(Lookup::Copy(function.clone()));
        }
        let key = (name.clone(), signature::signature(function, operands)?);
        if let Some(copy) = self.by_types.get(&key) {
            return Ok(Lookup::Copy(copy.clone()));
        }
        let copy_name = self.out.fresh_name(name);
        self.origins.insert(copy_name.clone(), name.clone());
        // Reserves the name until the copy is finished, so that its callees get other names.
        self.out.functions.insert(copy_name.clone(), function.clone());
        let copying = self.begin(function, &copy_name, &key.1)?;
        Ok(Lookup::Missing(Box::new(Copying { key: Some(key), ..copying })))
    }

    /// Stores a finished copy, unless it equals an existing one.
    fn keep(&mut self, key: (Arc<str>, Vec<Type>), copy: Function) {
        let copy_name = copy.name.clone();
        let body = Body::of(&copy);
        let shared = match self.by_body.get(&body) {
            Some(twin) => {
                self.out.functions.shift_remove(&copy_name);
                self.cx.count("functions-shared", 1);
                twin.clone()
            }
            None => {
                let copy = self.original(copy);
                self.out.functions.insert(copy_name, copy.clone());
                self.by_body.insert(body, copy.clone());
                self.cx.count("functions-made", 1);
                copy
            }
        };
        self.by_types.insert(key, shared);
    }

    /// The copies in the order of their originals.
    fn in_order(mut self) -> Module {
        let place = |name: &Arc<str>| {
            let origin = self.origins.get(name).unwrap_or(name);
            self.module.functions.get_index_of(origin)
        };
        self.out.functions.sort_by(|a, _, b, _| place(a).cmp(&place(b)));
        self.out
    }

    /// The copy as an `Arc`: the module's own function if the copy is identical to it.
    fn original(&self, copy: Function) -> Arc<Function> {
        match self.module.get(&copy.name) {
            Some(copy_name) if same::identical(copy_name, &copy) => copy_name.clone(),
            _ => Arc::new(copy),
        }
    }

    /// Copies a function under another name for arguments of these types, after making the copies
    /// of its callees.
    fn copy(
        &mut self,
        function: &'m Function,
        name: &Arc<str>,
        types: &[Type],
    ) -> Result<Function> {
        // Uses an explicit stack, because calls may nest deeper than Rust's stack allows.
        let mut open = vec![self.begin(function, name, types)?];
        loop {
            let copying = open.last_mut().expect("the first copy is returned when it is finished");
            let Some(op) = copying.function.ops.get(copying.next) else {
                let finished = open.pop().expect("the loop has a copy");
                let key = finished.key.clone();
                let copy = finished.finish()?;
                match key {
                    Some(key) => self.keep(key, copy),
                    None => return Ok(copy),
                }
                continue;
            };
            let name = &copying.function.name;
            copying.builder.set_loc(op.loc.clone());
            let step = self.operation(&copying.builder, &mut copying.transfer, op);
            match step.map_err(|error| placed(error, name))? {
                Some(missing) => open.push(*missing),
                None => copying.step(op),
            }
        }
    }

    /// Starts the copy of a function, without operations.
    fn begin(
        &mut self,
        function: &'m Function,
        name: &Arc<str>,
        types: &[Type],
    ) -> Result<Copying<'m>> {
        self.operations += 1 + function.ops.len();
        if self.operations > MAX_OPERATIONS {
            return Diagnostic::new("functions are called on too many different types")
                .at(format!("function `{}`", function.name))
                .got(format!("{} copies", self.by_types.len()))
                .expected(format!("copies of at most {MAX_OPERATIONS} operations in all"))
                .hint("each distinct shape that a function is called on makes a copy of it")
                .err();
        }
        let builder = Builder::like(name.clone(), function);
        builder.with_mut(|f| {
            f.guards.clear();
            f.constraints.clear();
            for (info, ty) in f.values.iter_mut().zip(types) {
                info.ty = ty.clone();
            }
        });
        let args: Vec<Value> = function.arguments().map(|(value, _)| value).collect();
        let transfer = Transfer::new(function, &builder, &args);
        let transfer = transfer.map_err(|error| placed(error, &function.name))?;
        Ok(Copying { function, key: None, builder, transfer, next: 0 })
    }

    /// Adds an operation to a copy, or returns the copy that has to be made before it can be added.
    fn operation(
        &mut self,
        builder: &Builder,
        transfer: &mut Transfer,
        op: &Operation,
    ) -> Result<Option<Box<Copying<'m>>>> {
        if op.op.kind != Kind::Call {
            return transfer.emit(builder, op, None).map(|()| None);
        }
        let operands: Vec<Type> = transfer.operands(op).iter().map(|v| builder.ty(*v)).collect();
        let types = passed_types(op, 0, &operands);
        let types: Vec<&Type> = types.iter().collect();
        let name = op.functions().next().expect("a call names its callee");
        let callee = match self.of(name, &types)? {
            Lookup::Copy(callee) => callee,
            Lookup::Missing(missing) => return Ok(Some(missing)),
        };
        let mut attrs: SmallVec<[Attr; 2]> = SmallVec::new();
        for (i, attr) in op.attrs.iter().enumerate() {
            attrs.push(match (attr, i) {
                (Attr::Function(_), 0) => Attr::Function(callee.name.clone()),
                (Attr::Function(second), _) => {
                    let found = match op.op.gradient {
                        Gradient::Branches => {
                            let types = passed_types(op, 1, &operands);
                            self.of(second, &types.iter().collect::<Vec<_>>())?
                        }
                        _ => self.gradient(second, &callee, &types)?,
                    };
                    match found {
                        Lookup::Copy(second) => Attr::Function(second.name.clone()),
                        Lookup::Missing(missing) => return Ok(Some(missing)),
                    }
                }
                _ => attr.clone(),
            });
        }
        transfer.emit_with(builder, op, attrs, Some(&callee)).map(|()| None)
    }

    /// The copy of a custom gradient, which takes the operands, the results, and the cotangents of
    /// the float results.
    fn gradient(
        &mut self,
        name: &Arc<str>,
        callee: &Function,
        operands: &[&Type],
    ) -> Result<Lookup<'m>> {
        let mut count = 0;
        let mut fresh = || {
            count += 1;
            Symbol::from(format!("_r{count}"))
        };
        let results = instantiate(callee, operands, &mut Vec::new(), &mut fresh)?;
        let cotangents = results.iter().filter(|ty| ty.dtype.is_float());
        let types = operands.iter().copied().chain(&results).chain(cotangents);
        self.of(name, &types.collect::<Vec<_>>())
    }
}
