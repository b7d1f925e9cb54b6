//! MLX.

mod windows;

use std::sync::OnceLock;

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::graph::{Function, Operation};
use mithril_ir::op::access::{Access, Attention, Library};
use mithril_ir::shape::Type;
use mithril_passes::profile;
use mithril_passes::target::{Language, Target};

use super::array_api;
use super::fourier::{complex_transform, inverse_real_transform, parts, real_transform};
use super::{Backend, Spellings};

pub static BACKEND: Backend = Backend {
    label: "MLX",
    target: Target {
        name: "mlx",
        takes: &|f, op| BACKEND.spells(op.op) && supports(f, op),
        pulls_back: &|_, _, by| BACKEND.spells(by),
        profile: profile::FRAMEWORK,
        language: Language::Python,
        bodies: &["mlx"],
        standard: |_| None,
    },
    takes_on_mesh: None,
    module: "mx",
    imports: &[],
    prelude: &[
        include_str!("prelude/mlx.py"),
        include_str!("prelude/mlx_indices.py"),
        include_str!("prelude/mlx_random.py"),
        include_str!("prelude/mlx_functions.py"),
        include_str!("prelude/mlx_matrices.py"),
    ],
    spellings: SPELLINGS,
    random: &[
        ("key_fold", "_folded({key}, {data.word})"),
        ("key_split", "@random.split({key}, {count})"),
        ("random_bits", "_bits({key}, {shape}, {dtype})"),
        (
            "uniform",
            "_uniform({key}, {shape}, {dtype}[, {low}, {high}]) if dtype is f64; \
             @random.uniform({low}, {high}, {shape}, {dtype}, {key})",
        ),
        (
            "normal",
            "_normal({key}, {shape}, {dtype}) if dtype is f64; \
             @random.normal({shape}, {dtype}, key={key})",
        ),
    ],
    in_place: &[],
    scalar: "@array({x}, dtype={dtype})",
    array: "@array({x}, dtype={dtype})",
    full: "@full({shape}, {x}, dtype={dtype})",
    zeros: "@zeros({shape}, dtype={dtype})",
    ones: "@ones({shape}, dtype={dtype})",
    load: "@array({x}, dtype={dtype})",
    load_bits: Some("@array({x}).view({dtype})"),
    truth: "bool_",
    foreign: None,
    dtypes: None,
    infinities: None,
    lacks: &[DType::I4, DType::U4, DType::F8E4M3, DType::F8E5M2],
    signed_sums: &[],
    devices: false,
    narrow: false,
    mixes: true,
    differentiates: true,
    differentiates_branches: true,
    loops: false,
    eager: false,
    lazy: false,
    known: OnceLock::new(),
};

/// Only the logits of the targets are read, so that no logarithms of the others are stored.
macro_rules! cross_entropy {
    ($target:literal, $filled:literal, $guard:literal) => {
        concat!(
            "@logsumexp({logits}, axis=-1) - @squeeze(@take_along_axis({logits}, @expand_dims(",
            $target,
            ", -1), axis=-1), -1) if logits is filled",
            $filled,
            "; _logsumexp({logits}, -1, False) - @squeeze(_take_along({logits}, @expand_dims(",
            $target,
            ", -1), -1), -1)",
            $guard
        )
    };
}

const CROSS_ENTROPY: &str = concat!(
    cross_entropy!(
        "_within({target}, {logits}, -1)",
        " and target is calculated",
        " if target is calculated; "
    ),
    cross_entropy!(
        "@stop_gradient({target})",
        " and target is computed",
        " if target is computed; "
    ),
    cross_entropy!("{target}", "", ""),
);

const SPELLINGS: Spellings = &[
    // MLX refuses rows without elements.
    (
        "add",
        "@addmm({bias}, {input}, {weights}) if result is linear and weights is filled; {x} + {y}",
    ),
    ("slice", "@split({x}, {parts}, axis={axes})[{part} / {parts}] if x is divided; {x}[{slices}]"),
    // MLX differentiates casts to integers as if these were floats.
    (
        "cast",
        "@stop_gradient({x}).astype({dtype}) if x is float and dtype is integer; \
         @stop_gradient({x}).astype({dtype}) if x is float and dtype is bool; \
         {x}.astype({dtype})",
    ),
    ("exp", "_exp({x}) if x is f64; @exp({x})"),
    ("sin", "_sin({x}) if x is f64; @sin({x})"),
    ("cos", "_cos({x}) if x is f64; @cos({x})"),
    ("erf", "_erf({x}) if x is f64; @erf({x})"),
    ("tan", "_tan({x}) if x is f64; @tan({x})"),
    ("erfinv", "_erf_inv({x}) if x is f64; @erfinv({x})"),
    ("sinc", "_sinc({x})"),
    ("logit", "_logit({x})"),
    ("xlogy", "_xlogy({x.array}, {y.array})"),
    ("floor_div", "_floor_div({x.array}, {y.array}) if x is float; {x} // {y}"),
    ("sign", "_sign({x}) if x is float; @sign({x})"),
    ("sigmoid", "_sigmoid({x}) if x is f64; @sigmoid({x})"),
    // Functions of `mlx.nn` differ: `nn.gelu` gives infinity for the largest floats, and `nn.elu`
    // loses the digits of small ones.
    ("silu", "{x} * _sigmoid({x}) if x is f64; {x} * @sigmoid({x})"),
    (
        "silu_gradient",
        "_silu_gradient({gradient}, {x}, _sigmoid({x})) if x is f64; \
         _silu_gradient({gradient}, {x}, @sigmoid({x}))",
    ),
    (
        "softplus",
        "_softplus({x}) if x is f64 and beta is default; \
         @logaddexp({x}, 0) if beta is default; \
         _softplus({x} * {beta}) / {beta} if x is f64; \
         @logaddexp({x} * {beta}, 0) / {beta}",
    ),
    ("elu", "_elu({x}[, {alpha}])"),
    ("selu", "1.0507009873554805 * _elu({x}, 1.6732632423543772)"),
    (
        "elu_gradient",
        "_elu_gradient({gradient}, {x}, _exp(@minimum(0, {x}))[, {alpha}]) if x is f64; \
         _elu_gradient({gradient}, {x}, @exp(@minimum(0, {x}))[, {alpha}])",
    ),
    ("mish", "{x} * @tanh(_softplus({x})) if x is f64; {x} * @tanh(@logaddexp({x}, 0))"),
    (
        "mish_gradient",
        "_mish_gradient({gradient}, {x}, _softplus({x}), _sigmoid({x})) if x is f64; \
         _mish_gradient({gradient}, {x}, @logaddexp({x}, 0), @sigmoid({x}))",
    ),
    ("relu", "@maximum({x}, 0)"),
    ("leaky_relu", "@where({x} > 0, {x}, {slope} * {x})"),
    (
        "clamp",
        "@maximum({x}, {min}) if max is default; \
         @minimum({x}, {max}) if min is default; \
         @clip({x}, {min}, {max})",
    ),
    (
        "sum",
        "_sum({x}, {axes}, {keepdim}[, {acc}]) if axes is vacant; \
         @sum({x}.astype(@float32)[, axis={axes}][, keepdims={keepdim}]).astype({dtype}) if x is \
         half and acc is missing; \
         @sum({x}[, axis={axes}][, keepdims={keepdim}]).astype({dtype}) if x is short and acc is \
         missing; \
         @sum({x}[, axis={axes}][, keepdims={keepdim}]) if acc is missing; \
         @sum({x}.astype({acc})[, axis={axes}][, keepdims={keepdim}]).astype({dtype})",
    ),
    (
        "prod",
        "@prod(_nonempty({x}, {axes}, 1)[, axis={axes}][, keepdims={keepdim}]).astype({dtype}) if \
         axes is vacant; \
         @prod({x}[, axis={axes}][, keepdims={keepdim}]).astype({dtype}) if x is short; \
         @prod({x}[, axis={axes}][, keepdims={keepdim}])",
    ),
    (
        "any",
        "@any(_nonempty({x}, {axes}, False)[, axis={axes}][, keepdims={keepdim}]) if axes is \
         vacant; \
         @any({x}[, axis={axes}][, keepdims={keepdim}])",
    ),
    (
        "all",
        "@all(_nonempty({x}, {axes}, True)[, axis={axes}][, keepdims={keepdim}]) if axes is \
         vacant; \
         @all({x}[, axis={axes}][, keepdims={keepdim}])",
    ),
    (
        "max",
        "@max(_nonempty({x}, {axes}, -@inf)[, axis={axes}][, keepdims={keepdim}]) if axes is \
         vacant and is_inf is reader; \
         @max({x}[, axis={axes}][, keepdims={keepdim}])",
    ),
    (
        "argmax",
        "@argmax({x}[, axis={axis}][, keepdims={keepdim}]).astype({dtype}) if x is filled; \
         _position(@argmax, {x}, {axis}, {keepdim}).astype({dtype})",
    ),
    (
        "argmin",
        "@argmin({x}[, axis={axis}][, keepdims={keepdim}]).astype({dtype}) if x is filled; \
         _position(@argmin, {x}, {axis}, {keepdim}).astype({dtype})",
    ),
    ("cumsum", "@cumsum({x}, axis={axis})"),
    ("cumprod", "@cumprod({x}, axis={axis})"),
    (
        "sort",
        "@sort({x}, axis={axis}) if descending is default; @flip(@sort({x}, axis={axis}), {axis})",
    ),
    (
        "argsort",
        "@argsort({x}, axis={axis}).astype({dtype}) if descending is default; \
         _argsort({x}, {axis}).astype({dtype})",
    ),
    (
        "mean",
        "_mean({x}, {axes}, {keepdim}) if axes is vacant; \
         @mean({x}.astype(@float32)[, axis={axes}][, keepdims={keepdim}]).astype({dtype}) if x is \
         half; \
         @mean({x}[, axis={axes}][, keepdims={keepdim}])",
    ),
    (
        "variance",
        "_variance({x}, {axes}, {correction}, {keepdim}) if x is half; \
         _variance({x}, {axes}, {correction}, {keepdim}) if axes is vacant; \
         @var({x}[, axis={axes}][, keepdims={keepdim}]) if correction is default; \
         @var({x}[, axis={axes}][, keepdims={keepdim}], ddof=1) if correction == 1.0; \
         _variance({x}, {axes}, {correction}, {keepdim})",
    ),
    (
        "logsumexp",
        "@logsumexp({x}[, axis={axes}][, keepdims={keepdim}]) if x is filled; \
         _logsumexp({x}, {axes}, {keepdim})",
    ),
    (
        "softmax",
        "@softmax({x}, axis={axis}, precise=True) if x is half; @softmax({x}, axis={axis})",
    ),
    (
        "log_softmax",
        "{x} - @logsumexp({x}, axis={axis}, keepdims=True) if x is filled; \
         _log_softmax({x}, {axis})",
    ),
    ("cross_entropy", CROSS_ENTROPY),
    ("layer_norm", "@fast.layer_norm({x}, {weight}, {bias}, {epsilon})"),
    ("rms_norm", "@fast.rms_norm({x}, {weight}, {epsilon})"),
    (
        "attention",
        "_attention({query}, {key}, {value}, {mask}, {query.last} ** -0.5[, {causal}]) if mask is \
         array and scale is default; \
         _attention({query}, {key}, {value}, {mask}, {scale}[, {causal}]) if mask is array; \
         @fast.scaled_dot_product_attention({query}, {key}, {value}, scale={query.last} ** -0.5, \
         mask=\"causal\") if scale is default and causal == True; \
         @fast.scaled_dot_product_attention({query}, {key}, {value}, scale={query.last} ** -0.5) \
         if scale is default; \
         @fast.scaled_dot_product_attention({query}, {key}, {value}, scale={scale}, \
         mask=\"causal\") if causal == True; \
         @fast.scaled_dot_product_attention({query}, {key}, {value}, scale={scale})",
    ),
    (
        "dot_general",
        "{x} * {y} if result is scaled; \
         _products({equation}, {x}, {y}) if x is integer; \
         {left} @ {right} if result is matmul and acc is missing; \
         ({left}.astype({acc}) @ {right}.astype({acc})).astype({dtype}) if result is matmul; \
         @einsum({equation}, {x}, {y}) if acc is missing; \
         @einsum({equation}, {x}.astype({acc}), {y}.astype({acc})).astype({dtype})",
    ),
    ("matmul", "{x} @ {y}"),
    (
        "iota",
        "@arange({shape.one}, dtype={dtype}) if shape is single; \
         _iota({shape}, {axis}, {dtype})",
    ),
    (
        "sum_to",
        "_sum_to({x}, {shape}) if x is half; \
         _sum_to({x}, {shape}) if x is short; \
         @sum({x}, axis={summed}[, keepdims={kept}]) if result is summed and x is filled; \
         _sum_to({x}, {shape})",
    ),
    (
        "pad",
        "{x} if x is scalar; \
         @pad({x}, {widths}) if value is zero and low is natural and high is natural and interior \
         is default; \
         @pad({x}, {widths}, constant_values={value.number}) if value is number and low is natural \
         and high is natural and interior is default; \
         _pad({x}, {value.number}, {padding})",
    ),
    (
        "take",
        "{x}[_within({indices}, {x}, {axis})] if axis == 0 and x is filled and indices is \
         calculated; \
         @take({x}, _within({indices}, {x}, {axis}), axis={axis}) if x is filled and indices is \
         calculated; \
         _take({x}, _within({indices}, {x}, {axis}), {axis}) if indices is calculated; \
         {x}[@stop_gradient({indices})] if axis == 0 and x is filled and indices is computed; \
         {x}[{indices}] if axis == 0 and x is filled; \
         @take({x}, @stop_gradient({indices}), axis={axis}) if x is filled and indices is \
         computed; \
         @take({x}, {indices}, axis={axis}) if x is filled; \
         _take({x}, {indices}, {axis})",
    ),
    (
        "take_along",
        "@take_along_axis({x}, _within({indices}, {x}, {axis}), axis={axis}) if x is filled and \
         indices is calculated; \
         _take_along({x}, _within({indices}, {x}, {axis}), {axis}) if indices is calculated; \
         @take_along_axis({x}, @stop_gradient({indices}), axis={axis}) if x is filled and indices \
         is computed; \
         @take_along_axis({x}, {indices}, axis={axis}) if x is filled; \
         _take_along({x}, {indices}, {axis})",
    ),
    (
        "scatter_add",
        "{x}.at[_within({indices}, {x}, {axis})].add({updates}) if axis == 0 and updates is \
         filled and indices is calculated; \
         _scatter_add({x}, _within({indices}, {x}, {axis}), {updates}, {axis}) if indices is \
         calculated; \
         {x}.at[@stop_gradient({indices})].add({updates}) if axis == 0 and updates is filled and \
         indices is computed; \
         {x}.at[{indices}].add({updates}) if axis == 0 and updates is filled; \
         _scatter_add({x}, {indices}, {updates}, {axis})",
    ),
    (
        "scatter_add_along",
        "_scatter_add_along({x}, _within({indices}, {x}, {axis}), {updates}, {axis}) if \
         indices is calculated; \
         _scatter_add_along({x}, {indices}, {updates}, {axis})",
    ),
    (
        "scatter_mul_along",
        "_scatter_mul_along({x}, _within({indices}, {x}, {axis}), {updates}, {axis}) if \
         indices is calculated; \
         _scatter_mul_along({x}, {indices}, {updates}, {axis})",
    ),
    (
        "scatter_max_along",
        "_scatter_max_along({x}, _within({indices}, {x}, {axis}), {updates}, {axis}) if \
         indices is calculated; \
         _scatter_max_along({x}, {indices}, {updates}, {axis})",
    ),
    (
        "scatter_min_along",
        "_scatter_min_along({x}, _within({indices}, {x}, {axis}), {updates}, {axis}) if \
         indices is calculated; \
         _scatter_min_along({x}, {indices}, {updates}, {axis})",
    ),
    ("slice_update", "_slice_update({x}, {bounds}, {update})"),
    (
        "windows",
        "_windows({x}, {axes.tuple}, {sizes.tuple}[, strides={strides.tuple}][, \
         dilations={dilations.tuple}])",
    ),
    ("skew", "_skew({x}, {axes.tuple}, {taps.tuple}, {shifts.tuple})"),
    ("conv", windows::CONV),
    ("biased_conv", windows::BIASED_CONV),
    array_api::MAX_POOL,
    ("grouped_matmul", "_grouped_matmul({x}, {w}, {group})"),
    ("grouped_outer", "_grouped_outer({x}, {y}, {group}, {groups})"),
    ("stop_gradient", "@stop_gradient({x})"),
    ("diagonal", "_diagonal({x}[, {offset}])"),
    ("cholesky", "_cholesky({x})"),
    (
        "triangular_solve",
        "_triangular_solve({a}, {b}, {lower}[, transposed={transposed}][, \
         unit_diagonal={unit_diagonal}])",
    ),
    ("solve", "_solve({a}, {b})"),
    ("det", "_det({x})"),
    ("slogdet", "_slogdet({x})[{of} / 2]"),
    ("qr", "_qr({x})[{of} / 2]"),
    ("eigh", "_eigh({x})[{of} / 2]"),
    ("eigvalsh", ""),
    ("svd", "_svd({x})[{of} / 3]"),
    ("matrix_power", ""),
    (
        "fft",
        concat!(
            "_fourier({real}, {imaginary}[, n={size.one}][, axis={axis}][, norm={norm}])[{of} / 2] if real is f64; ",
            complex_transform!(
                "@fft.fft(",
                "{real} + 1j * {imaginary}",
                "{real} + 1j * {imaginary}",
                "{real}",
                "[, n={size.one}][, axis={axis}][, norm={norm}])",
                ".astype({dtype})",
                ""
            )
        ),
    ),
    (
        "inverse_fft",
        concat!(
            "_fourier({real}, {imaginary}[, n={size.one}][, axis={axis}][, norm={norm}], inverse=True)[{of} / 2] if real is f64; ",
            complex_transform!(
                "@fft.ifft(",
                "{real} + 1j * {imaginary}",
                "{real} + 1j * {imaginary}",
                "{real}",
                "[, n={size.one}][, axis={axis}][, norm={norm}])",
                ".astype({dtype})",
                ""
            )
        ),
    ),
    (
        "real_fft",
        concat!(
            "_real_fourier({x}[, n={size.one}][, axis={axis}][, norm={norm}])[{of} / 2] if x is f64; ",
            real_transform!(
                "@fft.rfft(",
                "{x}.astype(@float32)",
                "[, n={size.one}][, axis={axis}][, norm={norm}])",
                ".astype({dtype})",
                ""
            )
        ),
    ),
    (
        "inverse_real_fft",
        concat!(
            "_inverse_real_fourier({real}, {imaginary}[, n={size.one}][, axis={axis}][, norm={norm}]) if real is f64; ",
            inverse_real_transform!(
                "@fft.irfft(",
                "{real} + 1j * {imaginary}",
                "{real} + 1j * {imaginary}",
                "{real}",
                "[, n={size.one}][, axis={axis}][, norm={norm}])",
                ".astype({dtype})",
                ""
            )
        ),
    ),
];

/// Composites that MLX computes in single precision even for f64.
const SINGLE: [&str; 6] =
    ["logsumexp", "softmax", "log_softmax", "cross_entropy", "layer_norm", "rms_norm"];

/// Whether MLX's function computes this use of the operation as it is defined.
fn supports(function: &Function, op: &Operation) -> bool {
    let dtype = op.operands.first().map(|v| function.ty(*v).dtype);
    let empty = || {
        let mut dims = op.operands.iter().flat_map(|v| &function.ty(*v).shape.dims);
        dims.any(|dim| dim.as_const() == Some(0))
    };
    match (op.op.access, op.op.name) {
        (Access::Library(Library::Attention(kind)), _) => {
            dtype != Some(DType::F64) && kind == Attention::Output && has_kernel(function, op)
        }
        (_, "matmul") => dtype.is_some_and(DType::is_float),
        // MLX refuses arrays without elements.
        (_, name) => !SINGLE.contains(&name) || (dtype != Some(DType::F64) && !empty()),
    }
}

/// Whether `mx.fast` has this attention: of rank 4. Its causal mask is aligned with the last query
/// and key, so that without another mask, there must be as many keys as queries.
fn has_kernel(function: &Function, op: &Operation) -> bool {
    let default = |name| matches!(op.attr(name), Attr::None);
    let plain = ["softcap", "left", "right"].into_iter().all(default);
    let grouped = matches!(op.attr("grouped"), Attr::Bool(true));
    let causal = matches!(op.attr("causal"), Attr::Bool(true));
    let mask = op.operand_index("mask").map(|at| function.ty(op.operands[at]));
    let [q, k, v] = [0, 1, 2].map(|i| &function.ty(op.operands[i]).shape);
    let ranks = [q, k, v].iter().all(|shape| shape.rank() == Some(4));
    let fits = |q: &[Dim], k: &[Dim], v: &[Dim]| {
        let heads = (grouped || q[1] == k[1]) && k[1] == v[1];
        let batch = q[0] == k[0] && q[0] == v[0];
        let some = q.iter().chain(k).chain(v).all(|dim| dim.as_const() != Some(0));
        some && heads && batch && (mask.is_some() || !causal || q[2] == k[2])
    };
    let is_known = mask.is_none_or(|mask| takes_mask(mask, function.ty(op.operands[0]).dtype));
    let has_sink = op.operand_index("sink").is_some();
    plain && !has_sink && is_known && ranks && fits(&q.dims, &k.dims, &v.dims)
}

/// Whether `mx.fast` takes this mask: of bools, or of the dtype of the query.
fn takes_mask(mask: &Type, query: DType) -> bool {
    let has_keys = mask.shape.dims.last().is_some_and(|dim| dim.as_const() != Some(0));
    (mask.dtype == DType::Bool || mask.dtype == query) && has_keys && mask.shape.lead.is_none()
}
