//! Device meshes and layouts as expressions of JAX and PyTorch.

use mithril_passes::shard::layout::{Axes, Layout, Mesh};

use super::expr::{Argument, Expr};
use super::names::string;

/// The expression that makes JAX's mesh: `jax.make_mesh((2, 4), ("data", "model"), …)`.
pub fn made(mesh: &Mesh) -> Expr {
    let (sizes, names) = sizes_and_names(mesh);
    let auto = Expr::name("jax").attribute("sharding").attribute("AxisType").attribute("Auto");
    let kinds = Expr::Tuple(vec![auto]).binary("*", Expr::int(mesh.axes().count() as i64));
    let arguments = [sizes, names, kinds].map(Argument::plain);
    Expr::name("jax").attribute("make_mesh").call(arguments)
}

/// The sizes and the names of a mesh's axes.
pub fn sizes_and_names(mesh: &Mesh) -> (Expr, Expr) {
    let sizes = mesh.axes().map(|(_, size)| Expr::int(size));
    let names = mesh.axes().map(|(name, _)| Expr::Literal(string(name)));
    (Expr::Tuple(sizes.collect()), Expr::Tuple(names.collect()))
}

/// For each axis of the array, the names of the mesh axes that divide it. Without the axes at the end
/// that are not divided.
pub fn spec(mesh: &Mesh, layout: &Layout) -> Vec<Expr> {
    let name = |axis: &u8| Expr::Literal(string(mesh.name(*axis)));
    let entry = |axes: &Axes| match &axes[..] {
        [] => Expr::name("None"),
        [axis] => name(axis),
        axes => Expr::Tuple(axes.iter().map(name).collect()),
    };
    let divided = layout.dims.iter().rposition(|axes| !axes.is_empty()).map_or(0, |at| at + 1);
    layout.dims[..divided].iter().map(entry).collect()
}

/// For each axis of the mesh, the axis of the array that it divides, if it divides one.
pub fn split(mesh: &Mesh, layout: &Layout) -> Vec<Option<i64>> {
    let entry = |number: usize| {
        let divides = |axes: &Axes| axes.iter().any(|axis| usize::from(*axis) == number);
        layout.dims.iter().position(divides).map(|axis| axis as i64)
    };
    (0..mesh.axes().count()).map(entry).collect()
}
