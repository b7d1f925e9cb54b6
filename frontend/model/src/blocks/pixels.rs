//! Blocks that move elements between channels and positions of images.

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::shape::Shape;

use super::elementwise::done;
use super::layers::LAYER;
use super::parameter::{required, with};
use super::windows::{self, DILATION, KERNEL, STRIDE, each_axis};
use super::{Default, Entry, Kind, Parameter, Settings, Value, gives};
use crate::lower::Cx;

const FACTOR: Parameter =
    required("factor", Kind::Count).doc("the factor between the sizes of the images");
const PADDING: Parameter = with("padding", Kind::INTS, Default::Int(0))
    .doc("the zeros on both ends of each axis: a number, or one for each axis");

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        source: "Shi et al. 2016, eq. 4",
        example: gives(&["[[[[1]], [[2]], [[3]], [[4]]]]"], "[[[[1. 2.]\n   [3. 4.]]]]")
            .with_settings("factor=2"),
        parameters: &[FACTOR],
        ..LAYER.row(
            "PixelShuffle",
            "`input`, (…, channels * factor**2, height, width), as (…, channels, height * factor, \
             width * factor): `factor**2` channels become a square of pixels.",
            shuffle,
        )
    },
    Entry {
        source: "Shi et al. 2016, eq. 4",
        example: gives(&["[[[[1, 2], [3, 4]]]]"], "[[[[1.]]\n\n  [[2.]]\n\n  [[3.]]\n\n  [[4.]]]]")
            .with_settings("factor=2"),
        parameters: &[FACTOR],
        ..LAYER.row(
            "PixelUnshuffle",
            "The reverse of `PixelShuffle`: `input`, (…, channels, height, width), as (…, channels \
             * factor**2, height / factor, width / factor).",
            unshuffle,
        )
    },
    Entry {
        example: gives(&["[[[[1, 2, 3]]]]"], "[[[1. 2.]\n  [2. 3.]]]")
            .with_settings("kernel_size=(1, 2)"),
        parameters: &[KERNEL, DILATION, PADDING, STRIDE],
        valid: |settings| windows::valid(settings, 2),
        ..LAYER.row(
            "Unfold",
            "The elements of each position of a window over images, (batch, channels, height, \
             width), as columns: (batch, channels * size of the kernel, positions), as in \
             `torch.nn.Unfold`.",
            unfold,
        )
    },
    Entry {
        example: gives(&["[[[1, 2], [2, 3]]]"], "[[[[1. 4. 3.]]]]")
            .with_settings("output_size=(1, 3), kernel_size=(1, 2)"),
        parameters: &[
            required("output_size", Kind::COUNTS).doc("height and width of the output"),
            KERNEL,
            DILATION,
            PADDING,
            STRIDE,
        ],
        valid: |settings| windows::valid(settings, 2),
        ..LAYER.row(
            "Fold",
            "The reverse of `Unfold`: each column of (batch, channels * size of the kernel, \
             positions) is added to its window of an image, (batch, channels, height, width), as \
             in `torch.nn.Fold`.",
            fold,
        )
    },
];

/// The axes of images: those before the last three, and channels, height and width.
struct Images {
    lead: Vec<Dim>,
    channels: Dim,
    height: Dim,
    width: Dim,
}

impl Images {
    fn of(cx: &Cx) -> Result<Images> {
        let shape = cx.var("input").shape();
        let rank = shape.need_rank()?;
        match &shape.dims[rank.saturating_sub(3)..] {
            [channels, height, width] => Ok(Images {
                lead: shape.dims[..rank - 3].to_vec(),
                channels: channels.clone(),
                height: height.clone(),
                width: width.clone(),
            }),
            _ => Diagnostic::of(ErrorKind::Shapes, "`input` has too few axes")
                .got(&shape)
                .expected("(…, channels, height, width)")
                .err(),
        }
    }

    /// Reshapes the last axes of the input to `split`, permutes these, and reshapes them to
    /// `joined`.
    fn moved(&self, cx: &Cx, split: &[Dim], order: &[i64], joined: &[Dim]) -> Result<Vec<Value>> {
        let whole = |dims: &[Dim]| Shape::new(self.lead.iter().chain(dims).cloned());
        let count = self.lead.len() as i64;
        let order: Vec<i64> = (0..count).chain(order.iter().map(|axis| axis + count)).collect();
        let parts = cx.var("input").reshape(whole(split));
        done(parts.transpose(&order).reshape(whole(joined)))
    }
}

fn shuffle(cx: &Cx) -> Result<Vec<Value>> {
    let (own, factor) = (Images::of(cx)?, cx.int("factor"));
    let (height, width, by) = (&own.height, &own.width, Dim::Const(factor));
    let channels = divided(cx, &own.channels, factor * factor, "the channels")?;
    let split = [channels.clone(), by.clone(), by.clone(), height.clone(), width.clone()];
    own.moved(cx, &split, &[0, 3, 1, 4, 2], &[channels, height * &by, width * &by])
}

fn unshuffle(cx: &Cx) -> Result<Vec<Value>> {
    let (own, factor) = (Images::of(cx)?, cx.int("factor"));
    let height = divided(cx, &own.height, factor, "the height")?;
    let width = divided(cx, &own.width, factor, "the width")?;
    let (by, channels) = (Dim::Const(factor), &own.channels);
    let split = [channels.clone(), height.clone(), by.clone(), width.clone(), by.clone()];
    let joined = [channels * &Dim::Const(factor * factor), height, width];
    own.moved(cx, &split, &[0, 2, 4, 1, 3], &joined)
}

/// A dim divided by a number. Errors, at compile time or at run time: it is not divisible.
fn divided(cx: &Cx, dim: &Dim, by: i64, what: &str) -> Result<Dim> {
    cx.divide(dim, by, || {
        Diagnostic::of(ErrorKind::Shapes, format!("`factor` does not divide {what} of `input`"))
            .got(dim)
            .expected(format!("a multiple of {by}"))
    })
}

fn unfold(cx: &Cx) -> Result<Vec<Value>> {
    let (x, settings) = (cx.var("input"), cx.settings);
    let shape = x.shape();
    if shape.need_rank()? != 4 {
        return Diagnostic::of(ErrorKind::Shapes, "`input` must have 4 axes")
            .got(&shape)
            .expected("(batch, channels, height, width)")
            .err();
    }
    let sizes = each_axis(settings, "kernel_size", 2);
    let padding = each_axis(settings, "padding", 2);
    let sides = || Attr::ints([0, 0].into_iter().chain(padding.iter().copied()));
    let padded = match padding.iter().all(|n| *n == 0) {
        true => x,
        false => cx.op("pad", &[x, x.scalar(0.0)], &[("low", sides()), ("high", sides())]),
    };
    let attrs = [
        ("axes", Attr::ints([2, 3])),
        ("sizes", Attr::ints(sizes.iter().copied())),
        ("strides", Attr::ints(each_axis(settings, "stride", 2))),
        ("dilations", Attr::ints(each_axis(settings, "dilation", 2))),
    ];
    let windows = padded.unary("windows", &attrs).transpose(&[0, 1, 4, 5, 2, 3]);
    cx.builder.check()?;
    let dims = windows.shape().dims;
    let taps = Dim::Const(sizes.iter().product());
    let rows = [dims[0].clone(), &dims[1] * &taps, &dims[4] * &dims[5]];
    done(windows.reshape(Shape::new(rows)))
}

/// The windows that an image is folded from, along one axis.
struct Folded {
    positions: i64,
    /// The padding of the positions with which each tap, shifted by its place, covers the output.
    low: i64,
    high: i64,
    interior: i64,
}

impl Folded {
    /// Along axis `i`. Errors: the kernel is larger than the padded output.
    fn of(settings: &Settings, i: usize) -> Result<Folded> {
        let number = |name| each_axis(settings, name, 2)[i];
        let (output, padding, stride) =
            (number("output_size"), number("padding"), number("stride"));
        let reach = number("dilation") * (number("kernel_size") - 1);
        let rest = output + 2 * padding - reach - 1;
        if rest < 0 {
            let what = format!("the kernel is larger than axis {i} of the padded output");
            return Diagnostic::new(what)
                .got(format!("a kernel that spans {}, for {}", reach + 1, output + 2 * padding))
                .expected("an output that has room for the kernel")
                .err();
        }
        Ok(Folded {
            positions: rest / stride + 1,
            low: reach - padding,
            high: reach - padding + rest % stride,
            interior: stride - 1,
        })
    }
}

/// Pads the positions of each tap, shifts them by the tap's place, and sums over the taps.
fn fold(cx: &Cx) -> Result<Vec<Value>> {
    let (x, settings) = (cx.var("input"), cx.settings);
    let shape = x.shape();
    if shape.need_rank()? != 3 {
        return Diagnostic::of(ErrorKind::Shapes, "`input` must have 3 axes")
            .got(&shape)
            .expected("(batch, channels * size of the kernel, positions)")
            .err();
    }
    let sizes = each_axis(settings, "kernel_size", 2);
    let taps: i64 = sizes.iter().product();
    let channels = cx.divide(&shape.dims[1], taps, || {
        Diagnostic::of(ErrorKind::Shapes, "the kernel does not divide axis 1 of `input`")
            .got(&shape.dims[1])
            .expected(format!("a multiple of {taps}"))
    })?;
    let axes = [Folded::of(settings, 0)?, Folded::of(settings, 1)?];
    let count = axes[0].positions * axes[1].positions;
    cx.need_equal(&shape.dims[2], count, || {
        Diagnostic::of(ErrorKind::Shapes, "`input` has the wrong number of positions")
            .got(&shape.dims[2])
            .expected(format!("{} x {} positions", axes[0].positions, axes[1].positions))
    })?;
    let last = sizes.iter().chain(axes.iter().map(|axis| &axis.positions));
    let split = [shape.dims[0].clone(), channels].into_iter();
    let split = Shape::new(split.chain(last.map(|n| Dim::Const(*n))));
    let columns = x.reshape(split).transpose(&[0, 1, 4, 5, 2, 3]);
    let list =
        |number: fn(&Folded) -> i64| Attr::ints([0, 0, number(&axes[0]), number(&axes[1]), 0, 0]);
    let padding = [
        ("low", list(|axis| axis.low)),
        ("high", list(|axis| axis.high)),
        ("interior", list(|axis| axis.interior)),
    ];
    let padded = cx.op("pad", &[columns, x.scalar(0.0)], &padding);
    let shifts = each_axis(settings, "dilation", 2).into_iter().map(|by| -by);
    let attrs = [
        ("axes", Attr::ints([2, 3])),
        ("taps", Attr::ints([4, 5])),
        ("shifts", Attr::ints(shifts)),
    ];
    done(padded.unary("skew", &attrs).sum(Some(&[4, 5]), false))
}
