//! Operations that take the first few elements in sorted order.

use super::access::{Access, Library};
use super::reduce::SCAN;
use super::{DTypeRule, Default, Gradient, Kind, Meaning, OpDef, ShapeRule, attr};
use crate::attr::{Attr, AttrKind};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::shape::Shape;

pub(super) const OPS: &[OpDef] = &[OpDef {
    name: "argtopk",
    noun: "top_indices",
    access: Access::Library(Library::Sort { indices: true }),
    doc: "The indices of the `k` largest elements along `axis`, or of all if there are fewer, in \
          descending order; equal elements keep their order, and NaN sorts as the largest.",
    kind: Kind::Order,
    attrs: &[
        attr("axis", AttrKind::Int, Default::Int(-1)).axes(),
        attr("k", AttrKind::Int, Default::Required),
    ],
    shape: ShapeRule::Rule(|cx| {
        let mut shape = cx.shape(0).clone();
        let at = shape.dims.len() - shape.axis_from_back(cx.int("axis"))?;
        if cx.int("k") < 0 {
            return cx.mismatch(format!("`k` must be at least 0, got {}", cx.int("k")));
        }
        shape.dims[at] = Dim::Const(cx.int("k")).min(&shape.dims[at]);
        Ok(shape)
    }),
    dtype: DTypeRule::Fixed(DType::I64),
    meaning: Meaning::Decompose(|r| {
        let attrs = [("axis", r.int("axis").into()), ("descending", true.into())];
        let first = [
            ("axes", Attr::ints([r.int("axis")])),
            ("starts", Shape::fixed(&[0]).into()),
            ("limits", Shape::new([Dim::Const(r.int("k"))]).into()),
        ];
        r.arg(0).unary("argsort", &attrs).unary("slice", &first)
    }),
    gradient: Gradient::Zero,
    ..SCAN
}];
