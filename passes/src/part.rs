//! Parts of functions: some of the operations, as a function of their own.

use std::sync::Arc;

use mithril_ir::attr::Attr;
use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::Result;
use mithril_ir::dim::Symbol;
use mithril_ir::graph::{Function, Module, Operation, ResultDef, Role, Value};
use mithril_ir::op;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::autodiff::forward_backward::{arguments_binding, copy};

/// Some operations of a function.
pub struct Part {
    /// For each operation of the function, whether it belongs to the part.
    ops: Vec<bool>,
    /// Values computed elsewhere that the part reads, and arguments of the whole function that bind
    /// a symbol that it uses.
    reads: Vec<Value>,
    /// Values that it computes for others.
    pub outputs: Vec<Value>,
}

impl Part {
    /// The part of these operations. `is_read` says whether others read a value that it computes.
    pub fn new(function: &Function, ops: Vec<bool>, is_read: &dyn Fn(Value) -> bool) -> Part {
        let own: Vec<&Operation> = own(function, &ops).collect();
        let computed: FxHashSet<Value> = own.iter().flat_map(|op| op.results()).collect();
        let mut reads: Vec<Value> = Vec::new();
        let mut seen: FxHashSet<Value> = FxHashSet::default();
        let mut symbols: FxHashSet<Symbol> = FxHashSet::default();
        for operation in &own {
            let operands = operation.operands.iter().filter(|value| !computed.contains(value));
            reads.extend(operands.filter(|value| seen.insert(**value)));
            let types = operation.results().map(|value| &function.ty(value).shape);
            let shapes = operation.attrs.iter().filter_map(|attr| match attr {
                Attr::Shape(shape) => Some(&**shape),
                _ => None,
            });
            for shape in types.chain(shapes) {
                shape.for_each_symbol(&mut |symbol| {
                    symbols.insert(symbol.clone());
                });
            }
        }
        let arguments = function.arguments().map(|(value, _)| value);
        let known = reads.iter().map(|value| function.ty(*value));
        let more = arguments_binding(function, arguments, known, symbols);
        reads.extend(more);
        let results = own.iter().flat_map(|operation| operation.results());
        let outputs = results.filter(|value| is_read(*value)).collect();
        Part { ops, reads, outputs }
    }

    /// Adds the part to the module as a function of this name, and a call of it to `builder`. `map`
    /// has the value in `builder` of each value of the whole function; the outputs are added.
    ///
    /// Errors: none for valid modules.
    pub fn call(
        &self,
        builder: &Builder,
        module: &mut Module,
        whole: &Function,
        name: Arc<str>,
        map: &mut FxHashMap<Value, Value>,
    ) -> Result<()> {
        let callee = self.function(module, whole, name)?;
        let operands: Vec<Value> = self.reads.iter().map(|value| map[value]).collect();
        let attrs = [Attr::Function(callee.name.clone())].into_iter().collect();
        let results = builder.call(op::get("call"), &callee, attrs, &operands)?;
        for (old, new) in self.outputs.iter().zip(results) {
            builder.set_name(new, whole.info(*old).name.clone());
            map.insert(*old, new);
        }
        module.insert(callee);
        Ok(())
    }

    fn function(&self, module: &Module, whole: &Function, name: Arc<str>) -> Result<Function> {
        let builder = Builder::new(name);
        let mut map: FxHashMap<Value, Value> = FxHashMap::default();
        for (name, value) in names(whole, &self.reads).into_iter().zip(&self.reads) {
            let role = whole.args.get(value.index()).map_or(Role::Data, |argument| argument.role);
            map.insert(*value, builder.arg(name, role, whole.ty(*value).clone()));
        }
        copy(&builder, module, whole, &self.ops, &mut map)?;
        let results = names(whole, &self.outputs).into_iter().zip(&self.outputs);
        let results =
            results.map(|(name, value)| ResultDef { name, value: map[value], state: None });
        builder.finish(results.collect())
    }
}

fn own<'f>(function: &'f Function, ops: &'f [bool]) -> impl Iterator<Item = &'f Operation> {
    let chosen = function.ops.iter().zip(ops).filter(|(_, is_own)| **is_own);
    chosen.map(|(operation, _)| operation)
}

/// The names of values that cross between two parts: their own ones, or else those of their blocks.
/// They differ from each other and from all argument names of the whole.
fn names(whole: &Function, values: &[Value]) -> Vec<Arc<str>> {
    let mut taken: FxHashSet<Arc<str>> = whole.args.iter().map(|own| own.name.clone()).collect();
    let wanted: FxHashSet<Value> = values.iter().copied().collect();
    let mut blocks: FxHashMap<Value, &str> = FxHashMap::default();
    for op in &whole.ops {
        let own = op.results().filter(|value| wanted.contains(value));
        blocks.extend(own.filter_map(|value| Some((value, op.loc.shortest()?))));
    }
    let mut name = |value: &Value| {
        if let Some(argument) = whole.args.get(value.index()) {
            return argument.name.clone();
        }
        let block = || blocks.get(value).map(|path| path.replace('.', "_").into());
        let base = whole.info(*value).name.clone().or_else(block).unwrap_or_else(|| "value".into());
        let numbered = (1..).map(|number| format!("{base}_{number}").into());
        let mut all = std::iter::once(base.clone()).chain(numbered);
        let name = all.find(|name| !taken.contains(name)).unwrap_or(base);
        taken.insert(name.clone());
        name
    };
    values.iter().map(&mut name).collect()
}
