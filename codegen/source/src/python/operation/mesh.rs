//! Operations `constrain`: the mesh, and how it divides an array.

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::graph::Operation;
use mithril_passes::shard::constrain;
use mithril_passes::shard::layout::{Layout, Mesh};

use crate::python::body::Body;
use crate::python::expr::Expr;
use crate::python::mesh;
use crate::python::names::MESH;

impl Body<'_, '_> {
    /// The variable of the mesh, which is made at the top of the file.
    pub(super) fn mesh(&mut self) -> Result<Expr> {
        let mesh = self.given_mesh()?.clone();
        self.file.assign_mesh(&mesh);
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
        Ok(mesh::spec(self.given_mesh()?, &self.layout(op)?))
    }

    /// For each axis of the mesh, the axis of the array that it divides, or None.
    pub(super) fn split(&self, op: &Operation) -> Result<Vec<Expr>> {
        let split = mesh::split(self.given_mesh()?, &self.layout(op)?);
        let entry = |axis: Option<i64>| axis.map_or(Expr::name("None"), Expr::int);
        Ok(split.into_iter().map(entry).collect())
    }
}
