//! The reverse of pooling, and pooling over windows at random positions.

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;

use super::elementwise::done;
use super::example::Example;
use super::layers::LAYER;
use super::parameter::{Range, with};
use super::pooling::OUTPUTS;
use super::resize::Ratio;
use super::windows::{self, KERNEL, STRIDE_OF_KERNEL, each_axis};
use super::{Default, Entry, Input, KEY, Kind, Parameter, Settings, Value, data, gives};
use crate::lower::Cx;

const UNPOOL_PARAMETERS: &[Parameter] = &[
    KERNEL,
    STRIDE_OF_KERNEL,
    with("padding", Kind::INTS, Default::Int(0)).doc("the padding of the pooling"),
    with("output_size", Kind::COUNTS, Default::None)
        .doc("the size of each axis of the output; defaults to the smallest that fits"),
];
const UNPOOL_INPUTS: &[Input] = &[
    data("input", Class::Float),
    data("indices", Class::Int).own_dtype().doc("positions in the flattened output"),
];
const FRACTIONAL_INPUTS: &[Input] = &[
    data("input", Class::Float),
    data("samples", Class::Float)
        .when(|settings| !settings.flag("draw"))
        .doc("with `draw=False`, (batch, channels, pooled axes): numbers from 0 to 1"),
    KEY.when(|settings| settings.flag("draw")),
];
const FRACTIONAL_PARAMETERS: &[Parameter] = &[
    KERNEL,
    with("output_size", Kind::COUNTS, Default::None)
        .doc("the size of all pooled axes of the output, or of each of them"),
    with("output_ratio", Kind::Float(Range::Unit), Default::None)
        .doc("the sizes of the output as a part of those of the input, instead of `output_size`"),
    with("return_indices", Kind::Bool, Default::Bool(false))
        .doc("also return `indices`, the positions of the maxima"),
    with("draw", Kind::Bool, Default::Bool(true))
        .doc("draw the positions of windows by `key`; without it, `samples` sets them"),
];

pub(super) const BLOCKS: &[Entry] = &[
    max_unpool::<1>(
        "MaxUnpool1d",
        "The reverse of `MaxPool1d`: zeros, with the elements of `input`, (…, length), at \
         `indices` of the last axis.",
        gives(&["[[[4, 5]]]", "[[[1, 2]]]"], "[[[0. 4. 5. 0.]]]").with_settings("kernel_size=2"),
    ),
    max_unpool::<2>(
        "MaxUnpool2d",
        "The reverse of `MaxPool2d`: zeros, with the elements of `input`, (…, height, width), at \
         `indices` of the flattened height and width.",
        gives(&["[[[[4]]]]", "[[[[3]]]]"], "[[[[0. 0.]\n   [0. 4.]]]]")
            .with_settings("kernel_size=2"),
    ),
    max_unpool::<3>(
        "MaxUnpool3d",
        "The reverse of `MaxPool3d`: zeros, with the elements of `input`, (…, depth, height, \
         width), at `indices` of the flattened depth, height and width.",
        gives(
            &["[[[[[4]]]]]", "[[[[[6]]]]]"],
            "[[[[[0. 0.]\n    [0. 0.]]\n\n   [[0. 0.]\n    [4. 0.]]]]]",
        )
        .with_settings("kernel_size=2"),
    ),
    fractional::<2>(
        "FractionalMaxPool2d",
        "The maximum of each of `output_size` windows along the height and the width of (batch, \
         channels, height, width). Distances between windows vary at random, so that the output \
         may have any size below that of the input. `samples` are a number from 0 to 1 for the \
         width and one for the height of each channel, as in \
         `torch.nn.functional.fractional_max_pool2d`.",
        gives(
            &["[[[[1, 2, 3], [4, 5, 6], [7, 8, 9]]]]", "[[[0.5, 0.5]]]"],
            "[[[[5. 6.]\n   [8. 9.]]]] [[[[4 5]\n   [7 8]]]]",
        )
        .with_settings("kernel_size=2, output_size=2, draw=False, return_indices=True"),
    ),
    fractional::<3>(
        "FractionalMaxPool3d",
        "`FractionalMaxPool2d` of volumes, (batch, channels, depth, height, width). `samples` are \
         a number from 0 to 1 for the depth, the height and the width of each channel.",
        gives(
            &["np.ones((2, 3, 5, 5, 5), \"float32\")", "np.full((2, 3, 3), 0.5, \"float32\")"],
            "(2, 3, 4, 4, 4) (2, 3, 4, 4, 4)",
        )
        .with_settings("kernel_size=2, output_size=4, draw=False, return_indices=True"),
    ),
];

const fn max_unpool<const AXES: usize>(
    name: &'static str,
    doc: &'static str,
    example: Example,
) -> Entry {
    Entry {
        example,
        parameters: UNPOOL_PARAMETERS,
        inputs: UNPOOL_INPUTS,
        valid: |settings| {
            check_sizes(settings, AXES)?;
            windows::valid(settings, AXES)
        },
        ..LAYER.row(name, doc, |cx| unpool(cx, AXES))
    }
}

const fn fractional<const AXES: usize>(
    name: &'static str,
    doc: &'static str,
    example: Example,
) -> Entry {
    Entry {
        source: "Graham 2014",
        example,
        parameters: FRACTIONAL_PARAMETERS,
        inputs: FRACTIONAL_INPUTS,
        outputs: OUTPUTS,
        valid: |settings| check_fractional(settings, AXES),
        ..LAYER.row(name, doc, |cx| fractional_pool(cx, AXES))
    }
}

/// Errors: a list of sizes for another number of axes.
fn check_sizes(settings: &Settings, axes: usize) -> Result<()> {
    for name in ["kernel_size", "output_size"] {
        let count = settings.ints(name).map_or(axes, |list| list.len());
        if count != axes && count != 1 {
            return windows::counted(name, count, axes);
        }
    }
    Ok(())
}

fn check_fractional(settings: &Settings, axes: usize) -> Result<()> {
    check_sizes(settings, axes)?;
    let given = [settings.get("output_size"), settings.get("output_ratio")];
    let given = given.iter().filter(|setting| !setting.is_none()).count();
    let open = settings.float("output_ratio").is_some_and(|ratio| ratio <= 0.0 || ratio >= 1.0);
    let error = match given {
        1 if !open => return Ok(()),
        1 => Diagnostic::of(ErrorKind::Setting, "`output_ratio` must be between 0 and 1")
            .got(settings.get("output_ratio").text()),
        _ => Diagnostic::of(ErrorKind::Setting, "the size of the output is needed once")
            .got(if given == 0 { "neither `output_size` nor `output_ratio`" } else { "both" })
            .expected("`output_size` or `output_ratio`"),
    };
    error.err()
}

fn unpool(cx: &Cx, axes: usize) -> Result<Vec<Value>> {
    let (x, indices, settings) = (cx.var("input"), cx.var("indices"), cx.settings);
    let (shape, places) = (x.shape(), indices.shape());
    let dims = shape.need_trailing(axes)?;
    let wrong = || {
        Diagnostic::of(ErrorKind::Shapes, "`indices` does not have the shape of `input`")
            .got(&places)
            .expected(&shape)
    };
    if places.need_rank()? != shape.dims.len() {
        return wrong().err();
    }
    for (one, other) in shape.dims.iter().zip(&places.dims) {
        cx.need_same(one, other, wrong)?;
    }
    let list = |name| each_axis(settings, name, axes);
    let (sizes, strides, padding) = (list("kernel_size"), list("stride"), list("padding"));
    let size = |i: usize| match settings.ints("output_size") {
        Some(_) => Dim::Const(each_axis(settings, "output_size", axes)[i]),
        None => &(&dims[i] + -1) * &Dim::Const(strides[i]) + (sizes[i] - 2 * padding[i]),
    };
    let plane: Vec<Dim> = (0..axes).map(size).collect();
    for dim in &plane {
        cx.need(dim, 0, || {
            Diagnostic::of(ErrorKind::Shapes, "the output would have a negative size")
                .got(format!("a size of {dim} for an input of shape {shape}"))
                .expected("less padding, or an input that is not empty")
        })?;
    }
    let lead = &shape.dims[..shape.dims.len() - axes];
    let flat = |last: Dim| Shape::new(lead.iter().cloned().chain([last]));
    let count = |dims: &[Dim]| dims.iter().cloned().product::<Dim>();
    let zeros = x.scalar(0.0).broadcast_to(flat(count(&plane)));
    let own = flat(count(dims));
    let attrs = [("axis", (-1).into())];
    let indices = indices.reshape(own.clone());
    let scattered = |zeros, values| cx.op("scatter_add_along", &[zeros, indices, values], &attrs);
    let mut whole = scattered(zeros, x.reshape(own));
    // Windows that overlap may have the same maximum.
    if sizes.iter().zip(&strides).any(|(size, stride)| size > stride) {
        let counts = scattered(zeros, x.scalar(1.0).broadcast_to(indices.shape()));
        whole = whole / counts.binary("maximum", counts.scalar(1.0));
    }
    done(whole.reshape(Shape::new(lead.iter().cloned().chain(plane))))
}

/// The sizes of the pooled axes of the output. Errors: an axis with too few elements.
fn pooled_sizes(cx: &Cx, dims: &[Dim], kernel: &[i64]) -> Result<Vec<Dim>> {
    let axes = dims.len();
    let ratio = cx.settings.float("output_ratio").map(Ratio::of).transpose()?;
    let mut sizes = Vec::new();
    for (i, dim) in dims.iter().enumerate() {
        let size = match ratio {
            Some(ratio) => ratio.of_dim(dim),
            None => Dim::Const(each_axis(cx.settings, "output_size", axes)[i]),
        };
        let few = || {
            Diagnostic::of(ErrorKind::Shapes, "an axis has too few elements for its windows")
                .got(format!("{dim} elements for {size} windows of {}", kernel[i]))
                .expected("at least one window, and an element more for each further one")
        };
        cx.need(&size, 1, few)?;
        cx.need(&(dim - &size), kernel[i] - 1, few)?;
        sizes.push(size);
    }
    Ok(sizes)
}

/// The numbers from 0 to 1 that set the positions of windows, (batch, channels, axes). Errors: they
/// have another shape.
fn samples<'a>(cx: &Cx<'a>, lead: &[Dim], axes: usize) -> Result<Var<'a>> {
    let wanted = Shape::new(lead.iter().cloned().chain([Dim::Const(axes as i64)]));
    let dtype = cx.var("input").dtype().widened();
    let Some(samples) = cx.optional("samples") else {
        let attrs = [("shape", wanted.into()), ("dtype", DType::F32.into())];
        return Ok(cx.var("key").unary("uniform", &attrs).cast(dtype));
    };
    let shape = samples.shape();
    let wrong = || {
        Diagnostic::of(ErrorKind::Shapes, "`samples` has the wrong shape")
            .got(&shape)
            .expected(format!("{wanted}: (batch, channels, pooled axes)"))
    };
    cx.need_rank(samples, 3, wrong)?;
    for (one, other) in shape.dims.iter().zip(&wanted.dims) {
        cx.need_same(one, other, wrong)?;
    }
    Ok(samples.stop_gradient().reshape(wanted).cast(dtype))
}

/// The first elements of the windows along an axis, (batch, channels, windows).
fn starts<'a>(cx: &Cx<'a>, sample: Var<'a>, axis: usize, size: &Dim, kernel: i64) -> Var<'a> {
    let last = cx.var("input").dim(axis as i64) - kernel as f64;
    let windows = Shape::new([size.clone()]);
    let place = cx.iota(windows.clone(), 0, sample.dtype());
    let count = cx.iota(windows, 0, DType::I64).dim(0);
    let gaps = (count - 1.0).binary("maximum", count.scalar(1.0));
    let step = last.cast(sample.dtype()) / gaps.cast(sample.dtype());
    let whole = |x: Var<'a>| x.unary("floor", &[]);
    let start = whole((place + sample) * step) - whole(sample * step);
    let start = start.cast(DType::I64).binary("maximum", last.scalar(0.0)).binary("minimum", last);
    let is_last = cx.iota(Shape::new([size.clone()]), 0, DType::I64).binary("eq", count - 1.0);
    is_last.select(last, start)
}

fn fractional_pool(cx: &Cx, axes: usize) -> Result<Vec<Value>> {
    let x = cx.var("input");
    let shape = x.shape();
    cx.need_rank(x, axes + 2, || {
        let spatial = if axes == 2 { "height, width" } else { "depth, height, width" };
        Diagnostic::of(ErrorKind::Shapes, "`input` has the wrong number of axes")
            .got(&shape)
            .expected(format!("(batch, channels, {spatial})"))
    })?;
    let (lead, dims) = shape.dims.split_at(2);
    let kernel = each_axis(cx.settings, "kernel_size", axes);
    let sizes = pooled_sizes(cx, dims, &kernel)?;
    let samples = samples(cx, lead, axes)?;
    // The flat index of each element of each window: (batch, channels, windows …, taps …).
    let mut index: Option<Var> = None;
    for (i, size) in sizes.iter().enumerate() {
        // PyTorch's samples for images are those of the width, then of the height.
        let from = if axes == 2 { 1 - i } else { i } as i64;
        let bound = |at: i64| Shape::fixed(&[at as usize]).into();
        let attrs =
            [("axes", Attr::ints([2])), ("starts", bound(from)), ("limits", bound(from + 1))];
        let start = starts(cx, samples.unary("slice", &attrs), i + 2, size, kernel[i]);
        let tap = cx.iota(Shape::fixed(&[kernel[i] as usize]), 0, DType::I64);
        let mut own: Vec<Dim> = lead.to_vec();
        own.resize(2 + 2 * axes, Dim::Const(1));
        own[2 + i] = size.clone();
        own[2 + axes + i] = Dim::Const(kernel[i]);
        let place = (start.expand_dims(&[-1]) + tap).reshape(Shape::new(own));
        index = Some(index.map_or(place, |index| index * x.dim(i as i64 + 2) + place));
    }
    let Some(index) = index else { return done(x) };
    let with = |rest: Vec<Dim>| Shape::new(lead.iter().cloned().chain(rest));
    let product = |dims: &[Dim]| dims.iter().cloned().product::<Dim>();
    let taps = Dim::Const(kernel.iter().product());
    let windows = product(&sizes);
    let index = index.reshape(with(vec![windows.clone(), taps.clone()]));
    let along = [("axis", (-1).into())];
    let flat = x.reshape(with(vec![product(dims)]));
    let every = index.reshape(with(vec![&windows * &taps]));
    let elements = cx.op("take_along", &[flat, every], &along).reshape(index.shape());
    let first = [("axis", (-1).into()), ("keepdim", true.into())];
    let best = elements.unary("argmax", &first);
    let best = cx.op("take_along", &[index, best], &along).squeeze(&[-1]);
    let whole = with(sizes.clone());
    let highest = cx.op("take_along", &[flat, best], &along).reshape(whole.clone());
    let mut outputs = vec![highest.value];
    if cx.flag("return_indices") {
        outputs.push(best.reshape(whole).cast(cx.index).value);
    }
    Ok(outputs)
}
