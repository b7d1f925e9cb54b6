//! Pooling over windows.

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::Result;
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::shape::Shape;

use super::elementwise::{INPUT, done};
use super::example::Example;
use super::layers::LAYER;
use super::parameter::{Range, required, with};
use super::ranges::{adaptive, adaptive_places, maxima_of_ranges, means_of_ranges};
use super::reduce::above_zero;
use super::windows::{
    self, DILATION, KERNEL, PADDING, STRIDE_OF_KERNEL, after_channels, each_axis,
};
use super::{Default, Entry, Kind, Output, Parameter, Settings, Value, gives, out};
use crate::lower::Cx;

const CEIL: Parameter = with("ceil_mode", Kind::Bool, Default::Bool(false))
    .doc("keep a last position whose window reaches beyond the end, if it begins before it");
const COUNT_PAD: Parameter = with("count_include_pad", Kind::Bool, Default::Bool(true))
    .doc("count the zeros of the padding in the mean");
const DIVISOR: Parameter = with("divisor_override", Kind::Count, Default::None)
    .doc("what sums of windows are divided by, instead of the number of elements");
const SIGNAL: &str = "[[[1, 2, 3, 4]]]";
const IMAGE: &str = "[[[[1, 2], [3, 4]]]]";
const VOLUME: &str = "np.ones((1, 1, 2, 2, 2), \"float32\")";

const MAX_PARAMETERS: &[Parameter] =
    &[KERNEL, STRIDE_OF_KERNEL, PADDING, DILATION, CEIL, RETURN_INDICES];
const RETURN_INDICES: Parameter = with("return_indices", Kind::Bool, Default::Bool(false))
    .doc("also return `indices`, the positions of the maxima");

pub(super) const BLOCKS: &[Entry] = &[
    max_pool::<1>(
        "MaxPool1d",
        "The maximum of each position of a window over the last axis, (…, length), padded with \
         -inf. `indices` are positions of the maxima along the axis.",
        gives(&[SIGNAL], "[[[2. 4.]]] [[[1 3]]]")
            .with_settings("kernel_size=2, return_indices=True"),
    ),
    max_pool::<2>(
        "MaxPool2d",
        "The maximum of each position of a window over the last two axes, (…, height, width), \
         padded with -inf. `indices` are positions of the maxima in the flattened axes, as \
         `MaxUnpool2d` takes them.",
        gives(&[IMAGE], "[[[[4.]]]] [[[[3]]]]").with_settings("kernel_size=2, return_indices=True"),
    ),
    max_pool::<3>(
        "MaxPool3d",
        "The maximum of each position of a window over the last three axes, (…, depth, height, \
         width), padded with -inf. `indices` are positions of the maxima in the flattened axes.",
        gives(&[VOLUME], "(1, 1, 1, 1, 1) (1, 1, 1, 1, 1)")
            .with_settings("kernel_size=2, return_indices=True"),
    ),
    avg_pool::<1>(
        "AvgPool1d",
        "The mean of each position of a window over the last axis, (…, length), padded with zeros.",
        gives(&[SIGNAL], "[[[1.5 3.5]]]").with_settings("kernel_size=2"),
    ),
    avg_pool::<2>(
        "AvgPool2d",
        "The mean of each position of a window over the last two axes, (…, height, width), padded \
         with zeros.",
        gives(&[IMAGE], "[[[[2.5]]]]").with_settings("kernel_size=2"),
    ),
    avg_pool::<3>(
        "AvgPool3d",
        "The mean of each position of a window over the last three axes, (…, depth, height, \
         width), padded with zeros.",
        gives(&[VOLUME], "(1, 1, 1, 1, 1)").with_settings("kernel_size=2"),
    ),
    Entry {
        example: gives(&["[[[3, 4, 6, 8]]]"], "[[[ 5. 10.]]]")
            .with_settings("norm=2, kernel_size=2"),
        parameters: &[
            required("norm", Kind::Float(Range::Positive)).doc("the exponent `p` of the norm"),
            KERNEL,
            STRIDE_OF_KERNEL,
            CEIL,
        ],
        valid: |settings| {
            let axes = settings.list("kernel_size").len().max(settings.list("stride").len());
            windows::valid(settings, axes.max(1))
        },
        ..LAYER.row(
            "LpPool",
            "`sum(input**norm) ** (1 / norm)` of each position of a window over all axes after the \
             first two, (batch, channels, …), as in `torch.nn.LpPool2d`. A list as `kernel_size` \
             says of how many axes.",
            |cx| {
                let settings = cx.settings;
                let listed = settings.list("kernel_size").len().max(settings.list("stride").len());
                let axes = match listed {
                    0 => after_channels(cx)?,
                    listed => windows::listed(cx, "kernel_size", listed)?,
                };
                let (power, x) = (cx.float("norm"), cx.var("input"));
                let raised = x.binary("pow", x.scalar(power));
                // PyTorch scales the sums of windows that reach beyond the end.
                let taps: i64 = each_axis(settings, "kernel_size", axes).into_iter().product();
                let total = match cx.flag("ceil_mode") {
                    true => pooled(cx, "avg_pool", raised, axes)? * taps as f64,
                    false => pooled(cx, "sum_pool", raised, axes)?,
                };
                done(above_zero(total, |v| v.binary("pow", v.scalar(1.0 / power))))
            },
        )
    },
    Entry {
        formula: "mean(input, tuple(range(2, ndim(input))), keepdims=keepdim)",
        example: gives(&["[[[[1, 2], [3, 4]]]]"], "[[2.5]]"),
        parameters: &[KEEPDIM],
        ..LAYER.row("GlobalAvgPool", "The mean of each channel of (batch, channels, …).", |cx| {
            global(cx, "mean")
        })
    },
    Entry {
        formula: "max(input, tuple(range(2, ndim(input))), keepdims=keepdim)",
        example: gives(&["[[[[1, 2], [3, 4]]]]"], "[[4.]]"),
        parameters: &[KEEPDIM],
        ..LAYER.row(
            "GlobalMaxPool",
            "The maximum of each channel of (batch, channels, …).",
            |cx| global(cx, "max"),
        )
    },
    Entry {
        example: gives(&["[[[1, 2, 3, 4, 5]]]"], "[[[2. 4.]]]").with_settings("output_size=2"),
        parameters: &[OUTPUT_SIZE],
        ..LAYER.row(
            "AdaptiveAvgPool",
            "The means of `output_size` ranges of each axis after the first two, (batch, channels, \
             …). Range `i` of an axis of size `n` goes from `floor(i * n / size)` to `ceil((i + 1) \
             * n / size)`, as in `torch.nn.AdaptiveAvgPool2d`. A list as `output_size` says of how \
             many of the last axes. If the ranges of an axis differ in size, a NaN or an infinity \
             is in the means of all of them.",
            |cx| adaptive(cx, means_of_ranges),
        )
    },
    Entry {
        example: gives(&["[[[1, 2, 3, 4, 5]]]"], "[[[3. 5.]]] [[[2 4]]]")
            .with_settings("output_size=2, return_indices=True"),
        parameters: &[OUTPUT_SIZE, RETURN_INDICES],
        outputs: OUTPUTS,
        ..LAYER.row(
            "AdaptiveMaxPool",
            "The maxima of `output_size` ranges of each axis after the first two, (batch, \
             channels, …). The ranges are those of `AdaptiveAvgPool`. `indices` are positions of \
             the maxima in the flattened axes.",
            |cx| {
                let mut outputs = adaptive(cx, maxima_of_ranges)?;
                if cx.flag("return_indices") {
                    outputs.push(adaptive_places(cx)?.value);
                }
                Ok(outputs)
            },
        )
    },
];

const KEEPDIM: Parameter =
    with("keepdim", Kind::Bool, Default::Bool(false)).doc("keep the reduced axes, with size 1");
const OUTPUT_SIZE: Parameter = required("output_size", Kind::OneOrList(&Kind::OrNone(&Kind::Count))).doc(
    "the size of all pooled axes of the output, or of each of them; `None` in a list leaves an axis \
     as it is",
);
pub(super) const OUTPUTS: &[Output] =
    &[out("output"), out("indices").when(|settings| settings.flag("return_indices"))];

const fn max_pool<const AXES: usize>(
    name: &'static str,
    doc: &'static str,
    example: Example,
) -> Entry {
    Entry {
        example,
        parameters: MAX_PARAMETERS,
        inputs: INPUT,
        outputs: OUTPUTS,
        valid: |settings| windows::valid_pooling(settings, AXES),
        ..LAYER.row(name, doc, |cx| {
            let highest = pooled(cx, "max_pool", cx.var("input"), AXES)?;
            let mut outputs = vec![highest.value];
            if cx.flag("return_indices") {
                outputs.push(places(cx, AXES)?.value);
            }
            Ok(outputs)
        })
    }
}

const fn avg_pool<const AXES: usize>(
    name: &'static str,
    doc: &'static str,
    example: Example,
) -> Entry {
    Entry {
        example,
        parameters: &[KERNEL, STRIDE_OF_KERNEL, PADDING, CEIL, COUNT_PAD, DIVISOR],
        inputs: INPUT,
        valid: |settings| windows::valid_pooling(settings, AXES),
        ..LAYER.row(name, doc, |cx| {
            let x = cx.var("input");
            match cx.settings.int("divisor_override") {
                None => done(pooled(cx, "avg_pool", x, AXES)?),
                Some(divisor) => done(pooled(cx, "sum_pool", x, AXES)? / divisor as f64),
            }
        })
    }
}

fn global(cx: &Cx, reduction: &str) -> Result<Vec<Value>> {
    let axes = after_channels(cx)? as i64;
    let axes: Vec<i64> = (2..2 + axes).collect();
    done(cx.var("input").reduce(reduction, Some(&axes), cx.flag("keepdim")))
}

/// How the windows of one axis are padded at its end, so that the last position is that of
/// `ceil_mode`.
struct Ceiling {
    /// The elements that are added after the padding.
    more: i64,
    /// The number of positions, where windows of the padded axis have one too many.
    positions: Option<Dim>,
}

impl Ceiling {
    /// For an axis of this size, its padding, and a window of this span and stride.
    fn of(dim: &Dim, [low, high]: [i64; 2], span: i64, stride: i64) -> Ceiling {
        let begin = low + stride - 1;
        match dim.as_const() {
            // Windows begin before the end of the axis.
            Some(size) => {
                let rest = size + low + high - span;
                let last = (rest + stride - 1).div_euclid(stride);
                let last = last.min((size + begin).div_euclid(stride) - 1);
                Ceiling { more: (last * stride - rest).max(0), positions: None }
            }
            None => {
                let begun = || (dim + begin).floor_div(&Dim::Const(stride));
                let all = (dim + (low + high - span + stride - 1)).floor_div(&Dim::Const(stride));
                let positions = (stride > span - high).then(|| (all + 1).min(&begun()));
                Ceiling { more: stride - 1, positions }
            }
        }
    }
}

/// A pooling operation with the settings of the block, over the last axes.
fn pooled<'a>(cx: &Cx<'a>, op: &str, x: Var<'a>, axes: usize) -> Result<Var<'a>> {
    let mut attrs = windows::attrs(cx.settings, axes);
    attrs.push(("sizes", Attr::ints(each_axis(cx.settings, "kernel_size", axes))));
    if op == "avg_pool" && !cx.flag("count_include_pad") {
        attrs.push(("count_pad", false.into()));
    }
    if !cx.flag("ceil_mode") {
        return Ok(cx.op(op, &[x], &attrs));
    }
    let shape = x.shape();
    let ceilings = ceilings(cx.settings, shape.need_trailing(axes)?);
    let padding = windows::padding(cx.settings, axes);
    let high = padding.iter().zip(&ceilings).map(|(pair, ceiling)| pair[1] + ceiling.more);
    attrs.retain(|(name, _)| *name != "high");
    attrs.extend(windows::unless("high", high.collect(), 0));
    if op == "avg_pool" {
        let more = ceilings.iter().map(|ceiling| ceiling.more).collect();
        attrs.extend(windows::unless("uncounted", more, 0));
    }
    let all = cx.op(op, &[x], &attrs);
    let cut = ceilings.into_iter().enumerate();
    let cut = cut.filter_map(|(i, ceiling)| Some((i as i64 - axes as i64, ceiling.positions?)));
    Ok(cut.fold(all, |all, (axis, positions)| first(all, axis, positions)))
}

fn ceilings(settings: &Settings, dims: &[Dim]) -> Vec<Ceiling> {
    let axes = dims.len();
    let (sizes, strides) =
        (each_axis(settings, "kernel_size", axes), each_axis(settings, "stride", axes));
    let (dilations, padding) =
        (windows::dilations(settings, axes), windows::padding(settings, axes));
    let one = |i: usize| {
        let span = dilations[i] * (sizes[i] - 1) + 1;
        Ceiling::of(&dims[i], padding[i], span, strides[i])
    };
    (0..axes).map(one).collect()
}

/// The first elements along an axis.
fn first<'a>(x: Var<'a>, axis: i64, count: Dim) -> Var<'a> {
    let attrs = [
        ("axes", Attr::ints([axis])),
        ("starts", Shape::fixed(&[0]).into()),
        ("limits", Shape::new([count]).into()),
    ];
    x.unary("slice", &attrs)
}

/// The positions of the maxima in the flattened last axes.
fn places<'a>(cx: &Cx<'a>, axes: usize) -> Result<Var<'a>> {
    let (settings, x) = (cx.settings, cx.var("input"));
    let shape = x.shape();
    let dims = shape.need_trailing(axes)?;
    let rank = shape.need_rank()?;
    let mut padding = windows::padding(settings, axes);
    let mut cut = Vec::new();
    if cx.flag("ceil_mode") {
        for (i, ceiling) in ceilings(settings, dims).into_iter().enumerate() {
            padding[i][1] += ceiling.more;
            cut.extend(ceiling.positions.map(|positions| (i, positions)));
        }
    }
    let sizes = each_axis(settings, "kernel_size", axes);
    let (strides, dilations) =
        (each_axis(settings, "stride", axes), windows::dilations(settings, axes));
    let side = |side: usize| {
        let front = std::iter::repeat_n(0, rank - axes);
        Attr::ints(front.chain(padding.iter().map(move |pair| pair[side])))
    };
    let padded = [("low", side(0)), ("high", side(1))];
    let padded = cx.op("pad", &[x, x.scalar(f64::NEG_INFINITY)], &padded);
    let over: Vec<i64> = (rank - axes..rank).map(|axis| axis as i64).collect();
    let attrs = [
        ("axes", Attr::ints(over.iter().copied())),
        ("sizes", Attr::ints(sizes.iter().copied())),
        ("strides", Attr::ints(strides.iter().copied())),
        ("dilations", Attr::ints(dilations.iter().copied())),
    ];
    let mut windows = padded.unary("windows", &attrs);
    for (i, positions) in cut {
        windows = first(windows, over[i], positions);
    }
    cx.builder.check()?;
    let mut flat = windows.shape();
    flat.dims.truncate(rank);
    let positions = flat.clone();
    flat.dims.push(Dim::Const(sizes.iter().product()));
    let mut tap = windows.reshape(flat).unary("argmax", &[("axis", (-1).into())]);
    // The coordinates of the tap, from the last axis to the first, and their flat position.
    let mut place: Option<Var> = None;
    let mut step: Option<Var> = None;
    for i in (0..axes).rev() {
        let own = tap.binary("mod", tap.scalar(sizes[i] as f64)) * dilations[i] as f64;
        tap = tap.binary("floor_div", tap.scalar(sizes[i] as f64));
        let begin = cx.iota(positions.clone(), over[i], DType::I64) * strides[i] as f64;
        let at = own + begin - padding[i][0] as f64;
        place = Some(match (place, step) {
            (Some(place), Some(step)) => place + at * step,
            _ => at,
        });
        let size = x.dim(over[i]);
        step = Some(step.map_or(size, |step| step * size));
    }
    Ok(place.unwrap_or(tap).cast(cx.index))
}
