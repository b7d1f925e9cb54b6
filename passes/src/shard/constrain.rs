//! `shard`: resolves operations `constrain` for a mesh, or removes them.

use mithril_ir::attr::Attr;
use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::Result;
use mithril_ir::graph::{Function, Module, Operation};
use mithril_ir::op::{self, infer::as_ints, mesh_axes};
use mithril_ir::shape::Shape;

use super::layout::{Layout, Mesh};
use crate::context::PassContext;
use crate::pass::{OptionValue, Pass};
use crate::rebuild::{Rebuild, each_function};
use crate::target::Targets;

pass! {
    /// Checks each `constrain` against a mesh, and names mesh axes that it gives by number. Mesh axes
    /// of size 1 are left out. Without a mesh, each `constrain(x)` is replaced by `x`.
    pub struct Shard("shard") {
        /// The axes of the mesh with their sizes, such as `data:2,model:4`; none by default.
        mesh: Option<Mesh> = None,
    }
}

impl OptionValue for Option<Mesh> {
    const LIST: bool = true;

    fn parse(text: &str, _: Targets) -> std::result::Result<Option<Mesh>, String> {
        match text {
            "" => Ok(None),
            _ => Mesh::parse(text).map(Some).map_err(|error| error.to_string()),
        }
    }

    fn print(&self) -> String {
        self.as_ref().map(Mesh::to_string).unwrap_or_default()
    }
}

impl Pass for Shard {
    /// Errors: a mesh axis that the mesh does not have; a dim that cannot be divided into equal
    /// parts.
    fn run(&self, module: &Module, cx: &mut PassContext) -> Result<Module> {
        each_function(module, |function| self.resolved(module, function, cx))
    }
}

impl Shard {
    fn resolved(
        &self,
        module: &Module,
        function: &Function,
        cx: &mut PassContext,
    ) -> Result<Option<Function>> {
        let constrain = op::get("constrain");
        if function.ops.iter().all(|operation| operation.op != constrain) {
            return Ok(None);
        }
        let mut rebuild = Rebuild::new(module, function);
        for operation in &function.ops {
            if operation.op != constrain {
                rebuild.keep(operation)?;
                continue;
            }
            let x = rebuild.value(operation.operands[0]);
            let Some(mesh) = &self.mesh else {
                cx.count("constraints-removed", 1);
                rebuild.replace(operation.result(), x);
                continue;
            };
            let attrs = written(mesh, operation, &function.ty(operation.operands[0]).shape)
                .map_err(|error| match operation.loc.shortest() {
                    Some(path) => Box::new(error.at(path.to_string())),
                    None => error,
                })?;
            let builder: &Builder = &rebuild.builder;
            builder.set_loc(operation.loc.clone());
            let value = builder.op("constrain", &[x], &attrs)?;
            rebuild.replace(operation.result(), value);
            cx.count("constraints-resolved", 1);
        }
        rebuild.finish().map(Some)
    }
}

/// The attributes of a constraint, with the mesh's names.
fn written(mesh: &Mesh, operation: &Operation, shape: &Shape) -> Result<[(&'static str, Attr); 2]> {
    let (mut axes, mut names) = (Vec::new(), Vec::new());
    for (name, axis) in split(operation) {
        let by = mesh.numbered(&name)?;
        if mesh.parts(&[by]) > 1 {
            axes.push(axis);
            names.push(mesh.name(by));
        }
    }
    if shape.lead.is_none() {
        layout(mesh, operation, shape)?;
    }
    Ok([("axes", Attr::ints(axes)), ("by", Attr::Str(names.join(",").into()))])
}

/// The mesh axes that a constraint names, with the axes of the array that they divide.
fn split(operation: &Operation) -> Vec<(String, i64)> {
    let Attr::Str(by) = operation.attr("by") else { return Vec::new() };
    let axes = as_ints(operation.attr("axes")).unwrap_or_default();
    mesh_axes(by).into_iter().map(String::from).zip(axes.iter().copied()).collect()
}

/// The layout that a constraint asks for, of a value of this shape.
///
/// Errors: those of [`Mesh::split`].
pub fn layout(mesh: &Mesh, operation: &Operation, shape: &Shape) -> Result<Layout> {
    mesh.split(shape, &split(operation))
}
