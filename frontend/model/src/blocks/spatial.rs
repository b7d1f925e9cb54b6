//! Convolution and pooling: blocks that slide windows over the last axes of their input.

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::dim::Dim;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;

use super::elementwise::{INPUT, done};
use super::layers::{INIT, LAYER, USE_BIAS};
use super::parameter::{required, with};
use super::{Default, Entry, Kind, Parameter, Settings, data, gives, param};
use crate::init::Init;
use crate::setting::Setting;

/// The number of axes that windows slide over.
const AXES: usize = 2;

const KERNEL: Parameter = required("kernel_size", Kind::Counts)
    .doc("the size of a window along both axes, or along each of them");
const STRIDE: Parameter =
    with("stride", Kind::Counts, Default::Int(1)).doc("the distance between positions of a window");
const PADDING: Parameter = with("padding", Kind::Padding, Default::Int(0)).doc(
    "the padding: a number for all sides, one or a pair (before, after) for each axis, \"valid\" \
    for no padding, or \"same\" for an output as large as the input, with a `stride` of 1",
);
const DILATION: Parameter =
    with("dilation", Kind::Counts, Default::Int(1)).doc("the distance between taps of a window");

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        example: gives(&["[[[[1, 2], [3, 4]]]]"], "[[[[5.5]]]]")
            .with_settings("filters=1, kernel_size=2")
            .with_params(&["[[[[1, 0], [0, 1]]]]", "[0.5]"]),
        parameters: &[
            required("filters", Kind::Count).doc("the channels of the output"),
            KERNEL,
            STRIDE,
            PADDING,
            DILATION,
            USE_BIAS,
            INIT,
        ],
        inputs: &[
            data("input", Class::Float),
            param("w", Init::FanIn, |cx| {
                let channels = cx.var("input").shape().need_trailing(AXES + 1)?[0].clone();
                let filters = Dim::Const(cx.int("filters"));
                let taps = each_axis(cx.settings, "kernel_size").into_iter().map(Dim::Const);
                Ok(Shape::new([filters, channels].into_iter().chain(taps)))
            })
            .transposed()
            .takes_init()
            .doc("(filters, channels of `input`, height and width of the kernel)"),
            param("b", Init::FanIn, |cx| Ok(Shape::new([Dim::Const(cx.int("filters"))])))
                .fan_of("w")
                .when(|s| s.flag("use_bias"))
                .doc("(filters)"),
        ],
        valid,
        ..LAYER.row(
            "Conv2d",
            "The cross-correlation of images, (batch, channels, height, width), with `filters` \
             kernels `w`, plus `b`. Images are padded with zeros. Both start uniform within `1 / \
             sqrt(channels * height * width)` of a kernel, as in `torch.nn.Conv2d`; `init` is for \
             `w`.",
            |cx| {
                let product = cx.op("conv", &[cx.var("input"), cx.var("w")], &windows(cx.settings));
                let bias = cx.optional("b").map(|b| b.expand_dims(&[-1, -2]));
                done(bias.map_or(product, |b| product + b))
            },
        )
    },
    Entry {
        example: gives(&["[[[[1, 2], [3, 4]]]]"], "[[[[4.]]]]").with_settings("kernel_size=2"),
        parameters: &[
            KERNEL,
            with("stride", Kind::Counts, Default::None)
                .doc("the distance between positions of a window; defaults to `kernel_size`"),
            PADDING,
            DILATION,
        ],
        inputs: INPUT,
        valid,
        ..LAYER.row(
            "MaxPool2d",
            "The maximum of each position of a window over the last two axes, (…, height, width), \
             padded with -inf.",
            |cx| {
                let sizes = Attr::ints(each_axis(cx.settings, "kernel_size"));
                let mut attrs = windows(cx.settings);
                attrs.push(("sizes", sizes));
                done(cx.op("max_pool", &[cx.var("input")], &attrs))
            },
        )
    },
];

/// One number per axis. A stride that is left out equals the kernel size.
fn each_axis(settings: &Settings, name: &str) -> Vec<i64> {
    match settings.ints(name) {
        Some(list) if list.len() == 1 => vec![list[0]; AXES],
        Some(list) => list,
        None => each_axis(settings, "kernel_size"),
    }
}

/// The padding before and after each axis.
fn padding(settings: &Settings) -> Vec<[i64; 2]> {
    let pair = |item: &Setting| match item.as_list() {
        Some(pair) => [0, 1].map(|side| pair.get(side).and_then(Setting::as_int).unwrap_or(0)),
        None => [item.as_int().unwrap_or(0); 2],
    };
    match settings.get("padding") {
        Setting::List(items) => items.iter().map(pair).collect(),
        Setting::Str(name) if &**name == "same" => {
            let sizes = each_axis(settings, "kernel_size").into_iter();
            let reach =
                sizes.zip(each_axis(settings, "dilation")).map(|(size, by)| by * (size - 1));
            reach.map(|reach| [reach / 2, reach - reach / 2]).collect()
        }
        Setting::Str(_) => vec![[0; 2]; AXES],
        other => vec![pair(other); AXES],
    }
}

/// The window attributes of both operations. Those with default values are left out.
fn windows(settings: &Settings) -> Vec<(&'static str, Attr)> {
    let padding = padding(settings);
    let side = |side: usize| padding.iter().map(|pair| pair[side]).collect::<Vec<i64>>();
    let lists = [
        ("strides", each_axis(settings, "stride"), 1),
        ("dilations", each_axis(settings, "dilation"), 1),
        ("low", side(0), 0),
        ("high", side(1), 0),
    ];
    let unusual = lists.into_iter().filter(|(_, list, usual)| list.iter().any(|n| n != usual));
    unusual.map(|(name, list, _)| (name, Attr::ints(list))).collect()
}

/// Checks the settings. Errors: a wrong number of axes; negative padding; `padding="same"` with a
/// stride other than 1.
fn valid(settings: &Settings) -> Result<()> {
    for name in ["kernel_size", "stride", "dilation"] {
        let count = each_axis(settings, name).len();
        if count != AXES {
            return counted(name, count);
        }
    }
    let padding = padding(settings);
    if padding.len() != AXES {
        return counted("padding", padding.len());
    }
    if let Some(least) = padding.iter().flatten().find(|n| **n < 0) {
        return Diagnostic::new("`padding` must be at least 0")
            .got(least)
            .expected("integers of at least 0")
            .hint("use `Slice` to remove elements")
            .err();
    }
    let strided = each_axis(settings, "stride").iter().any(|n| *n != 1);
    if settings.text("padding") == "same" && strided {
        return Diagnostic::new("`padding=\"same\"` needs a `stride` of 1")
            .got(settings.get("stride").text())
            .expected("1, or a padding in numbers")
            .err();
    }
    Ok(())
}

fn counted(name: &str, count: usize) -> Result<()> {
    Diagnostic::new(format!("`{name}` must be given for {AXES} axes"))
        .got(format!("a list of {count}"))
        .expected(format!("one value, or a list of {AXES}"))
        .err()
}
