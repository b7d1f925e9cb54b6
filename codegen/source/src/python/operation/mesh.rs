//! Operations `constrain`: the mesh, and how it divides an array.

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::graph::Operation;
use mithril_passes::shard::constrain;
use mithril_passes::shard::layout::{Axes, Layout, Mesh};

use crate::python::body::Body;
use crate::python::expr::{Argument, Expr};
use crate::python::names::{MESH, string};

impl Body<'_, '_> {
    /// The variable of the mesh, which is made at the top of the file.
    pub(super) fn mesh(&mut self) -> Result<Expr> {
        if self.file.assignments.iter().all(|(name, _)| name != MESH) {
            let mesh = self.given_mesh()?.clone();
            self.file.assignments.push((MESH.into(), made(&mesh)));
        }
        Ok(Expr::name(MESH))
    }

    fn given_mesh(&self) -> Result<&Mesh> {
        self.file.mesh.as_ref().ok_or_else(|| {
            let what = "the operation `constrain` needs a mesh";
            Box::new(
                Diagnostic::of(ErrorKind::Argument, what)
                    .hint("run the pass `shard`, which removes it"),
            )
        })
    }

    fn layout(&self, op: &Operation) -> Result<Layout> {
        let mesh = self.given_mesh()?;
        let shape = &self.function.ty(op.result()).shape;
        shape.need_rank()?;
        constrain::layout(mesh, op, shape)
    }

    /// For each axis of the array, the names of the mesh axes that divide it. Without the axes at
    /// the end that are not divided.
    pub(super) fn spec(&self, op: &Operation) -> Result<Vec<Expr>> {
        let layout = self.layout(op)?;
        let mesh = self.given_mesh()?;
        let name = |axis: &u8| Expr::Literal(string(mesh.name(*axis)));
        let entry = |axes: &Axes| match &axes[..] {
            [] => Expr::name("None"),
            [axis] => name(axis),
            axes => Expr::Tuple(axes.iter().map(name).collect()),
        };
        let divided = layout.dims.iter().rposition(|axes| !axes.is_empty()).map_or(0, |at| at + 1);
        Ok(layout.dims[..divided].iter().map(entry).collect())
    }

    /// For each axis of the mesh, the axis of the array that it divides, or None.
    pub(super) fn split(&self, op: &Operation) -> Result<Vec<Expr>> {
        let layout = self.layout(op)?;
        let numbers = 0..self.given_mesh()?.axes().count();
        let entry = |number: usize| {
            let divides = |axes: &Axes| axes.iter().any(|axis| usize::from(*axis) == number);
            match layout.dims.iter().position(divides) {
                Some(axis) => Expr::int(axis as i64),
                None => Expr::name("None"),
            }
        };
        Ok(numbers.map(entry).collect())
    }
}

/// The expression that makes JAX's mesh: `jax.make_mesh((2, 4), ("data", "model"), …)`.
fn made(mesh: &Mesh) -> Expr {
    let sizes = mesh.axes().map(|(_, size)| Expr::int(size));
    let names = mesh.axes().map(|(name, _)| Expr::Literal(string(name)));
    let (sizes, names) = (Expr::Tuple(sizes.collect()), Expr::Tuple(names.collect()));
    let auto = Expr::name("jax").attribute("sharding").attribute("AxisType").attribute("Auto");
    let kinds = Expr::Tuple(vec![auto]).binary("*", Expr::int(mesh.axes().count() as i64));
    let arguments = [sizes, names, kinds].map(Argument::plain);
    Expr::name("jax").attribute("make_mesh").call(arguments)
}
