//! The function that puts a caller's arrays on the device mesh of the file, by the layouts that were
//! given for params and inputs.

use mithril_ir::graph::Function;
use mithril_passes::shard::layout::{Layout, Mesh};

use super::{Expr, File, Lines, string};
use crate::python::expr::Argument;
use crate::python::mesh::{made, sizes_and_names, spec, split};
use crate::python::names::{DISTRIBUTE, MESH};

/// The arguments that the mesh divides: their names as literals, and their layouts.
type Divided = Vec<(String, Layout)>;

impl File<'_> {
    /// Makes the mesh at the top of the file.
    pub fn assign_mesh(&mut self, mesh: &Mesh) {
        if self.assignments.iter().all(|(name, _)| name != MESH) {
            self.assignments.push((MESH.into(), made(mesh)));
        }
    }

    /// Writes the function. `None` if no layout divides an argument, or the framework has no meshes.
    pub fn distribute(&mut self, entry: &Function) -> Option<String> {
        let mesh = self.mesh.clone()?;
        let layouts = &self.layouts;
        let divided = entry.arguments().filter_map(|(value, arg)| {
            let (_, split) = layouts.iter().find(|(name, _)| **name == *arg.name)?;
            // A layout that does not fit the array is an error where the array is divided.
            let layout = mesh.split(&entry.ty(value).shape, split).ok()?;
            (!layout.is_replicated()).then(|| (string(&arg.name), layout))
        });
        let divided: Divided = divided.collect();
        match self.backend.name() {
            _ if divided.is_empty() => None,
            "jax" => {
                self.assign_mesh(&mesh);
                self.note_word("jax");
                Some(for_jax(&mesh, divided))
            }
            "torch" => Some(for_torch(&mesh, divided)),
            _ => None,
        }
    }
}

fn for_jax(mesh: &Mesh, divided: Divided) -> String {
    let specs = divided.into_iter().map(|(name, layout)| {
        let axes = spec(mesh, &layout).into_iter().map(Argument::plain);
        (name, Expr::name("PartitionSpec").call(axes))
    });
    let mut lines = Lines::default();
    lines.def(DISTRIBUTE, &["arrays".into()]);
    let doc =
        "\"\"\"The arrays on the devices of the mesh. Those without a spec are replicated.\"\"\"";
    lines.verbatim(4, doc);
    lines.verbatim(4, "from jax.sharding import NamedSharding, PartitionSpec");
    lines.verbatim(4, "");
    lines.statement(4, "specs = ", &Expr::Dict(specs.collect()));
    for line in [
        "",
        "def put(name, array):",
        "    sharding = NamedSharding(mesh, specs.get(name, PartitionSpec()))",
        "    return jax.device_put(array, sharding)",
        "",
        "return {name: put(name, array) for name, array in arrays.items()}",
    ] {
        lines.verbatim(4, line);
    }
    lines.into_text()
}

fn for_torch(mesh: &Mesh, divided: Divided) -> String {
    let replicate = || Expr::name("Replicate").call([]);
    let place = |axis: Option<i64>| match axis {
        Some(axis) => Expr::name("Shard").call([Argument::plain(Expr::int(axis))]),
        None => replicate(),
    };
    let placements = divided.into_iter().map(|(name, layout)| {
        (name, Expr::Tuple(split(mesh, &layout).into_iter().map(place).collect()))
    });
    let whole = Expr::Tuple(mesh.axes().map(|_| replicate()).collect());
    let (sizes, names) = sizes_and_names(mesh);
    let mut lines = Lines::default();
    lines.def(DISTRIBUTE, &["arrays".into(), MESH.into()]);
    for line in [
        "\"\"\"The arrays as DTensors. Those without placements are replicated.",
        "",
        &format!("The axes of the mesh are {names}, of sizes {sizes}."),
        "\"\"\"",
        "from torch.distributed.tensor import Replicate, Shard, distribute_tensor",
        "",
    ] {
        lines.verbatim(4, line);
    }
    lines.statement(4, "placements = ", &Expr::Dict(placements.collect()));
    lines.statement(4, "whole = ", &whole);
    for line in [
        "return {",
        "    name: distribute_tensor(array, mesh, placements.get(name, whole))",
        "    for name, array in arrays.items()",
        "}",
    ] {
        lines.verbatim(4, line);
    }
    lines.into_text()
}
