//! Discrete Fourier transforms. Complex values are two arrays.

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;

use super::parameter::with;
use super::{BASE, Default, Entry, Group, Input, Kind, Output, Parameter, Value, data, gives, out};
use crate::lower::Cx;

const AXIS: Parameter =
    with("axis", Kind::INTS, Default::Int(-1)).doc("the axis, or several, as `dim` in PyTorch");
const NORM: Parameter =
    with("norm", Kind::OneOf(&["backward", "ortho", "forward"]), Default::Str("backward"))
        .doc("which direction divides by the number of elements, or both by its square root");
const PARAMETERS: &[Parameter] = &[
    with("n", Kind::COUNTS, Default::None)
        .doc("the length along each axis, to which `input` is cut or padded with zeros"),
    AXIS,
    NORM,
];
const HALF: &[Parameter] = &[
    with("n", Kind::COUNTS, Default::None).doc(
        "the length of the result along each axis; along the last one, twice the input's less 2 \
         if omitted",
    ),
    AXIS,
    NORM,
];
const COMPLEX: &[Input] = &[
    data("input", Class::Float).doc("the real part"),
    data("imaginary_input", Class::Float).optional().doc("the imaginary part; 0 if omitted"),
];
const PARTS: &[Output] = &[out("real"), out("imaginary")];

const TRANSFORM: Entry = Entry {
    group: Group::Layer,
    source: "Cooley & Tukey 1965",
    parameters: PARAMETERS,
    inputs: COMPLEX,
    outputs: PARTS,
    same_dtype: true,
    ..BASE
};

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        example: gives(&["[1, 2, 3, 4]"], "[10. -2. -2. -2.] [ 0.  2.  0. -2.]"),
        ..TRANSFORM.row(
            "FFT",
            "The discrete Fourier transform along `axis`: for each k the sum of \
             `input[j] exp(-2 π i j k / n)`. Its parts are the outputs `real` and `imaginary`.",
            |cx| complex(cx, "fft"),
        )
    },
    Entry {
        example: gives(&["[4, 0, 0, 0]"], "[1. 1. 1. 1.] [0. 0. 0. 0.]"),
        ..TRANSFORM.row(
            "InverseFFT",
            "The inverse of `FFT` along `axis`: for each j the mean of \
             `input[k] exp(2 π i j k / n)`. Its parts are the outputs `real` and `imaginary`.",
            |cx| complex(cx, "inverse_fft"),
        )
    },
    Entry {
        example: gives(&["[1, 2, 3, 4]"], "[10. -2. -2.] [0. 2. 0.]"),
        inputs: &[data("input", Class::Float)],
        ..TRANSFORM.row(
            "RealFFT",
            "The first `n // 2 + 1` elements of the `FFT` of real numbers, of which the others are \
             conjugates. Its parts are the outputs `real` and `imaginary`. Of several axes, the \
             last one is halved.",
            real,
        )
    },
    Entry {
        formula: "fft.irfft(input)",
        example: gives(&["[10, -2, -2]"], "[1. 3. 3. 3.]"),
        parameters: HALF,
        outputs: &[out("output")],
        ..TRANSFORM.row(
            "InverseRealFFT",
            "The inverse of `RealFFT` along `axis`, which is real. An odd length must be given by \
             `n`. The imaginary parts of the first element, and of the last one of an even length, \
             do not matter.",
            inverse_real,
        )
    },
];

/// A complex value.
#[derive(Clone, Copy)]
struct Complex<'a> {
    real: Var<'a>,
    imaginary: Option<Var<'a>>,
}

impl<'a> Complex<'a> {
    fn input(cx: &Cx<'a>) -> Complex<'a> {
        Complex { real: cx.var("input"), imaginary: cx.optional("imaginary_input") }
    }

    fn operands(self) -> Vec<Var<'a>> {
        [Some(self.real), self.imaginary].into_iter().flatten().collect()
    }

    fn outputs(self) -> Result<Vec<Value>> {
        Ok(self.operands().into_iter().map(|var| var.value).collect())
    }
}

/// The axes of the block, and the length along each if it is given. Errors: axes out of range, the
/// same axis twice, a length too many or too few.
fn axes(cx: &Cx) -> Result<Vec<(i64, Option<i64>)>> {
    let shape = cx.var("input").shape();
    shape.need_rank()?;
    let axes = cx.settings.ints("axis").unwrap_or_default();
    let front: Vec<usize> =
        axes.iter().map(|axis| shape.axis(*axis)).collect::<Result<Vec<usize>>>()?;
    let twice = (1..front.len()).any(|i| front[..i].contains(&front[i]));
    if twice || front.is_empty() {
        let what = if twice { "an axis of a transform is named twice" } else { "no axis" };
        return Diagnostic::of(ErrorKind::Setting, what)
            .got(format!("`axis={axes:?}`"))
            .expected("one axis, or several different ones")
            .err();
    }
    let lengths = match cx.settings.ints("n") {
        Some(lengths) if lengths.len() != axes.len() => {
            return Diagnostic::of(ErrorKind::Setting, "`n` must have a length for each axis")
                .got(format!("`n={lengths:?}`, and `axis={axes:?}`"))
                .expected(format!("{} numbers", axes.len()))
                .err();
        }
        Some(lengths) => lengths.into_iter().map(Some).collect(),
        None => vec![None; axes.len()],
    };
    Ok(axes.into_iter().zip(lengths).collect())
}

/// One part of a transform along one axis.
fn part<'a>(
    cx: &Cx<'a>,
    transform: &str,
    x: Complex<'a>,
    (axis, length): (i64, Option<i64>),
    of: i64,
) -> Result<Var<'a>> {
    let size = length.map_or(Attr::None, |n| Shape::new([Dim::Const(n)]).into());
    let norm = match cx.text("norm") {
        "backward" => Attr::None,
        norm => Attr::Str(norm.into()),
    };
    let mut attrs = vec![("axis", axis.into()), ("size", size), ("norm", norm)];
    if of > 0 {
        attrs.push(("of", of.into()));
    }
    let result = cx.op(transform, &x.operands(), &attrs);
    cx.builder.check()?;
    Ok(result)
}

/// A transform along one axis whose result is complex.
fn along<'a>(
    cx: &Cx<'a>,
    transform: &str,
    x: Complex<'a>,
    axis: (i64, Option<i64>),
) -> Result<Complex<'a>> {
    let real = part(cx, transform, x, axis, 0)?;
    Ok(Complex { real, imaginary: Some(part(cx, transform, x, axis, 1)?) })
}

fn complex(cx: &Cx, transform: &str) -> Result<Vec<Value>> {
    let mut x = Complex::input(cx);
    for axis in axes(cx)?.into_iter().rev() {
        x = along(cx, transform, x, axis)?;
    }
    x.outputs()
}

fn real(cx: &Cx) -> Result<Vec<Value>> {
    let mut x = Complex { real: cx.var("input"), imaginary: None };
    for (i, axis) in axes(cx)?.into_iter().rev().enumerate() {
        x = along(cx, if i == 0 { "real_fft" } else { "fft" }, x, axis)?;
    }
    x.outputs()
}

fn inverse_real(cx: &Cx) -> Result<Vec<Value>> {
    let mut x = Complex::input(cx);
    let axes = axes(cx)?;
    let (last, others) = axes.split_last().unwrap_or((&(-1, None), &[]));
    for axis in others {
        x = along(cx, "inverse_fft", x, *axis)?;
    }
    Ok(vec![part(cx, "inverse_real_fft", x, *last, 0)?.value])
}
