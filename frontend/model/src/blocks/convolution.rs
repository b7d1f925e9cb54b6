//! Convolutions, and their transposes.

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;

use super::borders::Border;
use super::elementwise::done;
use super::example::Example;
use super::layers::{INIT, LAYER, USE_BIAS};
use super::parameter::{required, with};
use super::windows::{self, DILATION, KERNEL, PADDING, STRIDE, each_axis};
use super::{Default, Entry, Input, Kind, Parameter, Settings, Value, data, gives, param};
use crate::init::Init;
use crate::lower::Cx;

const FILTERS: Parameter =
    required("filters", Kind::Count).doc("the number of channels of the output");
const GROUPS: Parameter = with("groups", Kind::Count, Default::Int(1)).doc(
    "the number of groups into which channels and filters are split; a filter reads the channels \
     of its own group",
);
const PADDING_MODE: Parameter = with(
    "padding_mode",
    Kind::OneOf(&["zeros", "reflect", "replicate", "circular"]),
    Default::Str("zeros"),
)
.doc(
    "what the padding is: zeros, or elements of the input as in `ReflectionPad`, `ReplicationPad` \
     and `CircularPad`",
);
const SIGNALS: &str = "np.ones((2, 4, 9), \"float32\")";
const VOLUMES: &str = "np.ones((2, 4, 5, 6, 7), \"float32\")";

const TRANSPOSE_PARAMETERS: &[Parameter] = &[
    FILTERS,
    KERNEL,
    with("stride", Kind::COUNTS, Default::Int(1))
        .doc("the distance between the kernels of neighbouring elements"),
    with("padding", Kind::INTS, Default::Int(0))
        .doc("what is removed from both ends of each axis: a number, or one for each axis"),
    with("output_padding", Kind::INTS, Default::Int(0))
        .doc("what is added to the end of each axis: less than `stride` or less than `dilation`"),
    GROUPS,
    DILATION,
    USE_BIAS,
    INIT,
];

pub(super) const BLOCKS: &[Entry] = &[
    conv::<1>(
        "Conv1d",
        "The cross-correlation of sequences, (batch, channels, length), with `filters` kernels \
         `w`, plus `b`. Both start uniform within `1 / sqrt(channels / groups * length)` of a \
         kernel, as in `torch.nn.Conv1d`; `init` is for `w`.",
        gives(&[SIGNALS], "(2, 8, 7)").with_settings("filters=8, kernel_size=3"),
    ),
    conv::<2>(
        "Conv2d",
        "The cross-correlation of images, (batch, channels, height, width), with `filters` \
         kernels `w`, plus `b`. Both start uniform within `1 / sqrt(channels / groups * height * \
         width)` of a kernel, as in `torch.nn.Conv2d`; `init` is for `w`.",
        gives(&["[[[[1, 2], [3, 4]]]]"], "[[[[5.5]]]]")
            .with_settings("filters=1, kernel_size=2")
            .with_params(&["[[[[1, 0], [0, 1]]]]", "[0.5]"]),
    ),
    conv::<3>(
        "Conv3d",
        "The cross-correlation of volumes, (batch, channels, depth, height, width), with \
         `filters` kernels `w`, plus `b`. Both start uniform within `1 / sqrt(channels / groups * \
         depth * height * width)` of a kernel, as in `torch.nn.Conv3d`; `init` is for `w`.",
        gives(&[VOLUMES], "(2, 8, 3, 4, 5)").with_settings("filters=8, kernel_size=3"),
    ),
    transpose::<1>(
        "ConvTranspose1d",
        "The transpose of `Conv1d`, as in `torch.nn.ConvTranspose1d`: each element of sequences, \
         (batch, channels, length), adds its multiple of a kernel of `w` to the output, plus `b`. \
         `padding` is removed from both ends.",
        gives(&[SIGNALS], "(2, 3, 19)").with_settings("filters=3, kernel_size=3, stride=2"),
    ),
    transpose::<2>(
        "ConvTranspose2d",
        "The transpose of `Conv2d`, as in `torch.nn.ConvTranspose2d`: each element of images, \
         (batch, channels, height, width), adds its multiple of a kernel of `w` to the output, \
         plus `b`. `padding` is removed from all sides.",
        gives(&["[[[[1, 2]]]]"], "[[[[1. 1. 2. 2.]\n   [1. 1. 2. 2.]]]]")
            .with_settings("filters=1, kernel_size=2, stride=2")
            .with_params(&["[[[[1, 1], [1, 1]]]]", "[0]"]),
    ),
    transpose::<3>(
        "ConvTranspose3d",
        "The transpose of `Conv3d`, as in `torch.nn.ConvTranspose3d`: each element of volumes, \
         (batch, channels, depth, height, width), adds its multiple of a kernel of `w` to the \
         output, plus `b`. `padding` is removed from all sides.",
        gives(&[VOLUMES], "(2, 3, 10, 12, 14)").with_settings("filters=3, kernel_size=2, stride=2"),
    ),
];

const BIAS: Input = param("b", Init::FanIn, |cx| Ok(Shape::new([Dim::Const(cx.int("filters"))])))
    .fan_of("w")
    .when(|s| s.flag("use_bias"))
    .doc("(filters)");

const fn conv<const AXES: usize>(name: &'static str, doc: &'static str, example: Example) -> Entry {
    Entry {
        example,
        parameters: &[
            FILTERS,
            KERNEL,
            STRIDE,
            PADDING,
            DILATION,
            GROUPS,
            USE_BIAS,
            INIT,
            PADDING_MODE,
        ],
        inputs: const {
            &[
                data("input", Class::Float),
                param("w", Init::FanIn, |cx| {
                    let filters = Dim::Const(cx.int("filters"));
                    kernel(cx, AXES, [filters, group_of(cx, &channels(cx, AXES)?)?])
                })
                .transposed()
                .takes_init()
                .doc("(filters, channels of `input` / groups, sizes of the kernel …)"),
                BIAS,
            ]
        },
        valid: |settings| {
            divides(settings)?;
            windows::valid(settings, AXES)
        },
        ..LAYER.row(name, doc, |cx| {
            let mut attrs = windows::attrs(cx.settings, AXES);
            attrs.extend(windows::unless_one("groups", cx.int("groups")));
            let mut input = cx.var("input");
            if let Some(border) = Border::named(cx.text("padding_mode")) {
                input = border.extend(cx, input, &windows::padding(cx.settings, AXES))?;
                attrs.retain(|(name, _)| !["low", "high"].contains(name));
            }
            let product = cx.op("conv", &[input, cx.var("w")], &attrs);
            biased(cx, product, AXES)
        })
    }
}

const fn transpose<const AXES: usize>(
    name: &'static str,
    doc: &'static str,
    example: Example,
) -> Entry {
    Entry {
        example,
        parameters: TRANSPOSE_PARAMETERS,
        inputs: const {
            &[
                data("input", Class::Float),
                param("w", Init::FanIn, |cx| {
                    let filters = Dim::Const(cx.int("filters") / cx.int("groups"));
                    kernel(cx, AXES, [channels(cx, AXES)?, filters])
                })
                .transposed()
                .takes_init()
                .doc("(channels of `input`, filters / groups, sizes of the kernel …)"),
                BIAS,
            ]
        },
        valid: |settings| {
            divides(settings)?;
            windows::valid(settings, AXES)?;
            fits_output_padding(settings, AXES)
        },
        ..LAYER.row(name, doc, |cx| {
            let settings = cx.settings;
            let padding = each_axis(settings, "padding", AXES);
            let more = each_axis(settings, "output_padding", AXES);
            let high = padding.iter().zip(&more).map(|(padding, more)| padding - more).collect();
            let lists = [
                windows::unless("strides", each_axis(settings, "stride", AXES), 1),
                windows::unless("dilations", each_axis(settings, "dilation", AXES), 1),
                windows::unless("low", padding, 0),
                windows::unless("high", high, 0),
                windows::unless_one("groups", cx.int("groups")),
            ];
            let attrs: Vec<(&str, Attr)> = lists.into_iter().flatten().collect();
            let product = cx.op("conv_transpose", &[cx.var("input"), cx.var("w")], &attrs);
            biased(cx, product, AXES)
        })
    }
}

/// The channels of the input. Errors: fewer axes than channels and those of the windows.
fn channels(cx: &Cx, axes: usize) -> Result<Dim> {
    let shape = cx.var("input").shape();
    if shape.need_rank()? != axes + 2 {
        let names = ["length", "height, width", "depth, height, width"];
        return Diagnostic::of(ErrorKind::Shapes, format!("`input` must have {} axes", axes + 2))
            .got(&shape)
            .expected(format!("(batch, channels, {})", names[axes - 1]))
            .err();
    }
    Ok(shape.dims[1].clone())
}

/// The channels of one group. Errors, at compile time or at run time: groups that do not divide
/// them.
fn group_of(cx: &Cx, channels: &Dim) -> Result<Dim> {
    let groups = cx.int("groups");
    cx.divide(channels, groups, || {
        Diagnostic::of(ErrorKind::Shapes, "`groups` does not divide the channels of `input`")
            .got(format!("{channels} channels, and {groups} groups"))
            .expected("a number of channels that is a multiple of `groups`")
    })
}

/// The shape of the weights: these two dims and the sizes of the kernel.
fn kernel(cx: &Cx, axes: usize, first: [Dim; 2]) -> Result<Shape> {
    let taps = each_axis(cx.settings, "kernel_size", axes).into_iter().map(Dim::Const);
    Ok(Shape::new(first.into_iter().chain(taps)))
}

fn biased(cx: &Cx, product: mithril_ir::algebra::Var, axes: usize) -> Result<Vec<Value>> {
    let later: Vec<i64> = (1..=axes as i64).map(|axis| -axis).collect();
    let bias = cx.optional("b").map(|b| cx.builder.var(b.expand_dims(&later).value));
    done(bias.map_or(product, |b| product + cx.builder.var(b.value)))
}

/// Errors: groups that do not divide the filters.
fn divides(settings: &Settings) -> Result<()> {
    match (settings.int("filters"), settings.int("groups")) {
        (Some(filters), Some(groups)) if filters % groups != 0 => {
            Diagnostic::new("`groups` does not divide `filters`")
                .got(format!("{filters} filters, and {groups} groups"))
                .expected("a number of filters that is a multiple of `groups`")
                .err()
        }
        _ => Ok(()),
    }
}

/// Errors: an output padding that is negative, or neither less than the stride nor than the
/// dilation; negative padding.
fn fits_output_padding(settings: &Settings, axes: usize) -> Result<()> {
    let list = |name| each_axis(settings, name, axes);
    let limits = list("stride").into_iter().zip(list("dilation"));
    for (more, (stride, dilation)) in list("output_padding").into_iter().zip(limits) {
        if more < 0 || more >= stride.max(dilation) {
            return Diagnostic::new("`output_padding` is out of range")
                .got(more)
                .expected(format!(
                    "at least 0, and less than `stride` or `dilation`: less than {}",
                    stride.max(dilation)
                ))
                .err();
        }
    }
    Ok(())
}
