//! Layouts of residual values, which blocks read and add to.

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::Result;
use mithril_ir::graph::{Function, Module, Operation, Value};
use mithril_ir::op;
use mithril_ir::shape::Shape;
use rustc_hash::FxHashSet;

use crate::context::PassContext;
use crate::pass::{OptionValue, Pass};
use crate::rebuild::{Rebuild, each_function};
use crate::target::Targets;

/// How residual values of one shape are divided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Residual {
    /// The shape of the values.
    pub dims: Vec<i64>,
    /// Mesh axes, with the axes of the values that they divide.
    pub split: Vec<(String, i64)>,
}

impl Residual {
    /// Whether a value of this shape is meant. Dims without numbers fit any.
    fn fits(&self, shape: &Shape) -> bool {
        let pairs = || shape.dims.iter().zip(&self.dims);
        let same = |size: Option<i64>, own: i64| size.is_none_or(|size| size == own);
        shape.dims.len() == self.dims.len() && pairs().all(|(dim, own)| same(dim.as_const(), *own))
    }

    /// Reads `8x128x64/data:0/model:1`.
    fn parse(text: &str) -> Option<Residual> {
        let mut parts = text.trim().split('/');
        let dims = parts.next()?.split('x').map(|dim| dim.parse().ok());
        let split = parts.map(|part| {
            let (name, axis) = part.split_once(':')?;
            Some((name.to_string(), axis.parse().ok()?))
        });
        Some(Residual { dims: dims.collect::<Option<_>>()?, split: split.collect::<Option<_>>()? })
    }

    fn print(&self) -> String {
        let dims: Vec<String> = self.dims.iter().map(i64::to_string).collect();
        let split = self.split.iter().map(|(name, axis)| format!("/{name}:{axis}"));
        format!("{}{}", dims.join("x"), split.collect::<String>())
    }
}

pass! {
    /// Divides residual values over a mesh: those that are read and then added to, as in `x + f(x)`.
    /// Each has the layout that is given for its shape. Without layouts, open constraints tell a
    /// search to choose them.
    pub struct ConstrainResiduals("constrain-residuals") {
        /// Shapes with the mesh axes that divide them, such as `8x128x64/data:0/model:1`.
        layouts: Option<Vec<Residual>> = None,
    }
}

impl OptionValue for Option<Vec<Residual>> {
    const LIST: bool = true;

    fn parse(text: &str, _: Targets) -> std::result::Result<Option<Vec<Residual>>, String> {
        let all: Option<Vec<Residual>> = text.split(',').map(Residual::parse).collect();
        let form = || "shapes with mesh axes, such as `8x128x64/data:0/model:1`".to_string();
        if text.is_empty() { Ok(None) } else { all.map(Some).ok_or_else(form) }
    }

    fn print(&self) -> String {
        let all = self.iter().flatten().map(Residual::print);
        all.collect::<Vec<_>>().join(",")
    }
}

impl Pass for ConstrainResiduals {
    fn run(&self, module: &Module, cx: &mut PassContext) -> Result<Module> {
        let entries: Vec<_> = module.called_from_outside().map(|own| own.name.clone()).collect();
        each_function(module, |function| {
            self.constrained(module, function, !entries.contains(&function.name), cx)
        })
    }
}

impl ConstrainResiduals {
    fn constrained(
        &self,
        module: &Module,
        function: &Function,
        is_called: bool,
        cx: &mut PassContext,
    ) -> Result<Option<Function>> {
        let values = values(function, is_called);
        let chosen = |value: &Value| self.attrs(&function.ty(*value).shape).is_some();
        if !values.iter().any(chosen) {
            return Ok(None);
        }
        let mut rebuild = Rebuild::new(module, function);
        let mut constrain = |rebuild: &mut Rebuild, value: Value| -> Result<()> {
            let attrs = self.attrs(&function.ty(value).shape).filter(|_| values.contains(&value));
            if let Some(attrs) = attrs {
                let own = rebuild.builder.op("constrain", &[rebuild.value(value)], &attrs)?;
                rebuild.replace(value, own);
                cx.count("residuals-constrained", 1);
            }
            Ok(())
        };
        if let Some(first) = function.ops.first() {
            rebuild.builder.set_loc(first.loc.clone());
        }
        for (value, _) in function.arguments() {
            constrain(&mut rebuild, value)?;
        }
        for operation in &function.ops {
            rebuild.keep(operation)?;
            rebuild.builder.set_loc(operation.loc.clone());
            for value in operation.results() {
                constrain(&mut rebuild, value)?;
            }
        }
        rebuild.finish().map(Some)
    }

    /// The attributes of the constraint of a residual value of this shape.
    fn attrs(&self, shape: &Shape) -> Option<[(&'static str, Attr); 3]> {
        let Some(layouts) = &self.layouts else {
            return Some([
                ("axes", Attr::ints([])),
                ("by", Attr::Str("".into())),
                ("open", Attr::Bool(true)),
            ]);
        };
        let own = layouts.iter().find(|own| own.fits(shape))?;
        let names: Vec<&str> = own.split.iter().map(|(name, _)| &**name).collect();
        Some([
            ("axes", Attr::ints(own.split.iter().map(|(_, axis)| *axis))),
            ("by", Attr::Str(names.join(",").into())),
            ("open", Attr::Bool(false)),
        ])
    }
}

/// The residual values of a function: floats that are read twice, once by the addition of a value
/// that depends on them. Arguments of the model itself are left out.
fn values(function: &Function, is_called: bool) -> FxHashSet<Value> {
    let uses = function.uses();
    let add = op::get("add");
    let mut found = FxHashSet::default();
    for operation in function.ops.iter().filter(|operation| operation.op == add) {
        let [one, other] = operation.operands[..] else { continue };
        for (value, term) in [(one, other), (other, one)] {
            let ty = function.ty(value);
            let is_array =
                ty.dtype.is_float() && ty.shape.dims.len() > 1 && ty.shape.lead.is_none();
            let is_own = is_called || value.index() >= function.args.len();
            let is_alike = ty == function.ty(term) && ty == function.ty(operation.result());
            let is_read = uses[value.index()] > 1;
            if is_array && is_own && is_alike && is_read && depends(function, term, value) {
                found.insert(value);
            }
        }
    }
    found
}

/// Whether a value is computed from another one.
fn depends(function: &Function, value: Value, on: Value) -> bool {
    let definitions = function.definitions();
    let mut seen = FxHashSet::default();
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        if value == on {
            return true;
        }
        // Values are numbered in the order of computation.
        if value.index() > on.index() && seen.insert(value) {
            let maker = definitions[value.index()].map(|at| &function.ops[at as usize]);
            open.extend(maker.into_iter().flat_map(|maker| maker.operands.iter().copied()));
        }
    }
    false
}

/// Whether a search chooses the layout of an operation's result.
pub fn is_open(operation: &Operation) -> bool {
    operation.op == op::get("constrain") && *operation.attr("open") == Attr::Bool(true)
}

/// The open values of a function by shape, in the order of computation.
pub fn open_values(function: &Function) -> Vec<Vec<Value>> {
    let mut groups: Vec<Vec<Value>> = Vec::new();
    for value in function.ops.iter().filter(|own| is_open(own)).map(Operation::result) {
        let shape = &function.ty(value).shape;
        match groups.iter_mut().find(|group| function.ty(group[0]).shape == *shape) {
            Some(group) => group.push(value),
            None => groups.push(vec![value]),
        }
    }
    groups
}
