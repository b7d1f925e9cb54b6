//! Discrete Fourier transforms along one axis.
//!
//! There are no complex dtypes: an operation computes one part of the result, the real one or the
//! imaginary one. Targets that compute both at once join the two operations.

use super::access::{Access, Fourier, Library};
use super::batch::Batch;
use super::{
    AttrDef, BASE, Class, Default, Gradient, Infer, Kind, Meaning, OpDef, Operand, ShapeRule, attr,
    operand,
};
use crate::algebra::{Rule, Var};
use crate::attr::{Attr, AttrKind};
use crate::diagnostic::{Diagnostic, ErrorKind, Result};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::eval::Array;
use crate::eval::fourier::{self, Transform};
use crate::evaluate::Inputs;
use crate::message;
use crate::shape::Shape;

const REAL: Operand = operand("real", Class::Float);
const IMAGINARY: Operand = operand("imaginary", Class::Float).optional();
const AXIS: AttrDef = attr("axis", AttrKind::Int, Default::Int(-1)).axes();
/// The length of the transform, as a shape of one dim: the operand is cut, or padded with zeros.
const SIZE: AttrDef = attr("size", AttrKind::Shape, Default::None);
const NORM: AttrDef = attr("norm", AttrKind::Str, Default::None);
/// The part of the result: 0 is the real one, 1 the imaginary one.
const OF: AttrDef = attr("of", AttrKind::Int, Default::Int(0));

const FOURIER: OpDef = OpDef {
    kind: Kind::Reduce,
    noun: "spectrum",
    operands: &[REAL, IMAGINARY],
    attrs: &[AXIS, SIZE, NORM, OF],
    batch: Batch::Leading,
    note: "f16 and bf16 are computed in f32. Frameworks differ in which results are \
           NaN or infinite if an operand has such elements.",
    ..BASE
};

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        name: "fft",
        access: Access::Library(Library::Fourier(Fourier::Forward)),
        doc: "The discrete Fourier transform of `real + i imaginary` along `axis`: its real part, \
              or with `of` 1 its imaginary part. The operand is cut or padded with zeros to \
              `size`. `norm` divides by 1 (`backward`, the default), by the square root of the \
              size (`ortho`) or by the size (`forward`).",
        shape: ShapeRule::Rule(complex_shape),
        meaning: Meaning::Kernel(|i| complex(i, false)),
        gradient: Gradient::Rule(|r| complex_gradient(r, "inverse_fft")),
        ..FOURIER
    },
    OpDef {
        name: "inverse_fft",
        access: Access::Library(Library::Fourier(Fourier::Inverse)),
        doc: "The inverse of `fft` along `axis`: its real part, or with `of` 1 its imaginary \
              part. `norm` divides by the size (`backward`, the default), by its square root \
              (`ortho`) or by 1 (`forward`).",
        shape: ShapeRule::Rule(complex_shape),
        meaning: Meaning::Kernel(|i| complex(i, true)),
        gradient: Gradient::Rule(|r| complex_gradient(r, "fft")),
        ..FOURIER
    },
    OpDef {
        name: "real_fft",
        access: Access::Library(Library::Fourier(Fourier::Real)),
        doc: "The first `size // 2 + 1` elements of `fft` of a real operand along `axis`; the \
              others are their conjugates.",
        operands: &[operand("x", Class::Float)],
        shape: ShapeRule::Rule(real_shape),
        meaning: Meaning::Kernel(|i| {
            let (axis, size) = (i.required_axis(), size_of(i));
            let transform = Transform { axis, size, scale: scale(i, size, false), inverse: false };
            let kept = size / 2 + 1;
            Ok(fourier::complex(i.arg(0), None, &transform, kept, i.int("of") == 1))
        }),
        gradient: Gradient::Rule(real_gradient),
        ..FOURIER
    },
    OpDef {
        name: "inverse_real_fft",
        noun: "signal",
        access: Access::Library(Library::Fourier(Fourier::InverseReal)),
        doc: "The inverse of `real_fft` along `axis`. Its `size` is that of the result; by \
              default it is twice the operand's less 2. The imaginary parts of the first element, \
              and of the last one of an even size, do not matter.",
        attrs: &[AXIS, SIZE, NORM],
        shape: ShapeRule::Rule(inverse_real_shape),
        meaning: Meaning::Kernel(|i| {
            let axis = i.required_axis();
            let size = match i.attr("size") {
                Attr::Shape(_) => i.shape("size")[0],
                _ => (2 * i.arg(0).shape[axis]).saturating_sub(2),
            };
            let transform = Transform { axis, size, scale: scale(i, size, true), inverse: true };
            Ok(fourier::inverse_real(i.arg(0), i.args().get(1).copied(), &transform))
        }),
        gradient: Gradient::Rule(inverse_real_gradient),
        ..FOURIER
    },
];

/// The length of the transform in numbers, which follows from the operand unless it is given.
fn size_of(i: &Inputs) -> usize {
    match i.attr("size") {
        Attr::Shape(_) => i.shape("size")[0],
        _ => i.arg(0).shape[i.required_axis()],
    }
}

/// The number that results are multiplied by.
fn scale(i: &Inputs, size: usize, inverse: bool) -> f64 {
    scaled_by(norm_name(i.attr("norm")), inverse).map_or(1.0, |power| (size as f64).powf(-power))
}

/// The power of the size that results are divided by: 1/2 or 1, or `None` for 0.
pub fn scaled_by(norm: &str, inverse: bool) -> Option<f64> {
    match (norm, inverse) {
        ("ortho", _) => Some(0.5),
        ("forward", false) | ("backward", true) => Some(1.0),
        _ => None,
    }
}

/// The normalisation that an attribute names.
pub fn norm_name(attr: &Attr) -> &str {
    match attr {
        Attr::Str(name) => name,
        _ => "backward",
    }
}

fn complex(i: &Inputs, inverse: bool) -> std::result::Result<Array, String> {
    let (axis, size) = (i.required_axis(), size_of(i));
    let transform = Transform { axis, size, scale: scale(i, size, inverse), inverse };
    let imaginary = i.args().get(1).copied();
    Ok(fourier::complex(i.arg(0), imaginary, &transform, size, i.int("of") == 1))
}

/// Checks what all transforms share, and returns the axis counted from the front, and the dim of
/// the operand along it.
fn checked(cx: &mut Infer) -> Result<(usize, Dim)> {
    if !matches!(norm_name(cx.attr("norm")), "backward" | "ortho" | "forward") {
        return Diagnostic::of(
            ErrorKind::Setting,
            message!["`norm` of ", cx.name(), " is not a normalisation"],
        )
        .got(norm_name(cx.attr("norm")))
        .expected("backward, ortho or forward")
        .err();
    }
    if cx.op.attr_index("of").is_some() && !(0..=1).contains(&cx.int("of")) {
        return cx.mismatch(message![cx.name(), " has two parts, 0 and 1"]);
    }
    let shape = cx.shape(0).clone();
    if cx.operands.len() > 1 {
        let imaginary = cx.shape(1).clone();
        cx.same(&shape, &imaginary, "the real and the imaginary part")?;
    }
    shape.need_rank()?;
    let axis = shape.dims.len() - shape.axis_from_back(cx.int("axis"))?;
    Ok((axis, shape.dims[axis].clone()))
}

/// The length of the transform. Errors: it is 0, or is not one dim.
fn size(cx: &mut Infer, own: Dim) -> Result<Dim> {
    let size = match cx.attr("size") {
        Attr::Shape(shape) if shape.dims.len() != 1 || shape.lead.is_some() => {
            return cx.mismatch(message!["`size` of ", cx.name(), " is not one number"]);
        }
        Attr::Shape(_) => cx.whole_shape("size")?.dims[0].clone(),
        _ => own,
    };
    cx.at_least(&size, 1, || "a Fourier transform of no elements".to_string())?;
    Ok(size)
}

fn with_dim(cx: &Infer, axis: usize, dim: Dim) -> Result<Shape> {
    let mut shape = cx.shape(0).clone();
    shape.dims[axis] = dim;
    Ok(shape)
}

fn complex_shape(cx: &mut Infer) -> Result<Shape> {
    let (axis, own) = checked(cx)?;
    let size = size(cx, own)?;
    with_dim(cx, axis, size)
}

fn real_shape(cx: &mut Infer) -> Result<Shape> {
    let (axis, own) = checked(cx)?;
    let size = size(cx, own)?;
    with_dim(cx, axis, size.floor_div(&Dim::Const(2)) + 1)
}

fn inverse_real_shape(cx: &mut Infer) -> Result<Shape> {
    let (axis, own) = checked(cx)?;
    let size = size(cx, own * Dim::Const(2) - 2)?;
    with_dim(cx, axis, size)
}

/// The attributes of a transform with the same axis.
fn attrs<'a>(r: &Rule, size: Option<Dim>, norm: &str, of: i64) -> Vec<(&'a str, Attr)> {
    let size = size.map_or(Attr::None, |size| Shape::new([size]).into());
    let norm = if norm == "backward" { Attr::None } else { Attr::Str(norm.into()) };
    let mut attrs = vec![("axis", r.attr("axis").clone()), ("size", size), ("norm", norm)];
    if of > 0 {
        attrs.push(("of", of.into()));
    }
    attrs
}

/// The normalisation of the opposite direction that multiplies by the same number.
fn swapped(norm: &str) -> &str {
    match norm {
        "forward" => "backward",
        "backward" => "forward",
        other => other,
    }
}

/// The dim of a value along the axis.
fn along(r: &Rule, of: Var) -> Dim {
    let shape = of.shape();
    shape.axis(r.int("axis")).map_or(Dim::Unknown, |axis| shape.dims[axis].clone())
}

/// The transpose of a transform is the transform in the other direction. The cotangent of the
/// imaginary part is imaginary.
fn complex_gradient<'a>(r: &Rule<'a>, other: &str) -> Vec<Option<Var<'a>>> {
    let norm = swapped(norm_name(r.attr("norm")));
    let operands = match r.int("of") {
        0 => vec![r.g()],
        _ => vec![r.g().full_like(0.0), r.g()],
    };
    let length = along(r, r.arg(0));
    let part = |of: i64| {
        let part = r.build(other, &operands, &attrs(r, None, norm, of));
        Some(resized(r, part, &length))
    };
    (0..r.operands.len() as i64).map(part).collect()
}

/// The transpose of a real transform is a transform of the cotangent, padded with zeros.
fn real_gradient<'a>(r: &Rule<'a>) -> Vec<Option<Var<'a>>> {
    let size = match r.attr("size") {
        Attr::Shape(shape) => shape.dims[0].clone(),
        _ => along(r, r.arg(0)),
    };
    let norm = norm_name(r.attr("norm"));
    let x = r.build("fft", &[r.g()], &attrs(r, Some(size), norm, r.int("of")));
    vec![Some(resized(r, x, &along(r, r.arg(0))))]
}

/// The transpose of an inverse real transform is a real transform. All elements count twice whose
/// conjugate is another element.
fn inverse_real_gradient<'a>(r: &Rule<'a>) -> Vec<Option<Var<'a>>> {
    let norm = swapped(norm_name(r.attr("norm")));
    let size = along(r, r.g());
    let length = along(r, r.arg(0));
    let first = r.build("real_fft", &[r.g()], &attrs(r, None, norm, 0));
    let (shape, axis) = (first.shape(), r.int("axis"));
    let Ok(front) = shape.axis(axis) else {
        return vec![Some(first); r.operands.len()];
    };
    let line = Shape::new([shape.dims[front].clone()]);
    let index = r.build("iota", &[], &[("shape", line.into()), ("dtype", DType::I64.into())]);
    let integer = |n: Dim| match n.as_const() {
        Some(n) => index.scalar(n as f64),
        None => r.g().dim(axis),
    };
    let start = index.binary("eq", index.scalar(0.0));
    let middle = (index + index).binary("eq", integer(size));
    let single = start.binary("or", middle);
    let one = first.scalar(1.0);
    let mut weights = single.select(one, one.scalar(2.0)).named("weights");
    let after: Vec<i64> = (1..(shape.dims.len() - front) as i64).collect();
    if !after.is_empty() {
        weights = weights.expand_dims(&after);
    }
    let part = |of: i64| {
        let part = r.build("real_fft", &[r.g()], &attrs(r, None, norm, of));
        Some(resized(r, part * weights, &length))
    };
    (0..r.operands.len() as i64).map(part).collect()
}

/// Cuts the axis, or pads it with zeros, to a length.
fn resized<'a>(r: &Rule<'a>, x: Var<'a>, length: &Dim) -> Var<'a> {
    let own = along(r, x);
    if own == *length {
        return x;
    }
    let axes = || Attr::ints([r.int("axis")]);
    let start = || Attr::from(Shape::new([Dim::Const(0)]));
    let until = |dim: &Dim| Attr::from(Shape::new([dim.clone()]));
    let common = own.min(length);
    let bounds = |limit: &Dim| [("axes", axes()), ("starts", start()), ("limits", until(limit))];
    let cut = if common == own { x } else { x.unary("slice", &bounds(&common)) };
    if common == *length {
        return cut;
    }
    let mut shape = x.shape();
    if let Ok(axis) = shape.axis(r.int("axis")) {
        shape.dims[axis] = length.clone();
    }
    let zeros = x.scalar(0.0).broadcast_to(shape);
    r.build("slice_update", &[zeros, cut], &bounds(&common))
}
