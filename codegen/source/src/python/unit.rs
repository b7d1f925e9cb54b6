//! A file under construction: its names, constants and definitions, and how it spells operations.

use std::rc::Rc;
use std::sync::Arc;

use indexmap::IndexMap;
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::dtype::DType;
use mithril_ir::graph::{Function, Module, Operation};
use mithril_ir::op::Op;
use mithril_ir::tensor::Tensor;
use mithril_passes::shard::layout::Mesh;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Options;
use super::expr::Expr;
use super::names::{DISTRIBUTE, MESH, Names};
use super::prelude::defines;
use super::template::{Alternative, parse};
use crate::backends::{Backend, InPlace, Random};

/// A file under construction.
pub struct File<'m> {
    pub module: &'m Module,
    pub backend: &'static Backend,
    pub random: Random,
    pub in_place: InPlace,
    pub mixed_precision: bool,
    pub training: bool,
    /// Whether the file enables 64-bit elements, for frameworks that require it.
    pub wide: bool,
    /// Names in the scope of the Python module.
    pub names: Names,
    /// Constants at the top of the file, with their names.
    pub assignments: Vec<(String, Expr)>,
    pub hoisted: FxHashMap<Tensor, String>,
    /// Constants that are stored next to the file.
    pub constants: Vec<(String, Tensor)>,
    /// The Python names of functions that others call; no variable has one of these.
    pub defs: FxHashMap<Arc<str>, String>,
    /// Parsed templates, by operation name.
    pub templates: FxHashMap<&'static str, Rc<[Rc<Alternative>]>>,
    /// The text of called functions, callees first.
    pub definitions: IndexMap<Arc<str>, String>,
    /// The device mesh that operations `constrain` refer to.
    pub mesh: Option<Mesh>,
    /// How the mesh divides arguments, by name.
    pub layouts: Vec<(String, Vec<(String, i64)>)>,
    /// The names of all operations of the module.
    pub operations: FxHashSet<&'static str>,
    /// The functions that the entry calls, directly or indirectly.
    pub called_by_entry: FxHashSet<Arc<str>>,
    /// Modules and prelude functions that the text names.
    pub used: FxHashSet<String>,
}

impl<'m> File<'m> {
    pub fn new(module: &'m Module, backend: &'static Backend, options: &Options) -> File<'m> {
        let mut names = Names::default();
        backend.imports.iter().for_each(|(module, _)| names.reserve(module));
        if module.functions.values().flat_map(|f| &f.ops).any(|op| op.op.0.name == "constrain") {
            names.reserve(MESH);
        }
        if !options.layouts.is_empty() {
            names.reserve(MESH);
            names.reserve(DISTRIBUTE);
        }
        let called = module.functions.values().flat_map(|f| &f.ops).flat_map(Operation::functions);
        let called: FxHashSet<&Arc<str>> = called.collect();
        let called = module.functions.keys().filter(|name| called.contains(name));
        let defs = called.map(|name| (name.clone(), names.unique(name))).collect();
        File {
            module,
            backend,
            random: options.random,
            in_place: options.in_place,
            mixed_precision: options.mixed_precision,
            training: options.training,
            mesh: options.mesh.clone(),
            layouts: options.layouts.clone(),
            wide: wants_wide(module),
            names,
            defs,
            assignments: Vec::new(),
            hoisted: FxHashMap::default(),
            constants: Vec::new(),
            templates: FxHashMap::default(),
            definitions: IndexMap::default(),
            operations: module
                .functions
                .values()
                .flat_map(|f| &f.ops)
                .map(|op| op.op.0.name)
                .collect(),
            called_by_entry: module
                .entry()
                .map(|entry| called_by(module, entry))
                .unwrap_or_default(),
            used: FxHashSet::default(),
        }
    }

    /// Whether the framework may differentiate the file, so that a function of the prelude must tell
    /// it how. A file that computes its gradients itself can do without that function.
    pub fn is_differentiated(&self, function: &str) -> bool {
        let own_gradients = || self.module.called_from_outside().nth(1).is_some();
        self.backend.differentiates && (defines(self.backend.prelude, function) || !own_gradients())
    }

    /// Whether a sum of integers of this dtype has the wrong dtype unless one is given.
    pub fn widens(&self, dtype: DType) -> bool {
        // JAX widens if other code in the process enables 64-bit types.
        let narrow = self.backend.narrow && !self.wide;
        // PyTorch sums even 64-bit unsigned integers as signed ones.
        let signed = self.backend.signed_sums.contains(&dtype);
        dtype.is_int() && (dtype.bits() < 64 || narrow || signed)
    }

    /// The alternatives of an operation's template; none if the framework lacks the operation.
    pub fn template(&mut self, op: Op) -> Rc<[Rc<Alternative>]> {
        let (backend, random) = (self.backend, self.random);
        let parsed = || match backend.template(op, random) {
            "" => Rc::default(),
            text => parse(text).into_iter().flatten().map(Rc::new).collect(),
        };
        self.templates.entry(op.name).or_insert_with(parsed).clone()
    }

    pub fn dtype(&self, dtype: DType) -> Result<Expr> {
        let text = self.backend.dtype(dtype, self.wide)?;
        let (front, name) = text.split_once('.').unwrap_or(("@", &text));
        let module = if front == "@" { self.backend.module } else { front };
        Ok(Expr::name(module).attribute(name))
    }

    /// The Python name of a called function.
    /// Errors: the module has no function of this name.
    pub fn definition(&self, callee: &Arc<str>) -> Result<String> {
        self.defs.get(callee).cloned().ok_or_else(|| missing(callee))
    }
}

/// The functions that a function calls, directly or indirectly.
fn called_by(module: &Module, function: &Function) -> FxHashSet<Arc<str>> {
    let mut found = FxHashSet::default();
    let mut left = vec![function];
    while let Some(function) = left.pop() {
        for name in function.ops.iter().flat_map(Operation::functions) {
            if found.insert(name.clone()) {
                left.extend(module.get(name).map(|f| &**f));
            }
        }
    }
    found
}

/// The error of a call of a function that the module lacks.
pub fn missing(callee: &str) -> Box<Diagnostic> {
    Box::new(Diagnostic::new(format!("the module has no function `{callee}`")))
}

/// Whether the module needs 64-bit elements: for floats, even if only to accumulate in, or for
/// integer arguments. Integers computed inside are indices and counts, for which 32 bits suffice.
pub fn wants_wide(module: &Module) -> bool {
    let is_wide = |dtype: DType| matches!(dtype, DType::F64 | DType::U64);
    let named = |attr: &Attr| matches!(attr, Attr::DType(dtype) if is_wide(*dtype));
    let inside = |f: &Arc<Function>| {
        f.values.iter().any(|v| is_wide(v.ty.dtype))
            || f.ops.iter().flat_map(|op| &op.attrs).any(named)
    };
    let mut entries = module.called_from_outside();
    module.functions.values().any(inside)
        || entries.any(|f| f.arguments().any(|(v, _)| f.ty(v).dtype == DType::I64))
}
